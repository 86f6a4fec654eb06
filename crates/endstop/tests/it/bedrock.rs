//! Runs over Bedrock: both of its formats, streamed and not, with a key in a header and with signed
//! requests, against a server that checks the signature independently.

use crate::support::{assert_looked, looks_once, over};
use endstop::provider::http::HttpProvider;
use endstop::provider::record::Recorder;
use endstop::testkit::{Reply, Request, Server, Turn};
use endstop::tool::{ToolOutput, tool_fn};
use endstop::wire::stream::eventstream::frame;
use endstop::{Agent, Outcome, Termination};
use hmac::{Hmac, Mac};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

const SECRET: &str = "hunter2/secret";

/// A run with a tool turn and a final turn.
async fn run(
    server: &Server,
    api: &str,
    streaming: bool,
    env: &[(&'static str, &'static str)],
) -> Outcome {
    let env: Vec<(&str, String)> = env
        .iter()
        .map(|(name, value)| (*name, (*value).to_owned()))
        .chain([("AWS_ENDPOINT_URL", server.base_url().replace("/v1", ""))])
        .collect();
    let options =
        HttpProvider::builder("bedrock/us.anthropic.claude-haiku-4-5-20251001-v1:0").api(api);
    let var = move |name: &str| {
        env.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
    };
    let provider = options.env(var).build().unwrap();
    assert!(!format!("{provider:?}").contains("hunter"));
    let look = tool_fn("look", "Looks.", |_: Nothing, _| async { ToolOutput::ok("seen") });
    let agent = Agent::builder(provider).streaming(streaming).tool(look).build().unwrap();
    agent.run("Look at it.").unwrap().await
}

#[tokio::test]
async fn tool_run_succeeds_in_both_formats() {
    for (api, method, streamed) in [
        ("bedrock-converse", "converse", "converse-stream"),
        ("bedrock-invoke", "invoke", "invoke-with-response-stream"),
    ] {
        for streaming in [true, false] {
            let server = Server::script(looks_once()).unwrap();
            let env =
                [("AWS_BEARER_TOKEN_BEDROCK", "hunter2"), ("AWS_DEFAULT_REGION", "us-east-1")];
            let outcome = run(&server, api, streaming, &env).await;
            assert_looked(&outcome);
            assert!(outcome.cost.to_usd() > 0.0, "the catalogue has its price");
            let method = if streaming { streamed } else { method };
            let requests = server.requests();
            for request in &requests {
                let path = format!("/model/us.anthropic.claude-haiku-4-5-20251001-v1%3A0/{method}");
                assert_eq!(request.path, path);
                assert_eq!(request.headers["authorization"], "Bearer hunter2");
                assert!(!request.headers.contains_key("x-amz-date"));
                assert!(
                    request.body.get("model").is_none() && request.body.get("stream").is_none()
                );
            }
            let messages = &requests[1].body["messages"];
            if api == "bedrock-converse" {
                let reasoning = json!({"text": "hm", "signature": "c2ln"});
                assert_eq!(
                    messages[1]["content"][0]["reasoningContent"]["reasoningText"],
                    reasoning
                );
                assert_eq!(messages[1]["content"][1]["toolUse"]["input"], json!({"at": "it"}));
                let result = &messages[2]["content"][0]["toolResult"];
                assert_eq!(result["toolUseId"], messages[1]["content"][1]["toolUse"]["toolUseId"]);
                assert_eq!(result["content"], json!([{"text": "seen"}]));
            } else {
                assert_eq!(requests[1].body["anthropic_version"], "bedrock-2023-05-31");
                assert_eq!(messages[1]["content"][0]["signature"], "c2ln");
                assert_eq!(messages[2]["content"][0]["content"], "seen");
            }
        }
    }
}

