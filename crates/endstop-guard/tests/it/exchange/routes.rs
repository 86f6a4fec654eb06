//! Routes: kinds of calls, prefixes, and hostile targets.

use endstop_guard::exchange::{Call, Delivery, Metered, RouteError, RunName, route};
use endstop_wire::WireFormat;

fn kind(method: &str, target: &str) -> Call {
    route(method, target).unwrap().call
}

#[test]
fn paths_have_their_kinds() {
    let chat = Call::Model { format: WireFormat::OpenAiChat, delivery: None };
    let responses = Call::Model { format: WireFormat::OpenAiResponses, delivery: None };
    let anthropic = Call::Model { format: WireFormat::Anthropic, delivery: None };
    let given = |format, delivery| Call::Model { format, delivery: Some(delivery) };
    let gemini = |delivery| given(WireFormat::Gemini, delivery);
    let vertex = "/v1/projects/p/locations/l/publishers";
    for (method, target, expected) in [
        ("POST", "/v1/chat/completions", chat),
        ("POST", "/chat/completions/", chat),
        ("POST", "/openai/deployments/d/chat/completions?api-version=2025-01-01", chat),
        ("GET", "/v1/chat/completions", Call::Other),
        ("POST", "/v1/responses", responses),
        ("POST", "/backend-api/codex/responses", responses),
        ("GET", "/v1/responses", Call::Other),
        ("POST", "/v1/responses/compact", given(WireFormat::OpenAiResponses, Delivery::Whole)),
        ("POST", "/v1/messages?beta=true", anthropic),
        ("POST", "/messages", anthropic),
        ("POST", "/v1/messages/count_tokens", Call::CountTokens),
        ("POST", "/v1/messages/batches", Call::Unread),
        ("POST", "/v1/threads/t_1/messages", Call::Unread),
        ("POST", "/v1beta/models/g:generateContent", gemini(Delivery::Whole)),
        ("POST", "/v1beta/models/g:streamGenerateContent?alt=sse", gemini(Delivery::Events)),
        ("POST", "/v1/models/g:streamGenerateContent?key=k", gemini(Delivery::Array)),
        ("POST", "/v1beta/models/g:countTokens", Call::CountTokens),
        ("POST", "/v1beta/models/g:embedContent", Call::Metered(Metered::Vectors)),
        ("POST", &format!("{vertex}/google/models/g:generateContent"), gemini(Delivery::Whole)),
        (
            "POST",
            &format!("{vertex}/anthropic/models/c:streamRawPredict"),
            given(WireFormat::Anthropic, Delivery::Events),
        ),
        ("POST", &format!("{vertex}/anthropic/models/count-tokens:rawPredict"), Call::CountTokens),
        ("POST", &format!("{vertex}/mistralai/models/m:rawPredict"), Call::Unread),
        ("POST", "/model/m/invoke", given(WireFormat::BedrockInvoke, Delivery::Whole)),
        (
            "POST",
            "/model/m/invoke-with-response-stream",
            given(WireFormat::BedrockInvoke, Delivery::Frames),
        ),
        ("POST", "/model/m/converse", given(WireFormat::BedrockConverse, Delivery::Whole)),
        ("POST", "/model/m/converse-stream", given(WireFormat::BedrockConverse, Delivery::Frames)),
        ("POST", "/api/chat", Call::Model { format: WireFormat::Ollama, delivery: None }),
        ("POST", "/v2/chat", Call::Model { format: WireFormat::CohereV2, delivery: None }),
        ("POST", "/v1/chat", Call::Model { format: WireFormat::CohereV1, delivery: None }),
        ("POST", "/v1/embeddings", Call::Metered(Metered::Vectors)),
        ("GET", "/v1/models", Call::Models),
        ("GET", "/v1/models/gpt-5", Call::Models),
        ("HEAD", "/api/hello", Call::Hello),
        ("POST", "/v1/files", Call::Free),
        ("DELETE", "/v1/messages", Call::Other),
        ("POST", "/", Call::Other),
        ("POST", "/invoke", Call::Other),
        ("POST", ":generateContent", Call::Other),
    ] {
        match route(method, target) {
            Ok(route) => assert_eq!(route.call, expected, "{method} {target}"),
            Err(error) => assert!(!target.starts_with('/'), "{target}: {error}"),
        }
    }
    assert_eq!(kind("POST", "/run/a/v1/messages"), anthropic);
}

#[test]
fn model_comes_from_path() {
    let model = |target: &str| route("POST", target).unwrap().model;
    assert_eq!(model("/v1beta/models/gemini-3:generateContent").as_deref(), Some("gemini-3"));
    assert_eq!(
        model("/model/us.anthropic.claude%3A0/invoke").as_deref(),
        Some("us.anthropic.claude:0")
    );
    assert_eq!(model("/v1/messages"), None);
    let long = model(&format!("/model/{}/invoke", "m".repeat(5000)));
    assert_eq!(long.unwrap().len(), 256);
}

#[test]
fn prefix_is_removed_and_rest_restored() {
    for (target, run, rest) in [
        ("/run/nightly-1/v1/models?a=b", Some("nightly-1"), "/v1/models?a=b"),
        ("/run/a", Some("a"), "/"),
        ("/run/a?key=b", Some("a"), "/?key=b"),
        ("/run/a/run/b/v1/models", Some("a"), "/run/b/v1/models"),
        ("/v1/run/a/models", None, "/v1/run/a/models"),
        ("/runs/a", None, "/runs/a"),
    ] {
        let route = route("GET", target).unwrap();
        assert_eq!(route.run.as_ref().map(RunName::as_str), run, "{target}");
        assert_eq!(route.target, rest);
    }
}

#[test]
fn hostile_targets_are_refused() {
    for name in ["", ".", "..", "-a", "a b", "a%2e", "a%0d%0ab", "ä", "a;b", "a\\b"] {
        let target = format!("/run/{name}/v1/messages");
        assert!(route("POST", &target).is_err(), "{target}");
        assert!(RunName::new(name).is_err(), "{name}");
    }
    assert!(RunName::new(&"a".repeat(100)).is_ok());
    let long = route("POST", &format!("/run/{}/v1/messages", "a".repeat(101))).unwrap_err();
    assert!(long.to_string().contains("at most 100 characters; it has 101"), "{long}");
    for target in ["/run/a/../b", "/v1/%2e%2e/x", "/a/.%2E"] {
        assert_eq!(route("GET", target), Err(RouteError::Traversal), "{target}");
    }
    for target in ["", "v1/messages", "/a\nb", "/a\0", "/ä", "http://x/v1", &"/a".repeat(40_000)] {
        assert_eq!(route("GET", target), Err(RouteError::Target), "{target}");
    }
    // Dots that are not a segment of their own are names.
    assert!(route("GET", "/v1/files/a..b/.../x").is_ok());
}
