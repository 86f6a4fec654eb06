//! Properties over arbitrary and hostile input: no panic, bounded work, stable decisions.

use super::answers::{STAMP, reply_to};
use super::client::salt;
use endstop_core::ModelTurn;
use endstop_guard::exchange::answer::{AnswerFormat, Ending, final_turn, refusal};
use endstop_guard::exchange::{
    Attempt, ClientFacts, Request, Threads, Unreadable, cap_output, route,
};
use endstop_wire::dialect::CapField;
use proptest::prelude::*;
use serde_json::{Value, json};

const TARGETS: [&str; 8] = [
    "/run/a/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1beta/models/g:generateContent",
    "/v1beta/models/g:streamGenerateContent?alt=sse",
    "/model/m/converse-stream",
    "/model/m/invoke",
    "/api/chat",
];

/// Words that the readers look for.
const WORDS: &[&str] = &[
    "role",
    "content",
    "type",
    "text",
    "user",
    "assistant",
    "tool",
    "tool_calls",
    "id",
    "function",
    "name",
    "arguments",
    "tool_call_id",
    "tool_use",
    "tool_result",
    "tool_use_id",
    "input",
    "output",
    "messages",
    "contents",
    "parts",
    "functionCall",
    "functionResponse",
    "response",
    "call_id",
    "function_call_output",
    "function_call",
    "tools",
    "model",
    "stream",
    "metadata",
    "user_id",
    "previous_response_id",
    "toolUse",
    "toolResult",
    "max_tokens",
    "generationConfig",
    "anthropic_version",
    "client_metadata",
    "x-codex-turn-metadata",
    "reasoning",
    "summary",
    "namespace",
    "custom",
];

fn any_json() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(WORDS.to_vec());
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
        "\\PC{0,16}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..6).prop_map(|members| {
                members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            }),
        ]
    })
}

/// A body with lists where the formats have them.
fn any_body() -> impl Strategy<Value = Value> {
    (any_json(), prop::collection::vec(any_json(), 0..8), prop::collection::vec(any_json(), 0..4))
        .prop_map(|(extra, messages, tools)| {
            let mut body = json!({"tools": tools});
            for list in ["messages", "input", "contents"] {
                body[list] = Value::from(messages.clone());
            }
            if let (Some(body), Value::Object(extra)) = (body.as_object_mut(), extra) {
                body.extend(extra);
            }
            body
        })
}

fn exercise(target: &str, headers: &[(String, Vec<u8>)], body: &[u8]) {
    let route = route("POST", target).unwrap();
    let pairs = headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
    let facts = ClientFacts::read(pairs, target, &salt());
    let Ok(request) = Request::read(&route, body) else { return };
    let mut threads = Threads::with_capacity(salt(), 4);
    for at in 0..=request.message_count() {
        let _ = request.message(at);
    }
    if let Ok(first) = threads.place(&facts, &route, &request) {
        let again = threads.place(&facts, &route, &request).unwrap();
        assert_eq!(again.seat, first.seat);
        if first.kind.is_turn() {
            assert_eq!((again.attempt, again.turn), (Attempt::Repeat, first.turn));
            assert!(again.results.is_empty() && again.input.is_empty());
        }
        let parts = (0..request.message_count()).filter_map(|at| request.message(at));
        let turn = super::client::turn(&[]);
        let turn = ModelTurn { parts: parts.flat_map(|one| one.parts.clone()).collect(), ..turn };
        threads.answered(&first.seat, first.kind, &turn);
        let next = threads.place(&facts, &route, &request).unwrap();
        assert!(next.turn <= first.turn + 1);
        threads.failed(&first.seat, first.kind);
        assert!(threads.len() <= 4);
    }
    let _ = cap_output(&request, body, 100, CapField::MaxTokens);
    let reply = AnswerFormat::to(&request, &facts);
    let refused = refusal(&reply, "stopped", STAMP);
    assert!(serde_json::from_slice::<Value>(&refused.chunks.concat()).is_ok());
    let _ = final_turn(&reply, "stopped", STAMP);
}

