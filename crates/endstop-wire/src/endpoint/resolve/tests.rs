use super::*;
use crate::catalog::providers::PROVIDERS;
use crate::dialect::DIALECTS;

fn none(_: &str) -> Option<String> {
    None
}

/// Sets every variable to its own name.
#[allow(clippy::unnecessary_wraps)] // other lookup functions return `None`
fn all(name: &str) -> Option<String> {
    Some(name.to_owned())
}

/// Sets only keys, each to its own name, and the variables that a URL requires.
fn keys(name: &str) -> Option<String> {
    match name {
        "AWS_REGION" | "GOOGLE_CLOUD_LOCATION" => return Some("eu-west-3".to_owned()),
        "GOOGLE_CLOUD_PROJECT" => return Some("mine".to_owned()),
        "AZURE_OPENAI_ENDPOINT" => return Some("https://mine.openai.azure.com".to_owned()),
        _ => {}
    }
    (name.contains("_KEY") || name.contains("_TOKEN")).then(|| name.to_owned())
}

/// Returns a model name that determines the format.
fn model_of(provider: &ProviderInfo) -> &'static str {
    if provider.places.is_empty() { "m" } else { "gemini-m" }
}

#[test]
fn every_provider_has_its_url() {
    let urls: Vec<String> = PROVIDERS
        .iter()
        .map(|p| resolve(&format!("{}/{}", p.id, model_of(p)), &keys).unwrap().url())
        .collect();
    assert_eq!(
        urls,
        [
            "https://api.anthropic.com/v1/messages",
            "https://api.openai.com/v1/chat/completions",
            "https://generativelanguage.googleapis.com/v1beta/models/m:generateContent",
            "http://localhost:11434/api/chat",
            "http://localhost:8080/v1/chat/completions",
            "http://localhost:8000/v1/chat/completions",
            "https://openrouter.ai/api/v1/chat/completions",
            "https://bedrock-runtime.eu-west-3.amazonaws.com/model/m/converse",
            "https://eu-west-3-aiplatform.googleapis.com/v1/projects/mine/locations/eu-west-3/publishers/google/models/gemini-m:generateContent",
            "https://mine.openai.azure.com/openai/v1/chat/completions",
            "https://api.cerebras.ai/v1/chat/completions",
            "https://api.cohere.com/v2/chat",
            "https://api.deepseek.com/chat/completions",
            "https://api.fireworks.ai/inference/v1/chat/completions",
            "https://api.groq.com/openai/v1/chat/completions",
            "https://api.mistral.ai/v1/chat/completions",
            "https://api.moonshot.ai/v1/chat/completions",
            "https://api.perplexity.ai/chat/completions",
            "https://api-inference.together.ai/v1/chat/completions",
            "https://api.x.ai/v1/chat/completions",
            "https://api.z.ai/api/paas/v4/chat/completions",
            "https://api.inference.crusoecloud.com/v1/chat/completions",
            "https://dashscope-intl.aliyuncs.com/compatible-mode/v1/chat/completions",
            "https://api.doubleword.ai/v1/chat/completions",
            "https://models.github.ai/inference/chat/completions",
            "https://router.huggingface.co/v1/chat/completions",
            "https://api.sambanova.ai/v1/chat/completions",
            "https://api.venice.ai/api/v1/chat/completions",
            "https://ai-gateway.vercel.sh/v1/chat/completions",
            "https://open.bigmodel.cn/api/paas/v4/chat/completions",
            "http://localhost:1234/v1/chat/completions",
            "http://localhost:30000/v1/chat/completions",
        ]
    );
}

