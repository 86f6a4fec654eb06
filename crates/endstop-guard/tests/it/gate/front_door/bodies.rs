//! Bodies that a server may read otherwise than guard, and those of calls that are turns.

use super::{asked, chat, guarded, json_to, limited, request, usd};
use crate::gate::agents::call;
use crate::proxy::support::run;
use endstop_core::{Limits, Termination};
use serde_json::json;

/// A server may read another text than guard: in another encoding, or the other one of two members.
#[test]
fn bodies_that_servers_read_otherwise_are_refused() {
    run(async {
        let (guard, server) = guarded(limited(usd(5.0))).await;
        let plain = chat().to_string();
        for kind in [
            "application/json; charset=utf-7",
            "application/json;Charset=\"UTF-16\"",
            "text/plain; charset=ibm037",
        ] {
            for path in ["/v1/chat/completions", "/v1/unknown"] {
                let request =
                    request("POST", &format!("/run/a{path}"), Some(kind), plain.as_bytes());
                assert_eq!(call(guard.address, &request).await.0, 400, "{kind} {path}");
            }
        }
        for body in [
            r#"{"model":"o1-pro","model":"gpt-4.1-nano","messages":[]}"#,
            r#"{"model":"gpt-4.1-nano","Model":"o1-pro","messages":[]}"#,
            r#"{"MODEL":"o1-pro","messages":[]}"#,
        ] {
            let request = request(
                "POST",
                "/run/a/v1/chat/completions",
                Some("application/json"),
                body.as_bytes(),
            );
            assert_eq!(call(guard.address, &request).await.0, 400, "{body}");
        }
        assert_eq!(asked(&server), 0);
        let utf8 = request(
            "POST",
            "/run/a/v1/chat/completions",
            Some("application/json; charset=UTF-8"),
            plain.as_bytes(),
        );
        assert_eq!(call(guard.address, &utf8).await.0, 200);
    });
}

/// What a client says about a call does not make it cheaper: with tools it counts, and so does each answer.
#[test]
fn calls_with_tools_and_answers_are_turns() {
    run(async {
        let sign = "x-codex-turn-metadata: {\"request_kind\":\"compaction\"}\r\n";
        let input =
            json!({"model": "m", "input": "x", "tools": [{"type": "function", "name": "bash"}]});
        let prompt = json!({"model": "m", "max_tokens": 9, "tools": [{"name": "bash", "input_schema": {}}],
            "messages": [{"role": "user", "content": "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools."}]});
        for (path, headers, body) in [
            ("/v1/responses", sign, input.clone()),
            ("/v1/responses/compact", "", input.clone()),
            ("/v1/chat/completions", sign, chat()),
            ("/v1/messages", "", prompt),
            // Byte-equal repeats.
            ("/v1/responses", "", input),
            ("/v1/chat/completions", "", chat()),
            (
                "/v1/chat/completions",
                "idempotency-key: 1\r\nx-stainless-retry-count: 3\r\n",
                chat(),
            ),
        ] {
            let limits = Limits { max_turns: Some(3), ..Limits::none() };
            let (guard, server) = guarded(limited(limits)).await;
            for _ in 0..12 {
                let request = json_to(&format!("/run/a{path}"), &body);
                let request = String::from_utf8(request).expect("text");
                let request = request.replacen("\r\n", &format!("\r\n{headers}"), 1);
                assert!(call(guard.address, request.as_bytes()).await.0 < 500);
            }
            assert_eq!(asked(&server), 3, "{path} {headers}");
            let outcome = guard.run("a").expect("a run").outcome().expect("an end");
            assert_eq!(
                (outcome.termination, outcome.turns),
                (Termination::ErrorMaxTurns, 3),
                "{path} {headers}"
            );
        }
    });
}
