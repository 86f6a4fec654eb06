//! Hostile clients and upstreams through the gate.

use super::agents::{ALL, Speaks, Talk, call};
use super::support::{Bills, Choose, Guard, Manner, billing, price};
use crate::proxy::support::{Conn, header, post, run, upstream};
use endstop_core::Limits;
use endstop_guard::proxy::ProxyOptions;
use endstop_guard::run::Settings;
use std::sync::Arc;
use std::time::Duration;

fn answer() -> Choose {
    Arc::new(|_| Manner::Answer)
}

fn limited() -> Settings {
    let limits = Limits { max_budget_usd: Some(1.0), ..Limits::default() };
    Settings { limits, price: Some(price()), ..Settings::default() }
}

#[test]
fn bodies_that_cannot_be_read_are_refused_under_a_limit() {
    run(async {
        let bills = Arc::new(Bills::default());
        let (address, _stop) = billing(Arc::clone(&bills), answer()).await;
        let guard = Guard::with(limited(), address, ProxyOptions::default()).await;
        let many = format!("[{}1]", "1,".repeat(4_000_000));
        for (name, body) in [
            ("not JSON", "run u; {".to_owned()),
            ("not an object", "[1]".to_owned()),
            ("heavy", format!("{{\"model\":\"m\",\"messages\":{many}}}")),
        ] {
            for path in ["/run/u/v1/messages", "/v1/chat/completions"] {
                let (status, text) = call(guard.address, &post(path, body.as_bytes())).await;
                let text = text.expect("a body");
                assert!(
                    status == 400 && text.contains("cannot be enforced"),
                    "{name} at {path}: {status} {text}"
                );
            }
        }
        assert!(bills.bodies.lock().expect("a lock").is_empty(), "nothing reached the upstream");
    });
}

#[test]
fn forged_names_start_no_run() {
    run(async {
        let bills = Arc::new(Bills::default());
        let (address, _stop) = billing(Arc::clone(&bills), answer()).await;
        let guard = Guard::start(limited(), address).await;
        let body = b"{\"model\":\"m\",\"messages\":[]}";
        let long = format!("/run/{}/v1/messages", "a".repeat(500));
        for path in [
            "/run/../v1/messages",
            "/run/..%2f..%2fetc/v1/messages",
            "/run/%0d%0aX:%20y/v1/messages",
            "/run/a/../b/v1/messages",
            "/run/a/%2e%2e/v1/messages",
            "/run//v1/messages",
            "/run/%00/v1/messages",
            "/run/a%20b/v1/messages",
            &long,
        ] {
            let (status, _) = call(guard.address, &post(path, body)).await;
            assert_eq!(status, 400, "{path}");
        }
        for name in ["../x", "a b", "a/b", "%0a", "\u{7f}"] {
            let request = format!(
                "POST /v1/messages HTTP/1.1\r\nHost: x\r\nx-endstop-run: {name}\r\nContent-Length: {}\r\n\r\n{}",
                body.len(),
                String::from_utf8_lossy(body)
            );
            let mut conn = Conn::to(guard.address).await;
            conn.send(&request).await;
            assert!(conn.head().await.starts_with("HTTP/1.1 400"), "{name}");
        }
        assert!(guard.gate.runs().is_empty());
        assert!(bills.bodies.lock().expect("a lock").is_empty());
    });
}