#[test]
fn dialects_are_named_after_their_provider() {
    // Servers without an address of their own, which `--api` selects together with a base URL.
    const ONLY_BY_NAME: [&str; 5] =
        ["copilot", "copilot-responses", "gpustack", "snowflake", "tgi"];
    // A dialect is found by the id of its provider. One with another name would never be used,
    // because the provider would be called as a compatible server.
    for dialect in DIALECTS.iter().filter(|dialect| !ONLY_BY_NAME.contains(&dialect.name)) {
        let is_of = |id: &str| {
            let rest = dialect.name.strip_prefix(id);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        assert!(PROVIDERS.iter().any(|provider| is_of(provider.id)), "{}", dialect.name);
    }
}

#[test]
fn environment_is_read_like_the_sdks() {
    let model = resolve("openai/gpt-5", &all).unwrap();
    assert_eq!(model.base_url, "OPENAI_BASE_URL");
    let (name, value) = model.auth_header().unwrap();
    assert_eq!((name, value.expose()), ("authorization", "Bearer OPENAI_API_KEY"));
    assert_eq!(
        model.headers,
        [
            ("openai-organization", "OPENAI_ORG_ID".to_owned()),
            ("openai-project", "OPENAI_PROJECT_ID".to_owned()),
        ]
    );

    let model = resolve("anthropic/claude", &all).unwrap();
    let (name, value) = model.auth_header().unwrap();
    assert_eq!((name, value.expose()), ("x-api-key", "ANTHROPIC_API_KEY"));
    assert_eq!(model.headers, [("anthropic-version", "2023-06-01".to_owned())]);

    let token = |name: &str| match name {
        "ANTHROPIC_API_KEY" => Some(" \n".to_owned()),
        "ANTHROPIC_AUTH_TOKEN" => Some("token\n".to_owned()),
        _ => None,
    };
    let model = resolve("anthropic/claude", &token).unwrap();
    let (name, value) = model.auth_header().unwrap();
    assert_eq!((name, value.expose()), ("authorization", "Bearer token"));
    assert_eq!(model.base_url, "https://api.anthropic.com");

    let model = resolve("ollama/llama3:8b", &all).unwrap();
    assert_eq!(model.url(), "http://OLLAMA_HOST:11434/api/chat");
    assert_eq!(model.auth_header().unwrap().1.expose(), "Bearer OLLAMA_API_KEY");
    let model = resolve("ollama/llama3:8b", &none).unwrap();
    assert!(model.auth_header().is_none() && model.headers.is_empty());
}

#[test]
fn model_keeps_slashes_and_case() {
    let model = resolve("Together/Qwen/Qwen3-Coder/x", &keys).unwrap();
    assert_eq!((model.provider.id, model.model.as_str()), ("together", "Qwen/Qwen3-Coder/x"));
}

#[test]
fn caller_overrides_environment() {
    let overrides = Overrides {
        api: Some(WireFormat::OpenAiResponses),
        base_url: Some("http://127.0.0.1:9/v1/".to_owned()),
        key: Some(Secret::new("mine")),
    };
    let model = resolve_with("openai/gpt-5", &overrides, &all).unwrap();
    assert_eq!(model.url(), "http://127.0.0.1:9/v1/responses");
    assert_eq!(model.auth_header().unwrap().1.expose(), "Bearer mine");
    let error = resolve_with("groq/x", &overrides, &all).unwrap_err();
    assert_eq!(error.to_string(), "Groq does not speak openai-responses; it speaks openai-chat");
}

#[test]
fn shared_path_prefix_is_written_once() {
    for (spec, base, url) in [
        ("anthropic/m", "http://h/v1", "http://h/v1/messages"),
        ("anthropic/m", "http://h/v1/", "http://h/v1/messages"),
        ("anthropic/m", "http://h", "http://h/v1/messages"),
        ("groq/m", "http://h/openai/v1", "http://h/openai/v1/chat/completions"),
        ("groq/m", "http://h/openai", "http://h/openai/v1/chat/completions"),
        ("groq/m", "http://h/v1", "http://h/v1/openai/v1/chat/completions"),
        ("mistral/m", "http://h/xv1", "http://h/xv1/v1/chat/completions"),
        ("openai/m", "http://h/v1/chat", "http://h/v1/chat/completions"),
    ] {
        let overrides = Overrides { base_url: Some(base.to_owned()), ..Overrides::default() };
        assert_eq!(resolve_with(spec, &overrides, &keys).unwrap().url(), url);
    }
}

#[test]
fn ollama_base_serves_both_formats() {
    for base in ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"] {
        for (api, url, name) in [
            (None, "http://h:1/api/chat", "ollama"),
            (Some(WireFormat::Ollama), "http://h:1/api/chat", "ollama"),
            (Some(WireFormat::OpenAiChat), "http://h:1/v1/chat/completions", "ollama-openai"),
        ] {
            let base_url = Some(base.to_owned());
            let overrides = Overrides { api, base_url, ..Overrides::default() };
            let model = resolve_with("ollama/m", &overrides, &none).unwrap();
            assert_eq!(model.url(), url);
            assert_eq!(model.dialect(false).unwrap().name, name);
        }
    }
    let overrides = Overrides { base_url: Some("http://h/api".into()), ..Overrides::default() };
    let model = resolve_with("ollama/m", &overrides, &none).unwrap();
    assert_eq!(model.url(), "http://h/api/chat");
}