fn mac(key: &[u8], data: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(data.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Computes the expected signature of a request, following AWS's documentation.
fn expected_signature(request: &Request, names: &str, scope: &str) -> String {
    let headers: Vec<String> =
        names.split(';').map(|name| format!("{name}:{}\n", request.headers[name])).collect();
    let path = request.path.replace('%', "%25");
    let body = hex(&Sha256::digest(&request.bytes));
    let canonical = format!("POST\n{path}\n\n{}\n{names}\n{body}", headers.concat());
    let date = &request.headers["x-amz-date"];
    let canonical = hex(&Sha256::digest(canonical.as_bytes()));
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{canonical}");
    let key = scope.split('/').fold(format!("AWS4{SECRET}").into_bytes(), |k, part| mac(&k, part));
    hex(&mac(&key, &text))
}

/// `true` if the request is signed with these keys, for this region, over its own body.
fn is_signed(request: &Request) -> bool {
    let Some(authorization) = request.headers.get("authorization") else { return false };
    let field = |name: &str| {
        let (_, rest) = authorization.split_once(&format!("{name}="))?;
        Some(rest.split(',').next().unwrap_or_default())
    };
    let (Some(credential), Some(names), Some(signature)) =
        (field("Credential"), field("SignedHeaders"), field("Signature"))
    else {
        return false;
    };
    let Some(scope) = credential.strip_prefix("AKIDEXAMPLE/") else { return false };
    let day = request.headers["x-amz-date"].split('T').next().unwrap_or_default().to_owned();
    assert_eq!(scope, format!("{day}/eu-west-3/bedrock/aws4_request"));
    for name in ["host", "content-type", "x-amz-date", "x-amz-security-token"] {
        assert!(names.split(';').any(|signed| signed == name), "{names}");
    }
    signature == expected_signature(request, names, scope)
}

#[tokio::test]
async fn request_is_signed_with_its_body() {
    for (api, streaming) in
        [("bedrock-converse", true), ("bedrock-converse", false), ("bedrock-invoke", true)]
    {
        let script = looks_once();
        // The first response requests a retry, so that the same body is sent and signed twice.
        let server = Server::start(move |request| {
            if !is_signed(request) {
                // AWS reports the headers that it expected to be signed.
                let quoted = format!(
                    "The request signature we calculated does not match: 'POST\n\nx-amz-security-token:{}\n'",
                    request.headers["x-amz-security-token"]
                );
                let body = json!({"message": quoted});
                return Reply::new(403, "application/json", body.to_string())
                    .header("x-amzn-errortype", "InvalidSignatureException:http://internal/");
            }
            match request.number {
                1 => {
                    let body = json!({"message": "Too many requests"}).to_string();
                    Reply::new(429, "application/json", body)
                        .header("x-amzn-errortype", "ThrottlingException")
                        .header("retry-after", "0")
                }
                n => Reply::turn(request, &script[n as usize - 2]).split(7),
            }
        })
        .unwrap();
        let env = [
            ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
            ("AWS_SESSION_TOKEN", "hunter3-session"),
            ("AWS_REGION", "eu-west-3"),
        ];
        let outcome = run(&server, api, streaming, &env).await;
        assert_looked(&outcome);
        let requests = server.requests();
        assert_eq!((requests.len(), outcome.model_calls), (3, 3));
        assert_eq!(requests[0].bytes, requests[1].bytes);
        assert!(
            requests
                .iter()
                .all(|request| request.headers["x-amz-security-token"] == "hunter3-session")
        );
        let bodies: BTreeSet<&[u8]> = requests.iter().map(|r| r.bytes.as_slice()).collect();
        let signatures: BTreeSet<&String> =
            requests.iter().map(|r| &r.headers["authorization"]).collect();
        assert!(bodies.len() == 2 && signatures.len() >= 2);

        // A wrong secret is refused, and the run ends with that error.
        let mut env = env;
        env[1].1 = "another";
        let outcome = run(&server, api, streaming, &env).await;
        assert_eq!(outcome.termination, Termination::ErrorProviderAuth, "{outcome:?}");
        let told = serde_json::to_string(&outcome).unwrap();
        assert!(!told.contains("another") && !told.contains("hunter"), "{told}");
    }
}

/// AWS's error for a wrong signature quotes what should have been signed.
#[tokio::test]
async fn signed_recording_has_no_key() {
    const TOKEN: &str = "FwoGZXIvYXdzEJr//////////wEaDNq8sX0token7Q==";
    let server = Server::start(|request| {
        let quoted: Vec<String> =
            request.headers.iter().map(|(name, value)| format!("{name}:{value}")).collect();
        let body = json!({"message": format!("It should have been 'POST\n{}'", quoted.join("\n"))});
        Reply::new(403, "application/json", body.to_string())
            .header("x-amzn-errortype", "InvalidSignatureException")
    })
    .unwrap();
    let env = [
        ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_SESSION_TOKEN", TOKEN),
        ("AWS_REGION", "eu-west-3"),
    ];
    let address = server.base_url();
    let var = move |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    let options = HttpProvider::builder("bedrock/amazon.nova-lite-v1:0").base_url(address);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let recorder = Recorder::create(&path).unwrap();
    let provider = options.env(var).build().unwrap().record(&recorder).unwrap();
    let outcome = Agent::builder(provider).build().unwrap().run("Go.").unwrap().outcome().await;
    recorder.ended(&outcome);
    assert_eq!(outcome.termination, Termination::ErrorProviderAuth);
    let authorization = &server.requests()[0].headers["authorization"];
    let signature = authorization.split("Signature=").nth(1).unwrap();
    let kept = std::fs::read_to_string(&path).unwrap();
    let told = serde_json::to_string(&outcome).unwrap();
    assert!(kept.contains("InvalidSignatureException") && kept.contains("[redacted]"), "{kept}");
    let rows: Vec<Value> = kept.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // Values that are not keys are recorded unchanged.
    assert_eq!(rows[1]["request"], server.requests()[0].body);
    for secret in [SECRET, TOKEN, &TOKEN[..20], signature] {
        assert!(!kept.contains(secret) && !told.contains(secret), "{secret}: {kept} {told}");
    }
}

#[tokio::test]
async fn broken_frames_retried_and_exceptions_typed() {
    for api in ["bedrock-converse", "bedrock-invoke"] {
        for fault in 0..4 {
            let server = Server::start(move |request| {
                let reply = Reply::turn(request, &Turn::text("a whole answer of some length"));
                let kind = "application/vnd.amazon.eventstream";
                let exception = [
                    (":exception-type", "modelStreamErrorException"),
                    (":message-type", "exception"),
                ];
                match (request.number, fault) {
                    (1, 0) => reply.cut_after(300),
                    (1, 1) => reply.reset_after(300),
                    (1, 2) => Reply::new(200, kind, frame(&exception, br#"{"message":"Oops"}"#)),
                    // A wrong length field.
                    (1, _) => Reply::new(200, kind, [[0u8; 12], [1; 12]].concat()),
                    _ => reply.split(7),
                }
            })
            .unwrap();
            let agent = over(&server, api).build().unwrap();
            let outcome = agent.run("m").unwrap().await;
            assert_eq!(outcome.termination, Termination::Stop, "{api} {fault}: {outcome:?}");
            assert_eq!(outcome.model_calls, 2);
            assert_eq!(outcome.last_text.as_deref(), Some("a whole answer of some length"));
        }
    }
}

#[test]
fn missing_setting_is_named() {
    let options = HttpProvider::builder("bedrock/amazon.nova-lite-v1:0");
    let problem = options.clone().env(|_| None).build().unwrap_err().to_string();
    assert!(problem.contains("AWS_BEARER_TOKEN_BEDROCK"), "{problem}");
    let key = |name: &str| (name == "AWS_BEARER_TOKEN_BEDROCK").then(|| "k".to_owned());
    let problem = options.env(key).build().unwrap_err().to_string();
    assert!(problem.contains("AWS_REGION or AWS_DEFAULT_REGION"), "{problem}");
}
