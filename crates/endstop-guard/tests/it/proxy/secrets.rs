//! Credentials are sent to the upstream, and appear nowhere else.

use super::framing::{OK, answering};
use super::support::{Event, Gate, run};
use endstop_guard::proxy::{Upstream, UpstreamError, redacted_url};

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