#[test]
fn gemini_url_has_model_and_method() {
    let base = "https://generativelanguage.googleapis.com/v1beta";
    for (spec, path) in [
        ("gemini/gemini-2.5-flash", "models/gemini-2.5-flash"),
        ("google/models/gemini-2.5-flash", "models/gemini-2.5-flash"),
        ("gemini/tunedModels/mine", "tunedModels/mine"),
        ("gemini/a?b#c d", "models/a%3Fb%23c%20d"),
    ] {
        let model = resolve(spec, &keys).unwrap();
        assert_eq!(model.provider.id, "gemini");
        assert_eq!(model.url(), format!("{base}/{path}:generateContent"));
        let stream = format!("{base}/{path}:streamGenerateContent?alt=sse");
        assert_eq!(model.stream_url(), stream);
    }
    let model = resolve("gemini/m", &all).unwrap();
    assert_eq!(model.base_url, "GOOGLE_GEMINI_BASE_URL");
    let (name, value) = model.auth_header().unwrap();
    assert_eq!((name, value.expose()), ("x-goog-api-key", "GOOGLE_API_KEY"));
    let second = |name: &str| (name == "GEMINI_API_KEY").then(|| "k".to_owned());
    assert_eq!(resolve("gemini/m", &second).unwrap().auth_header().unwrap().1.expose(), "k");
    let overrides =
        Overrides { base_url: Some("http://here/v1beta/".to_owned()), ..Overrides::default() };
    let model = resolve_with("gemini/m", &overrides, &keys).unwrap();
    assert_eq!(model.url(), "http://here/v1beta/models/m:generateContent");
    let chat = resolve("openai/m", &keys).unwrap();
    assert_eq!(chat.url(), chat.stream_url());
}

#[test]
fn bedrock_url_has_model_and_method() {
    let base = "https://bedrock-runtime.eu-west-3.amazonaws.com";
    let arn = "arn:aws:bedrock:us-east-1:012345678901:inference-profile/us.anthropic.claude-3-7-sonnet-20250219-v1:0";
    let escaped = "arn%3Aaws%3Abedrock%3Aus-east-1%3A012345678901%3Ainference-profile%2Fus.anthropic.claude-3-7-sonnet-20250219-v1%3A0";
    for (model, path) in [
        ("amazon.nova-lite-v1:0", "amazon.nova-lite-v1%3A0"),
        (arn, escaped),
        ("../x?y#z", "..%2Fx%3Fy%23z"),
    ] {
        let model = resolve(&format!("bedrock/{model}"), &keys).unwrap();
        assert_eq!(model.api, WireFormat::BedrockConverse);
        assert_eq!(model.url(), format!("{base}/model/{path}/converse"));
        assert_eq!(model.stream_url(), format!("{base}/model/{path}/converse-stream"));
    }
    let overrides = Overrides { api: Some(WireFormat::BedrockInvoke), ..Overrides::default() };
    let model = resolve_with("bedrock/us.anthropic.claude-opus-4-8", &overrides, &keys).unwrap();
    let path = format!("{base}/model/us.anthropic.claude-opus-4-8/invoke");
    assert_eq!(model.url(), path);
    assert_eq!(model.stream_url(), format!("{path}-with-response-stream"));
    assert!(resolve_with(&format!("bedrock/{arn}"), &overrides, &keys).is_ok());
    let error = resolve_with("bedrock/amazon.nova-lite-v1:0", &overrides, &keys).unwrap_err();
    assert!(error.to_string().ends_with("is not one; use bedrock-converse"), "{error}");
}

