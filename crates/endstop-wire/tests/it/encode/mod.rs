//! Encoded requests parse back to their input, and appending gives the same bytes as encoding from
//! the start.

mod bedrock;
mod google;
mod openai;

use endstop_core::{Image, Message, MessageId, Part, Role, ToolCall, ToolResult, ToolStatus};
use endstop_wire::dialect::{ANTHROPIC, OPENAI_CHAT, OPENAI_RESPONSES, WireFormat, dialect};
use endstop_wire::{
    CachePlan, Dialect, Encoder, Headers, NamedSchema, RequestFacts, RequestSpec, ToolDefinition,
    decode_body,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn spec() -> RequestSpec {
    RequestSpec {
        model: "m\"1".into(),
        system: Some("Be brief.\n".into()),
        tools: vec![ToolDefinition {
            name: "read".into(),
            description: "Reads a file.".into(),
            schema: json!({"type": "object", "properties": {"path": {"type": "string"}}}),
        }],
        max_output_tokens: Some(100),
        temperature: Some(0.5),
        stop: vec!["END".into()],
        output_schema: Some(NamedSchema { name: "out".into(), schema: json!({"type": "object"}) }),
        context_window: Some(8192),
        stream: true,
        cache: CachePlan::default(),
        extra: json!({"seed": 7, "temperature": 0.25}).as_object().unwrap().clone(),
    }
}

fn message(id: u64, role: Role, parts: Vec<Part>) -> Message {
    Message::new(MessageId(id), role, parts)
}

fn text(t: &str) -> Part {
    Part::Text { text: t.into() }
}

fn call(id: &str, arguments: &str) -> Part {
    Part::ToolCall(ToolCall { id: id.into(), name: "read".into(), arguments: arguments.into() })
}

fn result(id: &str, status: ToolStatus, content: &str) -> Part {
    Part::ToolResult(ToolResult {
        call_id: id.into(),
        name: "read".into(),
        status,
        content: content.into(),
        attachments: Vec::new(),
        started: true,
        pinned: false,
    })
}

fn opaque(api: &str, json: &str) -> Part {
    Part::Opaque { api: api.into(), json: json.into() }
}

fn history() -> Vec<Message> {
    let thinking = r#"{"type":"thinking","thinking":"hm","signature":"s"}"#;
    vec![
        message(
            1,
            Role::User,
            vec![
                text("Look:"),
                Part::Image(Image::Base64 { media_type: "image/png".into(), data: "AA==".into() }),
                Part::Image(Image::Url("https://example.com/a.png".into())),
            ],
        ),
        message(
            2,
            Role::Assistant,
            vec![
                Part::Reasoning { text: "hm".into() },
                opaque("anthropic-messages", thinking),
                opaque("openai-chat", r#"{"reasoning_content":"hm"}"#),
                text("I read."),
                call("a", "{\"path\": \"x\"}"),
                call("b", "{\"path\": "),
                call("c", " "),
            ],
        ),
        message(
            3,
            Role::Tool,
            vec![
                result("a", ToolStatus::Ok, "1"),
                result("b", ToolStatus::Error, "bad\u{1}"),
                result("c", ToolStatus::Skipped, ""),
            ],
        ),
        message(4, Role::User, vec![text("Go on."), text("")]),
        message(5, Role::Assistant, vec![Part::Refusal { text: "No.".into() }]),
        message(6, Role::User, vec![text("é😀\\\"")]),
    ]
}

fn body(dialect: &Dialect, spec: &RequestSpec, messages: &[Message], cap: Option<u64>) -> Value {
    let bytes = Encoder::new(dialect, spec).body(messages, 0, cap).to_vec();
    serde_json::from_slice(&bytes)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&bytes)))
}

#[test]
fn anthropic_request_has_documented_fields() {
    let b = body(ANTHROPIC, &spec(), &history(), None);
    assert_eq!((&b["max_tokens"], &b["system"]), (&json!(100), &json!("Be brief.\n")));
    assert_eq!(b["stop_sequences"], json!(["END"]));
    assert_eq!(b["output_config"]["format"]["type"], "json_schema");
    assert_eq!(b["tools"][0]["input_schema"]["type"], "object");
    let m = b["messages"].as_array().unwrap();
    let roles: Vec<&Value> = m.iter().map(|m| &m["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user"]);
    assert_eq!(m[0]["content"][1]["source"]["media_type"], "image/png");
    assert_eq!(
        m[0]["content"][2]["source"],
        json!({"type": "url", "url": "https://example.com/a.png"})
    );
    let said = m[1]["content"].as_array().unwrap();
    let kinds: Vec<&Value> = said.iter().map(|b| &b["type"]).collect();
    assert_eq!(kinds, ["thinking", "text", "tool_use", "tool_use", "tool_use"]);
    assert_eq!(said[0]["signature"], "s");
    assert_eq!(said[2]["input"], json!({"path": "x"}));
    assert_eq!(said[3]["input"], json!({"_raw": "{\"path\": "}));
    assert_eq!(said[4]["input"], json!({}));
    let results = m[2]["content"].as_array().unwrap();
    assert_eq!(results.len(), 4, "three results and the user's words: {results:?}");
    assert_eq!(results[0].get("is_error"), None);
    assert_eq!(results[1]["is_error"], true);
    assert_eq!(results[3], json!({"type": "text", "text": "Go on."}));
    let b = body(ANTHROPIC, &RequestSpec::default(), &history(), None);
    assert!(b["max_tokens"].as_u64().unwrap() > 0, "the API requires a cap");
    assert_eq!(b.get("system"), None);
}

