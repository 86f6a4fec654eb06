//! Tests that a key is never sent to another machine over `http://`.

use endstop::provider::http::HttpProvider;

/// A model, a format, an address, and the environment variables.
type Case<'a> = (&'a str, Option<&'a str>, &'a str, &'a [(&'a str, &'a str)]);

fn set(pairs: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> + Clone + use<> {
    let pairs: Vec<(String, String)> =
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    move |name| pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
}

#[test]
fn key_over_http_is_refused() {
    let aws =
        [("AWS_REGION", "eu-west-1"), ("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")];
    let google = [
        ("GOOGLE_CLOUD_PROJECT", "p"),
        ("GOOGLE_CLOUD_LOCATION", "eu"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "f"),
    ];
    let cases: [Case<'_>; 8] = [
        ("openai/x", None, "http://192.0.2.1/v1", &[("OPENAI_API_KEY", "k")]),
        ("openai/x", None, "HTTP://gpu.example:80", &[("OPENAI_API_KEY", "k")]),
        ("x", Some("anthropic-messages"), "http://h", &[("ANTHROPIC_API_KEY", "k")]),
        ("azure/d", None, "http://h", &[("AZURE_OPENAI_API_KEY", "k")]),
        ("bedrock/m", None, "http://h", &aws),
        ("vertex/gemini-x", None, "http://h", &google),
        ("ollama/x", None, "http://me:pw@h", &[]),
        ("ollama/x", None, "http://h?api_key=k", &[]),
    ];
    for (model, api, url, variables) in cases {
        let mut options = HttpProvider::builder(model).base_url(url);
        if let Some(api) = api {
            options = options.api(api);
        }
        let env = set(variables);
        let problem = options.clone().env(env.clone()).build().unwrap_err().to_string();
        assert!(problem.contains("unencrypted") && problem.contains("allow_http"), "{problem}");
        assert!(!problem.contains("pw"), "{problem}");
        let allowed = options.clone().allow_http(true);
        assert!(allowed.env(env.clone()).build().is_ok(), "{model} {url}");
        for own in ["https://h/v1", "http://127.1/v1", "http://[::1]:1/v1", "http://localhost/"] {
            let built = options.clone().base_url(own).env(env.clone()).build();
            assert!(built.is_ok(), "{model} {own:?}");
        }
        // Without a key there is nothing to protect.
        let open = options.base_url("http://h/v1");
        let keyless = open.env(set(&[])).build();
        assert!(
            keyless.is_ok() || !keyless.unwrap_err().to_string().contains("unencrypted"),
            "{model}"
        );
    }
}

#[cfg(feature = "mcp")]
#[tokio::test]
async fn mcp_headers_over_http_are_refused() {
    use endstop::mcp::{McpErrorKind, McpServer};
    for server in [
        McpServer::http("x", "http://192.0.2.1/mcp").header("Authorization", "Bearer s3cret"),
        McpServer::http("x", "http://192.0.2.1/mcp").header("X-Team", "a"),
        McpServer::http("x", "http://192.0.2.1/mcp?api_key=s3cret"),
    ] {
        let error = server.connect().await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("unencrypted") && text.contains("allow_http"), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
        assert_eq!(error.kind, McpErrorKind::Config);
    }
}
