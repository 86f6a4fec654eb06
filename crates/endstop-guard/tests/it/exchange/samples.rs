//! Recorded requests of real clients, each with the place that it must get.

use super::client::{Table, salt, turn};
use endstop_guard::exchange::Delivery::{Events, Frames, Whole};
use endstop_guard::exchange::{Call, ClientFacts, Placed, Request, Route, RunSource, route};
use endstop_wire::WireFormat;
use serde_json::{Value, json};
use std::path::Path;

/// A call that the model asks for: id, name, arguments.
type Asked = (&'static str, &'static str, &'static str);

/// A model call of a recording: its place, and the calls of the model's answer.
struct Step(&'static str, &'static [Asked]);

const NONE: &[Asked] = &[];
const AGENTS: &[Asked] = &[
    (
        "call_d96ca4a184324daea1a8",
        "Agent",
        r#"{"prompt":"SUBTASK-0: echo hello from sub 0 and report"}"#,
    ),
    (
        "call_32e5e9b88fa24a378c98",
        "Agent",
        r#"{"prompt":"SUBTASK-1: echo hello from sub 1 and report"}"#,
    ),
];
const TASKS: &[Asked] =
    &[("call_c2b2ccb4d8384684924d", "task", "{}"), ("call_c92f00607d0f47f8aa95", "task", "{}")];

/// The places, as `run thread parent kind turn attempt history results`. A run in brackets is found
/// by the API key.
const RECORDED: &[(&str, &[Step])] = &[
    (
        "claude-3-turns",
        &[
            Step(
                "ce7b5944-47a7-48a5-8225-cb5bca6eaa75 session - Main 1 First New 0",
                &[("toolu_46191d79c1fe4607862e", "Bash", "{}")],
            ),
            // One call between them is not in the recording.
            Step("ce7b5944-47a7-48a5-8225-cb5bca6eaa75 session - Main 2 First Grown 1", NONE),
        ],
    ),
    (
        "claude-bedrock",
        &[
            Step("18a15c55-9734-4aec-aeda-d741735728e2 session - Auxiliary 0 First Grown 0", NONE),
            Step("18a15c55-9734-4aec-aeda-d741735728e2 session - Main 1 First New 0", NONE),
        ],
    ),
    (
        "claude-compaction",
        &[
            Step("42344c47-0137-4436-974e-d8a57eb2dbe6 session - Main 1 First New 0", NONE),
            Step(
                "42344c47-0137-4436-974e-d8a57eb2dbe6 session - Compaction { offers_tools: true } 0 First Grown 0",
                NONE,
            ),
            Step("42344c47-0137-4436-974e-d8a57eb2dbe6 session - Main 2 First Rewritten 0", NONE),
        ],
    ),
    (
        "claude-oauth",
        &[Step("55789f48-f4d3-43be-bee0-76dbeb38dc89 session - Main 1 First New 0", NONE)],
    ),
    (
        "claude-subagents",
        &[
            Step("91768a7e-e2f7-4e44-b604-8808a18290ce session - Main 1 First New 0", AGENTS),
            Step("91768a7e-e2f7-4e44-b604-8808a18290ce session - Main 2 First Grown 2", NONE),
            Step(
                "91768a7e-e2f7-4e44-b604-8808a18290ce agent-a74a1c87878960a3b session Sub 1 First New 0",
                NONE,
            ),
            Step(
                "91768a7e-e2f7-4e44-b604-8808a18290ce agent-aa793b71afd632ca5 session Sub 1 First New 0",
                NONE,
            ),
            // The main thread had answered in text, and is called again when its agents are done.
            Step("91768a7e-e2f7-4e44-b604-8808a18290ce session - Main 3 First Grown 0", NONE),
        ],
    ),
    (
        "codex-3-turns",
        &[
            Step(
                "01a20238-405f-7a21-9298-c781e4bd984f thread - Main 1 First New 0",
                &[("call_272a31e7b5f44b49b84b", "exec_command", "{}")],
            ),
            Step("01a20238-405f-7a21-9298-c781e4bd984f thread - Main 2 First Grown 1", NONE),
        ],
    ),
    (
        "codex-chatgpt-login",
        &[Step("01a2026f-3fef-7441-91e6-13853f3c6a41 thread - Main 1 First New 0", NONE)],
    ),
    (
        "codex-compaction",
        &[
            Step(
                "01a20260-1170-7c91-abb1-ee41301101df thread - Compaction { offers_tools: false } 0 First Grown 0",
                NONE,
            ),
            Step("01a20260-1170-7c91-abb1-ee41301101df thread - Main 1 First New 0", NONE),
        ],
    ),
    (
        "codex-subagent",
        &[Step(
            "01a2024d-4521-7c00-b27c-e24cb14774f4 thread-01a2024d-45cf-7f52-870d-a434507adf92 \
             thread Sub 1 First New 0",
            NONE,
        )],
    ),
    (
        "gemini-3-turns",
        &[
            Step("[1] first - Auxiliary 0 First Grown 0", NONE),
            Step("[1] first - Main 1 First New 0", &[("made_1", "run_shell_command", "{}")]),
            Step("[1] first - Main 2 First Grown 1", NONE),
        ],
    ),
    (
        "gemini-subagents",
        &[
            Step("[1] first - Main 1 First New 0", &[("made_1", "run_shell_command", "{}")]),
            Step("[1] first - Main 2 First Grown 1", NONE),
            // The text answer is followed by "one final chance".
            Step("[1] first - Main 3 First Grown 0", NONE),
        ],
    ),
    (
        "opencode-anthropic",
        &[Step("ses_dfdc656d1ffevPuCww1pehfRDK session - Main 1 First New 0", NONE)],
    ),
    (
        "opencode-subagents",
        &[
            Step("ses_dfd9f1606ffe9KMWkxbF8sn5mG session - Auxiliary 0 First Grown 0", NONE),
            Step("ses_dfd9f1606ffe9KMWkxbF8sn5mG session - Main 1 First New 0", TASKS),
            Step(
                "ses_dfd9f1606ffe9KMWkxbF8sn5mG session-ses_dfd9f08bbffeALuVY9lFCo24vL session \
                 Sub 1 First New 0",
                NONE,
            ),
            Step("ses_dfd9f1606ffe9KMWkxbF8sn5mG session - Main 2 First Grown 2", NONE),
        ],
    ),
    ("pi-chat", &[Step("[1] first - Main 1 First New 0", NONE)]),
    (
        "qwen-subagents",
        &[
            Step("[1] first - Main 1 First New 0", AGENTS),
            Step("[1] other first Sub 1 First New 0", NONE),
            Step("[1] first - Main 2 First Grown 0", NONE),
        ],
    ),
    ("sdk-google-genai", &[Step("[1] first - Main 1 First New 0", NONE)]),
    (
        "sdk-retry",
        &[
            Step("[1] first - Main 1 First New 0", NONE),
            Step("[1] first - Main 1 Repeat Grown 0", NONE),
        ],
    ),
];

/// Puts back what the recording left out: tools by their names, and skipped messages, which begin
/// with those of the request before.
fn restore(format: WireFormat, body: &mut Value, before: &Value) {
    if let Some(names) = body["tools"].as_str().and_then(|text| text.strip_prefix("names only: ")) {
        let names: Vec<&str> = names.split(", ").filter(|name| !name.starts_with('…')).collect();
        let tool = |name: &&str| match format {
            WireFormat::OpenAiChat => json!({"type": "function", "function": {"name": name}}),
            WireFormat::OpenAiResponses => json!({"type": "function", "name": name}),
            WireFormat::Gemini => json!({"functionDeclarations": [{"name": name}]}),
            _ => json!({"name": name}),
        };
        body["tools"] = names.iter().map(tool).collect();
    }
    for list in ["messages", "input", "contents"] {
        let Some(messages) = body[list].as_array_mut() else { continue };
        let skipped = |message: &Value| {
            message.as_str()?.strip_prefix("… ")?.split(' ').next()?.parse::<usize>().ok()
        };
        while let Some((at, n)) =
            messages.iter().enumerate().find_map(|(i, m)| Some((i, skipped(m)?)))
        {
            let filler = match format {
                WireFormat::OpenAiResponses => json!({"type": "reasoning", "summary": []}),
                _ => json!({"role": "assistant", "content": "skipped"}),
            };
            let known = |at: usize| before[list].get(at).cloned().unwrap_or_else(|| filler.clone());
            messages.splice(at..=at, (at..at + n).map(known));
        }
    }
}

struct Recorded {
    route: Route,
    facts: ClientFacts,
    body: Option<Vec<u8>>,
    has_failed: bool,
}

fn recorded(name: &str) -> Vec<Recorded> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/requests");
    let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let mut out = Vec::new();
    let mut before = Value::Null;
    for request in file["requests"].as_array().unwrap() {
        // Messages on a WebSocket have no request line.
        let Some(target) = request["path"].as_str() else { continue };
        let route = route(request["method"].as_str().unwrap(), target).unwrap();
        let headers: Vec<(String, String)> =
            serde_json::from_value(request["headers"].clone()).unwrap();
        let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let facts = ClientFacts::read(headers, target, &salt());
        let body = request.get("body").map(|body| {
            let mut body = body.clone();
            if let Call::Model { format, .. } = route.call {
                restore(format, &mut body, &before);
                before = body.clone();
            }
            body.to_string().into_bytes()
        });
        let has_failed = request["status_answered"].as_u64().is_some_and(|status| status >= 400);
        out.push(Recorded { route, facts, body, has_failed });
    }
    out
}

