//! Whole runs: their observers, ids and waiters, replies, and the formats with requests of their own.

use super::{Nothing, busy_log, counting_tool};
use crate::support::agent;
use endstop::hook::{Hook, HookFuture};
use endstop::provider::http::HttpProvider;
use endstop::testkit::{Reply, ScriptedModel, Server, Turn};
use endstop::tool::{ToolOutput, tool_fn};
use endstop::{
    Agent, Termination,
    hook::{ConsultPoint, HookDecision, Hooks},
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[tokio::test]
async fn observers_receive_true_and_false_once() {
    let (builder, log) = busy_log(agent([Turn::text("one"), Turn::text("two")]));
    let agent = builder.build().unwrap();
    agent.run("x").unwrap().outcome().await;
    assert_eq!(*log.lock().unwrap(), [true, false]);
    agent.run("x").unwrap().outcome().await;
    assert_eq!(*log.lock().unwrap(), [true, false, true, false]);
}

#[tokio::test]
async fn gemini_address_has_model_and_stream() {
    for streaming in [true, false] {
        let server = Server::script([
            Turn::call("look", &json!({"at": "it"})).reasoning("hm"),
            Turn::text("It is there."),
        ])
        .unwrap();
        let options = HttpProvider::builder("google/gemini-2.5-flash")
            .base_url(server.base_url().replace("/v1", ""));
        let key = |name: &str| (name == "GEMINI_API_KEY").then(|| "dummy".to_owned());
        let provider = options.env(key).build().unwrap();
        let look = tool_fn("look", "Looks.", |_: Nothing, _| async { ToolOutput::ok("seen") });
        let agent = Agent::builder(provider).streaming(streaming).tool(look).build().unwrap();
        let outcome = agent.run("Look at it.").unwrap().await;
        assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
        assert_eq!(outcome.last_text.as_deref(), Some("It is there."));
        assert_eq!((outcome.turns, outcome.tool_calls), (2, 1));
        let method = if streaming { "streamGenerateContent?alt=sse" } else { "generateContent" };
        for request in server.requests() {
            assert_eq!(request.path, format!("/v1beta/models/gemini-2.5-flash:{method}"));
            assert_eq!(request.headers["x-goog-api-key"], "dummy");
        }
        let contents = &server.requests()[1].body["contents"];
        assert_eq!(contents[1]["parts"][0]["functionCall"]["name"], "look", "{contents}");
        assert_eq!(contents[2]["parts"][0]["functionResponse"]["response"]["output"], "seen");
    }
}

/// Returns a Responses turn as a stream with complete items.
fn responses_turn(items: &[Value]) -> Reply {
    let mut body = String::new();
    for (at, item) in items.iter().enumerate() {
        let event = json!({"type": "response.output_item.done", "output_index": at, "item": item});
        body.push_str(&format!("data: {event}\n\n"));
    }
    let end = json!({"type": "response.completed",
        "response": {"id": "resp_1", "status": "completed", "output": []}});
    body.push_str(&format!("event: response.completed\ndata: {end}\n\n"));
    Reply::new(200, "text/event-stream", body)
}

#[tokio::test]
async fn responses_run_sends_items_back() {
    let reasoning =
        json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"});
    let call = json!({"type": "function_call", "id": "fc_1", "call_id": "c", "name": "work", "arguments": "{}"});
    let turns = [
        vec![reasoning.clone(), call.clone()],
        vec![json!({"type": "message", "content": [{"type": "output_text", "text": "Done."}]})],
    ];
    let server =
        Server::start(move |request| responses_turn(&turns[request.number as usize - 1])).unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let agent = crate::support::over(&server, "openai-responses").tool(counting_tool(&count));
    let outcome = agent.build().unwrap().run("Work.").unwrap().await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    assert_eq!((outcome.last_text.as_deref(), outcome.tool_calls), (Some("Done."), 1));
    assert_eq!(count.load(Ordering::SeqCst), 1);
    let requests = server.requests();
    assert!(requests.iter().all(|request| request.path.ends_with("/responses")));
    let input = &requests[1].body["input"];
    assert_eq!((&input[1], &input[2]), (&reasoning, &call));
    assert_eq!(
        (&input[3]["type"], &input[3]["call_id"]),
        (&json!("function_call_output"), &json!("c"))
    );
}

#[tokio::test]
async fn run_ids_differ_without_a_journal() {
    let mut ids = std::collections::HashSet::new();
    for _ in 0..20 {
        let agent = agent([Turn::text("one"), Turn::text("two")]).build().unwrap();
        for _ in 0..2 {
            let id = agent.run("hi").unwrap().await.run_id.unwrap();
            assert!(id.len() >= 10 && ids.insert(id.clone()), "{id}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_settled_waiters_all_return() {
    let agent = Agent::builder(ScriptedModel::new([Turn::text("hi")]).repeat_last());
    let agent = agent.build().unwrap();
    let mut waiters = tokio::task::JoinSet::new();
    for waiter in 0..6 {
        let agent = agent.clone();
        waiters.spawn(async move {
            for nth in 0..200 {
                // Runs begin and end while the waiters wait.
                let run = if nth % 6 == waiter { agent.run("hi").ok() } else { None };
                let settled = tokio::time::timeout(crate::support::HANG, agent.settled());
                assert!(settled.await.is_ok(), "waiter {waiter} waits for a loop that is idle");
                drop(run);
            }
        });
    }
    while let Some(waiter) = waiters.join_next().await {
        waiter.unwrap();
    }
}

/// Replies to the model's first two answers, like a person would.
struct Replies(AtomicUsize);

impl Hook for Replies {
    fn points(&self) -> Hooks {
        Hooks { reply: true, ..Hooks::default() }
    }
    fn consult(&self, point: ConsultPoint) -> HookFuture<'_> {
        assert!(matches!(point, ConsultPoint::Reply), "{point:?}");
        let answer = match self.0.fetch_add(1, Ordering::SeqCst) {
            0 => HookDecision::ProceedWith("and of Spain?".to_owned()),
            1 => HookDecision::ProceedWith("and of Italy?".to_owned()),
            _ => HookDecision::Proceed,
        };
        Box::pin(async { answer })
    }
}

#[tokio::test]
async fn reply_hook_continues_the_conversation() {
    let turns = ["Paris", "Madrid", "Rome"].map(Turn::text);
    let agent = agent(turns).hook(Replies(AtomicUsize::new(0))).build().unwrap();
    let outcome = agent.run("What is the capital of France?").unwrap().await;
    assert_eq!((outcome.termination, outcome.turns), (Termination::Stop, 3), "{outcome:?}");
    let texts: Vec<String> = outcome.messages.iter().skip(1).map(|m| m.plain_text()).collect();
    assert_eq!(texts, ["Paris", "and of Spain?", "Madrid", "and of Italy?", "Rome"]);
}
