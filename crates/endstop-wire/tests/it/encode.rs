//! Encoded requests parse back to their input, and appending gives the same bytes as encoding from
//! the start.

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
fn openai_request_has_documented_fields() {
    let b = body(OPENAI_CHAT, &spec(), &history(), Some(50));
    assert_eq!(b["model"], "m\"1");
    assert_eq!(b["max_completion_tokens"], 50);
    assert_eq!((&b["temperature"], &b["seed"]), (&json!(0.25), &json!(7)));
    assert_eq!(b["stop"], json!(["END"]));
    assert_eq!(
        (&b["stream"], &b["stream_options"]),
        (&json!(true), &json!({"include_usage": true}))
    );
    assert_eq!(
        b["response_format"],
        json!({"type": "json_schema", "json_schema": {"name": "out", "schema": {"type": "object"}}})
    );
    assert_eq!(b["tools"][0]["function"]["name"], "read");
    let m = &b["messages"];
    assert_eq!(m[0], json!({"role": "system", "content": "Be brief.\n"}));
    assert_eq!(m[1]["content"][0], json!({"type": "text", "text": "Look:"}));
    assert_eq!(m[1]["content"][1]["image_url"]["url"], "data:image/png;base64,AA==");
    assert_eq!(m[1]["content"][2]["image_url"]["url"], "https://example.com/a.png");
    assert_eq!(m[2]["content"], "I read.");
    assert_eq!(m[2]["reasoning_content"], "hm");
    let arguments: Vec<&Value> = m[2]["tool_calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| &c["function"]["arguments"])
        .collect();
    // Some servers parse the text and reject anything but an object.
    let raw = r#"{"_raw":"{\"path\": "}"#;
    assert_eq!(arguments, ["{\"path\": \"x\"}", raw, "{}"]);
    assert_eq!(m[3], json!({"role": "tool", "tool_call_id": "a", "content": "1"}));
    assert_eq!(m[4]["content"], "bad\u{1}");
    assert_eq!(m[6], json!({"role": "user", "content": "Go on."}));
    assert_eq!(m[7], json!({"role": "assistant", "content": null, "refusal": "No."}));
    assert_eq!(m[8]["content"], "é😀\\\"");
    assert_eq!(m.as_array().unwrap().len(), 9);
    let b = body(dialect("groq").unwrap(), &spec(), &history(), None);
    assert_eq!((&b["max_tokens"], b.get("max_completion_tokens")), (&json!(100), None));
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

#[test]
fn gemini_request_has_documented_fields() {
    let mut spec = RequestSpec { model: "gemini-3-pro-preview".into(), ..spec() };
    spec.extra = json!({"generationConfig": {"seed": 7, "temperature": 0.25}, "toolConfig": {},
        "contents": "not mine"})
    .as_object()
    .unwrap()
    .clone();
    let b = body(gemini(), &spec, &history(), Some(50));
    assert_eq!(
        b["generationConfig"],
        json!({"maxOutputTokens": 50, "temperature": 0.25, "seed": 7, "stopSequences": ["END"],
            "responseMimeType": "application/json", "responseJsonSchema": {"type": "object"}})
    );
    assert_eq!(b["systemInstruction"], json!({"parts": [{"text": "Be brief.\n"}]}));
    assert_eq!((&b["toolConfig"], b.get("model"), b.get("stream")), (&json!({}), None, None));
    assert_eq!(
        b["tools"],
        json!([{"functionDeclarations": [{"name": "read", "description": "Reads a file.",
            "parametersJsonSchema": {"type": "object", "properties": {"path": {"type": "string"}}}}]}])
    );
    let m = b["contents"].as_array().unwrap();
    let roles: Vec<&Value> = m.iter().map(|m| &m["role"]).collect();
    assert_eq!(roles, ["user", "model", "user", "model", "user"]);
    assert_eq!(
        m[0]["parts"],
        json!([{"text": "Look:"}, {"inlineData": {"mimeType": "image/png", "data": "AA=="}},
            {"fileData": {"fileUri": "https://example.com/a.png"}}])
    );
    assert_eq!(
        m[1]["parts"],
        json!([{"text": "I read."},
            {"functionCall": {"name": "read", "id": "a", "args": {"path": "x"}}},
            {"functionCall": {"name": "read", "id": "b", "args": {"_raw": "{\"path\": "}}},
            {"functionCall": {"name": "read", "id": "c", "args": {}}}])
    );
    assert_eq!(
        m[2]["parts"],
        json!([{"functionResponse": {"name": "read", "id": "a", "response": {"output": "1"}}},
            {"functionResponse": {"name": "read", "id": "b", "response": {"error": "bad\u{1}"}}},
            {"functionResponse": {"name": "read", "id": "c", "response": {"error": ""}}},
            {"text": "Go on."}])
    );
    // The extra fields' cap wins, and an empty object is not written.
    spec.extra = json!({"generationConfig": {"maxOutputTokens": 9}}).as_object().unwrap().clone();
    let b = body(gemini(), &spec, &history(), Some(50));
    assert_eq!(b["generationConfig"]["maxOutputTokens"], 9);
    let b = body(gemini(), &RequestSpec::default(), &history(), None);
    assert_eq!(b.as_object().unwrap().len(), 1, "{b}");
    let b = body(gemini(), &RequestSpec::default(), &history(), Some(7));
    assert_eq!(b["generationConfig"], json!({"maxOutputTokens": 7}));
}

#[test]
fn old_gemini_gets_schema_in_words() {
    let mut spec = RequestSpec { model: "gemini-2.5-flash".into(), ..spec() };
    let b = body(gemini(), &spec, &history(), None);
    assert_eq!(b["generationConfig"].get("responseJsonSchema"), None);
    let system = b["systemInstruction"]["parts"][0]["text"].as_str().unwrap();
    assert!(system.starts_with("Be brief.") && system.ends_with(r#"{"type":"object"}"#));
    spec.tools.clear();
    let b = body(gemini(), &spec, &history(), None);
    assert_eq!(b["generationConfig"]["responseMimeType"], "application/json");
}

/// Gemini's signatures are sent back unchanged, each with its own part.
#[test]
fn gemini_signatures_stay_with_their_parts() {
    let parts = json!([
        {"text": "plan", "thought": true},
        {"text": "Plan.", "thought": true, "thoughtSignature": "t"},
        {"text": "Let me "},
        {"text": "look.", "thoughtSignature": "a/b+c="},
        {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "x"},
        {"functionCall": {"name": "read", "args": {"path": "x"}}, "thoughtSignature": "s"},
        {"functionCall": {"name": "read", "args": {}}},
        {"functionCall": {"name": "read", "id": "own", "args": {}}},
        {"text": "", "thoughtSignature": "end"},
    ]);
    let answer = json!({"responseId": "r", "candidates": [
        {"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]});
    let decoded = decode_body(
        gemini(),
        200,
        &Headers::new(),
        answer.to_string().as_bytes(),
        &RequestFacts::default(),
    );
    let turn = decoded.turn.unwrap();
    let ids: Vec<&str> = turn.tool_calls().map(|c| c.id.as_str()).collect();
    assert_eq!(ids, ["call_gemini_r_0", "call_gemini_r_1", "own"]);
    assert!(turn.parts.iter().any(|p| *p == Part::Reasoning { text: "planPlan.".into() }));
    let results = ids.iter().map(|id| result(id, ToolStatus::Ok, "1")).collect();
    let history = [
        message(1, Role::User, vec![text("Go.")]),
        message(2, Role::Assistant, turn.parts.clone()),
        message(3, Role::Tool, results),
    ];
    let b = body(gemini(), &RequestSpec::default(), &history, None);
    let mut sent = parts.as_array().unwrap().clone();
    sent.remove(0); // a thought without a signature
    assert_eq!(b["contents"][1]["parts"], Value::Array(sent));
    let ids: Vec<Option<&Value>> = b["contents"][2]["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["functionResponse"].get("id"))
        .collect();
    assert_eq!(ids, [None, None, Some(&json!("own"))], "an id that was made here is not sent");
    // The signature of a dropped text or call does not move to another part.
    let lost: Vec<Part> = turn
        .parts
        .iter()
        .filter(|p| !matches!(p, Part::Text { .. } | Part::ToolCall(_)))
        .cloned()
        .chain([call("other", "{}"), text("More.")])
        .collect();
    let b = body(gemini(), &RequestSpec::default(), &[message(2, Role::Assistant, lost)], None);
    let signed: Vec<&Value> = b["contents"][0]["parts"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|p| p.get("functionCall").or(p.get("text")).is_some())
        .map(|p| p.get("thoughtSignature").unwrap_or(&Value::Null))
        .collect();
    assert_eq!(signed, [&json!("t"), &json!("a/b+c="), &json!("end"), &Value::Null, &Value::Null]);
    // Other formats omit them.
    let b = body(OPENAI_CHAT, &RequestSpec::default(), &history, None);
    assert!(!b.to_string().contains("thoughtSignature"));
}

#[test]
fn responses_request_has_documented_fields() {
    let b = body(OPENAI_RESPONSES, &spec(), &history(), Some(50));
    assert_eq!((&b["model"], &b["instructions"]), (&json!("m\"1"), &json!("Be brief.\n")));
    assert_eq!((&b["max_output_tokens"], &b["stream"]), (&json!(50), &json!(true)));
    assert_eq!((&b["temperature"], &b["seed"]), (&json!(0.25), &json!(7)));
    assert_eq!((b.get("stop"), b.get("messages")), (None, None), "the API has neither");
    assert_eq!(
        b["text"]["format"],
        json!({"type": "json_schema", "name": "out", "schema": {"type": "object"}})
    );
    let tool = &b["tools"][0];
    assert_eq!((&tool["type"], &tool["name"]), (&json!("function"), &json!("read")));
    assert_eq!((&tool["parameters"]["type"], &tool["strict"]), (&json!("object"), &json!(false)));
    let i = b["input"].as_array().unwrap();
    assert_eq!(i[0]["content"][0], json!({"type": "input_text", "text": "Look:"}));
    assert_eq!(i[0]["content"][1]["image_url"], "data:image/png;base64,AA==");
    assert_eq!(i[0]["content"][2]["image_url"], "https://example.com/a.png");
    assert_eq!(i[1], json!({"type": "message", "role": "assistant", "content": "I read."}));
    let call = |id: &str, arguments: &str| json!({"type": "function_call", "call_id": id, "name": "read", "arguments": arguments});
    assert_eq!(
        i[2..5],
        [call("a", "{\"path\": \"x\"}"), call("b", r#"{"_raw":"{\"path\": "}"#), call("c", "{}")]
    );
    let output = |id: &str, text: &str| json!({"type": "function_call_output", "call_id": id, "output": text});
    assert_eq!(i[5..8], [output("a", "1"), output("b", "bad\u{1}"), output("c", "")]);
    assert_eq!(i[8], json!({"type": "message", "role": "user", "content": "Go on."}));
    assert_eq!(i[9]["content"], json!([{"type": "refusal", "refusal": "No."}]));
    assert_eq!((&i[10]["content"], i.len()), (&json!("é😀\\\""), 11));
    let b = body(OPENAI_RESPONSES, &RequestSpec::default(), &history(), None);
    assert_eq!((b.get("max_output_tokens"), b.get("instructions")), (None, None));
}

#[test]
fn responses_items_are_sent_back_unchanged() {
    let api = "openai-responses";
    let shell = r#"{"type":"shell_call","id":"sh_1","call_id":"s","action":{"commands":["ls"]}}"#;
    let m = [
        message(
            1,
            Role::Assistant,
            vec![
                opaque(api, r#"{"type":"reasoning","id":"rs_1","summary":[]}"#),
                opaque(api, r#"{"type":"reasoning","id":"rs_2","encrypted_content":"x"}"#),
                opaque(api, r#"{"type":"message","id":"msg_1","phase":"commentary"}"#),
                text("Now"),
                opaque(
                    api,
                    r#"{"type":"function_call","id":"fc_1","caller":{"type":"direct"},"call_id":"f"}"#,
                ),
                call("f", "{}"),
                opaque(api, shell),
                call("s", "{}"),
                // A mark without its call, and a call that the server ran.
                opaque(api, r#"{"type":"function_call","id":"fc_2","call_id":"g"}"#),
                opaque(api, r#"{"type":"shell_call","id":"sh_2","call_id":"own"}"#),
                opaque(api, r#"{"type":"mcp_approval_request","id":"mcpr_1"}"#),
                call("mcpr_1", "{}"),
            ],
        ),
        message(
            2,
            Role::Tool,
            vec![
                result("f", ToolStatus::Ok, "1"),
                result("s", ToolStatus::Error, "2"),
                result("mcpr_1", ToolStatus::Ok, "sure?"),
            ],
        ),
    ];
    let mut spec = spec();
    let b = body(OPENAI_RESPONSES, &spec, &m, None);
    let i = b["input"].as_array().unwrap();
    assert_eq!((&i[0]["id"], &i[1]["encrypted_content"]), (&json!("rs_1"), &json!("x")));
    let said = json!([{"type": "output_text", "annotations": [], "text": "Now"}]);
    assert_eq!(
        i[2],
        json!({"type": "message", "id": "msg_1", "phase": "commentary", "role": "assistant", "content": said})
    );
    assert_eq!(
        i[3],
        json!({"type": "function_call", "id": "fc_1", "caller": {"type": "direct"}, "call_id": "f",
            "name": "read", "arguments": "{}"})
    );
    assert_eq!(i[4], serde_json::from_str::<Value>(shell).unwrap());
    assert_eq!((&i[5]["call_id"], &i[6]["id"]), (&json!("own"), &json!("mcpr_1")));
    assert_eq!(
        (&i[7]["type"], &i[7]["caller"]["type"]),
        (&json!("function_call_output"), &json!("direct"))
    );
    assert_eq!(
        i[8]["output"],
        json!([{"stdout": "2", "stderr": "", "outcome": {"type": "exit", "exit_code": 1}}])
    );
    assert_eq!((&i[9]["approval_request_id"], &i[9]["approve"]), (&json!("mcpr_1"), &json!(false)));
    assert_eq!(i.len(), 10);
    // Items that are not stored are sent back only if they contain all their data.
    spec.extra.insert("store".to_owned(), json!(false));
    let b = body(OPENAI_RESPONSES, &spec, &m, None);
    assert_eq!((&b["store"], &b["input"][0]["id"]), (&json!(false), &json!("rs_2")));
}

/// Mistral's documented rules, and its rejections beyond them.
#[test]
fn mistral_request_follows_strict_rules() {
    let mistral = dialect("mistral").unwrap();
    let mut m = history();
    m.push(message(7, Role::Assistant, vec![call("D681PevKs", "{}"), call("d", "{}")]));
    m.push(message(
        8,
        Role::Tool,
        vec![result("D681PevKs", ToolStatus::Ok, "1"), result("d", ToolStatus::Ok, "2")],
    ));
    m.push(message(9, Role::Assistant, vec![Part::Reasoning { text: "hm".into() }, text(" ")]));
    m.push(message(10, Role::System, vec![text("Repeat nothing.")]));
    let b = body(mistral, &spec(), &m, Some(50));
    assert_eq!((&b["max_tokens"], b.get("max_completion_tokens")), (&json!(50), None));
    assert_eq!((&b["stream"], b.get("stream_options")), (&json!(true), None));
    assert_eq!(b["stop"], json!(["END"]));
    let m = b["messages"].as_array().unwrap();
    let roles: Vec<&str> = m.iter().map(|m| m["role"].as_str().unwrap()).collect();
    // No user message directly after a tool result, no empty assistant message, no later
    // instructions.
    assert_eq!(
        roles,
        [
            "system",
            "user",
            "assistant",
            "tool",
            "tool",
            "tool",
            "assistant",
            "user",
            "assistant",
            "user",
            "assistant",
            "tool",
            "tool",
            "assistant",
            "user"
        ]
    );
    assert_eq!(m[6], json!({"role": "assistant", "content": " "}));
    assert_eq!(m[8], json!({"role": "assistant", "content": "No."}), "a refusal is words");
    assert_eq!(m[14], json!({"role": "user", "content": "Repeat nothing."}));
    for m in m {
        for (field, _) in m.as_object().unwrap() {
            let known = ["role", "content", "tool_calls", "tool_call_id"];
            assert!(known.contains(&field.as_str()), "{m}");
        }
        assert!(m["content"] != "" || m["role"] == "tool" || m.get("tool_calls").is_some(), "{m}");
    }
    // Every call has a valid id, and its result has the same id.
    let asked = |at: usize| -> Vec<Value> {
        m[at]["tool_calls"].as_array().unwrap().iter().map(|c| c["id"].clone()).collect()
    };
    let answered = |at: usize, n: usize| -> Vec<Value> {
        m[at..at + n].iter().map(|m| m["tool_call_id"].clone()).collect()
    };
    assert_eq!((asked(2), asked(10)), (answered(3, 3), answered(11, 2)));
    for id in asked(2).into_iter().chain(asked(10)) {
        let id = id.as_str().unwrap();
        assert!(id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()), "{id}");
    }
    assert_eq!(m[10]["tool_calls"][0]["id"], "D681PevKs", "its own is kept");
    // A system message at the start is valid.
    let start = [message(1, Role::System, vec![text("Rules.")])];
    assert_eq!(
        body(mistral, &spec(), &start, None)["messages"][1],
        json!({"role": "system", "content": "Rules."})
    );
}

fn converse() -> &'static Dialect {
    dialect("bedrock-converse").unwrap()
}

fn invoke() -> &'static Dialect {
    dialect("bedrock-invoke").unwrap()
}

#[test]
fn converse_request_has_documented_fields() {
    let mut spec = spec();
    spec.extra = json!({"inferenceConfig": {"topP": 0.5, "temperature": 0.25},
        "guardrailConfig": {"guardrailIdentifier": "g"}, "messages": "not mine"})
    .as_object()
    .unwrap()
    .clone();
    let mut m = history();
    let signed = r#"{"reasoningContent":{"reasoningText":{"text":"hm","signature":"s"}}}"#;
    m[1].parts.insert(1, opaque("bedrock-converse", signed));
    m[2].parts.push(result("d", ToolStatus::Ok, " \n"));
    m[5].parts.push(Part::Image(Image::Url("s3://bucket/a.webp".into())));
    m[5].parts
        .push(Part::Image(Image::Base64 { media_type: "image/jpg".into(), data: "A".into() }));
    let b = body(converse(), &spec, &m, Some(50));
    assert_eq!(
        b["inferenceConfig"],
        json!({"maxTokens": 50, "topP": 0.5, "temperature": 0.25, "stopSequences": ["END"]})
    );
    assert_eq!(b["system"], json!([{"text": "Be brief.\n"}]));
    assert_eq!(b["guardrailConfig"], json!({"guardrailIdentifier": "g"}));
    assert_eq!((b.get("model"), b.get("stream")), (None, None), "the address says them");
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    let tool =
        json!({"name": "read", "description": "Reads a file.", "inputSchema": {"json": schema}});
    assert_eq!(b["toolConfig"], json!({"tools": [{"toolSpec": tool}]}));
    assert_eq!(
        b["outputConfig"],
        json!({"textFormat": {"type": "json_schema", "structure":
            {"jsonSchema": {"name": "out", "schema": "{\"type\":\"object\"}"}}}})
    );
    let m = b["messages"].as_array().unwrap();
    let roles: Vec<&Value> = m.iter().map(|m| &m["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user"]);
    assert_eq!(
        m[0]["content"],
        json!([{"text": "Look:"}, {"image": {"format": "png", "source": {"bytes": "AA=="}}},
            {"text": "https://example.com/a.png"}])
    );
    let call = |id: &str, input: Value| json!({"toolUse": {"toolUseId": id, "name": "read", "input": input}});
    let signed: Value = serde_json::from_str(signed).unwrap();
    assert_eq!(
        m[1]["content"],
        json!([signed, {"text": "I read."}, call("a", json!({"path": "x"})),
            call("b", json!({"_raw": "{\"path\": "})), call("c", json!({}))])
    );
    let failed = |id: &str, text: &str| json!({"toolResult": {"toolUseId": id, "content": [{"text": text}], "status": "error"}});
    assert_eq!(
        m[2]["content"],
        json!([{"toolResult": {"toolUseId": "a", "content": [{"text": "1"}]}},
            failed("b", "bad\u{1}"), failed("c", "skipped"),
            {"toolResult": {"toolUseId": "d", "content": []}}, {"text": "Go on."}])
    );
    assert_eq!(m[3]["content"], json!([{"text": "No."}]));
    let place = json!({"s3Location": {"uri": "s3://bucket/a.webp"}});
    assert_eq!(m[4]["content"][1], json!({"image": {"format": "webp", "source": place}}));
    assert_eq!(m[4]["content"][2]["image"]["format"], "jpeg");
    // The extra fields' cap wins, and an empty object is not written.
    spec.extra =
        json!({"inferenceConfig": {"maxTokens": 9}, "system": []}).as_object().unwrap().clone();
    let b = body(converse(), &spec, &history(), Some(50));
    assert_eq!((&b["inferenceConfig"]["maxTokens"], &b["system"]), (&json!(9), &json!([])));
    let b = body(converse(), &RequestSpec::default(), &history(), None);
    assert_eq!(b.as_object().unwrap().len(), 1, "{b}");
    let b = body(converse(), &RequestSpec::default(), &history(), Some(7));
    assert_eq!(b["inferenceConfig"], json!({"maxTokens": 7}));
}

#[test]
fn vertex_request_differs_in_two_fields() {
    let vertex = dialect("vertex-anthropic").unwrap();
    for stream in [true, false] {
        let spec = RequestSpec { stream, ..spec() };
        let mut own = body(ANTHROPIC, &spec, &history(), Some(50));
        assert!(own.as_object_mut().unwrap().remove("model").is_some());
        own["anthropic_version"] = json!("vertex-2023-10-16");
        // As sent for the recordings: the URL alone does not make a stream.
        assert_eq!(own.get("stream"), stream.then_some(&json!(true)));
        assert_eq!(body(vertex, &spec, &history(), Some(50)), own);
    }
}

#[test]
fn invoke_request_differs_in_three_fields() {
    let mut own = body(ANTHROPIC, &spec(), &history(), Some(50));
    for field in ["model", "stream"] {
        assert!(own.as_object_mut().unwrap().remove(field).is_some());
    }
    own["anthropic_version"] = json!("bedrock-2023-05-31");
    assert_eq!(body(invoke(), &spec(), &history(), Some(50)), own);
    let mut spec = spec();
    spec.extra.insert("anthropic_version".to_owned(), json!("later"));
    assert_eq!(body(invoke(), &spec, &history(), None)["anthropic_version"], "later");
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
