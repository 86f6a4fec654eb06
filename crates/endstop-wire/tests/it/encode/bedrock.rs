//! Requests to Bedrock, by its documentation.

use super::*;

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
