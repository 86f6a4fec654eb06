//! Tool calls: which of them run, and how each is answered.

use super::{Nothing, answers, counting_tool, history_is_answered};
use crate::support::agent;
use endstop::testkit::{Reply, ScriptedModel, Server, Turn};
use endstop::tool::tool_fn;
use endstop::{Agent, Termination};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[tokio::test]
async fn duplicate_call_id_is_one_call() {
    let body = json!({"id": "x", "object": "chat.completion", "model": "m", "choices": [{"index": 0,
        "message": {"role": "assistant", "content": null, "tool_calls": [
            {"id": "same", "type": "function", "function": {"name": "work", "arguments": "{}"}},
            {"id": "same", "type": "function", "function": {"name": "work", "arguments": "{}"}}]},
        "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}});
    let server = Server::start(move |request| match request.number {
        1 => Reply::json(&body),
        _ => Reply::turn(request, &Turn::text("done")),
    })
    .unwrap();
    let count = Arc::<AtomicUsize>::default();
    let agent =
        crate::support::over(&server, "openai-chat").tool(counting_tool(&count)).build().unwrap();
    let outcome = agent.run("m").unwrap().outcome().await;
    assert_eq!(outcome.termination, Termination::Stop);
    let answered = answers(&outcome).len();
    assert_eq!(answered, count.load(Ordering::SeqCst), "each call in the history is answered once");
    assert!(history_is_answered(&outcome));
}

#[tokio::test]
async fn call_ids_are_local_to_loop() {
    let count = Arc::<AtomicUsize>::default();
    for _ in 0..2 {
        let agent = agent([Turn::call("work", &json!({})), Turn::text("done")])
            .tool(counting_tool(&count))
            .build()
            .unwrap();
        agent.run("m").unwrap().outcome().await;
    }
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn truncated_turn_runs_no_tool() {
    let count = Arc::<AtomicUsize>::default();
    let agent = agent([Turn::call("work", &json!({})).finish("length")])
        .tool(counting_tool(&count))
        .build()
        .unwrap();
    let outcome = agent.run("m").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorOutputTruncated);
    assert_eq!(count.load(Ordering::SeqCst), 0);
    assert!(history_is_answered(&outcome));
}

#[tokio::test]
async fn bad_calls_are_answered_as_errors() {
    let body = json!({"id": "x", "object": "chat.completion", "model": "m", "choices": [{"index": 0,
        "message": {"role": "assistant", "content": null, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "work", "arguments": "{broken"}},
            {"id": "b", "type": "function", "function": {"name": "foo", "arguments": "{}"}}]},
        "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}});
    let server = Server::start(move |request| match request.number {
        1 => Reply::json(&body),
        _ => Reply::turn(request, &Turn::text("I see")),
    })
    .unwrap();
    let count = Arc::<AtomicUsize>::default();
    let agent =
        crate::support::over(&server, "openai-chat").tool(counting_tool(&count)).build().unwrap();
    let outcome = agent.run("m").unwrap().await;
    assert_eq!(outcome.termination, Termination::Stop);
    assert_eq!(count.load(Ordering::SeqCst), 0);
    let answers = answers(&outcome);
    assert!(answers[0].1.contains("not valid JSON"), "{answers:?}");
    assert!(answers[1].1.contains("unknown tool `foo`"), "{answers:?}");
}

#[tokio::test]
async fn endless_calls_reach_a_limit() {
    let model = ScriptedModel::new([Turn::call("work", &json!({}))]).repeat_last();
    let count = Arc::<AtomicUsize>::default();
    let agent = Agent::builder(model).tool(counting_tool(&count)).build().unwrap();
    let outcome = agent.run("m").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorNoProgress);
    assert_eq!(count.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn final_text_stops_tools_of_turn() {
    let ran = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ran);
    // More text on its line could have made the bare argument prose, so only the end of the text
    // decides.
    let turn = Turn::text("So it is FINAL(42)").and_call("count", &json!({}));
    let agent = agent([turn])
        .tool(tool_fn("count", "Counts.", move |_: Nothing, _| {
            count.fetch_add(1, Ordering::SeqCst);
            async { "counted" }
        }))
        .policy(endstop::policy::FinalPattern::default())
        .build()
        .unwrap();
    let outcome = agent.run("m").unwrap().await;
    assert_eq!(outcome.termination, Termination::Submitted);
    assert_eq!(outcome.answer().as_deref(), Some("42"));
    assert_eq!(ran.load(Ordering::SeqCst), 0, "a tool ran after the answer was declared");
    assert!(history_is_answered(&outcome));
}
