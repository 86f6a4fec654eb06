//! Requests to Gemini, by its documentation.

use super::*;

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
            {"functionCall": {"name": "read", "id": "a", "args": {"path": "x"}},
                "thoughtSignature": "skip_thought_signature_validator"},
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

/// Gemini 3 refuses a call without a signature, and the calls of another model have none.
#[test]
fn calls_of_other_models_get_placeholder() {
    let signed = |model: &str, parts: Vec<Part>| {
        let messages = [
            message(1, Role::User, vec![text("Look.")]),
            message(2, Role::Assistant, parts),
            message(3, Role::Tool, vec![result("a", ToolStatus::Ok, "1")]),
        ];
        let body = body(gemini(), &RequestSpec { model: model.into(), ..spec() }, &messages, None);
        let parts = body["contents"][1]["parts"].as_array().unwrap().clone();
        parts.into_iter().map(|part| part["thoughtSignature"].clone()).collect::<Vec<_>>()
    };
    let placeholder = json!("skip_thought_signature_validator");
    let calls = || vec![text("So."), call("a", "{}"), call("b", "{}")];
    for model in ["gemini-3-pro-preview", "google/gemini-3.1-flash", "gemini-10-pro"] {
        let expected = [Value::Null, placeholder.clone(), Value::Null];
        assert_eq!(signed(model, calls()), expected, "{model}");
    }
    for model in ["gemini-2.5-flash", "gemma-3-27b", "gemini-pro", "models/gemini-1.5-pro"] {
        assert_eq!(signed(model, calls()), [Value::Null, Value::Null, Value::Null], "{model}");
    }
    // Its own signature stays as it is.
    let json = json!({"functionCall": {}, "thoughtSignature": "s"}).to_string();
    let own = Part::Opaque { api: "gemini".into(), json };
    let parts = vec![own, call("a", "{}"), call("b", "{}")];
    assert_eq!(signed("gemini-3-pro-preview", parts), [json!("s"), Value::Null]);
}
