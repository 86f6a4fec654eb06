//! The URL of a call below a base URL.

use endstop_guard::proxy::{Upstream, UpstreamError, UpstreamMap};
use endstop_wire::WireFormat::{Anthropic, CohereV2, Gemini, OpenAiChat, OpenAiResponses};

#[test]
fn service_has_its_own_upstream() {
    let of = |url: &str| Upstream::parse(url).expect("a base");
    let map = UpstreamMap::new(of("https://a"))
        .below("/vertex", of("https://v/v1"))
        .below("/foundry", of("https://f/anthropic/"));
    let vertex = "/vertex/projects/p/locations/l/publishers/anthropic/models/m:rawPredict";
    for (format, path, expected) in [
        (
            Some(Anthropic),
            vertex,
            "https://v/v1/projects/p/locations/l/publishers/anthropic/models/m:rawPredict",
        ),
        (None, "/vertex/projects", "https://v/v1/projects"),
        (None, "/vertex", "https://v/v1/"),
        (Some(Anthropic), "/foundry/v1/messages", "https://f/anthropic/v1/messages"),
        (None, "/foundry/v1/messages/count_tokens", "https://f/anthropic/v1/messages/count_tokens"),
        (Some(Anthropic), "/v1/messages", "https://a/v1/messages"),
        (None, "/vertexes", "https://a/vertexes"),
        (None, "/v1/vertex/x", "https://a/v1/vertex/x"),
    ] {
        let url = map.url(format, path, None).expect("a URL");
        assert_eq!(url.to_string(), expected, "{path}");
    }
    assert_eq!(map.url(None, "/vertex/../x", None), Err(UpstreamError::Path));
}

#[test]
fn version_is_used_once() {
    for (format, base, path, expected) in [
        (Some(Anthropic), "https://a", "/v1/messages", "https://a/v1/messages"),
        (Some(Anthropic), "https://a/", "/messages", "https://a/v1/messages"),
        (Some(Anthropic), "https://a", "/api/hello", "https://a/api/hello"),
        (
            Some(Anthropic),
            "https://a/x",
            "/api/event_logging/batch",
            "https://a/x/api/event_logging/batch",
        ),
        (Some(Anthropic), "https://a/v1", "/v1/messages", "https://a/v1/messages"),
        (Some(Anthropic), "https://a/v1/", "/messages", "https://a/v1/messages"),
        (Some(Anthropic), "https://a/gate", "/v1/messages", "https://a/gate/v1/messages"),
        (Some(OpenAiChat), "https://a/v1", "/v1/chat/completions", "https://a/v1/chat/completions"),
        (
            Some(OpenAiChat),
            "https://a/paas/v4",
            "/v1/chat/completions",
            "https://a/paas/v4/chat/completions",
        ),
        (Some(OpenAiChat), "https://a", "/v1/chat/completions", "https://a/chat/completions"),
        (
            Some(OpenAiResponses),
            "http://a:1/openai",
            "/v1/responses",
            "http://a:1/openai/responses",
        ),
        (
            Some(Gemini),
            "https://a",
            "/v1beta/models/m:generateContent",
            "https://a/v1beta/models/m:generateContent",
        ),
        (
            Some(Gemini),
            "https://a",
            "/v1/models/m:generateContent",
            "https://a/v1/models/m:generateContent",
        ),
        (
            Some(Gemini),
            "https://a",
            "/models/m:generateContent",
            "https://a/v1beta/models/m:generateContent",
        ),
        (Some(CohereV2), "https://a", "/chat", "https://a/v2/chat"),
        (None, "https://a", "/v1/files", "https://a/v1/files"),
        (None, "https://a/v1", "/v1/files", "https://a/v1/files"),
        (None, "https://a/x", "/api/hello", "https://a/x/api/hello"),
        (None, "https://a", "/video", "https://a/video"),
        (None, "https://a", "/v1", "https://a/v1"),
        (None, "https://a", "/", "https://a/"),
    ] {
        let map = UpstreamMap::new(Upstream::parse(base).expect("a base"));
        let url = map.url(format, path, None).expect("a URL");
        assert_eq!(url.to_string(), expected, "{format:?} {base} {path}");
    }
}

#[test]
fn each_format_has_its_upstream() {
    let base = |url| Upstream::parse(url).expect("a base");
    let map = UpstreamMap::new(base("https://default/v1"))
        .with(Anthropic, base("https://wrong"))
        .with(Anthropic, base("https://a"));
    let url = map.url(Some(Anthropic), "/messages", Some("a=%20&b")).expect("a URL");
    assert_eq!(url, "https://a/v1/messages?a=%20&b");
    let url = map.url(Some(Gemini), "/v1beta/models", None).expect("a URL");
    assert_eq!(url, "https://default/v1/models");
}

#[test]
fn invalid_addresses_are_errors() {
    for url in ["", "a", "/v1", "ftp://a", "https://", "https://a b"] {
        assert_eq!(Upstream::parse(url), Err(UpstreamError::Base), "{url}");
    }
    for url in ["https://u@a", "https://a?k=1"] {
        assert_eq!(Upstream::parse(url), Err(UpstreamError::Extra), "{url}");
    }
    let map = UpstreamMap::new(Upstream::parse("https://a/v1").expect("a base"));
    for path in ["", "a", "/../a", "/a/..", "/.%2E/a", "/%2e/a", "/a/..\\b", "/\0", "/a b"] {
        assert_eq!(map.url(None, path, None), Err(UpstreamError::Path), "{path}");
    }
    for path in ["/...", "/.a", "/a..", "/%2e%2e%2e", "/%00"] {
        map.url(None, path, None).expect(path);
    }
}
