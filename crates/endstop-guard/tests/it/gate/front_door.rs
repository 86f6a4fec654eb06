//! What is not recognised does not pass a limit: spellings of paths, unknown calls, stored conversations,
//! background responses, and calls that are no turns. The upstream decodes paths as an ASGI server does, and keeps
//! its own bill.
//!
//! `ENDSTOP_CHAOS_RUNS=10000 cargo test -p endstop-guard --test it gate::front_door -- --nocapture`

use super::agents::call;
use super::support::{Dice, Guard, INPUT, OUTPUT, price};
use crate::proxy::support::{Conn, header, run, run_within, upstream};
use endstop_core::{Limits, Termination, Watch};
use endstop_guard::run::{GuardEvent, OtherCalls, Settings};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// What the upstream was asked, and its bill.
#[derive(Default)]
struct Server {
    asked: Vec<(String, String, Value)>,
    usd: f64,
    /// Polls that a background response still needs, by its id.
    working: HashMap<String, u32>,
    /// What it generates.
    working_output: HashMap<String, u64>,
    prompts: HashMap<String, u64>,
    /// `true` if each answer generates as much as its request allows.
    honours_caps: bool,
    /// The most expensive answer.
    largest: f64,
    /// `true` if a path that begins like that of a call is served as that call.
    routes_by_beginning: bool,
}

type Shared = Arc<Mutex<Server>>;

impl Server {
    fn bill(&mut self, input: u64, output: u64) -> Value {
        let usd = (input as f64 * INPUT + output as f64 * OUTPUT) / 1e6;
        self.usd += usd;
        self.largest = self.largest.max(usd);
        json!({"input_tokens": input, "output_tokens": output, "total_tokens": input + output,
            "prompt_tokens": input, "completion_tokens": output})
    }

    /// Answers like a server that decodes its paths, and ignores case and parameters in them.
    fn answer(&mut self, method: &str, target: &str, body: &Value) -> (u16, Value) {
        self.asked.push((method.to_owned(), target.to_owned(), body.clone()));
        let number = self.asked.len();
        let caps = ["max_output_tokens", "max_tokens", "max_completion_tokens"];
        let cap = caps.iter().find_map(|name| body[*name].as_u64());
        let output = |usual: u64| if self.honours_caps { cap.unwrap_or(usual) } else { usual };
        let (step, chat, worked) = (output(20), output(20_000), output(5_000));
        let path = target.split('?').next().unwrap_or_default();
        let path = percent_encoding::percent_decode_str(path).decode_utf8_lossy().to_lowercase();
        let mut path = path.replace("//", "/").split(';').next().unwrap_or_default().to_owned();
        if self.routes_by_beginning {
            let calls = ["/v1/messages", "/v1/chat/completions", "/v1/responses", "/v1/embeddings"];
            let Some(call) = calls.into_iter().find(|call| path.starts_with(call)) else {
                return (404, json!({"error": {"message": "no"}}));
            };
            call.clone_into(&mut path);
        }
        let tool = json!({"type": "function_call", "id": "fc", "call_id": format!("call_{number}"),
            "name": "bash", "arguments": "{\"a\":1}", "status": "completed"});
        let id = format!("resp_{number}");
        if method == "GET" && path.contains("/responses/") {
            let id = path.rsplit('/').next().unwrap_or_default().to_owned();
            let Some(left) = self.working.get_mut(&id) else {
                return (404, json!({"error": {"message": "no"}}));
            };
            if *left > 0 {
                *left -= 1;
                return (
                    200,
                    json!({"id": id, "object": "response", "status": "in_progress", "output": []}),
                );
            }
            self.working.remove(&id);
            let worked = self.working_output.remove(&id).unwrap_or(5_000);
            let usage = self.bill(10, worked);
            let text = json!({"type": "message", "id": "m", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "done", "annotations": []}]});
            return (
                200,
                json!({"id": id, "object": "response", "status": "completed", "model": "m",
                "output": [text], "usage": usage}),
            );
        }
        if path.ends_with("/responses") && body["background"] == true {
            self.working.insert(id.clone(), 1);
            self.working_output.insert(id.clone(), worked);
            return (
                200,
                json!({"id": id, "object": "response", "status": "queued", "model": "m", "output": []}),
            );
        }
        if path.ends_with("/responses") {
            let before = body["previous_response_id"]
                .as_str()
                .and_then(|id| self.prompts.get(id))
                .copied()
                .unwrap_or(0);
            let prompt = before + body.to_string().len() as u64 / 4;
            self.prompts.insert(id.clone(), prompt);
            let usage = self.bill(prompt, step);
            return (
                200,
                json!({"id": id, "object": "response", "status": "completed", "model": "m",
                "output": [tool], "usage": usage}),
            );
        }
        if path.ends_with("/messages") {
            let thread = &body["thread"];
            let before = thread["previous_message_id"]
                .as_str()
                .and_then(|id| self.prompts.get(id))
                .copied()
                .unwrap_or(0);
            let prompt = before + body.to_string().len() as u64 / 4;
            let id = format!("msg_{number}");
            self.prompts.insert(id.clone(), prompt);
            let usage = self.bill(prompt, step);
            return (
                200,
                json!({"id": id, "type": "message", "role": "assistant", "model": "m",
                "content": [{"type": "tool_use", "id": format!("toolu_{number}"), "name": "bash", "input": {"a": 1}}],
                "stop_reason": "tool_use", "usage": usage}),
            );
        }
        if path.contains("embeddings") {
            let usage = self.bill(body.to_string().len() as u64 / 4, 0);
            return (
                200,
                json!({"object": "list", "data": [{"embedding": [0.1]}],
                "usage": {"prompt_tokens": usage["prompt_tokens"], "total_tokens": usage["prompt_tokens"]}}),
            );
        }
        if path.contains("images/") {
            let usage = self.bill(20, 4_000);
            return (200, json!({"data": [{"b64_json": "AAAA"}], "usage": usage}));
        }
        let usage = self.bill(10, chat);
        (
            200,
            json!({"id": "c", "object": "chat.completion", "model": "m", "usage": usage,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "paid"}, "finish_reason": "stop"}]}),
        )
    }
}

