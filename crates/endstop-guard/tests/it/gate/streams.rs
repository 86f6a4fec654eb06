//! Streams of many small chunks, each of which is read when it arrives.

use super::support::{Guard, OUTPUT, price};
use crate::proxy::support::{Conn, post, run, upstream};
use endstop_core::{Limits, NanoUsd, Termination};
use endstop_guard::proxy::Disposition;
use endstop_guard::run::Settings;
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;

/// The text of a chunk: two and a half tokens.
const TEXT: &str = "ten bytes.";

fn event(delta: &serde_json::Value, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    let event = json!({"object": "chat.completion.chunk", "model": "m", "choices": [choice]});
    format!("data: {event}\n\n")
}

/// Starts an upstream that sends this many chunks of text, and then ends the response.
async fn chunks(number: usize) -> (SocketAddr, tokio::sync::mpsc::UnboundedSender<()>) {
    let mut events = vec![event(&json!({"role": "assistant", "content": ""}), None)];
    events.resize(number + 1, event(&json!({"content": TEXT}), None));
    events.push(format!("{}data: [DONE]\n\n", event(&json!({}), Some("stop"))));
    sending(events).await
}

/// Starts an upstream that sends these chunks, each after the client has answered to the one before, and then ends the
/// response.
async fn sending(events: Vec<String>) -> (SocketAddr, tokio::sync::mpsc::UnboundedSender<()>) {
    let (next, turns) = tokio::sync::mpsc::unbounded_channel();
    let turns = std::sync::Arc::new(tokio::sync::Mutex::new(turns));
    let address = upstream(move |mut conn: Conn| {
        let (turns, events) = (std::sync::Arc::clone(&turns), events.clone());
        async move {
            let mut turns = turns.lock().await;
            let head = String::from_utf8(conn.until(b"\r\n\r\n").await.expect("a head")).expect("text");
            let length = crate::proxy::support::header(&head, "content-length").expect("a length");
            conn.exact(length.parse().expect("a length")).await.expect("a body");
            conn.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
                .await;
            for event in events {
                if turns.recv().await.is_none() {
                    return;
                }
                conn.send(format!("{:x}\r\n{event}\r\n", event.len())).await;
            }
            conn.send("0\r\n\r\n").await;
            // The proxy closes the connection.
            turns.recv().await;
        }
    })
    .await;
    (address, next)
}

fn request(run: &str) -> Vec<u8> {
    let body = json!({
        "model": "m", "stream": true, "max_tokens": 4000, "tools": [{"type": "function", "function": {"name": "t"}}],
        "messages": [{"role": "user", "content": "Say it."}],
    });
    post(&format!("/run/{run}/v1/chat/completions"), body.to_string().as_bytes())
}

#[test]
fn ceiling_is_noticed_at_its_chunk() {
    run(async {
        // With the number of chunks that pass at least.
        for (usd, least) in [(0.02, 100), (0.002, 10), (0.00045, 1)] {
            stopped_at_its_chunk(NanoUsd::from_usd(usd), least).await;
        }
    });
}

/// Streams until the ceiling is reached, which the last chunk must not exceed by more than its own cost.
async fn stopped_at_its_chunk(budget: NanoUsd, least_passed: usize) {
    let limits = Limits { max_budget_usd: Some(budget.to_usd()), ..Limits::default() };
    let (address, next) = chunks(1_000).await;
    let settings = Settings { limits, price: Some(price()), ..Settings::default() };
    let guard = Guard::start(settings, address).await;
    let mut client = Conn::to(guard.address).await;
    client.send(request("c")).await;
    client.head().await;
    let mut passed = 0;
    loop {
        next.send(()).expect("an upstream");
        // One chunk at a time, so that none arrives together with another.
        match client.chunk().await {
            Ok(_) => passed += 1,
            Err(_) => break,
        }
    }
    let outcome = guard.run("c").expect("a run").ended().await;
    assert_eq!(outcome.termination, Termination::ErrorMaxBudgetUsd);
    // The first chunk has no text, and the one that reached the ceiling did not pass.
    let text = outcome.last_text.as_deref().unwrap_or_default();
    assert_eq!(text.len(), passed * TEXT.len());
    let chunk = NanoUsd::from_usd(OUTPUT / 1e6 * 3.0);
    let (least, most) = (budget.saturating_sub(chunk), budget + chunk);
    assert!((least..=most).contains(&outcome.cost), "{:?}", outcome.cost);
    assert!(passed >= least_passed, "{passed} chunks passed");
}

