//! Paths in another spelling, and paths that no row knows, pass no limit.

use super::{SPELLINGS, asked, chat, guarded, json_to, limited, request, usd};
use crate::gate::agents::call;
use crate::proxy::support::{Conn, run};
use endstop_core::{Limits, Termination, ToolPolicy};
use endstop_guard::run::{OtherCalls, Settings};
use serde_json::{Value, json};
use std::sync::Arc;

#[test]
fn other_spellings_are_refused_under_a_ceiling() {
    run(async {
        let deploy =
            ToolPolicy { name: "deploy".to_owned(), max_calls: Some(1), ..ToolPolicy::default() };
        for (limits, tools) in [
            (usd(0.01), vec![]),
            (Limits { max_turns: Some(1), ..Limits::none() }, vec![]),
            (Limits { max_tokens: Some(100), ..Limits::none() }, vec![]),
            (Limits { max_tool_calls: Some(1), ..Limits::none() }, vec![]),
            (Limits { max_rate: "$1/h".parse().ok(), ..Limits::none() }, vec![]),
            (Limits { max_window: "5h=80%".parse().ok(), ..Limits::none() }, vec![]),
            (Limits::none(), vec![deploy]),
        ] {
            for other in [None, Some(OtherCalls::Pass)] {
                let tools = Arc::new(tools.clone());
                let settings = Settings { other, tools, ..limited(limits.clone()) };
                let (guard, server) = guarded(settings).await;
                for path in SPELLINGS {
                    let (status, body) =
                        call(guard.address, &json_to(&format!("/run/a{path}"), &chat())).await;
                    assert_eq!(status, 400, "{path}: {body:?}");
                    assert!(body.expect("a body").contains("another spelling"), "{path}");
                }
                assert_eq!(asked(&server), 0);
            }
        }
        // Nothing that a limit could be stepped around with: they pass.
        for limits in [
            Limits::none(),
            Limits { timeout: Some(std::time::Duration::from_secs(60)), ..Limits::none() },
        ] {
            let (guard, server) = guarded(limited(limits)).await;
            for path in SPELLINGS {
                assert_ne!(call(guard.address, &json_to(path, &chat())).await.0, 400, "{path}");
            }
            assert_eq!(asked(&server), SPELLINGS.len());
        }
    });
}

#[test]
fn other_methods_are_other_spellings() {
    run(async {
        let (guard, server) = guarded(limited(usd(0.01))).await;
        for method in ["PUT", "PATCH", "post", "Post", "QUERY", "GET", "DELETE", "OPTIONS", "TRACE"]
        {
            let kind = Some("application/json");
            let body = chat().to_string();
            let (status, _) = call(
                guard.address,
                &request(method, "/run/a/v1/chat/completions", kind, body.as_bytes()),
            )
            .await;
            assert_eq!(status, 400, "{method}");
        }
        assert_eq!(asked(&server), 0);
        // A list of stored answers has no body.
        let list = request("GET", "/run/a/v1/chat/completions?limit=2", None, b"");
        assert_eq!(call(guard.address, &list).await.0, 200);
        // After the end of a run, no method gets more.
        let (guard, server) =
            guarded(limited(Limits { max_turns: Some(1), ..Limits::none() })).await;
        assert_eq!(
            call(guard.address, &json_to("/run/a/v1/chat/completions", &chat())).await.0,
            200
        );
        call(
            guard.address,
            &json_to(
                "/run/a/v1/chat/completions",
                &json!({"model": "m", "messages": [],
            "tools": [{"type": "function", "function": {"name": "bash"}}]}),
            ),
        )
        .await
        .1
        .expect("an answer");
        let before = asked(&server);
        for method in ["GET", "DELETE", "POST"] {
            let body = chat().to_string();
            let request = request(
                method,
                "/run/a/v1/chat/completions",
                Some("application/json"),
                body.as_bytes(),
            );
            let (_, answer) = call(guard.address, &request).await;
            assert!(!answer.expect("an answer").contains("paid"), "{method}");
        }
        assert_eq!(asked(&server), before);
    });
}

