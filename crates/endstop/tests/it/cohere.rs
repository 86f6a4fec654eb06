//! Runs over Cohere's chat API, and the refusal of its older version.

use endstop::core::NanoUsd;
use endstop::provider::http::HttpProvider;
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
        let options = HttpProvider::builder("cohere/command-a-03-2025");
        let base = server.base_url().replace("/v1", "");
        let variables = move |name: &str| match name {
            "CO_API_KEY" => Some("dummy".to_owned()),
            "CO_API_URL" => Some(base.clone()),
            _ => None,
        };
        let provider = options.env(variables).build().unwrap();
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
    let options = |model: &str| HttpProvider::builder(model).api("cohere-v1");
    let key = |_: &str| Some("dummy".to_owned());
    for options in [options("cohere/command-r"), options("m").base_url("http://127.0.0.1:9")] {
        let error = options.env(key).build().unwrap_err().to_string();
        assert!(error.contains("decoded") && error.contains("cohere-v2"), "{error}");
    }
    let unknown = options("cohere/m").api("cohere-v3");
    let error = unknown.env(key).build().unwrap_err().to_string();
    assert!(error.contains("cohere-v2") && !error.contains("cohere-v1"), "{error}");
}
