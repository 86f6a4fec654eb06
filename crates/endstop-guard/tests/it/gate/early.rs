//! Clients that call again before the exchange of their last call has ended, as a client does that reads
//! up to the end of the message and not of the body.

use super::support::{Guard, price};
use crate::proxy::support::{Conn, header, post, run, upstream};
use endstop_core::{Limits, Termination};
use endstop_guard::run::Settings;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The event after which an upstream sends nothing more, and does not end the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Finish,
    Marker,
}

fn call(turn: u32) -> Value {
    let function = json!({"name": "t", "arguments": format!("{{\"turn\":{turn}}}")});
    json!({"index": 0, "id": format!("call_{turn}"), "type": "function", "function": function})
}

fn chunk(delta: &Value, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    let event = json!({"object": "chat.completion.chunk", "model": "m", "choices": [choice]});
    format!("data: {event}\n\n")
}

/// Calls a tool in each turn, and never ends a body. Counts its calls.
async fn endless(last: Last) -> (SocketAddr, Arc<AtomicU32>) {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let address = upstream(move |mut conn: Conn| {
        let calls = Arc::clone(&counted);
        async move {
            let head = String::from_utf8(conn.until(b"\r\n\r\n").await.expect("a head")).expect("text");
            let length = header(&head, "content-length").expect("a length");
            conn.exact(length.parse().expect("a length")).await.expect("a body");
            let turn = calls.fetch_add(1, Ordering::Relaxed);
            conn.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
                .await;
            let mut events = vec![
                chunk(&json!({"role": "assistant", "content": "Now this."}), None),
                chunk(&json!({"tool_calls": [call(turn)]}), None),
                chunk(&json!({}), Some("tool_calls")),
            ];
            if last == Last::Marker {
                let usage = json!({"prompt_tokens": 10, "completion_tokens": 5});
                events.push(format!("data: {}\n\n", json!({"choices": [], "usage": usage})));
                events.push("data: [DONE]\n\n".into());
            }
            for event in events {
                conn.send(format!("{:x}\r\n{event}\r\n", event.len())).await;
            }
            std::future::pending::<()>().await;
        }
    })
    .await;
    (address, calls)
}

fn request(turn: u32) -> Vec<u8> {
    let mut messages = vec![json!({"role": "user", "content": "Do it."})];
    for turn in 0..turn {
        messages
            .push(json!({"role": "assistant", "content": "Now this.", "tool_calls": [call(turn)]}));
        messages.push(
            json!({"role": "tool", "tool_call_id": format!("call_{turn}"), "content": "Done."}),
        );
    }
    let body = json!({
        "model": "m", "stream": true, "tools": [{"type": "function", "function": {"name": "t"}}],
        "messages": messages,
    });
    post("/run/e/v1/chat/completions", body.to_string().as_bytes())
}

/// Three calls under a limit of two turns. Returns the tokens of the run.
async fn three_calls(last: Last, leaves: bool) -> u64 {
    let (address, calls) = endless(last).await;
    let limits = Limits { max_turns: Some(2), ..Limits::default() };
    let settings = Settings { limits, price: Some(price()), ..Settings::default() };
    let guard = Guard::start(settings, address).await;
    let mut open = Vec::new();
    for turn in 0..2 {
        let mut client = Conn::to(guard.address).await;
        client.send(request(turn)).await;
        let end: &[u8] = if last == Last::Marker { b"[DONE]" } else { b"\"tool_calls\"}]" };
        client.until(end).await.expect("an event");
        if leaves {
            drop(client);
        } else {
            open.push(client);
        }
    }
    let mut client = Conn::to(guard.address).await;
    client.send(request(2)).await;
    let (_, body) = client.message().await;
    let told = String::from_utf8(body.expect("an answer")).expect("text");
    assert!(told.contains("error_max_turns"), "{told}");
    assert_eq!(calls.load(Ordering::Relaxed), 2, "{last:?}, leaves: {leaves}");
    let run = guard.run("e").expect("a run");
    let outcome = run.ended().await;
    assert_eq!(outcome.termination, Termination::ErrorMaxTurns);
    if last == Last::Marker {
        let counted = (outcome.turns, outcome.model_calls, outcome.tool_calls);
        assert_eq!(counted, (2, 2, 2), "leaves: {leaves}");
        assert_eq!(run.counts().threads, 1, "no call was parallel");
    }
    outcome.usage.total_tokens()
}

#[test]
fn message_that_has_passed_is_a_turn() {
    run(async {
        for leaves in [false, true] {
            assert_eq!(three_calls(Last::Marker, leaves).await, 30);
        }
    });
}

#[test]
fn finish_value_that_has_passed_is_a_turn() {
    run(async {
        for leaves in [false, true] {
            three_calls(Last::Finish, leaves).await;
        }
    });
}