/// Starts the server.
async fn server() -> (SocketAddr, Shared) {
    let shared = Shared::default();
    let server = Arc::clone(&shared);
    let address = upstream(move |mut conn: Conn| {
        let server = Arc::clone(&server);
        async move {
            while let Ok(head) = conn.until(b"\r\n\r\n").await {
                let head = String::from_utf8(head).expect("text");
                let body = match header(&head, "content-length") {
                    Some(length) => conn.exact(length.parse().expect("a length")).await.expect("a body"),
                    None if header(&head, "transfer-encoding").is_some() => {
                        conn.chunked().await.expect("a body").0
                    }
                    None => Vec::new(),
                };
                let mut words = head.split(' ');
                let (method, target) = (words.next().expect("a method"), words.next().expect("a target"));
                let body = serde_json::from_slice(&body).unwrap_or_default();
                let (status, answer) = server.lock().expect("a lock").answer(method, target, &body);
                let answer = answer.to_string();
                let head = format!(
                    "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                    answer.len()
                );
                conn.send(format!("{head}{answer}")).await;
            }
        }
    })
    .await;
    (address, shared)
}

async fn guarded(settings: Settings) -> (Guard, Shared) {
    let (address, shared) = server().await;
    (Guard::start(settings, address).await, shared)
}

fn limited(limits: Limits) -> Settings {
    Settings { limits, price: Some(price()), ..Settings::default() }
}

fn usd(ceiling: f64) -> Limits {
    Limits { max_budget_usd: Some(ceiling), ..Limits::none() }
}

fn asked(server: &Shared) -> usize {
    server.lock().expect("a lock").asked.len()
}