#[test]
fn bedrock_variables_match_the_sdk() {
    let with = |set: &'static [(&'static str, &'static str)]| {
        move |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned())
    };
    let signed: &'static [(&str, &str)] = &[
        ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY", "hunter2"),
        ("AWS_SESSION_TOKEN", "hunter3"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_ENDPOINT_URL", "http://localhost:4566/"),
    ];
    let model = resolve("bedrock/m", &with(signed)).unwrap();
    assert_eq!(model.url(), "http://localhost:4566/model/m/converse");
    let keys = model.signing.clone().unwrap();
    assert_eq!((keys.id.as_str(), keys.service), ("AKIDEXAMPLE", "bedrock"));
    assert_eq!((keys.secret.expose(), keys.region.as_str()), ("hunter2", "us-east-1"));
    assert_eq!(keys.session.unwrap().expose(), "hunter3");
    assert!(model.auth_header().is_none());
    assert!(!format!("{model:?}").contains("hunter"));

    let bearer: &'static [(&str, &str)] = &[
        ("AWS_BEARER_TOKEN_BEDROCK", "token"),
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_REGION", "eu-west-3"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_ENDPOINT_URL", "http://wider"),
        ("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "http://narrower"),
    ];
    let model = resolve("bedrock/m", &with(bearer)).unwrap();
    assert_eq!(model.base_url, "http://narrower");
    assert_eq!(model.auth_header().unwrap().1.expose(), "Bearer token");
    assert!(model.signing.is_none());
    let model = resolve("bedrock/m", &with(&bearer[..5])).unwrap();
    assert_eq!(model.base_url, "https://bedrock-runtime.eu-west-3.amazonaws.com");

    let said = |set| resolve("bedrock/m", &with(set)).unwrap_err().to_string();
    let no_key = "no key for Amazon Bedrock: set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
    assert_eq!(said(&[]), no_key);
    assert_eq!(said(&signed[..1]), no_key);
    let no_region = "no region for Amazon Bedrock: set AWS_REGION or AWS_DEFAULT_REGION, for example to us-east-1";
    assert_eq!(said(&signed[..3]), no_region);
    assert_eq!(said(&bearer[..1]), no_region);
    // The region must not end the host name.
    assert!(
        said(&[("AWS_BEARER_TOKEN_BEDROCK", "t"), ("AWS_REGION", "evil.example/")])
            .starts_with("invalid region `evil.example/` for Amazon Bedrock;")
    );
}