fn described(placed: &Placed, runs: &mut Vec<String>) -> String {
    let run = placed.seat.run.id().to_owned();
    let run = if placed.seat.run.source() == RunSource::Key {
        let known = runs.iter().position(|one| *one == run).unwrap_or_else(|| {
            runs.push(run);
            runs.len() - 1
        });
        format!("[{}]", known + 1)
    } else {
        run
    };
    let parent = placed.parent.as_ref().map_or("-", |parent| parent.as_str());
    format!(
        "{run} {} {parent} {:?} {} {:?} {:?} {}",
        placed.seat.thread,
        placed.kind,
        placed.turn,
        placed.attempt,
        placed.history,
        placed.results.len()
    )
}

/// Shortens threads that are named by the session or by the beginning of the conversation.
fn short(described: &str) -> String {
    let words: Vec<&str> = described.split(' ').collect();
    let run = words[0];
    let word = |word: &&str| match word.split_once('-') {
        Some((kind @ ("session" | "thread"), id)) if id == run => kind.to_owned(),
        Some(("first", _)) => "first".to_owned(),
        _ => (*word).to_owned(),
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn recorded_calls_get_their_places() {
    for (name, steps) in RECORDED {
        let mut table = Table::new();
        let mut runs = Vec::new();
        let calls: Vec<Recorded> = recorded(name)
            .into_iter()
            .filter(|one| matches!(one.route.call, Call::Model { .. }) && !one.facts.websocket)
            .collect();
        assert_eq!(calls.len(), steps.len(), "{name}");
        let mut firsts: Vec<String> = Vec::new();
        for (at, (call, Step(expected, asked))) in calls.iter().zip(*steps).enumerate() {
            let request = Request::read(&call.route, call.body.as_ref().unwrap()).unwrap();
            let placed = table.0.place(&call.facts, &call.route, &request).unwrap();
            let mut found = short(&described(&placed, &mut runs));
            // A second thread of the same kind is `other`.
            let thread = placed.seat.thread.to_string();
            if thread.starts_with("first-") {
                if !firsts.contains(&thread) {
                    firsts.push(thread.clone());
                }
                if firsts[0] != thread {
                    found = found.replacen("first", "other", 1);
                }
            }
            assert_eq!(found, *expected, "{name}, call {at}");
            if call.has_failed {
                table.0.failed(&placed.seat, placed.kind);
            } else {
                table.0.answered(&placed.seat, placed.kind, &turn(asked));
            }
        }
    }
}

#[test]
fn every_recording_is_tested() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/requests");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let name = name.trim_end_matches(".json");
        // The WebSocket is refused, so its messages never arrive.
        assert!(
            name == "codex-websocket" || RECORDED.iter().any(|(known, _)| *known == name),
            "{name}"
        );
    }
}

