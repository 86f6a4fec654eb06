//! Runs over Cohere's chat API, and the refusal of its older version.

use endstop::core::NanoUsd;
use endstop::provider::http::{HttpOptions, HttpProvider};
use endstop::testkit::{Server, Turn};
use endstop::tool::{ToolOutput, tool_fn};
use endstop::{Agent, Termination};
use serde_json::{Value, json};

#[tokio::test]
async fn cohere_receives_its_plan_again() {
    for streaming in [true, false] {
        let server = Server::script([
            Turn::call("look", &json!({"at": "it"})).reasoning("I will look.").usage(50, 9),
            Turn::text("It is there.").reasoning("hm").usage(70, 30),
        ])
        .unwrap();
        let options =
            HttpOptions { model: "cohere/command-a-03-2025".to_owned(), ..HttpOptions::default() };
        let base = server.base_url().replace("/v1", "");
        let variables = |name: &str| match name {
            "CO_API_KEY" => Some("dummy".to_owned()),
            "CO_API_URL" => Some(base.clone()),
            _ => None,
        };
        let provider = HttpProvider::new(&options, &variables).unwrap();
        let look = tool_fn("look", "Looks.", |_: Value, _| async { ToolOutput::ok("seen") });
        let agent = Agent::builder(provider).streaming(streaming).tool(look).build().unwrap();
        let outcome = agent.run("Look at it.").unwrap().await;
        assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
        assert_eq!(outcome.last_text.as_deref(), Some("It is there."));
        assert_eq!((outcome.turns, outcome.tool_calls), (2, 1));
        // The prices come from the built-in table.
        let usage = (outcome.usage.input_tokens, outcome.usage.output_tokens);
        assert_eq!(usage, (Some(50 + 70), Some(9 + 30)));
        let usd = (120.0 * 2.5 + 39.0 * 10.0) / 1e6;
        assert_eq!((outcome.cost, outcome.cost_unknown), (NanoUsd::from_usd(usd), false));
        let requests = server.requests();
        for request in &requests {
            assert_eq!(request.path, "/v2/chat");
            assert_eq!(request.headers["authorization"], "Bearer dummy");
            assert_eq!(request.body["stream"], streaming);
        }
        let messages = &requests[1].body["messages"];
        assert_eq!(messages[1]["tool_plan"], "I will look.", "{messages}");
        assert_eq!(messages[1]["tool_calls"][0]["function"]["name"], "look");
        let id = &messages[1]["tool_calls"][0]["id"];
        assert_eq!(messages[2], json!({"role": "tool", "tool_call_id": id, "content": "seen"}));
    }
}

#[test]
fn decode_only_format_is_refused() {
    let options = |model: &str, base_url: Option<&str>| HttpOptions {
        model: model.to_owned(),
        api: Some("cohere-v1".to_owned()),
        base_url: base_url.map(str::to_owned),
        ..HttpOptions::default()
    };
    let key = |_: &str| Some("dummy".to_owned());
    for options in [options("cohere/command-r", None), options("m", Some("http://127.0.0.1:9"))] {
        let error = HttpProvider::new(&options, &key).unwrap_err().to_string();
        assert!(error.contains("decoded") && error.contains("cohere-v2"), "{error}");
    }
    let unknown = HttpOptions { api: Some("cohere-v3".to_owned()), ..options("cohere/m", None) };
    let error = HttpProvider::new(&unknown, &key).unwrap_err().to_string();
    assert!(error.contains("cohere-v2") && !error.contains("cohere-v1"), "{error}");
}
