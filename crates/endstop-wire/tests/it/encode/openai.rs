//! Requests to OpenAI's APIs, and to Mistral, by their documentation.

use super::*;

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
