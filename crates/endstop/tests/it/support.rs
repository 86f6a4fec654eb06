//! Shared helpers: agents with scripts and servers, waiting for a condition, and finding processes.

use endstop::provider::http::{HttpOptions, HttpProvider};
use endstop::testkit::{ScriptedModel, Server, Turn};
use endstop::{Agent, AgentBuilder};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// An agent with a scripted model.
pub fn agent(turns: impl IntoIterator<Item = Turn>) -> AgentBuilder {
    Agent::builder(ScriptedModel::new(turns))
}

/// An agent with a scripted server, in a wire format.
pub fn over(server: &Server, api: &str) -> AgentBuilder {
    at(&server.base_url(), api)
}

/// An agent with the server at an address.
pub fn at(base_url: &str, api: &str) -> AgentBuilder {
    let options = HttpOptions {
        model: "script".to_owned(),
        api: Some(api.to_owned()),
        base_url: Some(base_url.to_owned()),
        ..HttpOptions::default()
    };
    Agent::builder(HttpProvider::new(&options, &|_| None).unwrap())
}

/// Waits until a condition holds; fails after ten seconds.
pub async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(10), "after ten seconds still not: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Returns a string that no other process has in its environment.
pub fn marker() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("endstop-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns the number of processes, except zombies, with `MARK=mark` in their environment.
pub fn processes_with(mark: &str) -> usize {
    let wanted = format!("MARK={mark}");
    let Ok(entries) = std::fs::read_dir("/proc") else { return 0 };
    entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit()))
        .filter(|entry| {
            let zombie = std::fs::read_to_string(entry.path().join("stat"))
                .is_ok_and(|stat| stat.rsplit(')').next().unwrap_or("").trim().starts_with('Z'));
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            !zombie && environment.split(|byte| *byte == 0).any(|var| var == wanted.as_bytes())
        })
        .count()
}