#[test]
fn recorded_other_calls_have_their_kinds() {
    let kinds =
        |name: &str| -> Vec<Call> { recorded(name).iter().map(|one| one.route.call).collect() };
    assert_eq!(kinds("claude-3-turns")[0], Call::Hello);
    assert_eq!(kinds("codex-chatgpt-login")[..2], [Call::Models, Call::Other]);
    assert_eq!(kinds("claude-bedrock")[0], Call::Other);
    assert!(recorded("codex-websocket")[0].facts.websocket);
}

#[test]
fn recorded_requests_are_read() {
    let read = |name: &str, at: usize| {
        let one = recorded(name).remove(at);
        let body = one.body.unwrap();
        let request = Request::read(&one.route, &body).unwrap();
        (
            request.delivery,
            request.model.clone().unwrap_or_default(),
            request.output_cap,
            request.tools.len(),
            request.structured.is_some(),
            request.usage_requested,
        )
    };
    let opus = "claude-opus-5-5".to_owned();
    assert_eq!(read("claude-3-turns", 1), (Events, opus, Some(128_000), 10, false, true));
    let flash = "gemini-3.5-flash-lite".to_owned();
    assert_eq!(read("gemini-3-turns", 0), (Whole, flash, None, 0, true, true));
    let flash = "gemini-3.8-flash".to_owned();
    assert_eq!(read("gemini-3-turns", 1), (Events, flash, None, 9, false, true));
    let opus = "us.anthropic.claude-opus-5-5".to_owned();
    assert_eq!(read("claude-bedrock", 2), (Frames, opus, Some(128_000), 10, false, true));
    let codex = "gpt-5.1-codex".to_owned();
    assert_eq!(read("codex-3-turns", 0), (Events, codex, None, 7, false, true));
    assert_eq!(read("pi-chat", 0), (Events, "mock-model".to_owned(), Some(8000), 4, false, true));
    let gpt = "gpt-4o".to_owned();
    assert_eq!(read("sdk-retry", 0), (Whole, gpt, None, 1, false, true));
}

