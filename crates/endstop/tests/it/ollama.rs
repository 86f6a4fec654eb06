//! Runs over Ollama's own format: a tool turn and a final turn, streamed and not; the request's
//! options; and the endings for errors and empty loads.

use crate::support::over;
use endstop::provider::http::{HttpProvider, HttpProviderBuilder};
use endstop::testkit::{Reply, Server, Turn};
use endstop::tool::{ToolOutput, tool_fn};
use endstop::{Agent, Termination};
use serde_json::{Value, json};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Place {
    at: String,
}

fn script() -> HttpProviderBuilder {
    HttpProvider::builder("ollama/script")
}

/// Creates a provider with the address variable of Ollama's own clients.
fn provider(server: &Server, builder: HttpProviderBuilder) -> HttpProvider {
    let host = server.base_url().replace("http://", "").replace("/v1", "");
    let env = move |name: &str| match name {
        "OLLAMA_HOST" => Some(host.clone()),
        "OLLAMA_API_KEY" => Some("dummy".to_owned()),
        _ => None,
    };
    builder.env(env).build().unwrap()
}

#[tokio::test]
async fn tool_turn_then_answer_succeeds() {
    for streaming in [true, false] {
        let server = Server::start(|request| {
            let turn = match request.number {
                1 => Turn::call("look", &json!({"at": "it"})).reasoning("hm").usage(7, 3),
                _ => Turn::text("It is there.").usage(20, 5),
            };
            Reply::turn(request, &turn).split(5)
        })
        .unwrap();
        let look = tool_fn("look", "Looks.", |place: Place, _| async move {
            ToolOutput::ok(format!("seen {}", place.at))
        });
        let options = script().context_window(16_384);
        let agent = Agent::builder(provider(&server, options)).streaming(streaming);
        let agent = agent.system("Be brief.").max_output_tokens(512).tool(look).build().unwrap();
        let outcome = agent.run("Look at it.").unwrap().await;
        assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
        assert_eq!(outcome.last_text.as_deref(), Some("It is there."));
        assert_eq!((outcome.turns, outcome.tool_calls), (2, 1));
        assert_eq!(outcome.usage.input_tokens, Some(27));

        let requests = server.requests();
        for request in &requests {
            assert_eq!(request.path, "/api/chat");
            assert_eq!(request.headers["authorization"], "Bearer dummy");
            let body = &request.body;
            assert_eq!((&body["stream"], &body["truncate"]), (&json!(streaming), &json!(false)));
            assert_eq!(body["options"], json!({"num_ctx": 16_384, "num_predict": 512}));
        }
        let said = requests[1].body["messages"].as_array().unwrap();
        let roles: Vec<&Value> = said.iter().map(|message| &message["role"]).collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool"]);
        assert_eq!(said[2]["thinking"], "hm");
        assert_eq!(said[2]["tool_calls"][0]["function"]["arguments"], json!({"at": "it"}));
        assert_eq!(
            said[3],
            json!({"role": "tool", "tool_name": "look", "content": "seen it"}),
            "the id was made here"
        );
    }
}

#[tokio::test]
async fn openai_route_uses_same_address() {
    let server = Server::script([Turn::text("Hi.")]).unwrap();
    let options = script().api("openai-chat");
    let agent = Agent::builder(provider(&server, options)).build().unwrap();
    assert_eq!(agent.run("Hi").unwrap().await.termination, Termination::Stop);
    assert_eq!(server.requests()[0].path, "/v1/chat/completions");
}

/// A default window could need more memory than the machine has.
#[tokio::test]
async fn unknown_window_is_left_to_server() {
    let server = Server::script([Turn::text("Hi.")]).unwrap();
    let agent = Agent::builder(provider(&server, script())).build().unwrap();
    assert_eq!(agent.run("Hi").unwrap().await.termination, Termination::Stop);
    assert_eq!(server.requests()[0].body.get("options"), None);
    assert_eq!(
        endstop::wire::catalog::models::known("ollama").count(),
        0,
        "nor does a table know it"
    );
}

#[tokio::test]
async fn loaded_model_without_answer_is_error() {
    for streaming in [true, false] {
        let server = Server::script([Turn::text("").finish("load")]).unwrap();
        let agent = over(&server, "ollama").streaming(streaming).build().unwrap();
        let outcome = agent.run("Hi").unwrap().await;
        assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
        let evidence = &outcome.decided_by.evidence;
        assert!(evidence.contains("done_reason = \"load\""), "{evidence}");
        assert!(evidence.contains("send a user message"), "{evidence}");
    }
}

#[tokio::test]
async fn mid_stream_error_is_retried() {
    let server = Server::start(|request| match request.number {
        1 => Reply::new(
            200,
            "application/x-ndjson",
            "{\"message\":{\"content\":\"par\"},\"done\":false}\n{\"error\":\"runner gone\"}\n",
        ),
        _ => Reply::turn(request, &Turn::text("whole")),
    })
    .unwrap();
    let outcome = over(&server, "ollama").build().unwrap().run("m").unwrap().await;
    assert_eq!((outcome.termination, outcome.model_calls), (Termination::Stop, 2));
    assert_eq!(outcome.last_text.as_deref(), Some("whole"));
}

#[tokio::test]
async fn oversized_prompt_ends_with_its_type() {
    let words = json!({"error": "the input length exceeds the context length"}).to_string();
    let server = Server::script([Turn::error(400, words)]).unwrap();
    let outcome = over(&server, "ollama").build().unwrap().run("m").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorPromptTooLong, "{outcome:?}");
}
