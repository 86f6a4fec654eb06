//! Scenarios in which other agents end wrongly, and how runs end here. `docs/src/scenarios.md`
//! lists them with the test that covers each.

mod answers;
mod cancelling;
mod compaction;
mod history;
mod limits;

use endstop::event::AgentEvent;
use endstop::testkit::{Reply, Server, Turn, strict};
use endstop::{AgentBuilder, Outcome, RunHandle, ToolResult};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A server that sends its replies in turn, and refuses requests that a provider would refuse.
pub struct Strict {
    server: Server,
    refused: Arc<Mutex<Vec<String>>>,
    api: &'static str,
}

/// The formats with the strictest rules, which include those of the others.
pub const STRICT: [&str; 2] = ["openai-chat", "anthropic-messages"];

impl Strict {
    pub fn new(api: &'static str, turns: impl IntoIterator<Item = Turn>) -> Strict {
        let turns: Vec<Turn> = turns.into_iter().collect();
        Strict::answering(api, move |number| turns[number.min(turns.len()) - 1].clone())
    }

    pub fn answering(
        api: &'static str,
        turn: impl Fn(usize) -> Turn + Send + Sync + 'static,
    ) -> Strict {
        let refused = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&refused);
        let server = Server::start(move |request| {
            if let Some(problem) = strict::problem(api, &request.body) {
                seen.lock().unwrap().push(format!("{problem}: {}", request.body["messages"]));
                return Reply::new(400, "application/json", r#"{"error": {"message": "refused"}}"#);
            }
            Reply::turn(request, &turn(usize::try_from(request.number).unwrap()))
        })
        .unwrap();
        Strict { server, refused, api }
    }

    pub fn agent(&self) -> AgentBuilder {
        crate::support::over(&self.server, self.api)
    }

    /// Asserts that a provider would accept everything that was sent.
    pub fn accepted_all(&self) {
        let refused = self.refused.lock().unwrap();
        assert!(refused.is_empty(), "{}: {refused:?}", self.api);
    }
}

/// Returns the results of the calls, in order.
fn results(outcome: &Outcome) -> Vec<ToolResult> {
    crate::support::results(outcome).into_iter().cloned().collect()
}

/// Returns all events up to the end, and the outcome.
pub async fn events(mut handle: RunHandle) -> (Vec<AgentEvent>, Outcome) {
    let mut events = Vec::new();
    while let Some(event) = handle.next().await {
        events.push(event);
    }
    (events, handle.await)
}

fn source(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[test]
fn every_row_names_existing_tests() {
    let page = source("docs/src/scenarios.md");
    let mut rows = 0;
    for line in page.lines().filter(|line| line.starts_with("| ") && line.contains(".rs`")) {
        rows += 1;
        let tests = line.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let (mut file, mut named) = (None, 0);
        for word in tests.split('`').skip(1).step_by(2) {
            if word.ends_with(".rs") {
                file = Some(source(word));
                continue;
            }
            named += 1;
            let file = file.as_ref().unwrap_or_else(|| panic!("no file before `{word}`: {line}"));
            assert!(file.contains(&format!("fn {word}(")), "there is no test `{word}`: {line}");
        }
        assert!(named > 0, "{line}");
    }
    assert!(rows >= 44, "{rows} rows");
    // The page lists every scenario test.
    for room in ["answers", "cancelling", "compaction", "history", "limits"] {
        let text = source(&format!("crates/endstop/tests/it/scenarios/{room}.rs"));
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if !(line.starts_with("#[test]") || line.starts_with("#[tokio::test")) {
                continue;
            }
            let name = lines.find_map(|line| line.split("fn ").nth(1)).unwrap();
            let name = name.split('(').next().unwrap();
            assert!(page.contains(&format!("`{name}`")), "`{name}` is not on the page");
        }
    }
}
