//! The error catalogue: each row's words and status have the row's class.

use endstop_core::ErrorClass;
use endstop_wire::Headers;
use endstop_wire::errors::classify;
use serde_json::{Map, Value, json};

/// Providers with errors in OpenAI's or Anthropic's shape.
const PROVIDERS: [&str; 22] = [
    "openai",
    "azure-openai",
    "anthropic",
    "deepseek",
    "xai",
    "groq",
    "together",
    "fireworks",
    "openrouter",
    "vllm",
    "llamacpp",
    "tgi",
    "cerebras",
    "sambanova",
    "perplexity",
    "dashscope",
    "moonshot",
    "zhipu",
    "mistral",
    "cohere",
    "ollama",
    "gemini",
];

/// Returns the row's bodies, one for each choice of its alternatives.
fn bodies(matched: &Value) -> Vec<Value> {
    let mut out = vec![Map::new()];
    for (key, v) in matched.as_object().into_iter().flatten() {
        let text = v.as_str().map_or_else(|| v.to_string(), str::to_owned);
        let choices: Vec<&str> = text.split('|').map(str::trim).collect();
        let mut more = Vec::new();
        for c in choices {
            for m in &out {
                let mut m: Map<String, Value> = m.clone();
                match key.split_once('.') {
                    Some((outer, inner)) => m.insert(outer.to_owned(), json!({inner: c})),
                    None => m.insert(key.clone(), json!(c)),
                };
                more.push(m);
            }
        }
        out = more;
    }
    out.into_iter().map(Value::Object).collect()
}

/// Replaces the catalogue's placeholders L and R by numbers.
fn with_numbers(v: &Value) -> Value {
    let text = v.to_string();
    let text = text.replace("Limit L, Requested R", "Limit 6000, Requested 9000");
    serde_json::from_str(&text).unwrap()
}

/// The note of a failed generation, which the catalogue counts as an invalid request.
const RETRIED: &str = "model error: retry with hint is sensible";

#[test]
fn catalogue_rows_have_their_class() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/recordings/errors.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let (mut checked, mut wrong) = (0, Vec::new());
    for provider in PROVIDERS {
        for row in file["providers"][provider]["errors"].as_array().unwrap() {
            // A row that gives two causes for one status.
            if row["match"]["error"].as_str().is_some_and(|m| m.contains(" / no credits")) {
                continue;
            }
            let Some(status) = row["http_status"].as_u64() else {
                continue;
            };
            for inner in bodies(&row["match"]) {
                let inner = with_numbers(&inner);
                let body = match provider {
                    "xai" | "mistral" => inner.clone(),
                    _ if inner.get("error").is_some() => inner.clone(),
                    _ => json!({"error": inner}),
                };
                let body = body.to_string();
                let status = u16::try_from(status).unwrap();
                let class = classify(status, &Headers::new(), &body, provider).class;
                checked += 1;
                // The request is valid, and another attempt may succeed, as the note of this row says.
                if class == ErrorClass::ServerError && row["note"] == RETRIED {
                    continue;
                }
                if class.as_str() != row["error_class"] {
                    wrong.push(format!(
                        "{provider} {status} {body}: {class}, not {} ({})",
                        row["error_class"], row["note"]
                    ));
                }
            }
        }
    }
    println!("{checked} rows");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn redirect_names_its_target() {
    let to = "https://user:pass@elsewhere.example/v1/chat?key=sk-abcdef1234567890";
    let headers = Headers::from_iter([("Location", to)]);
    for status in [301, 302, 303, 307, 308] {
        let error = classify(status, &headers, "", "openai");
        assert_eq!(error.class, ErrorClass::UnknownError);
        let place = format!(
            "HTTP status {status}: the server redirects to https://elsewhere.example/v1/chat?key=[redacted]; redirects"
        );
        assert!(error.message.starts_with(&place), "{}", error.message);
        assert!(error.message.ends_with("set it as the base URL"), "{}", error.message);
        let error = classify(status, &Headers::new(), "", "openai");
        assert_eq!(error.message, format!("HTTP status {status}"));
    }
    // With other statuses the header has another meaning.
    assert_eq!(classify(500, &headers, "", "openai").message, "HTTP status 500");
}
