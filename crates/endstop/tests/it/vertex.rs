//! Runs over Vertex AI: the models of both makers, streamed and not, with a configured token and
//! with one fetched for a service account, from a server that checks the credentials.

use crate::support::{assert_looked, looks_once};
use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use endstop::provider::http::HttpProvider;
use endstop::provider::record::Recorder;
use endstop::provider::recording::Recording;
use endstop::provider::replay::RecordingReplay;
use endstop::testkit::{Reply, Request, Server, Turn};
use endstop::tool::{ToolOutput, tool_fn};
use endstop::{Agent, Termination};
use serde_json::{Value, json};
use std::sync::OnceLock;
use std::time::Instant;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// A cloud model that the test server imitates.
fn provider(server: &Server, model: &str, more: &[(&str, &str)]) -> HttpProvider {
    let base_url = server.base_url().replace("/v1", "");
    let set: Vec<(String, String)> = [
        ("GOOGLE_CLOUD_PROJECT", "mine"),
        ("GOOGLE_CLOUD_LOCATION", "us-central1"),
        ("ANTHROPIC_VERTEX_PROJECT_ID", "theirs"),
        ("CLOUD_ML_REGION", "us-east5"),
        ("GOOGLE_VERTEX_BASE_URL", &base_url),
        ("ANTHROPIC_VERTEX_BASE_URL", &base_url),
    ]
    .into_iter()
    .chain(more.iter().copied())
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .collect();
    let var = move |name: &str| set.iter().find(|(known, _)| known == name).map(|(_, v)| v.clone());
    let options = HttpProvider::builder(format!("vertex/{model}"));
    let provider = options.env(var).build().unwrap();
    assert!(!format!("{provider:?}").contains("hunter"));
    provider
}

/// An agent with a model and a tool.
fn over(provider: HttpProvider, streaming: bool) -> Agent {
    let look = tool_fn("look", "Looks.", |_: Nothing, _| async { ToolOutput::ok("seen") });
    Agent::builder(provider).streaming(streaming).tool(look).build().unwrap()
}

fn agent(server: &Server, model: &str, streaming: bool, more: &[(&str, &str)]) -> Agent {
    over(provider(server, model, more), streaming)
}

#[tokio::test]
async fn tool_run_succeeds_in_both_formats() {
    for (model, path, once, streamed) in [
        (
            "gemini-2.5-flash",
            "/v1/projects/mine/locations/us-central1/publishers/google/models/gemini-2.5-flash",
            "generateContent",
            "streamGenerateContent?alt=sse",
        ),
        (
            "claude-sonnet-4-5@20250929",
            "/v1/projects/theirs/locations/us-east5/publishers/anthropic/models/claude-sonnet-4-5@20250929",
            "rawPredict",
            "streamRawPredict",
        ),
    ] {
        for streaming in [true, false] {
            let server = Server::script(looks_once()).unwrap();
            let token = [("CLOUDSDK_AUTH_ACCESS_TOKEN", "hunter2")];
            let outcome = agent(&server, model, streaming, &token).run("Look.").unwrap().await;
            assert_looked(&outcome);
            assert!(outcome.cost.to_usd() > 0.0, "the catalogue has its price");
            let requests = server.requests();
            assert_eq!(requests.len(), 2);
            for request in &requests {
                let method = if streaming { streamed } else { once };
                assert_eq!(request.path, format!("{path}:{method}"));
                assert_eq!(request.headers["authorization"], "Bearer hunter2");
                for other in ["x-api-key", "x-goog-api-key", "anthropic-version"] {
                    assert!(!request.headers.contains_key(other), "{other}");
                }
                assert!(request.body.get("model").is_none());
            }
            let body = &requests[1].body;
            if model.starts_with("claude") {
                assert_eq!(body["anthropic_version"], "vertex-2023-10-16");
                assert_eq!(body.get("stream"), streaming.then_some(&json!(true)));
                assert_eq!(body["max_tokens"], 64_000);
                assert_eq!(body["messages"][1]["content"][0]["signature"], "c2ln");
                assert_eq!(body["messages"][2]["content"][0]["content"], "seen");
            } else {
                assert!(body.get("stream").is_none() && body.get("anthropic_version").is_none());
                assert_eq!(body["contents"][0]["role"], "user");
                let result = &body["contents"][2]["parts"][0]["functionResponse"];
                assert_eq!(result["name"], "look");
                assert!(result["response"].to_string().contains("seen"), "{result}");
            }
        }
    }
}

fn key() -> &'static KeyPair {
    static KEY: OnceLock<KeyPair> = OnceLock::new();
    KEY.get_or_init(|| KeyPair::generate(KeySize::Rsa2048).unwrap())
}

/// A service account file in Google's format.
fn service_account(token_uri: &str) -> Value {
    let key = STANDARD.encode(key().as_der().unwrap().as_ref());
    json!({
        "type": "service_account",
        "project_id": "not-this-one",
        "private_key_id": "1",
        "private_key": format!("-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----\n"),
        "client_email": "robot@mine.iam.gserviceaccount.com",
        "token_uri": token_uri,
    })
}