/// A server that routes by the beginning of a path serves a call under a path that no row knows, also if calls that
/// guard does not know may pass.
#[test]
fn paths_that_begin_like_a_call_step_around_no_limit() {
    run(async {
        let beginnings = [
            "/v1/messagesX",
            "/v1/messages/x",
            "/v1/messages.json",
            "/v1/messages;a=b/x",
            "/v1//messages/x",
            "/v1/messages%00x",
            "/v1/%6dessages%2Fx",
            "/v1/Messages-x?beta=true",
            "/v1/messages/x/files",
            "/v1/messages/x/tokenize",
            "/v1/chat/completionsX",
            "/v1/chat/completions/completions",
            "/v1/chat/completions/embeddings",
            "/v1/responses/x/y",
            "/v1/embeddings2",
        ];
        let pass = || Some(OtherCalls::Pass);
        let turns = Limits { max_turns: Some(5), ..Limits::none() };
        for (limits, other) in [(usd(0.01), pass()), (turns, pass()), (usd(0.01), None)] {
            let (guard, server) = guarded(Settings { other, ..limited(limits) }).await;
            server.lock().expect("a lock").routes_by_beginning = true;
            for target in beginnings {
                for kind in ["application/json", "text/plain", "application/x-www-form-urlencoded"]
                {
                    for method in ["POST", "PUT", "GET"] {
                        let target = format!("/run/a{target}");
                        let body = chat().to_string();
                        let request = request(method, &target, Some(kind), body.as_bytes());
                        let (status, answer) = call(guard.address, &request).await;
                        assert_eq!(status, 400, "{method} {target} {kind} {answer:?}");
                    }
                }
            }
            assert_eq!(asked(&server), 0, "{other:?}");
        }
        // Known calls that begin like another one, calls without a body, and runs without limits.
        let passing = [
            ("POST", "/v1/messages/count_tokens", "{}"),
            ("POST", "/v1/responses/input_tokens", "{}"),
            ("POST", "/v1/messages/batches/b1/cancel", ""),
            ("DELETE", "/v1/responses/r1", ""),
            ("GET", "/v1/responses/r1/input_items", ""),
        ];
        let (guard, server) = guarded(Settings { other: pass(), ..limited(usd(0.01)) }).await;
        for (at, (method, target, body)) in passing.into_iter().enumerate() {
            let target = format!("/run/a{target}");
            let request = request(method, &target, Some("application/json"), body.as_bytes());
            let _ = call(guard.address, &request).await;
            assert_eq!(asked(&server), at + 1, "{method} {target}");
        }
        let (guard, server) = guarded(limited(Limits::none())).await;
        for target in beginnings {
            assert_eq!(call(guard.address, &json_to(target, &chat())).await.0, 200, "{target}");
        }
        assert_eq!(asked(&server), beginnings.len());
    });
}