proptest! {
    #[test]
    fn arbitrary_json_is_read_without_panic(
        target in prop::sample::select(TARGETS.to_vec()),
        body in any_body(),
        headers in prop::collection::vec((
            prop::sample::select(vec!["session-id", "thread-id", "x-session-id", "x-endstop-run",
                "x-claude-code-agent-id", "x-codex-turn-metadata", "authorization", "user-agent"]),
            prop::collection::vec(any::<u8>(), 0..24),
        ), 0..4),
    ) {
        let headers: Vec<_> = headers.into_iter().map(|(n, v)| (n.to_owned(), v)).collect();
        exercise(target, &headers, body.to_string().as_bytes());
    }

    #[test]
    fn arbitrary_bytes_are_read_without_panic(
        target in prop::sample::select(TARGETS.to_vec()),
        body in prop::collection::vec(any::<u8>(), 0..256),
        method in "[A-Z]{0,6}",
        any_target in "\\PC{0,64}",
    ) {
        exercise(target, &[], &body);
        if let Ok(route) = route(&method, &any_target) {
            prop_assert!(route.target.starts_with('/'));
        }
    }

    #[test]
    fn cut_json_is_read_without_panic(body in any_body(), at in 0usize..4096) {
        let text = body.to_string();
        let at = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        exercise("/v1/messages", &[], &text.as_bytes()[..at]);
    }

    #[test]
    fn arbitrary_streams_are_followed_without_panic(
        target in prop::sample::select(TARGETS.to_vec()),
        events in prop::collection::vec(any_json(), 0..6),
        noise in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let body = r#"{"stream":true,"anthropic_version":"b"}"#;
        let mut tail = reply_to(target, "", body).tail(STAMP);
        for event in &events {
            tail.push(format!("data: {event}\n\n").as_bytes());
        }
        tail.push(&noise);
        if let Ending::Now(rest) = tail.end("note") {
            prop_assert!(!rest.is_empty());
        }
    }
}

#[test]
fn heavy_and_broken_bodies_are_refused() {
    let messages = route("POST", "/v1/messages").unwrap();
    let read = |body: &[u8]| Request::read(&messages, body).map(|_| ()).unwrap_err();
    let bomb = format!("{{\"messages\":[{}0]}}", "[],".repeat(2_000_000));
    assert_eq!(read(bomb.as_bytes()), Unreadable::Heavy);
    assert!(matches!(read(b"[]"), Unreadable::Json(_)));
    assert!(matches!(read(b"{\"a\":\"\xff\"}"), Unreadable::Json(_)));
    let many: Vec<String> = (0..5000).map(|n| format!("\"{n}\":0")).collect();
    assert!(matches!(read(format!("{{{}}}", many.join(",")).as_bytes()), Unreadable::Json(_)));
    let large = vec![b' '; (64 << 20) + 1];
    assert_eq!(read(&large), Unreadable::Large { bytes: (64 << 20) + 1 });
    let error = read(br#"{"model": sk-secret}"#).to_string();
    assert!(error.contains("line 1") && !error.contains("secret"), "{error}");
    let models = route("GET", "/v1/models").unwrap();
    assert_eq!(Request::read(&models, b"{}").unwrap_err(), Unreadable::NotAModelCall);
}

#[test]
fn deep_messages_lose_their_content_only() {
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let body = format!(
        r#"{{"tools":[{{"name":"a"}}],"messages":[{{"role":"user","content":{deep}}},{{"role":"user","content":"b\ud83d"}}]}}"#
    );
    let messages = route("POST", "/v1/messages").unwrap();
    let request = Request::read(&messages, body.as_bytes()).unwrap();
    assert_eq!(request.message(0).unwrap().parts.len(), 0);
    // Half a character, as JavaScript sends it after a cut, costs that character alone.
    assert_eq!(request.message(1).unwrap().plain_text(), "b\u{fffd}");
    assert_eq!(request.message(2), None);
}

#[test]
fn thousand_threads_of_a_run_stay_apart() {
    let mut table = super::client::Table::new();
    let body =
        json!({"tools": [{"name": "Bash"}], "messages": [{"role": "user", "content": "Go."}]});
    for n in 0..1000 {
        let id = n.to_string();
        let headers = [("x-claude-code-session-id", "s"), ("x-claude-code-agent-id", &*id)];
        let placed = table.place("/v1/messages", &headers, &body);
        assert_eq!((placed.turn, placed.seat.thread.as_str()), (1, &*format!("agent-{n}")));
    }
    assert_eq!(table.0.len(), 1000);
}
