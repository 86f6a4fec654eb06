//! Runs over Azure OpenAI: both of its formats, the newest API and a named version, with a key and
//! with a token.

use endstop::provider::http::HttpProvider;
use endstop::testkit::{Reply, Server, Turn};
use endstop::tool::{ToolOutput, tool_fn};
use endstop::{Agent, Outcome, Termination};
use serde_json::json;
use std::collections::HashMap;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

const KEY: (&str, &str) = ("AZURE_OPENAI_API_KEY", "hunter2");
const TOKEN: (&str, &str) = ("AZURE_OPENAI_AD_TOKEN", "hunter3");
const VERSION: (&str, &str) = ("OPENAI_API_VERSION", "2024-12-01-preview");

async fn run(
    server: &Server,
    api: Option<&str>,
    streaming: bool,
    more: &[(&str, &str)],
) -> Outcome {
    let endpoint = server.base_url().replace("/v1", "/");
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let mut variables: HashMap<String, String> = more.iter().map(owned).collect();
    variables.insert("AZURE_OPENAI_ENDPOINT".to_owned(), endpoint);
    let var = move |name: &str| variables.get(name).cloned();
    let mut options = HttpProvider::builder("azure/gpt-4.1-mini");
    if let Some(api) = api {
        options = options.api(api);
    }
    let provider = options.env(var).build().unwrap();
    assert!(!format!("{provider:?}").contains("hunter"));
    let look = tool_fn("look", "Looks.", |_: Nothing, _| async { ToolOutput::ok("seen") });
    let agent = Agent::builder(provider).streaming(streaming).tool(look);
    agent.max_output_tokens(512).build().unwrap().run("Look.").unwrap().await
}

#[tokio::test]
async fn chat_run_with_tool_succeeds() {
    for (set, path) in [
        (&[KEY][..], "/openai/v1/chat/completions"),
        (&[TOKEN, KEY][..], "/openai/v1/chat/completions"),
        (
            &[KEY, VERSION][..],
            "/openai/deployments/gpt-4.1-mini/chat/completions?api-version=2024-12-01-preview",
        ),
    ] {
        for streaming in [true, false] {
            let server = Server::script([
                Turn::call("look", &json!({"at": "it"})).usage(10, 5),
                Turn::pieces(&["It is ", "there."]).usage(20, 4),
            ])
            .unwrap();
            let outcome = run(&server, None, streaming, set).await;
            assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
            assert_eq!(outcome.last_text.as_deref(), Some("It is there."));
            assert_eq!((outcome.turns, outcome.tool_calls), (2, 1));
            assert!(outcome.cost.to_usd() > 0.0, "the catalogue has its price");
            let requests = server.requests();
            assert_eq!(requests.len(), 2);
            for request in &requests {
                assert_eq!(request.path, path);
                let header = |name: &str| request.headers.get(name).map(String::as_str);
                let token = set.contains(&TOKEN);
                assert_eq!(header("api-key"), (!token).then_some("hunter2"));
                assert_eq!(header("authorization"), token.then_some("Bearer hunter3"));
                assert_eq!(request.body["model"], "gpt-4.1-mini");
                // Newer models accept only this name of the output cap.
                assert_eq!(request.body["max_completion_tokens"], 512);
                assert!(request.body.get("max_tokens").is_none());
                assert_eq!(request.body["stream"] == json!(true), streaming);
            }
            assert_eq!(requests[1].body["messages"][2]["content"], "seen");
        }
    }
}

#[tokio::test]
async fn responses_run_succeeds() {
    for (set, path) in [
        (&[KEY][..], "/openai/v1/responses"),
        (&[KEY, VERSION][..], "/openai/responses?api-version=2024-12-01-preview"),
    ] {
        let server = Server::start(|request| {
            let output = match request.number {
                1 => json!({"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look",
                            "arguments": "{}", "status": "completed"}),
                _ => json!({"type": "message", "id": "msg_1", "role": "assistant",
                            "status": "completed",
                            "content": [{"type": "output_text", "text": "It is there.",
                                         "annotations": []}]}),
            };
            Reply::json(&json!({
                "id": "resp_1", "object": "response", "status": "completed",
                "model": "gpt-4.1-mini", "output": [output], "error": null,
                "incomplete_details": null, "content_filters": null,
                "usage": {"input_tokens": 12, "output_tokens": 3, "total_tokens": 15},
            }))
        })
        .unwrap();
        let outcome = run(&server, Some("openai-responses"), false, set).await;
        assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
        assert_eq!(outcome.last_text.as_deref(), Some("It is there."));
        assert_eq!((outcome.turns, outcome.tool_calls), (2, 1));
        let requests = server.requests();
        for request in &requests {
            assert_eq!(request.path, path);
            assert_eq!(request.headers["api-key"], "hunter2");
            assert!(!request.headers.contains_key("authorization"));
            assert_eq!(request.body["model"], "gpt-4.1-mini");
            assert_eq!(request.body["max_output_tokens"], 512);
        }
        let said = requests[1].body["input"].as_array().unwrap();
        let result = said.iter().find(|item| item["type"] == "function_call_output").unwrap();
        assert_eq!((&result["call_id"], &result["output"]), (&json!("c1"), &json!("seen")));
    }
}

#[tokio::test]
async fn refused_key_ends_run_unseen() {
    let server = Server::start(|_| {
        let body = json!({"error": {"code": "401", "message": "Access denied due to invalid subscription key or wrong API endpoint."}});
        Reply::new(401, "application/json", body.to_string())
    })
    .unwrap();
    let outcome = run(&server, None, true, &[KEY]).await;
    assert_eq!(outcome.termination, Termination::ErrorProviderAuth, "{outcome:?}");
    assert!(!serde_json::to_string(&outcome).unwrap().contains("hunter"));
}

#[tokio::test]
async fn unknown_deployment_is_not_retried() {
    let server = Server::start(|_| {
        let body = json!({"error": {"code": "DeploymentNotFound", "message": "The API deployment for this resource does not exist."}});
        Reply::new(404, "application/json", body.to_string())
    })
    .unwrap();
    let outcome = run(&server, None, true, &[KEY]).await;
    assert_eq!(outcome.termination, Termination::ErrorProviderRejected, "{outcome:?}");
    assert_eq!(outcome.model_calls, 1);
}

#[test]
fn missing_setting_is_named() {
    let options = HttpProvider::builder("azure/d");
    let problem = options.clone().env(|_| None).build().unwrap_err().to_string();
    assert!(problem.contains("AZURE_OPENAI_AD_TOKEN or AZURE_OPENAI_API_KEY"), "{problem}");
    let key = |name: &str| (name == KEY.0).then(|| KEY.1.to_owned());
    let problem = options.clone().env(key).build().unwrap_err().to_string();
    assert!(problem.contains("set AZURE_OPENAI_ENDPOINT"), "{problem}");
    // An endpoint given as base URL works too, and uses Azure's dialect.
    let options = options.base_url("https://h");
    assert!(options.env(key).build().is_ok());
}