/// A server that routes by the beginning of a path answers a count of tokens like the model call above its path. A count
/// whose body asks for output is refused; another one is booked with its first answer, and refused from then on.
#[test]
fn counts_of_tokens_step_around_no_limit() {
    const COUNTS: [&str; 3] = [
        "/v1/messages/count_tokens",
        "/v1/messages/count_tokens?beta=true",
        "/v1/responses/input_tokens",
    ];
    let turns = || Limits { max_turns: Some(5), ..Limits::none() };
    let count = || json!({"model": "m", "messages": [{"role": "user", "content": "hello"}]});
    let asking = |member: &str, value: Value| {
        let mut body = count();
        body[member] = value;
        body
    };
    run(async {
        let asks = [
            asking("max_tokens", json!(9)),
            asking("max_output_tokens", json!(9)),
            asking("MAX_TOKENS", json!(9)),
            asking("stream", json!(true)),
        ];
        for limits in [usd(0.01), turns()] {
            let (guard, server) = guarded(limited(limits)).await;
            server.lock().expect("a lock").routes_by_beginning = true;
            for path in COUNTS {
                for body in &asks {
                    let request = json_to(&format!("/run/a{path}"), body);
                    assert_eq!(call(guard.address, &request).await.0, 400, "{path} {body}");
                }
                let request = request("POST", &format!("/run/a{path}"), None, b"model=m");
                assert_eq!(call(guard.address, &request).await.0, 400, "{path}");
            }
            let cancel = json_to("/run/a/v1/responses/resp_1/cancel", &count());
            assert_eq!(call(guard.address, &cancel).await.0, 400);
            assert_eq!(asked(&server), 0);
        }
        for path in COUNTS {
            let (guard, server) = guarded(limited(usd(0.0001))).await;
            server.lock().expect("a lock").routes_by_beginning = true;
            let (status, answer) =
                call(guard.address, &json_to(&format!("/run/a{path}"), &count())).await;
            assert_eq!(status, 200, "{path} {answer:?}");
            for path in COUNTS {
                let request = json_to(&format!("/run/a{path}"), &count());
                assert_eq!(call(guard.address, &request).await.0, 400, "{path}");
            }
            assert_eq!(asked(&server), 1);
            // The answer has used up the ceiling.
            let chat = json_to("/run/a/v1/chat/completions", &chat());
            let _ = call(guard.address, &chat).await;
            assert_eq!(asked(&server), 1, "{path}");
            let run = guard.run("a").expect("a run");
            let outcome = run.outcome().expect("an end");
            assert_eq!(outcome.termination, Termination::ErrorMaxBudgetUsd, "{path}");
            let bill = server.lock().expect("a lock").usd;
            let booked = outcome.cost.to_usd();
            assert!((booked - bill).abs() < 1e-9, "{path}: {booked} of {bill}");
            // After the end nothing is counted any more.
            let (status, answer) =
                call(guard.address, &json_to(&format!("/run/a{path}"), &json!({}))).await;
            assert_ne!(status, 200, "{path} {answer:?}");
            assert_eq!(asked(&server), 1);
        }
        // A strict ceiling is kept.
        let (guard, server) = guarded(Settings { cap_output: true, ..limited(usd(0.01)) }).await;
        for path in COUNTS {
            let (status, answer) =
                call(guard.address, &json_to(&format!("/run/a{path}"), &count())).await;
            assert_eq!(status, 400, "{path}");
            assert!(answer.expect("a body").contains("--cap-output"), "{path}");
        }
        assert_eq!(asked(&server), 0);
        // Counts of other servers pass, and make no turn.
        let (guard, server) = guarded(limited(turns())).await;
        for at in 1..20 {
            for path in COUNTS {
                let (status, answer) =
                    call(guard.address, &json_to(&format!("/run/a{path}"), &count())).await;
                assert_eq!(status, 200, "{path} {answer:?}");
                assert!(answer.expect("a body").contains("input_tokens"), "{at}");
            }
        }
        assert_eq!(asked(&server), 19 * COUNTS.len());
        let run = guard.run("a").expect("a run");
        assert_eq!((run.outcome().is_none(), run.counts().calls), (true, 0));
    });
}