#[test]
fn anthropic_call_ids_are_unique() {
    // A server that numbers its calls anew in each turn.
    let history = [
        message(1, Role::User, vec![text("Read both.")]),
        message(2, Role::Assistant, vec![call("call_1", "{}")]),
        message(3, Role::Tool, vec![result("call_1", ToolStatus::Ok, "1")]),
        message(4, Role::Assistant, vec![call("call_1", "{}")]),
        message(5, Role::Tool, vec![result("call_1", ToolStatus::Ok, "2")]),
    ];
    let mut encoder = Encoder::new(ANTHROPIC, &RequestSpec::default());
    // As in a run: once after each turn, and from the start if the conversation was shortened.
    for (upto, epoch) in [(1, 0), (3, 0), (5, 0), (5, 1)] {
        let body = encoder.body(&history[..upto], epoch, None);
        let b: Value = serde_json::from_slice(body).unwrap();
        let blocks = b["messages"].as_array().unwrap().iter().skip(1).map(|m| &m["content"][0]);
        let ids: Vec<&str> = blocks
            .filter_map(|block| block["id"].as_str().or(block["tool_use_id"].as_str()))
            .collect();
        assert_eq!(ids, ["call_1", "call_1", "call_1_2", "call_1_2"][..upto - 1]);
    }
}

/// Returns all names of calls and of results in a request, at any depth.
fn names(value: &Value) -> Vec<&str> {
    let below = |value| names(value);
    match value {
        Value::Array(items) => items.iter().flat_map(below).collect(),
        Value::Object(fields) => {
            let named = ["name", "tool_name"].iter().filter_map(|key| fields.get(*key)?.as_str());
            named.chain(fields.values().flat_map(below)).collect()
        }
        _ => Vec::new(),
    }
}

#[test]
fn unknown_tool_name_is_sanitised() {
    let long = "x".repeat(10_000);
    for (name, sent) in [
        ("read_file-2", "read_file-2"),
        ("functions.read:0", "functions_read_0"),
        ("rm -rf\n\u{1b}[2J\u{0}\u{9b}", "rm_-rf___2J__"),
        ("лес", "___"),
        ("", "_"),
        (long.as_str(), &long[..64]),
    ] {
        let Part::ToolCall(called) = call("a", "{}") else { unreachable!() };
        let Part::ToolResult(told) = result("a", ToolStatus::Error, "unknown") else {
            unreachable!()
        };
        let called = Part::ToolCall(ToolCall { name: name.into(), ..called });
        let told = Part::ToolResult(ToolResult { name: name.into(), ..told });
        let history = [
            message(1, Role::User, vec![text("Go.")]),
            message(2, Role::Assistant, vec![called]),
            message(3, Role::Tool, vec![told]),
        ];
        for dialect in all() {
            let b = body(dialect, &RequestSpec::default(), &history, None);
            let names = names(&b);
            assert!(!names.is_empty(), "{}: {b}", dialect.name);
            assert!(names.iter().all(|name| *name == sent), "{}: {names:?}", dialect.name);
        }
    }
}

fn ollama() -> &'static Dialect {
    dialect("ollama").unwrap()
}

fn gemini() -> &'static Dialect {
    dialect("gemini").unwrap()
}

/// Returns one dialect for each encoding.
fn all() -> [&'static Dialect; 9] {
    let [mistral, cohere] = ["mistral", "cohere"].map(|name| dialect(name).unwrap());
    [
        OPENAI_CHAT,
        ANTHROPIC,
        OPENAI_RESPONSES,
        gemini(),
        mistral,
        cohere,
        ollama(),
        converse(),
        invoke(),
    ]
}

fn converse() -> &'static Dialect {
    dialect("bedrock-converse").unwrap()
}

fn invoke() -> &'static Dialect {
    dialect("bedrock-invoke").unwrap()
}

