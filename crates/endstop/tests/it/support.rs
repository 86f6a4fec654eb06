//! Shared helpers: agents with scripts and servers, waiting for a condition, and finding processes.

use endstop::provider::http::HttpProvider;
use endstop::testkit::{ScriptedModel, Server, Turn};
use endstop::{Agent, AgentBuilder, Outcome, Termination, ToolResult, ToolStatus};
use serde_json::json;
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
    let options = HttpProvider::builder("script").api(api).base_url(base_url);
    Agent::builder(options.env(|_| None).build().unwrap())
}

/// Returns the results of all calls, in the order of the conversation.
pub fn results(outcome: &Outcome) -> Vec<&ToolResult> {
    outcome.messages.iter().flat_map(|message| message.tool_results()).collect()
}

/// Returns the status and the text of each result.
pub fn answers(outcome: &Outcome) -> Vec<(ToolStatus, String)> {
    let results = results(outcome).into_iter();
    results.map(|result| (result.status, result.content.clone())).collect()
}

/// A script of two turns: a call of the tool `look`, and an answer in two pieces.
pub fn looks_once() -> Vec<Turn> {
    vec![
        Turn::call("look", &json!({"at": "it"})).reasoning("hm").usage(10, 5),
        Turn::pieces(&["It is ", "there."]).usage(20, 4),
    ]
}

/// Asserts that [`looks_once`] was played to its end.
pub fn assert_looked(outcome: &Outcome) {
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    assert_eq!(outcome.last_text.as_deref(), Some("It is there."));
    assert_eq!((outcome.turns, outcome.tool_calls), (2, 1));
    assert_eq!((outcome.usage.input_tokens, outcome.usage.output_tokens), (Some(30), Some(9)));
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
