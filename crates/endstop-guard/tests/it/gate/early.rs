//! Clients that call again before the exchange of their last call has ended, as a client does that reads
//! up to the end of the message and not of the body.

use super::support::{Guard, price};
use crate::proxy::support::{Conn, header, post, run, run_within, upstream};
use endstop_core::{Limits, Outcome, Termination};
use endstop_guard::run::Settings;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The event after which an upstream sends nothing more, and does not end the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Finish,
    Usage,
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
            if last != Last::Finish {
                let usage = json!({"prompt_tokens": 10, "completion_tokens": 5});
                events.push(format!("data: {}\n\n", json!({"choices": [], "usage": usage})));
            }
            if last == Last::Marker {
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
        let end: &[u8] = match last {
            Last::Finish => b"\"tool_calls\"}]",
            Last::Usage => b"usage",
            Last::Marker => b"[DONE]",
        };
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
    if last != Last::Finish {
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
            // Without the end of the message, but with all that it needs.
            assert_eq!(three_calls(Last::Usage, leaves).await, 30);
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

/// Starts an upstream that sends these events, each after a pause in milliseconds, and never ends the body.
async fn open_ended(events: Vec<(u64, String)>) -> SocketAddr {
    let events = Arc::new(events);
    upstream(move |mut conn: Conn| {
        let events = Arc::clone(&events);
        async move {
            let head = String::from_utf8(conn.until(b"\r\n\r\n").await.expect("a head")).expect("text");
            let length = header(&head, "content-length").expect("a length");
            conn.exact(length.parse().expect("a length")).await.expect("a body");
            conn.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
                .await;
            for (pause, event) in events.iter() {
                tokio::time::sleep(Duration::from_millis(*pause)).await;
                conn.send(format!("{:x}\r\n{event}\r\n", event.len())).await;
            }
            std::future::pending::<()>().await;
        }
    })
    .await
}

/// Reads a response up to this text, leaves, and returns the outcome of the run.
async fn read_until(events: Vec<(u64, String)>, last: &str) -> Arc<Outcome> {
    let address = open_ended(events).await;
    let settings = Settings { price: Some(price()), ..Settings::default() };
    let guard = Guard::start(settings, address).await;
    let mut client = Conn::to(guard.address).await;
    client.send(request(0)).await;
    client.until(last.as_bytes()).await.expect("the whole response passes");
    drop(client);
    let run = guard.run("e").expect("a run");
    run.idle().await;
    run.close(true, "")
}

#[test]
fn complete_turn_on_open_connection_counts() {
    run(async {
        let text = || (0, chunk(&json!({"content": "It is 42."}), None));
        let stop = || (0, chunk(&json!({}), Some("stop")));
        let usage = |pause| {
            let usage = json!({"prompt_tokens": 10, "completion_tokens": 5});
            (pause, format!("data: {}\n\n", json!({"choices": [], "usage": usage})))
        };
        let more = || (1_000, chunk(&json!({"content": " Or 43."}), Some("stop")));
        for (events, last, said, tokens) in [
            (vec![text(), stop(), usage(0)], "usage", "It is 42.", Some(15)),
            (vec![text(), stop()], "\"stop\"", "It is 42.", None),
            // The client still reads, or has left, when the usage comes.
            (vec![text(), stop(), usage(3_000)], "usage", "It is 42.", Some(15)),
            (vec![text(), stop(), usage(1_000)], "\"stop\"", "It is 42.", Some(15)),
            (vec![text(), stop(), usage(0), more()], "43.", "It is 42. Or 43.", Some(15)),
        ] {
            let outcome = read_until(events.clone(), last).await;
            let case = format!("{events:?} {outcome:?}");
            assert_eq!(outcome.termination, Termination::Stop, "{case}");
            assert_eq!(outcome.last_text.as_deref(), Some(said), "{case}");
            assert_eq!(outcome.cost_unknown, tokens.is_none(), "{case}");
            if let Some(tokens) = tokens {
                assert_eq!(outcome.usage.total_tokens(), tokens, "{case}");
            }
        }
        // A finish value that is not known, or none, does not complete it.
        for finish in [Some("banana"), None] {
            let end = (0, chunk(&json!({}), finish));
            let outcome = read_until(vec![text(), end, usage(0)], "usage").await;
            assert!(!outcome.termination.is_success(), "{finish:?} {outcome:?}");
        }
    });
}

/// A client that reads on: the call counts when nothing more of it comes, its stream passes on, and usage that comes
/// late corrects what was booked.
#[test]
fn complete_turn_counts_while_its_client_reads_on() {
    run_within(Duration::from_secs(60), async {
        let text = || (0, chunk(&json!({"content": "It is 42."}), None));
        let stop = || (0, chunk(&json!({}), Some("stop")));
        let usage = |pause, output: u64| {
            let usage = json!({"prompt_tokens": 10, "completion_tokens": output});
            (pause, format!("data: {}\n\n", json!({"choices": [], "usage": usage})))
        };
        let pings = |count| (0..count).map(|_| (400, ": ping\n\n".to_owned()));
        let more = |pause| (pause, chunk(&json!({"content": " Or 43."}), Some("stop")));
        let cases = [
            // Pings do not extend it.
            ([text(), stop(), usage(0, 5)].into_iter().chain(pings(30)).collect(), 2, 15),
            // Without usage it takes longer, and is then estimated.
            ([text(), stop()].into_iter().chain(pings(30)).collect(), 10, 0),
            // Content extends it.
            (vec![text(), stop(), usage(0, 5), more(1_000)], 11, 15),
            // Usage that comes later.
            (vec![text(), stop(), usage(0, 5), usage(3_500, 500)], 2, 510),
            (vec![text(), stop(), usage(12_000, 500)], 10, 500),
            // Less than before changes nothing.
            (vec![text(), stop(), usage(0, 50), usage(3_500, 5)], 2, 60),
        ];
        let mut all = tokio::task::JoinSet::new();
        for (events, seconds, tokens) in cases {
            all.spawn(async move {
                let case = format!("{events:?}");
                let address = open_ended(events).await;
                let settings = Settings { price: Some(price()), ..Settings::default() };
                let guard = Guard::start(settings, address).await;
                let mut client = Conn::to(guard.address).await;
                client.send(request(0)).await;
                client.until(b"stop").await.expect("the finish value");
                let began = tokio::time::Instant::now();
                let run = guard.run("e").expect("a run");
                run.idle().await;
                let took = began.elapsed().as_secs_f64();
                let wanted = f64::from(seconds);
                assert!((wanted - 0.5..wanted + 1.5).contains(&took), "{took}: {case}");
                assert_eq!(run.spent().turns, 1, "{case}");
                // The stream still passes.
                let rest =
                    tokio::time::timeout(Duration::from_secs(4), client.until(b"never")).await;
                assert!(rest.is_err(), "the stream was ended: {case}");
                drop(client);
                let has_tokens = |run: &endstop_guard::run::RunHandle| {
                    run.spent().usage.total_tokens() >= tokens
                };
                run.until(has_tokens).await;
                let spent = run.spent();
                // What was estimated is not taken back.
                if tokens > 0 && tokens != 500 {
                    assert_eq!(spent.usage.total_tokens(), tokens, "{case}");
                    let cost = (10.0 * 10.0 + (tokens - 10) as f64 * 40.0) / 1e6;
                    assert!((spent.cost.to_usd() - cost).abs() < 1e-9, "{spent:?} {case}");
                }
                let outcome = run.close(true, "");
                assert_eq!(outcome.termination, Termination::Stop, "{case}");
                assert_eq!(outcome.usage.total_tokens(), spent.usage.total_tokens(), "{case}");
            });
        }
        while let Some(done) = all.join_next().await {
            done.expect("a case");
        }
    });
}