fn file(content: &Value) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), content.to_string()).unwrap();
    file
}

/// Returns the claims of a service account's token request if it is signed with the account's key.
fn claims(request: &Request) -> Option<Value> {
    let form = std::str::from_utf8(&request.bytes).ok()?;
    let field = |name: &str| form.split('&').find_map(|pair| pair.strip_prefix(name));
    assert_eq!(field("grant_type="), Some("urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer"));
    let assertion = field("assertion=")?.replace("%3D", "=");
    let (signed, signature) = assertion.rsplit_once('.')?;
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key().public_key());
    public.verify(signed.as_bytes(), &URL_SAFE.decode(signature).ok()?).ok()?;
    serde_json::from_slice(&URL_SAFE.decode(signed.split_once('.')?.1).ok()?).ok()
}

/// A server that issues numbered tokens valid for this many seconds.
fn token_server(seconds: u64) -> Server {
    Server::start(move |request| match claims(request) {
        Some(_) => Reply::json(&json!({
            "access_token": format!("hunter-{}", request.number),
            "expires_in": seconds,
            "token_type": "Bearer",
        })),
        None => Reply::new(401, "application/json", r#"{"error":"invalid_grant"}"#),
    })
    .unwrap()
}

fn token_uri(server: &Server) -> String {
    server.base_url().replace("/v1", "/token")
}

#[tokio::test]
async fn service_account_token_is_cached() {
    for model in ["gemini-2.5-flash", "claude-sonnet-4-5"] {
        // A token that is about to expire is fetched again.
        for (seconds, used) in [
            (3600, vec!["Bearer hunter-1", "Bearer hunter-1"]),
            (1, vec!["Bearer hunter-1", "Bearer hunter-2"]),
        ] {
            let tokens = token_server(seconds);
            let server = Server::script(looks_once()).unwrap();
            let file = file(&service_account(&token_uri(&tokens)));
            let credentials = [("GOOGLE_APPLICATION_CREDENTIALS", file.path().to_str().unwrap())];
            let outcome = agent(&server, model, true, &credentials).run("Look.").unwrap().await;
            assert_looked(&outcome);
            let said: Vec<String> =
                server.requests().iter().map(|r| r.headers["authorization"].clone()).collect();
            assert_eq!(said, used);
            let asked = tokens.requests();
            assert_eq!(asked.len(), if seconds > 60 { 1 } else { 2 });
            let claims = claims(&asked[0]).unwrap();
            assert_eq!(claims["iss"], "robot@mine.iam.gserviceaccount.com");
            assert_eq!(
                (&claims["scope"], &claims["aud"]),
                (&json!(SCOPE), &json!(token_uri(&tokens)))
            );
        }
    }
}

/// Returns the error of a run with these credentials.
async fn refused(credentials: &str) -> String {
    let server = Server::script(looks_once()).unwrap();
    let credentials = [("GOOGLE_APPLICATION_CREDENTIALS", credentials)];
    let agent = agent(&server, "gemini-2.5-flash", true, &credentials);
    let outcome = agent.run("Look.").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorProviderAuth, "{outcome:?}");
    assert_eq!(outcome.model_calls, 1);
    assert!(server.requests().is_empty(), "nothing is asked without a token");
    let said = serde_json::to_string(&outcome).unwrap();
    assert!(said.contains("run `gcloud auth application-default login`"), "{said}");
    assert!(!said.contains("hunter") && !said.contains("BEGIN"), "{said}");
    said
}

