//! `cap_output`: the cap changes, and nothing else.

use endstop_guard::exchange::{CapError, Request, cap_output, route};
use endstop_wire::dialect::CapField;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const PATHS: [&str; 8] = [
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1beta/models/g:generateContent",
    "/model/m/converse",
    "/model/m/invoke",
    "/api/chat",
    "/v2/chat",
];

fn capped(target: &str, body: &str, cap: u64) -> Result<Option<String>, CapError> {
    let route = route("POST", target).unwrap();
    let request = Request::read(&route, body.as_bytes()).unwrap();
    let out = cap_output(&request, body.as_bytes(), cap, CapField::MaxCompletionTokens)?;
    Ok(out.map(|out| String::from_utf8(out).unwrap()))
}

#[test]
fn cap_is_lowered_or_inserted_in_each_format() {
    let [chat, responses, anthropic, gemini, converse, invoke, ollama, cohere] = PATHS;
    for (target, body, expected) in [
        (chat, r#"{"model":"m"}"#, r#"{"max_completion_tokens":100,"model":"m"}"#),
        (chat, r#"{ "max_tokens" : 4096 }"#, r#"{ "max_tokens" : 100 }"#),
        (
            chat,
            r#"{"max_tokens":90,"max_completion_tokens":1e6}"#,
            r#"{"max_tokens":90,"max_completion_tokens":100}"#,
        ),
        (chat, "{}", r#"{"max_completion_tokens":100}"#),
        (chat, r#"{"max_tokens":null,"n":2}"#, r#"{"max_tokens":100,"n":2}"#),
        (chat, r#"{"max\u005ftokens":4096}"#, r#"{"max\u005ftokens":100}"#),
        (chat, r#"{"max_tokens":50,"max_tokens":4096}"#, r#"{"max_tokens":50,"max_tokens":100}"#),
        (chat, " \n{ \"a\":1}", " \n{\"max_completion_tokens\":100, \"a\":1}"),
        (responses, r#"{"input":"x"}"#, r#"{"max_output_tokens":100,"input":"x"}"#),
        (anthropic, r#"{"max_tokens":128000}"#, r#"{"max_tokens":100}"#),
        (gemini, r#"{"a":1}"#, r#"{"generationConfig":{"maxOutputTokens":100},"a":1}"#),
        (gemini, r#"{"generationConfig":{}}"#, r#"{"generationConfig":{"maxOutputTokens":100}}"#),
        (
            gemini,
            r#"{"generation_config":{"max_output_tokens":101}}"#,
            r#"{"generation_config":{"max_output_tokens":100}}"#,
        ),
        (gemini, r#"{"generationConfig":null}"#, r#"{"generationConfig":{"maxOutputTokens":100}}"#),
        (
            converse,
            r#"{"inferenceConfig":{"temperature":1}}"#,
            r#"{"inferenceConfig":{"maxTokens":100,"temperature":1}}"#,
        ),
        (
            invoke,
            r#"{"anthropic_version":"b","max_tokens":200}"#,
            r#"{"anthropic_version":"b","max_tokens":100}"#,
        ),
        (
            invoke,
            r#"{"messages":[],"inferenceConfig":{}}"#,
            r#"{"messages":[],"inferenceConfig":{"max_new_tokens":100}}"#,
        ),
        (ollama, r#"{"options":{"num_predict":-1}}"#, r#"{"options":{"num_predict":100}}"#),
        (cohere, r#"{"message":1}"#, r#"{"max_tokens":100,"message":1}"#),
    ] {
        let found = capped(target, body, 100).unwrap();
        assert_eq!(found.as_deref(), Some(expected), "{target} {body}");
        // What is capped already stays as it is.
        assert_eq!(capped(target, expected, 100), Ok(None), "{expected}");
    }
}

#[test]
fn impossible_caps_are_refused() {
    let body = r#"{"max_tokens":9000,"thinking":{"type":"enabled","budget_tokens":4000}}"#;
    assert_eq!(
        capped("/v1/messages", body, 4000),
        Err(CapError::Thinking { budget: 4000, cap: 4000 })
    );
    assert!(capped("/v1/messages", body, 4001).unwrap().unwrap().contains("4001"));
    let gemini = "/v1/models/g:generateContent";
    assert_eq!(capped(gemini, r#"{"generationConfig":[]}"#, 5), Err(CapError::Shape));
}

/// Removes the caps, and objects that only hold them.
fn without_caps(mut body: Value) -> Value {
    let names = [
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "maxOutputTokens",
        "maxTokens",
        "max_new_tokens",
        "num_predict",
    ];
    let object = body.as_object_mut().unwrap();
    object.retain(|key, _| !names.contains(&key.as_str()));
    for holder in ["generationConfig", "inferenceConfig", "options"] {
        if let Some(inside) = object.get_mut(holder).and_then(Value::as_object_mut) {
            inside.retain(|key, _| !names.contains(&key.as_str()));
            if inside.is_empty() {
                object.remove(holder);
            }
        }
    }
    body
}

fn any_member() -> impl Strategy<Value = (String, Value)> {
    let keys = prop::sample::select(vec![
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "generationConfig",
        "options",
        "inferenceConfig",
        "messages",
        "contents",
        "model",
        "temperature",
        "anthropic_version",
    ]);
    let config = prop::sample::select(vec!["maxOutputTokens", "num_predict", "maxTokens", "x"]);
    let leaf = prop_oneof![
        (0u64..300).prop_map(Value::from),
        (-5i64..5).prop_map(Value::from),
        "[ -~é]{0,12}".prop_map(Value::from),
    ];
    (keys, config, leaf).prop_map(|(key, inner, leaf)| {
        let nested = matches!(key, "generationConfig" | "inferenceConfig" | "options");
        let value = if nested { json!({inner: leaf}) } else { leaf };
        (key.to_owned(), value)
    })
}

proptest! {
    #[test]
    fn only_the_cap_changes(
        path in prop::sample::select(PATHS.to_vec()),
        members in prop::collection::vec(any_member(), 0..6),
        cap in 1u64..300,
        pretty: bool,
    ) {
        let mut object: Map<String, Value> = members.into_iter().collect();
        object.entry("messages").or_insert_with(|| json!([]));
        let body = Value::Object(object);
        let text = if pretty { format!("{body:#}") } else { body.to_string() };
        let route = route("POST", path).unwrap();
        let out = capped(path, &text, cap).unwrap();
        let new = out.as_deref().unwrap_or(&text);
        let parsed: Value = serde_json::from_str(new).unwrap();
        prop_assert_eq!(without_caps(parsed), without_caps(body));
        let request = Request::read(&route, new.as_bytes()).unwrap();
        prop_assert!(request.output_cap.is_some_and(|own| own <= cap), "{}", new);
        // The edit is small, so every other byte is where it was.
        prop_assert!(new.len() <= text.len() + 64);
        prop_assert_eq!(capped(path, new, cap).unwrap(), None);
    }
}

/// Such a cache write has a price of its own, however its letters are written.
#[test]
fn cache_for_an_hour_is_found() {
    let messages = endstop_guard::exchange::route("POST", "/v1/messages").unwrap();
    for (control, expected) in [
        (r#"{"type":"ephemeral","ttl":"1h"}"#, true),
        (r#"{"type":"ephemeral","\u0074tl":"1h"}"#, true),
        (r#"{"type":"ephemeral","ttl":"1\u0068"}"#, true),
        (r#"{"type":"ephemeral","ttl":"5m"}"#, false),
        (r#"{"type":"ephemeral"}"#, false),
    ] {
        let body =
            format!(r#"{{"model":"m","messages":[],"system":[{{"cache_control":{control}}}]}}"#);
        let request = endstop_guard::exchange::Request::read(&messages, body.as_bytes()).unwrap();
        assert_eq!(request.caches_for_an_hour(), expected, "{body}");
    }
}
