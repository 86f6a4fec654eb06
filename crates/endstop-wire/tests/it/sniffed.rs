//! Format detection without a given `api`: for every recorded response, complete and cut.

use crate::recordings::{RECORDINGS, data, rows};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use endstop_wire::detect::detect;
use endstop_wire::dialect::{WireFormat, dialect};
use endstop_wire::stream::sniff::formats;
use serde_json::{Value, json};

fn body(row: &Value) -> Vec<u8> {
    let text = row["body"].as_str().unwrap();
    if row["body_encoding"] == "base64" { STANDARD.decode(text).unwrap() } else { text.into() }
}

/// Returns `true` if a body in the format `is` may be recognised as `found`. InvokeModel bodies
/// have the format of the model's vendor.
fn agrees(is: WireFormat, found: WireFormat) -> bool {
    found == is || is == WireFormat::BedrockInvoke && found != WireFormat::BedrockConverse
}

#[test]
fn recorded_formats_are_found() {
    for name in RECORDINGS {
        let (mut certain, mut whole) = (0, 0);
        for row in rows(&data(name)) {
            let is = dialect(row["api"].as_str().unwrap()).unwrap().family;
            let body = body(&row);
            let found = formats(&body);
            if let [found] = found[..] {
                assert!(agrees(is, found), "{}: {is} is taken for {found}", row["id"]);
            }
            if row["status"] == 200 && !body.is_empty() {
                whole += 1;
                certain += usize::from(found.len() == 1);
            }
            // A cut body may be unknown, but it is never another format.
            for cut in
                [body.len() / 7, body.len() / 3, body.len() / 2, body.len().saturating_sub(1)]
            {
                if let [found] = formats(&body[..cut])[..] {
                    assert!(agrees(is, found), "{} cut at {cut}: taken for {found}", row["id"]);
                }
            }
        }
        assert!(certain * 100 >= whole * 90, "{name}: {certain} of {whole}");
    }
}

#[test]
fn correct_format_gets_no_hint() {
    for name in RECORDINGS {
        for row in rows(&data(name)) {
            let found = detect(&row).unwrap().to_string();
            assert!(!found.contains("this looks like"), "{}: {found}", row["id"]);
        }
    }
}

#[test]
fn wrong_format_gets_a_hint() {
    for (name, api) in [
        ("anthropic-messages.jsonl.gz", "openai-chat"),
        ("openai-chat.jsonl.gz", "gemini"),
        ("openai-chat.jsonl.gz", "anthropic-messages"),
        ("gemini.jsonl.gz", "openai-chat"),
        ("openai-responses.jsonl.gz", "openai-chat"),
        ("ollama.jsonl.gz", "anthropic-messages"),
        ("bedrock-converse.jsonl.gz", "openai-chat"),
        ("cohere-v2.jsonl.gz", "openai-chat"),
    ] {
        let (mut advised, mut whole) = (0, 0);
        for mut row in rows(&data(name)) {
            let is = dialect(row["api"].as_str().unwrap()).unwrap().family;
            if formats(&body(&row)) != [is] {
                continue;
            }
            row["api"] = json!(api);
            let found = detect(&row).unwrap();
            let message = found["signal"]["message"].as_str().unwrap_or_default();
            whole += 1;
            advised += usize::from(message.contains(&format!("this looks like {is}; give that")));
        }
        assert!(advised * 100 >= whole * 95 && whole > 20, "{name} as {api}: {advised} of {whole}");
    }
}

#[test]
fn missing_format_is_found_or_requested() {
    let row = |body: &str| json!({"id": 1, "body": body});
    let found =
        detect(&row(r#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}"#));
    let found = found.unwrap();
    assert_eq!((&found["id"], &found["api"]), (&json!(1), &json!("openai-chat")));
    assert_eq!(found["signal"]["reason"], "natural_completion");
    let error = r#"{"error":{"message":"m","type":"t","param":null,"code":null}}"#;
    let asked = detect(&row(error)).unwrap_err().to_string();
    assert!(asked.contains("openai-chat or openai-responses; give one"), "{asked}");
    let asked = detect(&row("<html>")).unwrap_err().to_string();
    assert!(asked.contains("not recognised; give one of openai-chat, "), "{asked}");
}