#[test]
fn lying_usage_is_held() {
    run(async {
        for usage in [
            r#"{"prompt_tokens":-5,"completion_tokens":-7}"#,
            r#"{"prompt_tokens":18446744073709551615,"completion_tokens":18446744073709551615}"#,
            r#"{"prompt_tokens":1e400,"completion_tokens":"NaN"}"#,
            r#"{"prompt_tokens":null}"#,
            r#"{"prompt_tokens":1.5,"completion_tokens":[1]}"#,
            r#"[]"#,
            r#""""#,
        ] {
            let address = upstream(move |mut conn: Conn| async move {
                while let Ok(head) = conn.until(b"\r\n\r\n").await {
                    let head = String::from_utf8(head).expect("text");
                    let length = header(&head, "content-length").expect("a length");
                    conn.exact(length.parse().expect("a length")).await.expect("a body");
                    let body = format!(
                        "{{\"id\":\"x\",\"choices\":[{{\"index\":0,\"message\":{{\"role\":\"assistant\",\"content\":\"yes\"}},\"finish_reason\":\"stop\"}}],\"usage\":{usage}}}"
                    );
                    conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())).await;
                }
            })
            .await;
            let guard = Guard::start(limited(), address).await;
            let talk = Talk::new("l", "t", Speaks::Chat);
            let (status, body) = call(guard.address, &talk.request()).await;
            assert!(status == 200 && body.expect("a body").contains(usage), "passes unchanged");
            let run = guard.run("l").expect("a run");
            run.idle().await;
            let outcome = run.close(true, "");
            // A lie is either far too much, which ends the run, or unknown, which is said.
            let huge = usage.contains("18446744073709551615");
            assert!(outcome.cost_unknown || huge, "{usage}: {outcome:?}");
            assert!(
                !huge || outcome.cost.to_usd() > 1.0 || outcome.cost_unknown,
                "{usage}: {outcome:?}"
            );
        }
    });
}

#[test]
fn secrets_are_found_only_upstream() {
    run(async {
        const SECRET: &str = "sk-planted-secret";
        let bills = Arc::new(Bills::default());
        let (address, _stop) = billing(Arc::clone(&bills), answer()).await;
        let guard = Guard::start(limited(), address).await;
        let mut answers = String::new();
        for speaks in ALL {
            let talk = Talk::new("s", SECRET, speaks);
            let request = String::from_utf8(talk.request()).expect("text");
            let request = request.replacen(
                "Host: x",
                &format!("Host: x\r\nAuthorization: Bearer {SECRET}\r\nx-api-key: {SECRET}"),
                1,
            );
            let line = request.lines().next().expect("a line").to_owned();
            let mark = if line.contains('?') { '&' } else { '?' };
            let keyed = line.replace(" HTTP/1.1", &format!("{mark}key={SECRET} HTTP/1.1"));
            for request in
                [request.replacen(&line, &keyed, 1), request.replacen("/run/s", "/run/%0a", 1)]
            {
                answers += &call(guard.address, request.as_bytes()).await.1.expect("a body");
            }
            let broken = post(&format!("/run/s/v1/messages?key={SECRET}"), SECRET.as_bytes());
            answers += &call(guard.address, &broken).await.1.expect("a body");
        }
        assert!(bills.bodies.lock().expect("a lock").concat().matches(SECRET).count() >= 4);
        let run = guard.run("s").expect("a run");
        run.idle().await;
        let outcome = run.close(true, "");
        let events = format!("{:?}", guard.events.lock().expect("a lock"));
        assert!(events.contains("Refused"), "{events}");
        let ending = format!(
            "{:?} {:?} {run:?} {:?}",
            outcome.decided_by, outcome.error_diagnostic, guard.gate
        );
        for text in [answers, events, ending] {
            assert!(!text.contains(SECRET), "{text}");
        }
    });
}

#[test]
fn exhausted_allowance_passes_on() {
    run(async {
        let told =
            r#"{"error":{"type":"usage_limit_reached","message":"x","resets_in_seconds":14000}}"#;
        let address = upstream(move |mut conn: Conn| async move {
            let head =
                String::from_utf8(conn.until(b"\r\n\r\n").await.expect("a head")).expect("text");
            let length = header(&head, "content-length").expect("a length");
            conn.exact(length.parse().expect("a length")).await.expect("a body");
            let head =
                format!("HTTP/1.1 429 Too Many Requests\r\nContent-Length: {}\r\n\r\n", told.len());
            conn.send(head + told).await;
        })
        .await;
        let guard = Guard::start(limited(), address).await;
        let body = br#"{"model":"m","messages":[{"role":"user","content":"Say it."}]}"#;
        // The client decides if it calls again.
        for _ in 0..2 {
            let (status, body) =
                call(guard.address, &post("/run/q/v1/chat/completions", body)).await;
            assert_eq!((status, body.expect("a body").as_str()), (429, told));
        }
        let run = guard.run("q").expect("a run");
        assert!(run.outcome().is_none(), "the run has ended");
        let outcome = run.close(false, "");
        assert_eq!(outcome.retry_after, Some(Duration::from_secs(14_000)), "{outcome:?}");
        assert_eq!(outcome.cost, endstop_core::NanoUsd::ZERO);
    });
}
