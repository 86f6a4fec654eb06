//! Credentials are sent to the upstream, and appear nowhere else.

use super::framing::{OK, answering};
use super::support::{Event, Gate, run};
use endstop_guard::proxy::{RequestHead, Upstream, UpstreamError, redacted_url};

const SECRET: &str = "sk-planted-secret";

#[test]
fn secrets_reach_only_the_upstream() {
    run(async {
        let (address, mut requests) = answering(OK.replace("ok", "no")).await;
        let (gate, mut seen) = Gate::new(address);
        let proxy = gate.reading().start().await;
        let mut client = proxy.client().await;
        let mut head =
            format!("POST /v1/models/m:generateContent?alt=sse&key={SECRET}&{SECRET} HTTP/1.1\r\n");
        for name in [
            "Authorization",
            "x-api-key",
            "api-key",
            "x-goog-api-key",
            "Cookie",
            "Proxy-Authorization",
            "chatgpt-account-id",
            "X-Unknown-Token",
        ] {
            head += &format!("{name}: Bearer {SECRET}\r\n");
        }
        let body = format!("{{\"secret\":\"{SECRET}\"}}");
        head += &format!("Host: {SECRET}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        client.send(&head).await;
        client.message().await.1.expect("a body");
        let (head, body) = requests.recv().await.expect("a request");
        assert_eq!((head + &String::from_utf8_lossy(&body)).matches(SECRET).count(), 11);
        // Everything that the gatekeeper and the observer received can be printed.
        let mut events = 0;
        while let Ok(event) = seen.events.try_recv() {
            let text = format!("{event:?}");
            if let Event::Request(head, _) = &event {
                assert!(text.contains("alt=sse&key=[hidden]&[hidden]"), "{text}");
                assert!(head.header("x-api-key").is_some_and(|key| key.contains(SECRET)));
            }
            let text = text.replace(&format!("\"host\": \"{SECRET}\""), "");
            assert!(!text.contains(SECRET), "{text}");
            events += 1;
        }
        assert!(events >= 2, "{events} events");
    });
}

#[test]
fn refusals_and_errors_hide_secrets() {
    run(async {
        let closed = {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            listener.local_addr().expect("an address")
        };
        let (gate, mut seen) = Gate::new(closed);
        let proxy = gate.start().await;
        let mut client = proxy.client().await;
        client
            .send(format!(
                "GET /v1?key={SECRET} HTTP/1.1\r\nHost: x\r\nAuthorization: {SECRET}\r\n\r\n\
                 GET /a/../b?key={SECRET} HTTP/1.1\r\nHost: x\r\n\r\n"
            ))
            .await;
        let (first, second) = (client.message().await, client.message().await);
        assert!(first.0.starts_with("HTTP/1.1 502 ") && second.0.starts_with("HTTP/1.1 400 "));
        assert!(!format!("{first:?}{second:?}").contains(SECRET));
        let mut text = String::new();
        while let Ok(event) = seen.events.try_recv() {
            text += &format!("{event:?}");
        }
        assert!(text.contains("NoResponse") && text.contains("Refused"), "{text}");
        assert!(!text.contains(SECRET), "{text}");
    });
}

#[test]
fn credentials_of_request_are_found() {
    let head = |target: &str, headers: &[(&'static str, &str)]| RequestHead {
        method: http::Method::POST,
        target: http::Uri::try_from(target).expect("a target"),
        base: None,
        version: http::Version::HTTP_11,
        headers: headers
            .iter()
            .map(|(name, value)| {
                (http::HeaderName::from_static(name), http::HeaderValue::try_from(*value).unwrap())
            })
            .collect(),
        peer: "127.0.0.1:1".parse().expect("an address"),
    };
    let random = "own-4fQ9xTz71LmN0pWv8aBcDeFg";
    for (target, header, expected) in [
        ("/", ("authorization", "Bearer K1"), &["K1", "Bearer K1"][..]),
        ("/", ("x-api-key", " K1 "), &["K1"]),
        ("/", ("cookie", "a=K1; b=K2"), &["K1", "K2", "b=K2", "a=K1; b=K2"]),
        ("/", ("x-any", random), &[random]),
        // Values that differ in each request, that name an account, or that are words.
        ("/", ("authorization", "AWS4-HMAC-SHA256 Credential=a, Signature=b"), &[]),
        ("/", ("x-claude-code-session-id", random), &[]),
        ("/", ("idempotency-key", random), &[]),
        ("/", ("x-request-id", random), &[]),
        ("/", ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), &[]),
        ("/", ("openai-organization", "org-4fQ9xTz71LmN0pWv8aBcDeFg"), &[]),
        ("/", ("user-agent", "claude-cli/2.1.0 (external, cli)"), &[]),
        ("/", ("x-any", "an ordinary word"), &[]),
        ("/?key=K1&alt=sse", ("x-any", ""), &["K1"]),
        ("/?zz=K%31&api-version=2024-10-21", ("x-any", ""), &["K1", "K%31"]),
        ("/?K1&b", ("x-any", ""), &["K1", "b"]),
        ("/?model=gpt-4o-2024-08-06&%61lt=sse", ("x-any", ""), &[]),
    ] {
        let mut found = Vec::new();
        head(target, &[header]).each_credential(|key, _| found.push(key.to_owned()));
        assert_eq!(found, expected, "{target} {header:?}");
    }
    let head = head("/run/custom-9b1f0c77d2/v1?b=1", &[("x-api-key", "custom-9b1f0c77d2")]);
    assert_eq!(&*head.redacted_target(), "/run/[redacted]/v1?b=[hidden]");
    assert_eq!(&*head.redact("no model custom-9b1f0c77d2"), "no model [redacted]");
}

#[test]
fn redacted_url_shows_known_parameters_only() {
    for (url, shown) in [
        (
            "https://u:p@h:1/a?alt=sse&key=s&beta=true",
            "https://h:1/a?alt=sse&key=[hidden]&beta=true",
        ),
        ("/a?s", "/a?[hidden]"),
        ("/a?%6bey=s&sig=", "/a?%6bey=[hidden]&sig=[hidden]"),
        ("/a?a=b=c", "/a?a=[hidden]"),
        ("/a", "/a"),
    ] {
        assert_eq!(redacted_url(&url.parse().expect("a URL")), shown);
    }
    let error = Upstream::parse("https://user:secret@h/").expect_err("user information");
    assert_eq!(error, UpstreamError::Extra);
    assert!(!format!("{error} {error:?}").contains("secret"));
}
