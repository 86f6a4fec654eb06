//! A run is not named like a credential.

use super::{asked, chat, guarded, json_to, limited, request, usd};
use crate::gate::agents::call;
use crate::proxy::support::run;
use serde_json::json;

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
