//! Costs of guarded runs: the usage of every framing, service tiers, and marks.

use super::support::Guard;
use crate::proxy::support::{Conn, header, post, run, upstream};
use base64::Engine;
use endstop_core::{Billing, Outcome};
use endstop_guard::run::Settings;
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Sends one call, which gets this answer, and returns the outcome of its run.
async fn outcome(path: &str, request: Value, content_type: &str, body: Vec<u8>) -> Arc<Outcome> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\r\n"
    );
    let response = [head.into_bytes(), body].concat();
    let address = upstream(move |mut conn: Conn| {
        let response = response.clone();
        async move {
            while let Ok(head) = conn.until(b"\r\n\r\n").await {
                let head = String::from_utf8(head).expect("text");
                let length = header(&head, "content-length").expect("a length");
                conn.exact(length.parse().expect("a length")).await.expect("a body");
                conn.send(&response).await;
            }
        }
    })
    .await;
    let guard = Guard::start(Settings::default(), address).await;
    let mut client = Conn::to(guard.address).await;
    client.send(&post(&format!("/run/a{path}"), request.to_string().as_bytes())).await;
    client.message().await.1.expect("a body");
    guard.run("a").expect("a run").cancel();
    guard.run("a").expect("a run").ended().await
}

async fn chat(model: &str, tier: &str) -> Arc<Outcome> {
    let request = json!({"model": model, "messages": [{"role": "user", "content": "Why?"}]});
    let body = json!({"model": model, "service_tier": tier,
        "choices": [{"message": {"content": "Because."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1_000, "completion_tokens": 100, "total_tokens": 1_100}});
    outcome("/v1/chat/completions", request, "application/json", body.to_string().into()).await
}

#[test]
fn service_tier_decides_price() {
    run(async {
        for (model, tier, usd, billing, upper) in [
            ("gpt-5", "default", 0.002_25, Billing::ByTokens, true),
            ("gpt-5", "flex", 0.001_125, Billing::ByTokens, true),
            ("gpt-5", "priority", 0.004_5, Billing::ByTokens, true),
            // The list has no price of these tiers.
            ("gpt-4o", "flex", 0.003_5, Billing::AtMost, true),
            ("gpt-4o", "scale", 0.003_5, Billing::More, false),
        ] {
            let outcome = chat(model, tier).await;
            assert_eq!(outcome.cost.to_usd(), usd, "{model} {tier}");
            assert_eq!(outcome.usage.billing, billing, "{model} {tier}");
            assert_eq!(outcome.cost_unknown, billing != Billing::ByTokens, "{model} {tier}");
            assert_eq!(outcome.cost_upper, upper.then_some(outcome.cost), "{model} {tier}");
        }
    });
}

#[test]
fn frames_of_invoke_model_are_counted() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../testdata/recordings/bedrock-invoke.jsonl.gz");
    let mut text = String::new();
    let file = std::fs::File::open(path).expect("the recordings");
    GzDecoder::new(file).read_to_string(&mut text).expect("text");
    let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let framed = rows.filter(|row| {
        let counted = row["expected"]["output_tokens"].is_u64();
        row["body_encoding"] == "base64" && row["status"] == 200 && counted
    });
    run(async {
        let mut counted = 0;
        for row in framed.take(4) {
            let body = row["body"].as_str().expect("a body");
            let body = base64::engine::general_purpose::STANDARD.decode(body).expect("base64");
            let request = json!({"anthropic_version": "bedrock-2023-05-31", "max_tokens": 100,
                "messages": [{"role": "user", "content": "Why?"}]});
            let path =
                "/model/anthropic.claude-3-5-sonnet-20240620-v1%3A0/invoke-with-response-stream";
            let kind = "application/vnd.amazon.eventstream";
            let outcome = outcome(path, request, kind, body).await;
            let usage = &outcome.usage;
            let expected = &row["expected"];
            assert_eq!(json!(usage.output_tokens), expected["output_tokens"], "{}", row["id"]);
            assert_eq!(json!(usage.input_tokens), expected["input_tokens"], "{}", row["id"]);
            assert!(!usage.estimated && outcome.cost.0 > 0, "{}", row["id"]);
            counted += 1;
        }
        assert!(counted > 2, "{counted}");
    });
}
