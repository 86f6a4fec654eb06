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

/// Time after which a test counts as hanging. Long, because a busy machine may stop a test for seconds.
pub const HANG: Duration = Duration::from_secs(60);

/// Waits until a condition holds; fails after [`HANG`].
pub async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < HANG, "after {HANG:?} still not: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// An address that refuses connections while this exists: the local end of a connection, on which
/// nothing listens. A port that is merely free may be given to another test's server.
pub struct Refusing {
    pub address: String,
    _ends: (std::net::TcpListener, std::net::TcpStream),
}

impl Refusing {
    pub fn new() -> Refusing {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        Refusing { address: stream.local_addr().unwrap().to_string(), _ends: (listener, stream) }
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