#[test]
fn system_messages_are_placed() {
    let m = [
        message(1, Role::System, vec![text("Rules.")]),
        message(2, Role::User, vec![text("Hi")]),
        message(3, Role::System, vec![text("Note.")]),
    ];
    let b = body(ANTHROPIC, &spec(), &m, None);
    assert_eq!(b["system"], "Be brief.\n\n\nRules.");
    assert_eq!(b["messages"][0]["content"][1]["text"], "Note.");
    let b = body(OPENAI_CHAT, &spec(), &m, None);
    assert_eq!(b["messages"][3], json!({"role": "system", "content": "Note."}));
    let b = body(gemini(), &RequestSpec { output_schema: None, ..spec() }, &m, None);
    assert_eq!(b["systemInstruction"]["parts"][0]["text"], "Be brief.\n\n\nRules.");
    assert_eq!(b["contents"][0]["parts"][1]["text"], "Note.");
    let b = body(converse(), &spec(), &m, None);
    assert_eq!(b["system"], json!([{"text": "Be brief.\n"}, {"text": "Rules."}]));
    assert_eq!(b["messages"][0]["content"], json!([{"text": "Hi"}, {"text": "Note."}]));
    let b = body(OPENAI_RESPONSES, &spec(), &m, None);
    assert_eq!(b["input"][2], json!({"type": "message", "role": "system", "content": "Note."}));
}

#[test]
fn new_epoch_or_history_is_reencoded() {
    for dialect in all() {
        let all = history();
        let mut e = Encoder::new(dialect, &spec());
        e.body(&all, 0, None);
        let other = vec![message(9, Role::User, vec![text("Summary.")])];
        let fresh = |m: &[Message], cap| Encoder::new(dialect, &spec()).body(m, 0, cap).to_vec();
        assert_eq!(e.body(&other, 1, Some(5)), fresh(&other, Some(5)));
        assert_eq!(e.body(&all, 1, None), fresh(&all, None), "not an extension");
        assert_eq!(e.body(&all[..3], 1, None), fresh(&all[..3], None), "cut back");
        assert_eq!(e.body(&[], 2, None), fresh(&[], None));
    }
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        ".{0,12}".prop_map(|t| Part::Text { text: t }),
        ".{0,6}".prop_map(|t| Part::Reasoning { text: t }),
        ("[a-z]{0,3}", ".{0,8}").prop_map(|(id, a)| call(&id, &a)),
        ("[a-z]{0,3}", ".{0,8}").prop_map(|(id, c)| result(&id, ToolStatus::Timeout, &c)),
        Just(opaque("anthropic-messages", "{\"type\":\"x\"}")),
        Just(opaque("anthropic-messages", "not json")),
        Just(opaque("openai-chat", "{\"x\":1}")),
        Just(opaque(WireFormat::Gemini.as_str(), "{\"thoughtSignature\":\"s\"}")),
        Just(opaque(WireFormat::Gemini.as_str(), "{\"functionCall\":{},\"thoughtSignature\":1}")),
        Just(opaque(WireFormat::Gemini.as_str(), "{\"x\":1}")),
        Just(opaque("openai-responses", "{\"type\":\"message\",\"id\":\"m\"}")),
        Just(opaque("bedrock-converse", "{\"x\":1}")),
        Just(opaque("bedrock-converse", "not json")),
        Just(opaque("openai-responses", "{\"type\":\"shell_call\",\"call_id\":\"a\"}")),
        Just(opaque("openai-responses", "not json")),
        Just(opaque("cohere-v2", "{\"tool_plan\":\"p\"}")),
        Just(opaque("cohere-v2", "{\"type\":\"thinking\",\"thinking\":\"t\"}")),
        Just(opaque("cohere-v2", "not json")),
        Just(Part::Image(Image::Url("u".into()))),
    ]
}

proptest! {
    #[test]
    fn appending_equals_full_encoding(
        shape in proptest::collection::vec(
            (0u8..4, proptest::collection::vec(part(), 0..4)), 0..12),
        steps in proptest::collection::vec(1usize..4, 0..12),
    ) {
        let messages: Vec<Message> = (0u64..)
            .zip(shape)
            .map(|(id, (role, parts))| {
                let role = [Role::System, Role::User, Role::Assistant, Role::Tool][usize::from(role)];
                message(id, role, parts)
            })
            .collect();
        for dialect in all() {
            let mut kept = Encoder::new(dialect, &spec());
            let mut n = 0;
            for step in &steps {
                n = (n + step).min(messages.len());
                let cap = Some(n as u64 + 1);
                let appended = kept.body(&messages[..n], 3, cap).to_vec();
                let anew = Encoder::new(dialect, &spec()).body(&messages[..n], 3, cap).to_vec();
                prop_assert_eq!(&appended, &anew);
                prop_assert!(serde_json::from_slice::<Value>(&appended).is_ok());
            }
        }
    }
}