#[test]
fn errors_list_the_choices() {
    let said = |spec: &str| resolve(spec, &none).unwrap_err().to_string();
    assert_eq!(said("openai/gpt-5"), "no key for OpenAI: set OPENAI_API_KEY");
    assert_eq!(
        said("anthropic/claude"),
        "no key for Anthropic: set ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN"
    );
    assert_eq!(said("gpt-5"), "`gpt-5` is not PROVIDER/MODEL; did you mean `openai/gpt-5`?");
    assert_eq!(said("gpt5"), "`gpt5` is not PROVIDER/MODEL; did you mean `openai/gpt-5`?");
    for spec in ["openai", "openai/"] {
        assert!(said(spec).contains("no model is named; write openai/MODEL"), "{}", said(spec));
    }
    for spec in ["", "/", "/gpt-5", "nothing"] {
        assert!(said(spec).contains("providers: anthropic, openai, "), "{spec}: {}", said(spec));
    }
    for (name, meant) in [
        ("opnai", Some("openai")),
        ("antrhopic", Some("anthropic")),
        ("grok", Some("xai")),
        ("z-ai", Some("zai")),
        ("gtp", Some("openai")),
        ("a", None),
        ("", None),
        ("bedrok", Some("bedrock")),
        ("vertexx", Some("vertex")),
        ("google-vertex", Some("vertex")),
        ("azure_openai", Some("azure")),
        ("telegraph", None),
    ] {
        assert_eq!(nearest(name), meant, "{name}");
    }
    assert!(
        said("telegraph/x").starts_with("unknown provider `telegraph` (providers: anthropic, ")
    );
}

#[test]
fn key_of_another_provider_is_refused() {
    let of = |spec: &str, vars: &[(&str, &str)]| {
        let env = |name: &str| {
            vars.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned())
        };
        resolve(spec, &env).map(drop).map_err(|error| error.to_string())
    };
    let error = of("openai/gpt-5", &[("OPENAI_API_KEY", "sk-ant-api03-x")]).unwrap_err();
    let says = "the key in OPENAI_API_KEY is one of Anthropic, not of OpenAI: ";
    assert!(error.starts_with(says) && !error.contains("api03"), "{error}");
    assert_eq!(of("anthropic/claude", &[("ANTHROPIC_API_KEY", "sk-ant-api03-x")]), Ok(()));
    assert_eq!(of("openai/gpt-5", &[("OPENAI_API_KEY", "sk-proj-x")]), Ok(()));
    let unset = of("openai/gpt-5", &[("ANTHROPIC_API_KEY", "sk-ant-api03-x")]).unwrap_err();
    let says =
        "no key for OpenAI: set OPENAI_API_KEY; ANTHROPIC_API_KEY is set, for models of Anthropic";
    assert_eq!(unset, says);
    let other = of("anthropic/claude", &[("ANTHROPIC_API_KEY", "sk-proj-x")]).unwrap_err();
    assert!(other.starts_with("the key in ANTHROPIC_API_KEY is one of OpenAI"), "{other}");
    // A gateway may take the key of any vendor.
    let gateway = [("OPENAI_API_KEY", "sk-ant-x"), ("OPENAI_BASE_URL", "https://gateway.example")];
    assert_eq!(of("openai/gpt-5", &gateway), Ok(()));
}

#[test]
fn secret_is_never_shown() {
    let env = |_: &str| Some("hunter2".to_owned());
    for provider in PROVIDERS.iter().filter(|p| !p.key_vars.is_empty()) {
        let spec = format!("{}/{}", provider.id, model_of(provider));
        let env = |name: &str| {
            let key = provider.key_vars.iter().find(|v| v.name == name);
            key.map_or_else(|| keys(name), |v| env(v.name))
        };
        let model = resolve(&spec, &env).unwrap();
        let header = model.auth_header().unwrap();
        assert!(header.1.expose().ends_with("hunter2"));
        for shown in [format!("{model:?} {model:#?} {header:?}"), header.1.to_string()] {
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }
}

#[test]
fn password_of_address_is_never_shown() {
    let base_url = Some("http://me:hunter2@host/v1?key=hunter2".to_owned());
    let overrides = Overrides { base_url, ..Overrides::default() };
    let model = resolve_with("openai/scripted", &overrides, &|_| Some("k".to_owned())).unwrap();
    let shown = format!("{model:?} {overrides:?}");
    assert!(shown.contains("http://host/v1") && !shown.contains("hunter2"), "{shown}");
}