#[test]
fn all_chunks_are_read() {
    run(async {
        for number in [1, 2, 61] {
            let (address, next) = chunks(number).await;
            let settings = Settings { price: Some(price()), ..Settings::default() };
            let guard = Guard::start(settings, address).await;
            let mut client = Conn::to(guard.address).await;
            client.send(request("a")).await;
            client.head().await;
            for _ in 0..number + 2 {
                next.send(()).expect("an upstream");
                client.chunk().await.expect("a chunk");
            }
            assert_eq!(client.chunked().await.expect("an end").0, b"");
            let run = guard.run("a").expect("a run");
            let outcome = run.close(true, "");
            assert_eq!(outcome.termination, Termination::Stop);
            assert_eq!(outcome.last_text, Some(TEXT.repeat(number)));
        }
    });
}

/// Qwen Code completes the arguments of a call that was cut, and runs it when it has the finish value.
#[test]
fn end_of_a_cut_call_does_not_reach_a_client_that_would_run_it() {
    run(async {
        let (whole, cut) = (r#"{"key":"x"}"#, r#"{"key":"x"#);
        // The arguments, the finish value, and whether the client may have it.
        for (arguments, finish, passes) in [
            (Some(whole), "tool_calls", true),
            (Some(""), "tool_calls", true),
            (Some(cut), "tool_calls", false),
            (Some(whole), "length", false),
            (Some(cut), "length", false),
            (Some(""), "content_filter", false),
            (None, "length", true),
        ] {
            let call = |arguments: &str| json!([{"index": 0, "id": "c", "function": {"name": "t", "arguments": arguments}}]);
            let delta = match arguments {
                Some(arguments) => json!({"content": "I run it.", "tool_calls": call(arguments)}),
                None => json!({"content": "I run it."}),
            };
            let last = format!("{}data: [DONE]\n\n", event(&json!({}), Some(finish)));
            let (address, next) = sending(vec![event(&delta, None), last]).await;
            let guard = Guard::start(Settings::default(), address).await;
            for agent in ["QwenCode/0.24.4 (linux; x64)", "other"] {
                let line = format!("\r\nUser-Agent: {agent}\r\n");
                let request = String::from_utf8(request("q")).expect("text");
                let mut client = Conn::to(guard.address).await;
                client.send(request.replacen("\r\n", &line, 1)).await;
                client.head().await;
                next.send(()).expect("an upstream");
                client.chunk().await.expect("the call");
                next.send(()).expect("an upstream");
                let end = client.chunk().await;
                assert_eq!(
                    end.is_ok(),
                    passes || agent == "other",
                    "{arguments:?} {finish} {agent}"
                );
                next.send(()).expect("an upstream");
                let turns = guard.run("q").expect("a run").live().turns;
                assert!(turns > 0, "the response is a turn");
            }
        }
    });
}

// If the next request of a run ends it, a response in progress must end although its upstream sends nothing more.
#[test]
fn run_that_ends_in_the_next_request_ends_its_silent_response() {
    // On one thread, so that nothing else notices the deadline while this test sleeps.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let test = async {
        // Longer than the first lines take on a loaded machine.
        let deadline = Duration::from_secs(2);
        let limits = Limits { timeout: Some(deadline), ..Limits::default() };
        let (address, next) = chunks(10).await;
        let settings = Settings { limits, price: Some(price()), ..Settings::default() };
        let guard = Guard::start(settings, address).await;
        let mut client = Conn::to(guard.address).await;
        client.send(request("s")).await;
        client.head().await;
        for _ in 0..2 {
            next.send(()).expect("an upstream");
            client.chunk().await.expect("a chunk");
        }
        let run = guard.run("s").expect("a run");
        assert!(run.outcome().is_none(), "the run has ended too early for this test");
        std::thread::sleep(deadline);
        let decision = guard.decide(&request("s")).await;
        assert!(matches!(decision, Disposition::Answer(_)), "{decision:?}");
        assert_eq!(run.ended().await.termination, Termination::ErrorTimeout);
        assert!(client.chunk().await.is_err(), "the response continues");
    };
    let test = async { tokio::time::timeout(Duration::from_secs(60), test).await };
    runtime.expect("a runtime").block_on(test).expect("the test hangs");
}