fn request(method: &str, target: &str, kind: Option<&str>, body: &[u8]) -> Vec<u8> {
    let kind = kind.map(|kind| format!("content-type: {kind}\r\n")).unwrap_or_default();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nhost: 127.0.0.1\r\n{kind}content-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn json_to(target: &str, body: &Value) -> Vec<u8> {
    request("POST", target, Some("application/json"), body.to_string().as_bytes())
}

/// A call of a chat that costs $0.80.
fn chat() -> Value {
    json!({"model": "m", "tools": [{"type": "function", "function": {"name": "bash"}}],
        "messages": [{"role": "user", "content": "hello"}]})
}

const SPELLINGS: [&str; 14] = [
    "/v1/chat/%63ompletions",
    "/v1/chat%2Fcompletions",
    "/v1/chat/%2563ompletions",
    "/v1/Chat/Completions",
    "/v1/chat//completions",
    "/v1/chat/completions;v=1",
    "/v1/chat/completions%20",
    "/v1/chat/completions%00",
    "/v1/chat%5Ccompletions",
    "/v1/%6dessages",
    "/v1/Responses",
    "/v1/completion%73",
    "/v1beta/models/m:%67enerateContent",
    "/model/m/%63onverse",
];

#[test]
fn other_spellings_are_refused_under_a_ceiling() {
    run(async {
        for limits in [
            usd(0.01),
            Limits { max_turns: Some(1), ..Limits::none() },
            Limits { max_tokens: Some(100), ..Limits::none() },
        ] {
            for other in [None, Some(OtherCalls::Pass)] {
                let (guard, server) = guarded(Settings { other, ..limited(limits.clone()) }).await;
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

/// A run cannot have a credential as its name, whatever header, parameter or member has it, and nothing shows it.
#[test]
fn run_is_not_named_like_a_credential() {
    run(async {
        const KEY: &str = "custom-4fQ9xTz71LmN0pWv8aBc";
        let body = chat();
        let with_key = |name: &str| {
            let mut body = chat();
            body[name] = json!(KEY);
            body
        };
        for (header, query, body) in [
            (format!("x-gateway-key: {KEY}"), "", body.clone()),
            (format!("x-gateway: {KEY}"), "", body.clone()),
            (format!("X-Upstream-Secret: {KEY}"), "", body.clone()),
            (format!("authorization: Bearer {KEY}"), "", body.clone()),
            (format!("x-portkey-config: Basic {KEY}"), "", body.clone()),
            (format!("cookie: a=b; c={KEY}"), "", body.clone()),
            ("x: y".to_owned(), "?secret-thing=KEY", body.clone()),
            ("x: y".to_owned(), "?gateway=KEY", body.clone()),
            ("x: y".to_owned(), "", with_key("api_key")),
        ] {
            for by_header in [false, true] {
                let (guard, server) = guarded(limited(usd(5.0))).await;
                let query = query.replace("KEY", KEY);
                let (prefix, named) = if by_header {
                    (String::new(), format!("x-endstop-run: {KEY}\r\n"))
                } else {
                    (format!("/run/{KEY}"), String::new())
                };
                let request = json_to(&format!("{prefix}/v1/chat/completions{query}"), &body);
                let request = String::from_utf8(request).expect("text");
                let request = request.replacen("\r\n", &format!("\r\n{header}\r\n{named}"), 1);
                let (status, answer) = call(guard.address, request.as_bytes()).await;
                assert_eq!(status, 400, "{header} {query}");
                assert!(!answer.expect("a body").contains(KEY), "{header} {query}");
                assert_eq!((asked(&server), guard.gate.runs().len()), (0, 0), "{header} {query}");
                let events = format!("{:?}", guard.events.lock().expect("a lock"));
                assert!(!events.contains(KEY), "{events}");
            }
        }
        // A request that names the run comes before the one with the key.
        let (guard, _) = guarded(limited(usd(5.0))).await;
        let path = format!("/run/{KEY}/v1/chat/completions");
        assert_eq!(call(guard.address, &json_to(&path, &body)).await.0, 200);
        let request = String::from_utf8(json_to(&path, &body)).expect("text");
        let request = request.replacen("\r\n", &format!("\r\nx-gateway-key: {KEY}\r\n"), 1);
        assert_eq!(call(guard.address, request.as_bytes()).await.0, 400);
        let outcome = guard.run(KEY).expect("a run").close(true, "");
        assert!(!serde_json::to_string(&*outcome).expect("JSON").contains(KEY), "{outcome:?}");
        // Other names: a random one in guard's own header, and values that are not credentials.
        for (header, name) in [
            (format!("x-endstop-run: {KEY}"), KEY),
            (
                "x-endstop-run: nightly-build-12\r\nx-job: nightly-build-12".to_owned(),
                "nightly-build-12",
            ),
            ("x-endstop-run: r1\r\nx-gateway-key: r1".to_owned(), "r1"),
        ] {
            let (guard, _) = guarded(limited(usd(5.0))).await;
            let request = String::from_utf8(json_to("/v1/chat/completions", &body)).expect("text");
            let request = request.replacen("\r\n", &format!("\r\n{header}\r\n"), 1);
            assert_eq!(call(guard.address, request.as_bytes()).await.0, 200, "{header}");
            let outcome = guard.run(name).expect("a run").close(true, "");
            assert_eq!(outcome.run_id.as_deref(), Some(name), "{header}");
        }
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

/// A key in the body of a call without an answer in text, of one that is not read, and of one that cannot be read.
#[test]
fn key_in_any_body_is_no_name_of_a_run() {
    run(async {
        const KEY: &str = "custom-4fQ9xTz71LmN0pWv8aBc";
        let json = "application/json";
        let form = "multipart/form-data; boundary=x-1";
        let field = |name: &str, value: &str| {
            format!("--x-1\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        let spoken = [field("model", "whisper-1"), field("api_key", KEY), "--x-1--\r\n".to_owned()];
        let keyed = json!({"model": "e", "input": "x", "api_key": KEY}).to_string();
        for (path, kind, body) in [
            ("/v1/embeddings", json, keyed.clone()),
            ("/v1/images/generations", json, keyed.clone()),
            ("/v1/audio/transcriptions", form, spoken.concat()),
            ("/v1/completions", json, keyed.clone()),
            ("/v1/messages/batches", json, keyed.clone()),
            ("/v1/unknown", json, keyed.clone()),
            ("/v1/chat/completions", "application/json; charset=utf-16", keyed.clone()),
            ("/v1/chat/completions", json, format!("[{keyed}]")),
        ] {
            for by_header in [false, true] {
                let (guard, server) = guarded(limited(usd(5.0))).await;
                let (prefix, named) = if by_header {
                    (String::new(), format!("\r\nx-endstop-run: {KEY}"))
                } else {
                    (format!("/run/{KEY}"), String::new())
                };
                let kind = format!("{kind}{named}");
                let request =
                    request("POST", &format!("{prefix}{path}"), Some(&kind), body.as_bytes());
                let (status, answer) = call(guard.address, &request).await;
                assert_eq!(status, 400, "{path}");
                assert!(!answer.expect("a body").contains(KEY), "{path}");
                assert_eq!((asked(&server), guard.gate.runs().len()), (0, 0), "{path}");
                let events = format!("{:?}", guard.events.lock().expect("a lock"));
                assert!(!events.contains(KEY), "{path} {events}");
            }
        }
        // An earlier call has named the run without the key.
        let (guard, _) = guarded(limited(usd(5.0))).await;
        let path = format!("/run/{KEY}/v1/embeddings");
        let plain = json!({"model": "e", "input": "x"});
        assert_eq!(call(guard.address, &json_to(&path, &plain)).await.0, 200);
        let request = request("POST", &path, Some(json), keyed.as_bytes());
        assert_eq!(call(guard.address, &request).await.0, 400);
        let outcome = guard.run(KEY).expect("a run").close(true, "");
        assert!(!serde_json::to_string(&*outcome).expect("JSON").contains(KEY), "{outcome:?}");
    });
}

/// The path and the body of a call for vectors can name two models, as those of an answer can.
#[test]
fn deployment_of_embeddings_may_be_dearer() {
    run(async {
        // The catalogue has no prices of models for vectors.
        const SMALL: &str = "gpt-4.1-nano";
        const LARGE: &str = "o1-pro";
        let settings = Settings { price: None, ..limited(usd(1.0)) };
        let strict = Settings { cap_output: true, ..settings.clone() };
        let azure = |name: &str| format!("/run/a/openai/deployments/{name}/embeddings");
        // Two models with the same bill of tokens.
        let ask = |model: &str| json!({"model": model, "input": "text ".repeat(400)});
        let cost = async |path: String, body: &Value| {
            let (guard, _) = guarded(settings.clone()).await;
            let (status, answer) = call(guard.address, &json_to(&path, body)).await;
            assert_eq!(status, 200, "{path} {answer:?}");
            guard.run("a").expect("a run").spent().cost
        };
        let plain = "/run/a/v1/embeddings".to_owned();
        let (small, large) =
            (cost(plain.clone(), &ask(SMALL)).await, cost(plain.clone(), &ask(LARGE)).await);
        assert!(small.0 > 0 && large.0 > 2 * small.0, "{small:?} {large:?}");
        for (deployment, body, expected) in [
            (LARGE, ask(SMALL), large),
            (SMALL, ask(LARGE), large),
            ("O1-%50ro", ask(SMALL), large),
            (SMALL, ask(SMALL), small),
            ("prod", ask(SMALL), small),
        ] {
            let cost = cost(azure(deployment), &body).await;
            // The names of the models differ by a token.
            assert!(cost.0.abs_diff(expected.0) < expected.0 / 100, "{deployment} {cost:?}");
        }
        // A body without a model is that of the deployment, and its tokens are a few more or less.
        let unnamed = cost(azure(LARGE), &json!({"input": "text ".repeat(400)})).await;
        assert!(unnamed.0 > 2 * small.0, "{unnamed:?}");
        let (guard, server) = guarded(strict).await;
        for (path, body) in [(azure("prod"), ask(SMALL)), (azure(SMALL), ask("prod"))] {
            let (status, answer) = call(guard.address, &json_to(&path, &body)).await;
            let answer = answer.expect("a body");
            assert!(status == 400 && answer.contains("prod`"), "{path} {answer}");
        }
        // Servers may read either of two models.
        let (guard, _) = guarded(settings).await;
        let twice = format!(r#"{{"model":"{LARGE}","input":"x","model":"{SMALL}"}}"#);
        let request = request("POST", &plain, Some("application/json"), twice.as_bytes());
        let (status, answer) = call(guard.address, &request).await;
        assert!(status == 400 && answer.expect("a body").contains("more than once"), "{status}");
        assert_eq!(asked(&server), 0);
    });
}

/// A path can name another model than the body: a deployment of Azure. The higher price is reserved, and under a strict
/// ceiling both must be known.
#[test]
fn deployment_in_the_path_may_be_dearer() {
    run(async {
        let strict = Settings { price: None, cap_output: true, ..limited(usd(1.0)) };
        let ask =
            |model: &str| json!({"model": model, "messages": [{"role": "user", "content": "x"}]});
        let azure = |name: &str| format!("/run/a/openai/deployments/{name}/chat/completions");
        for (path, body, dear) in [
            (azure("o1-pro"), ask("gpt-4.1-nano"), true),
            (azure("O1-Pro"), ask("gpt-4.1-nano"), true),
            (azure("%6f1-pro"), ask("gpt-4.1-nano"), true),
            (azure("gpt-4.1-nano"), ask("o1-pro"), true),
            (azure("o1-pro"), json!({"messages": []}), true),
            (azure("gpt-4.1-nano"), ask("gpt-4.1-nano"), false),
            (azure("gpt-4.1-nano"), ask("GPT-4.1-nano"), false),
            ("/run/a/v1/chat/completions".to_owned(), ask("gpt-4.1-nano"), false),
        ] {
            let (guard, server) = guarded(strict.clone()).await;
            server.lock().expect("a lock").honours_caps = true;
            let (status, answer) = call(guard.address, &json_to(&path, &body)).await;
            assert_eq!(status, 200, "{path} {answer:?}");
            let sent = server.lock().expect("a lock").asked[0].2.clone();
            let caps = ["max_tokens", "max_completion_tokens"];
            let cap = caps.iter().find_map(|name| sent[*name].as_u64()).expect("a cap");
            // $1 buys 1,667 tokens of o1-pro, and 2.5 million of gpt-4.1-nano.
            assert_eq!(cap < 1_667, dear, "{path} {body} {cap}");
        }
        let (guard, server) = guarded(strict.clone()).await;
        for (path, body) in [
            (azure("prod"), ask("gpt-4.1-nano")),
            (azure("gpt-4.1-nano"), ask("prod")),
            (azure("prod"), json!({"messages": []})),
            (
                "/run/a/v1beta/models/gemini-2.5-flash:generateContent".to_owned(),
                json!({"model": "models/prod", "contents": []}),
            ),
        ] {
            let (status, answer) = call(guard.address, &json_to(&path, &body)).await;
            let answer = answer.expect("a body");
            assert!(status == 400 && answer.contains("prod`"), "{path} {answer}");
        }
        assert_eq!(asked(&server), 0);
        // A price for all models, or no strict ceiling: the body's model counts if the other one is not known.
        for settings in [
            Settings { price: Some(price()), ..strict.clone() },
            Settings { cap_output: false, ..strict },
        ] {
            let (guard, _) = guarded(settings).await;
            let body = ask("gpt-4.1-nano");
            assert_eq!(call(guard.address, &json_to(&azure("prod"), &body)).await.0, 200);
        }
    });
}

/// The response decides whether a call works on in the background, whatever the request seems to be.
#[test]
fn queued_response_is_held_whatever_the_request_said() {
    run(async {
        for body in [
            r#"{"model":"m","input":"x","max_output_tokens":5000,"background":true,"background":true}"#,
            r#"{"model":"m","input":"x","max_output_tokens":5000,"background":true}"#,
        ] {
            let (guard, _) = guarded(limited(usd(0.55))).await;
            let mut admitted = 0;
            for _ in 0..6 {
                // The server reads the last of two members, guard any.
                let request = request(
                    "POST",
                    "/run/b/v1/responses",
                    Some("application/json"),
                    body.as_bytes(),
                );
                let (_, answer) = call(guard.address, &request).await;
                admitted += usize::from(answer.unwrap_or_default().contains("queued"));
            }
            assert!(admitted <= 3, "{admitted} {body}");
        }
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

/// One turn of a message thread: the first creates it, the others have only what is new.
fn thread_turn(previous: Option<&str>, result_of: Option<&str>) -> Value {
    match previous {
        None => json!({"model": "m", "max_tokens": 50, "system": "long ".repeat(400),
            "tools": [{"name": "bash", "input_schema": {}}], "thread": {"type": "create"},
            "messages": [{"role": "user", "content": "work"}]}),
        Some(id) => json!({"model": "m", "max_tokens": 50,
            "thread": {"type": "continue", "previous_message_id": id},
            "messages": [{"role": "user", "content": [{"type": "tool_result",
                "tool_use_id": result_of.unwrap_or_default(), "content": "same"}]}]}),
    }
}

/// Works in a message thread for as long as it is answered with calls. Returns the number of paid calls.
async fn work_in_a_thread(guard: &Guard, most: usize) -> usize {
    let (mut previous, mut tool) = (None::<String>, None::<String>);
    for turn in 0..most {
        let body = thread_turn(previous.as_deref(), tool.as_deref());
        let (status, answer) = call(guard.address, &json_to("/run/t/v1/messages", &body)).await;
        let answer: Value = serde_json::from_str(&answer.unwrap_or_default()).unwrap_or_default();
        let Some(id) = answer["content"][0]["id"].as_str().filter(|_| status == 200) else {
            return turn;
        };
        (previous, tool) = (answer["id"].as_str().map(str::to_owned), Some(id.to_owned()));
    }
    most
}

#[test]
fn turns_of_a_message_thread_are_turns() {
    run(async {
        let (guard, server) =
            guarded(limited(Limits { max_turns: Some(4), ..Limits::none() })).await;
        assert_eq!(work_in_a_thread(&guard, 12).await, 4);
        assert_eq!(asked(&server), 4);
        let outcome = guard.run("t").expect("a run").outcome().expect("an end");
        assert_eq!(
            (outcome.termination, outcome.turns, outcome.tool_calls),
            (Termination::ErrorMaxTurns, 4, 4)
        );
        // A loop is one, although no request has more than its last step.
        let watches = vec![Watch::parse("stop:stuck").expect("a rule")];
        let (guard, _) = guarded(Settings { watches, ..limited(Limits::none()) }).await;
        assert!(work_in_a_thread(&guard, 12).await < 6);
        let outcome = guard.run("t").expect("a run").outcome().expect("an end");
        assert_eq!(outcome.termination, Termination::ErrorNoProgress);
        // A strict ceiling counts what the provider stores.
        let (guard, server) = guarded(Settings { cap_output: true, ..limited(usd(0.06)) }).await;
        work_in_a_thread(&guard, 50).await;
        let paid = server.lock().expect("a lock").usd;
        assert!(paid > 0.01 && paid <= 0.06, "{paid}");
        let cost = guard.run("t").expect("a run").spent().cost.to_usd();
        assert!((cost - paid).abs() < 1e-9, "{cost} {paid}");
    });
}

/// A thread that is not written plainly is not a new conversation: a server may read an id in it.
#[test]
fn thread_in_another_spelling_is_not_new() {
    run(async {
        let body = |thread: &str| {
            format!(
                r#"{{"model":"m","max_tokens":50,{thread},"messages":[{{"role":"user","content":"go on"}}]}}"#
            )
        };
        for thread in [
            r#""thread":{}"#,
            r#""thread":{"previous_message_id":"msg_1"}"#,
            r#""thread":{"Previous_Message_Id":"msg_1"}"#,
            r#""thread":{"type":"continue"}"#,
            r#""thread":{"Type":"continue","previous_message_id":"msg_1"}"#,
            r#""thread":{"type":"Create"}"#,
            r#""thread":{"type":"create","Type":"continue"}"#,
            r#""thread":{"type":"create","type":"continue"}"#,
            r#""Thread":{"type":"continue","previous_message_id":"msg_1"}"#,
            r#""THREAD":{"type":"create"}"#,
            r#""thread":{"type":"create"},"Thread":{"type":"continue"}"#,
            r#""thread":"msg_1""#,
            r#""thread":["msg_1"]"#,
        ] {
            for limits in [usd(5.0), Limits { max_turns: Some(3), ..Limits::none() }] {
                let (guard, server) = guarded(limited(limits)).await;
                let kind = Some("application/json");
                let request = request("POST", "/run/t/v1/messages", kind, body(thread).as_bytes());
                let (status, answer) = call(guard.address, &request).await;
                let answer = answer.expect("a body");
                assert!(status == 400 && answer.contains("thread_unsupported_request"), "{thread}");
                assert_eq!(asked(&server), 0, "{thread}");
            }
        }
        for thread in [r#""thread":{"type":"create"}"#, r#""thread":null"#, r#""threads":{}"#] {
            let (guard, _) = guarded(limited(usd(5.0))).await;
            let kind = Some("application/json");
            let request = request("POST", "/run/t/v1/messages", kind, body(thread).as_bytes());
            assert_eq!(call(guard.address, &request).await.0, 200, "{thread}");
        }
    });
}

#[test]
fn unknown_response_is_refused_in_the_form_of_its_api() {
    run(async {
        for limits in [usd(5.0), Limits { max_turns: Some(9), ..Limits::none() }] {
            let (guard, server) = guarded(limited(limits)).await;
            let body = thread_turn(Some("msg_unseen"), Some("toolu_1"));
            let (status, answer) = call(guard.address, &json_to("/run/t/v1/messages", &body)).await;
            let answer: Value = serde_json::from_str(&answer.expect("a body")).expect("JSON");
            assert_eq!(status, 400);
            assert_eq!(answer["error"]["details"]["error_code"], "thread_unsupported_request");
            let body = json!({"model": "m", "input": "x", "previous_response_id": "resp_unseen"});
            let (status, answer) =
                call(guard.address, &json_to("/run/t/v1/responses", &body)).await;
            let answer: Value = serde_json::from_str(&answer.expect("a body")).expect("JSON");
            assert_eq!(
                (status, &answer["error"]["code"]),
                (400, &json!("previous_response_not_found"))
            );
            assert_eq!(answer["error"]["param"], "previous_response_id");
            assert_eq!(asked(&server), 0);
            // An id of another run is unknown here.
            let first = json!({"model": "m", "input": "x", "tools": [{"type": "function", "name": "bash"}]});
            let (_, answer) = call(guard.address, &json_to("/run/one/v1/responses", &first)).await;
            let answer: Value = serde_json::from_str(&answer.expect("a body")).expect("JSON");
            let next = json!({"model": "m", "input": "y", "previous_response_id": answer["id"]});
            assert_eq!(call(guard.address, &json_to("/run/two/v1/responses", &next)).await.0, 400);
            assert_eq!(call(guard.address, &json_to("/run/one/v1/responses", &next)).await.0, 200);
        }
    });
}

#[test]
fn stored_conversation_is_reserved_at_the_window() {
    run(async {
        let body = json!({"model": "m", "input": "x", "conversation": "conv_1", "max_output_tokens": 20,
            "tools": [{"type": "function", "name": "bash"}]});
        // A window of a million tokens costs ten dollars.
        let (guard, server) = guarded(limited(usd(5.0))).await;
        let (_, answer) = call(guard.address, &json_to("/run/c/v1/responses", &body)).await;
        assert!(answer.expect("a body").contains("error_max_budget_usd"));
        assert_eq!(asked(&server), 0);
        let (guard, server) = guarded(limited(usd(50.0))).await;
        for _ in 0..3 {
            assert_eq!(call(guard.address, &json_to("/run/c/v1/responses", &body)).await.0, 200);
        }
        let is_note = |event: &&GuardEvent| matches!(event, GuardEvent::Passed { .. });
        let notes = guard.events.lock().expect("a lock").iter().filter(is_note).count();
        assert_eq!((asked(&server), notes), (3, 1));
        let run = guard.run("c").expect("a run");
        assert_eq!((run.spent().turns, run.counts().threads), (3, 1), "one conversation");
        let (guard, server) = guarded(Settings { cap_output: true, ..limited(usd(50.0)) }).await;
        assert_eq!(call(guard.address, &json_to("/run/c/v1/responses", &body)).await.0, 400);
        assert_eq!(asked(&server), 0);
    });
}

fn background() -> Value {
    json!({"model": "m", "input": "x", "background": true, "max_output_tokens": 5_000,
        "tools": [{"type": "function", "name": "bash"}]})
}

async fn begin(guard: &Guard, run: &str) -> (u16, Value) {
    let (status, answer) =
        call(guard.address, &json_to(&format!("/run/{run}/v1/responses"), &background())).await;
    (status, serde_json::from_str(&answer.unwrap_or_default()).unwrap_or_default())
}

async fn poll(guard: &Guard, run: &str, id: &Value) -> Value {
    let id = id.as_str().expect("an id");
    let (_, answer) =
        call(guard.address, &request("GET", &format!("/run/{run}/v1/responses/{id}"), None, b""))
            .await;
    serde_json::from_str(&answer.expect("a body")).expect("JSON")
}

#[test]
fn background_response_is_booked_by_its_poll() {
    run(async {
        let (guard, server) = guarded(limited(usd(1.0))).await;
        let (status, queued) = begin(&guard, "b").await;
        assert_eq!((status, &queued["status"]), (200, &json!("queued")));
        let run = guard.run("b").expect("a run");
        assert_eq!(run.spent().cost.to_usd(), 0.0);
        // A poll of another run's client does not count here.
        assert_eq!(poll(&guard, "other", &queued["id"]).await["status"], "in_progress");
        server
            .lock()
            .expect("a lock")
            .working
            .insert(queued["id"].as_str().expect("an id").to_owned(), 1);
        assert_eq!(poll(&guard, "b", &queued["id"]).await["status"], "in_progress");
        assert_eq!(run.spent().cost.to_usd(), 0.0);
        assert_eq!(poll(&guard, "b", &queued["id"]).await["status"], "completed");
        let paid = server.lock().expect("a lock").usd;
        assert!((run.spent().cost.to_usd() - paid).abs() < 1e-9);
        // Once.
        server
            .lock()
            .expect("a lock")
            .working
            .insert(queued["id"].as_str().expect("an id").to_owned(), 0);
        poll(&guard, "b", &queued["id"]).await;
        assert!((run.spent().cost.to_usd() - paid).abs() < 1e-9);
        let outcome = run.close(true, "");
        assert_eq!(
            (outcome.termination, outcome.cost_unknown),
            (Termination::Stop, false),
            "{outcome:?}"
        );
        assert_eq!(outcome.last_text.as_deref(), Some("done"));
    });
}

#[test]
fn background_responses_are_held_to_the_ceiling() {
    run(async {
        // Each may cost $0.20 of output.
        for cap_output in [false, true] {
            let (guard, server) = guarded(Settings { cap_output, ..limited(usd(0.55)) }).await;
            let mut admitted = 0;
            for _ in 0..6 {
                admitted += usize::from(begin(&guard, "b").await.1["status"] == "queued");
            }
            assert!(
                admitted <= 3,
                "{admitted} with a reservation of $0.20 each (strict: {cap_output})"
            );
            let run = guard.run("b").expect("a run");
            let outcome = run.close(true, "");
            // Never polled: booked at what was reserved.
            let most = outcome.cost_upper.map(|upper| upper.to_usd()).expect("a bound");
            assert!(most >= (0.20 * admitted as f64).min(0.55), "{most}");
            assert!(outcome.cost_unknown && !outcome.termination.is_success(), "{outcome:?}");
            drop(server);
        }
    });
}

#[test]
fn embeddings_are_priced_and_are_no_turns() {
    run(async {
        let body = json!({"model": "e", "input": "text ".repeat(400)});
        let settings = limited(Limits { max_turns: Some(1), ..usd(0.05) });
        let (guard, server) = guarded(settings).await;
        let mut paid = 0;
        for _ in 0..20 {
            paid += usize::from(
                call(guard.address, &json_to("/run/e/v1/embeddings", &body)).await.0 == 200,
            );
        }
        let run = guard.run("e").expect("a run");
        let bill = server.lock().expect("a lock").usd;
        assert!(paid > 1 && bill <= 0.05, "{paid} {bill}");
        assert_eq!(run.outcome().expect("an end").termination, Termination::ErrorMaxBudgetUsd);
        assert!((run.spent().cost.to_usd() - bill).abs() < 1e-9);
        assert_eq!(run.spent().turns, 0);
        // Without a price they are refused under a ceiling of money only.
        for (limits, expected) in
            [(usd(5.0), 400), (Limits { max_turns: Some(1), ..Limits::none() }, 200)]
        {
            let (guard, _) = guarded(Settings { price: None, ..limited(limits) }).await;
            for (path, body) in [
                ("/v1/embeddings", json!({"model": "e", "input": "x"})),
                ("/v1/images/generations", json!({"model": "i", "prompt": "x"})),
            ] {
                let (status, answer) =
                    call(guard.address, &json_to(&format!("/run/e{path}"), &body)).await;
                let answer = answer.expect("a body");
                assert_eq!(status, expected, "{path} {answer}");
                assert!(status == 200 || answer.contains("`price` in its profile"), "{answer}");
            }
        }
        // The size of an image is not known before.
        let strict = Settings { cap_output: true, ..limited(usd(5.0)) };
        let (guard, server) = guarded(strict).await;
        let image = json!({"model": "i", "prompt": "x"});
        assert_eq!(
            call(guard.address, &json_to("/run/e/v1/images/generations", &image)).await.0,
            400
        );
        assert_eq!(asked(&server), 0);
        let (guard, server) = guarded(limited(usd(5.0))).await;
        assert_eq!(
            call(guard.address, &json_to("/run/e/v1/images/generations", &image)).await.0,
            200
        );
        let bill = server.lock().expect("a lock").usd;
        assert!((guard.run("e").expect("a run").spent().cost.to_usd() - bill).abs() < 1e-9);
    });
}

/// One random request of a run, in which conversations, background responses, other calls and spellings mix. The ids
/// are those of responses so far.
fn random_request(dice: &mut Dice, ids: &[String]) -> Vec<u8> {
    let id = ids.get(dice.roll(ids.len() as u64 + 1) as usize).cloned();
    let text = "word ".repeat(1 + dice.roll(300) as usize);
    let tools = json!([{"type": "function", "name": "bash", "function": {"name": "bash"}}]);
    let cap = [json!(null), json!(50), json!(5_000), json!(-1)][dice.roll(4) as usize].clone();
    match dice.roll(11) {
        0 => json_to(
            "/run/x/v1/chat/completions",
            &json!({"model": "m", "tools": tools, "max_tokens": cap,
            "messages": [{"role": "user", "content": text}]}),
        ),
        1 | 2 => json_to(
            "/run/x/v1/responses",
            &json!({"model": "m", "input": text, "tools": tools,
            "max_output_tokens": cap, "previous_response_id": id}),
        ),
        3 => json_to(
            "/run/x/v1/responses",
            &json!({"model": "m", "input": text, "background": true,
            "tools": tools, "max_output_tokens": cap}),
        ),
        4 | 5 => {
            let id = id.unwrap_or_default();
            request("GET", &format!("/run/x/v1/responses/{id}"), None, b"")
        }
        6 | 7 => {
            let thread = match id {
                Some(id) => json!({"type": "continue", "previous_message_id": id}),
                None => json!({"type": "create"}),
            };
            json_to(
                "/run/x/v1/messages",
                &json!({"model": "m", "max_tokens": cap, "thread": thread, "tools": tools,
                "messages": [{"role": "user", "content": text}]}),
            )
        }
        8 => json_to("/run/x/v1/embeddings", &json!({"model": "m", "input": text})),
        9 => json_to(&format!("/run/x{}", SPELLINGS[dice.roll(14) as usize]), &chat()),
        _ => json_to("/run/x/v1/unknown", &chat()),
    }
}

/// No mix of requests costs more than a strict ceiling; without `--cap-output` only calls in flight do.
#[test]
fn no_mix_of_requests_exceeds_a_ceiling() {
    let runs = std::env::var("ENDSTOP_CHAOS_RUNS").ok().and_then(|runs| runs.parse().ok());
    let runs = runs.unwrap_or(60_u64);
    run_within(std::time::Duration::from_secs(60 + runs), async {
        let (mut calls, mut refused) = (0_u64, 0_u64);
        for seed in 0..runs {
            let strict = seed % 2 == 0;
            let ceiling = [0.05, 0.3, 2.0][(seed % 3) as usize];
            let (address, server) = server().await;
            server.lock().expect("a lock").honours_caps = true;
            let settings = Settings { cap_output: strict, ..limited(usd(ceiling)) };
            let guard = Guard::start(settings, address).await;
            let mut dice = Dice(seed);
            let mut ids = Vec::new();
            for _ in 0..25 {
                let (status, answer) = call(guard.address, &random_request(&mut dice, &ids)).await;
                calls += 1;
                refused += u64::from(status == 400);
                let answer: Value =
                    serde_json::from_str(&answer.unwrap_or_default()).unwrap_or_default();
                ids.extend(answer["id"].as_str().map(str::to_owned));
            }
            let run = guard.run("x").expect("a run");
            let outcome = run.close(true, "");
            let server = server.lock().expect("a lock");
            let (paid, largest) = (server.usd, server.largest);
            if strict {
                assert!(paid <= ceiling + 1e-9, "seed {seed}: ${paid} of ${ceiling}");
            } else {
                // Background responses are in flight together.
                assert!(paid <= ceiling + 25.0 * largest, "seed {seed}: ${paid} of ${ceiling}");
            }
            // A response that was not asked for before the end is booked at what it may cost.
            let is_exact = (outcome.cost.to_usd() - paid).abs() < 1e-9;
            assert!(is_exact || outcome.cost_unknown, "seed {seed}: {outcome:?} {paid}");
            let most = outcome.cost_upper.map_or(f64::INFINITY, |upper| upper.to_usd());
            assert!(!strict || is_exact || paid <= most + 1e-9, "seed {seed}: {outcome:?} {paid}");
        }
        println!("{runs} runs, {calls} requests, {refused} refused or stopped");
    });
}