#[tokio::test]
async fn missing_token_ends_as_not_authenticated() {
    let no_tokens = Server::start(|_| {
        Reply::new(400, "application/json", r#"{"error":"invalid_grant","seen":"hunter2"}"#)
    })
    .unwrap();
    let account = service_account(&token_uri(&no_tokens));
    let said = refused(file(&account).path().to_str().unwrap()).await;
    assert!(said.contains("no key for Google Vertex AI: token request failed"), "{said}");

    let garbled = Server::start(|_| Reply::json(&json!({"access_token": ["hunter2"]}))).unwrap();
    let said = refused(file(&service_account(&token_uri(&garbled))).path().to_str().unwrap()).await;
    assert!(said.contains("failed to deserialize token from response (line 1"), "{said}");

    let folder = tempfile::tempdir().unwrap();
    let said = refused(folder.path().join("none.json").to_str().unwrap()).await;
    assert!(said.contains("GOOGLE_APPLICATION_CREDENTIALS is `"), "{said}");

    for (field, value, problem) in [
        ("type", json!("authorized_user"), "unsupported `type` `authorized_user`"),
        ("type", json!(["hunter2"]), "not a credentials file (line 1"),
        ("private_key", json!("hunter2"), "failed to parse PKCS#8 RSA key pair"),
        ("private_key", json!(2), "(line 1"),
        (
            "token_uri",
            json!("not an address"),
            "invalid `token_uri`: expected an http or https URL",
        ),
        (
            "token_uri",
            json!("http://h h/token"),
            "invalid `token_uri`: expected an http or https URL",
        ),
        ("token_uri", Value::Null, "invalid `token_uri`: expected an http or https URL"),
    ] {
        let mut account = account.clone();
        account[field] = value;
        let said = refused(file(&account).path().to_str().unwrap()).await;
        assert!(said.contains(problem), "{field}: {said}");
    }
}

#[tokio::test]
async fn cancel_does_not_wait_for_token() {
    let silent = Server::start(|_| Reply::json(&json!({})).stall_after(0)).unwrap();
    let server = Server::script(looks_once()).unwrap();
    let file = file(&service_account(&token_uri(&silent)));
    let credentials = [("GOOGLE_APPLICATION_CREDENTIALS", file.path().to_str().unwrap())];
    let agent = agent(&server, "gemini-2.5-flash", true, &credentials);
    let run = agent.run("Look.").unwrap();
    // The runtime, which has one thread here, must not be blocked in the meantime.
    assert!(silent.until(|silent| silent.requests().len() == 1).await);
    let began = Instant::now();
    agent.cancel();
    let outcome = run.await;
    assert_eq!(outcome.termination, Termination::Cancelled, "{outcome:?}");
    assert!(began.elapsed() < crate::support::HANG, "{:?}", began.elapsed());
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn recording_holds_and_needs_no_token() {
    let token = "ya29.c.Kp8B4fQ9xTz71LmN0pWv8aBcD2eFgH5iJkL";
    let tokens =
        Server::start(move |_| Reply::json(&json!({"access_token": token, "expires_in": 3600})))
            .unwrap();
    let server = Server::start(|request| {
        let key = &request.headers["authorization"]["Bearer ".len()..];
        Reply::turn(request, &Turn::text(format!("The key is {key}, is it?"))).split(7)
    })
    .unwrap();
    let account = file(&service_account(&token_uri(&tokens)));
    let good = account.path().to_str().unwrap();
    let absent = format!("{good}.absent");
    for (credentials, ending, calls) in
        [(good, Termination::Stop, 1), (absent.as_str(), Termination::ErrorProviderAuth, 0)]
    {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let recorder = Recorder::create(&path).unwrap();
        let credentials = [("GOOGLE_APPLICATION_CREDENTIALS", credentials)];
        let provider = provider(&server, "gemini-2.5-flash", &credentials);
        let provider = provider.record(&recorder).unwrap();
        let outcome = over(provider, true).run("Look.").unwrap().await;
        recorder.ended(&outcome);
        assert_eq!((outcome.termination, recorder.problem()), (ending, None), "{outcome:?}");

        let kept = std::fs::read_to_string(&path).unwrap();
        assert!(!kept.contains(&token[8..16]) && !kept.contains("BEGIN"), "{kept}");
        assert_eq!(kept.matches(r#""authorization":"[redacted]""#).count(), calls, "{kept}");
        let replay = RecordingReplay::new(Recording::read(&path).unwrap());
        let again = over(HttpProvider::replay(&replay).unwrap(), true).run("Look.").unwrap().await;
        assert_eq!(again.termination, ending, "{again:?}");
        assert_eq!(again.model_calls, outcome.model_calls);
    }
}

#[test]
fn invalid_address_names_its_variable() {
    for (model, variable) in
        [("gemini-x", "GOOGLE_VERTEX_BASE_URL"), ("claude-x", "ANTHROPIC_VERTEX_BASE_URL")]
    {
        let env = |name: &str| {
            Some(if name.ends_with("BASE_URL") { "localhost:8080" } else { "mine" }.to_owned())
        };
        let options = HttpProvider::builder(format!("vertex/{model}"));
        let problem = options.env(env).build().unwrap_err().to_string();
        assert!(problem.starts_with(&format!("invalid {variable} `localhost:8080`")), "{problem}");
    }
}

#[tokio::test]
async fn custom_gateway_may_need_no_token() {
    let server = Server::script(looks_once()).unwrap();
    let options = HttpProvider::builder("vertex/claude-sonnet-4-5").base_url(server.base_url());
    let env = |name: &str| match name {
        "GOOGLE_CLOUD_PROJECT" => Some("mine".to_owned()),
        "GOOGLE_CLOUD_LOCATION" => Some("global".to_owned()),
        _ => None,
    };
    let provider = options.env(env).build().unwrap();
    let outcome = over(provider, true).run("Look.").unwrap().await;
    assert_looked(&outcome);
    for request in server.requests() {
        let path = "/v1/projects/mine/locations/global/publishers/anthropic/models/claude-sonnet-4-5:streamRawPredict";
        assert_eq!(request.path, path);
        assert!(!request.headers.contains_key("authorization"));
        assert_eq!(request.body["anthropic_version"], "vertex-2023-10-16");
    }
}