#[test]
fn unknown_calls_with_json_are_refused() {
    run(async {
        let json = Some("application/json");
        let form = Some("application/x-www-form-urlencoded");
        let refused: [(&str, Option<&str>, &[u8]); 32] = [
            // The names of members do not matter.
            ("/v1/unknown", json, br#"{"event":"x"}"#),
            ("/v1/unknown", json, br#"{"inputs":"x"}"#),
            ("/v1/unknown", json, br#"{"agentId":"a","query":"q","documents":[]}"#),
            ("/v1/unknown", json, br#"{"instances":[{"text":"x"}]}"#),
            ("/v1/unknown", json, b"{}"),
            ("/v1/unknown", json, b"4"),
            ("/v1/unknown", Some("application/vnd.x+json"), br#""text""#),
            // The label does not matter.
            ("/v1/unknown", form, br#"{"prompt_id":"x"}"#),
            ("/v1/unknown", Some("text/plain"), b"\xef\xbb\xbf \r\n\t{\"flow\":1"),
            ("/v1/unknown", Some("application/octet-stream"), b"\n[{\"text\":1}]"),
            ("/v1/unknown", Some("multipart/form-data; boundary=x"), b"[1]"),
            ("/v1/unknown", Some("text/plain"), b"{\0\"\0m\0"),
            ("/v1/projects/p/endpoints/4:serverStreamingPredict", json, br#"{"inputs":[]}"#),
            ("/v1/evals", json, b"{}"),
            ("/v1/evals/eval_1/runs", json, br#"{"data_source":{}}"#),
            ("/v1/sessions", json, br#"{"agent":"a"}"#),
            ("/v1/sessions/s1/events", form, b"a=b"),
            ("/v1/sessions", None, b""),
            ("/v1/unknown", json, br#"{"model":"m"}"#),
            ("/v1/unknown", Some("text/plain"), br#"{"messages":[]}"#),
            ("/v1/unknown", None, br#"{"prompt":"x"}"#),
            ("/v1/unknown", json, br#"{"INPUT":"x"}"#),
            ("/v1/unknown", json, br#"{"contents":[]}"#),
            ("/v1/unknown", json, br#"[{"model":"m"}]"#),
            ("/v1/unknown", json, br#"{"model":"m",}"#),
            ("/v1/unknown", None, b"\x1f\x8b\x08"),
            ("/v1/unknown", Some("text/plain"), b"\xff\xfe{\0\"\0m\0"),
            ("/v1/completions", json, br#"{"x":1}"#),
            ("/v1/messages/batches", json, br#"{"requests":[]}"#),
            ("/api/generate", json, b"{}"),
            ("/v1beta/interactions", json, b"{}"),
            ("/v1/realtime/sessions", json, b"{}"),
        ];
        let passing: [(&str, Option<&str>, &[u8]); 15] = [
            ("/v1/unknown", form, b"model=m&prompt=x"),
            ("/v1/unknown", Some("text/plain"), b"say {\"model\":1}"),
            ("/v1/traces/ingest", json, br#"{"data":[]}"#),
            ("/mcp", json, br#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#),
            ("/github/mcp", json, br#"{"jsonrpc":"2.0","method":"initialize"}"#),
            ("/v1/unknown", json, b""),
            ("/v1/unknown", None, b""),
            ("/v1/unknown", Some("multipart/form-data; boundary=x"), b"--x\r\nmodel"),
            ("/v1/unknown", Some("application/octet-stream"), b"\x00\x01"),
            ("/v1/traces", json, br#"{"input":"x"}"#),
            ("/v1/files", Some("multipart/form-data; boundary=x"), b"--x--"),
            ("/v1/files", json, br#"{"model":"m"}"#),
            ("/api/show", json, br#"{"model":"m"}"#),
            ("/api/pull", json, br#"{"model":"m"}"#),
            ("/v1/moderations", json, br#"{"model":"m","input":"x"}"#),
        ];
        let (guard, server) = guarded(limited(usd(0.01))).await;
        for (path, kind, body) in refused {
            for method in ["POST", "PUT", "PATCH"] {
                // The rows are those of POST.
                if method != "POST" && path != "/v1/unknown" {
                    continue;
                }
                let (status, answer) =
                    call(guard.address, &request(method, &format!("/run/a{path}"), kind, body))
                        .await;
                let text = String::from_utf8_lossy(body).into_owned();
                assert_eq!(status, 400, "{method} {path} {text}: {answer:?}");
                assert!(answer.expect("a body").contains("--other pass"), "{path}");
            }
        }
        assert_eq!(asked(&server), 0);
        for (path, kind, body) in passing {
            let (status, _) =
                call(guard.address, &request("POST", &format!("/run/a{path}"), kind, body)).await;
            assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(body));
        }
        // They pass if that is asked for, and without a ceiling.
        let timeout =
            Limits { timeout: Some(std::time::Duration::from_secs(60)), ..Limits::none() };
        for settings in [
            Settings { other: Some(OtherCalls::Pass), ..limited(usd(0.01)) },
            limited(Limits::none()),
            limited(timeout),
        ] {
            let (guard, server) = guarded(settings).await;
            for (path, kind, body) in refused {
                assert_eq!(
                    call(guard.address, &request("POST", path, kind, body)).await.0,
                    200,
                    "{path}"
                );
            }
            assert_eq!(asked(&server), refused.len());
        }
        // Asked for without a ceiling, they are refused.
        let (guard, server) =
            guarded(Settings { other: Some(OtherCalls::Refuse), ..limited(Limits::none()) }).await;
        for (path, kind, body) in refused {
            assert_eq!(
                call(guard.address, &request("POST", path, kind, body)).await.0,
                400,
                "{path}"
            );
        }
        assert_eq!(asked(&server), 0);
    });
}

#[test]
fn body_without_a_length_on_an_unknown_path_is_bounded() {
    run(async {
        let (guard, server) = guarded(limited(usd(0.01))).await;
        let mut conn = Conn::to(guard.address).await;
        conn.send("POST /run/a/v1/unknown HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n").await;
        let chunk = format!("100000\r\n{}\r\n", "x".repeat(1 << 20));
        for _ in 0..100 {
            // The answer may come before the end of the body.
            use tokio::io::AsyncWriteExt;
            if conn.stream.write_all(chunk.as_bytes()).await.is_err() {
                break;
            }
        }
        use tokio::io::AsyncWriteExt;
        let _ = conn.stream.write_all(b"0\r\n\r\n").await;
        let head = conn.head().await;
        assert!(head.starts_with("HTTP/1.1 400"), "{head}");
        assert_eq!(asked(&server), 0);
    });
}
