//! Costs of guarded runs: the usage of every framing, service tiers, and marks.

use super::support::Guard;
use crate::proxy::support::{Conn, header, post, run, upstream};
use base64::Engine;
use endstop_core::{Billing, Limits, Outcome, Termination};
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

/// A body of the chat format with this message and this usage.
fn answered(message: &Value, usage: &Value) -> String {
    let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
    json!({"model": "gpt-5", "choices": [choice], "usage": usage}).to_string()
}

#[test]
fn response_without_believable_usage_may_cost_its_cap() {
    let long = "word ".repeat(3_200);
    let said = |text: &str| json!({"role": "assistant", "content": text});
    let counts =
        |input: u64, output: u64| json!({"prompt_tokens": input, "completion_tokens": output});
    let of_claude = json!({"id": "m", "type": "message", "role": "assistant", "model": "gpt-5",
        "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn",
        "usage": {"input_tokens": 9_000, "output_tokens": 4_000}});
    let of_responses = json!({"id": "r", "object": "response", "status": "completed", "model": "gpt-5",
        "output": [{"type": "message", "role": "assistant",
            "content": [{"type": "output_text", "text": "hi", "annotations": []}]}],
        "usage": {"input_tokens": 9_000, "output_tokens": 4_000}});
    let whole = answered(&said("hi"), &counts(9_000, 4_000));
    let twice = format!("{},\"usage\":{}}}", &whole[..whole.len() - 1], counts(1, 1));
    let hidden = json!({"role": "assistant", "content": "", "reasoning_text": long});
    let of_others = json!({"role": "assistant", "thoughts": [long]});
    let bodies = [
        (
            "an envelope",
            json!({"code": 0, "data": serde_json::from_str::<Value>(&whole).unwrap()}).to_string(),
        ),
        ("an object", "{}".to_owned()),
        ("nothing", String::new()),
        ("null", "null".to_owned()),
        ("a text", json!(whole).to_string()),
        ("HTML", format!("<html>{long}</html>")),
        ("half of it", whole[..whole.len() / 2].to_owned()),
        ("another API", of_claude.to_string()),
        ("one more", of_responses.to_string()),
        ("two reports", twice),
        ("no report", answered(&said(&long), &Value::Null)),
        ("an empty report", answered(&said(&long), &json!({}))),
        ("zeros", answered(&said("hi"), &counts(0, 0))),
        ("zeros and hidden text", answered(&hidden, &counts(0, 0))),
        ("zeros and another member", answered(&of_others, &counts(0, 0))),
        ("no prompt", answered(&said("hi"), &counts(0, 2))),
        ("a token for a book", answered(&said(&long), &counts(100, 1))),
        (
            "counts as text",
            answered(&said(&long), &json!({"prompt_tokens": "1", "completion_tokens": "1"})),
        ),
        (
            "negative counts",
            answered(&said(&long), &json!({"prompt_tokens": -5, "completion_tokens": -5})),
        ),
    ];
    let request = json!({"model": "gpt-5", "max_completion_tokens": 4_000,
        "messages": [{"role": "user", "content": "Why?"}]});
    run(async {
        for (what, body) in bodies {
            let kind = "application/json";
            let outcome = outcome("/v1/chat/completions", request.clone(), kind, body.into()).await;
            assert!(outcome.cost_unknown, "{what}: {outcome:?}");
            // 4,000 tokens of output at 10 dollars a million, or as many as there are bytes.
            let upper = outcome.cost_upper.expect("the cap bounds it").to_usd();
            assert!(upper >= 0.000_02, "{what}: {upper}");
        }
        // Reports that can be true are believed.
        for (what, text, usage) in [
            ("blanks", " ".repeat(1_280), counts(10, 10)),
            ("a short answer", "hi".to_owned(), counts(1, 1)),
            (
                "an image in a text",
                format!("![](data:image/png;base64,{})", "A".repeat(90_000)),
                counts(10, 300),
            ),
        ] {
            let body = answered(&said(&format!("x{text}")), &usage);
            let kind = "application/json";
            let outcome = outcome("/v1/chat/completions", request.clone(), kind, body.into()).await;
            assert!(!outcome.cost_unknown && outcome.cost.0 > 0, "{what}: {outcome:?}");
        }
        // A request that was refused costs nothing.
        let refused =
            json!({"error": {"message": "slow down", "type": "rate_limit_error"}}).to_string();
        let kind = "application/json";
        let outcome = outcome("/v1/chat/completions", request, kind, refused.into()).await;
        assert!(!outcome.cost_unknown && outcome.cost.0 == 0, "{outcome:?}");
    });
}

#[test]
fn unreadable_responses_reach_the_ceiling() {
    run(async {
        let answers = ["{}", "{\"code\":0,\"data\":{}}", "[]", "null"];
        let number = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let address = upstream(move |mut conn: Conn| {
            let number = Arc::clone(&number);
            async move {
                while let Ok(head) = conn.until(b"\r\n\r\n").await {
                    let head = String::from_utf8(head).expect("text");
                    let length = header(&head, "content-length").expect("a length");
                    conn.exact(length.parse().expect("a length")).await.expect("a body");
                    let at = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let body = answers[at % answers.len()];
                    let length = body.len();
                    let head =
                        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
                    conn.send(format!("{head} {length}\r\n\r\n{body}").as_bytes()).await;
                }
            }
        })
        .await;
        let limits = Limits { max_budget_usd: Some(0.2), ..Limits::default() };
        let guard = Guard::start(Settings { limits, ..Settings::default() }, address).await;
        let mut client = Conn::to(guard.address).await;
        for number in 0..100 {
            let request = json!({"model": "gpt-5", "max_completion_tokens": 4_000,
                "messages": [{"role": "user", "content": format!("Why {number}?")}]});
            client.send(&post("/run/a/v1/chat/completions", request.to_string().as_bytes())).await;
            client.message().await.1.expect("a body");
            if let Some(outcome) = guard.run("a").expect("a run").outcome() {
                assert_eq!(outcome.termination, Termination::ErrorMaxBudgetUsd);
                assert!((2..8).contains(&number), "at 0.04 dollars each: {number}");
                return;
            }
        }
        panic!("the ceiling was not reached");
    });
}