#[test]
fn known_clients_and_keys_are_recognised() {
    let facts = |name: &str, at: usize| recorded(name).remove(at).facts;
    let client = |name: &str, at: usize| facts(name, at).client.map(|client| client.name);
    assert_eq!(client("claude-oauth", 0), Some("Claude Code"));
    assert_eq!(client("codex-subagent", 0), Some("codex"));
    assert_eq!(client("opencode-anthropic", 0), Some("opencode"));
    assert_eq!(client("gemini-3-turns", 0), Some("Gemini CLI"));
    assert_eq!(client("qwen-subagents", 0), Some("Qwen Code"));
    assert_eq!(client("pi-chat", 0), None);
    assert!(facts("claude-oauth", 0).subscription);
    assert!(facts("codex-chatgpt-login", 2).subscription);
    assert!(!facts("claude-3-turns", 1).subscription);
    // Signatures differ from call to call, the account does not.
    let keys = [1, 2].map(|at| facts("claude-bedrock", at).key.unwrap());
    assert_eq!(keys[0], keys[1]);
}

/// Real clients send nothing that a strict ceiling refuses; codex is started without the search of its provider.
#[test]
fn bodies_of_real_clients_have_a_bound() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let text = std::fs::read_to_string(folder.join("bodies.json")).unwrap();
    let clients: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert!(clients.len() > 15);
    for client in clients {
        for sent in client["requests"].as_array().unwrap() {
            let route = route("POST", sent["path"].as_str().unwrap()).unwrap();
            let body = sent["body"].to_string();
            let request = Request::read(&route, body.as_bytes()).unwrap();
            assert_eq!(request.unbounded(), None, "{}: {body}", client["client"]);
        }
    }
    for (name, _) in RECORDED {
        for one in recorded(name) {
            let (Call::Model { .. }, Some(body)) = (one.route.call, one.body) else { continue };
            let request = Request::read(&one.route, &body).unwrap();
            assert_eq!(request.unbounded(), None, "{name}");
        }
    }
}
