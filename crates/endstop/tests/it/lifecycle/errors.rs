//! Failures of the provider, of the network and of user code: what is retried, and how a run ends.

use super::{Nothing, busy_log, history_is_answered, slow};
use crate::support::{HANG, Refusing, agent, eventually};
use endstop::event::AgentEventKind;
use endstop::testkit::{Reply, Server, Turn};
use endstop::tool::tool_fn;
use endstop::{Agent, Category, Lifecycle, Limits, Termination};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[tokio::test]
async fn panicking_observer_ends_run_once() {
    let first = AtomicUsize::new(0);
    let agent = agent([Turn::text("one"), Turn::text("two")])
        .on_event(move |_| {
            assert!(first.fetch_add(1, Ordering::SeqCst) != 0, "asked to panic");
        })
        .build()
        .unwrap();
    let outcome = agent.run("x").unwrap().outcome().await;
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
    assert!(outcome.error_diagnostic.unwrap().contains("asked to panic"));
    assert_eq!(agent.lifecycle(), Lifecycle::Idle);
    assert!(agent.run("y").is_ok());
}

#[tokio::test]
async fn transient_errors_are_retried() {
    let server = Server::start(|request| match request.number {
        1 | 2 => Reply::new(500, "application/json", "{\"error\":{\"message\":\"oops\"}}"),
        _ => Reply::turn(request, &Turn::text("ok")),
    })
    .unwrap();
    let outcome =
        crate::support::over(&server, "openai-chat").build().unwrap().run("hi").unwrap().await;
    assert_eq!((outcome.termination, outcome.model_calls), (Termination::Stop, 3));
    assert_eq!(outcome.last_text.as_deref(), Some("ok"));
}

#[tokio::test]
async fn suggested_wait_is_obeyed() {
    for (text, wait) in [("try again in 1.3s", 1300), ("Please try again in 350ms", 350)] {
        let body = json!({"error": {"message": format!("Rate limit reached. {text}."),
                                     "code": "rate_limit_exceeded"}});
        let server = Server::start(move |request| match request.number {
            1 => Reply::new(429, "application/json", body.to_string()),
            _ => Reply::turn(request, &Turn::text("ok")),
        })
        .unwrap();
        let agent = crate::support::over(&server, "openai-chat").build().unwrap();
        let began = Instant::now();
        let mut handle = agent.run("m").unwrap();
        let mut waits = Vec::new();
        while let Some(event) = handle.next().await {
            if let AgentEventKind::AttemptFailed { retry_in_ms, .. } = event.kind {
                waits.push(retry_in_ms);
            }
        }
        let outcome = handle.await;
        assert_eq!((outcome.termination, outcome.model_calls), (Termination::Stop, 2));
        assert_eq!(waits, [Some(wait)], "{text}");
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(wait), "{text}: {took:?}");
    }
}

#[tokio::test]
async fn refused_connection_is_retried() {
    let nothing = Refusing::new();
    let limits = Limits { max_retries: Some(2), ..Limits::default() };
    let agent = crate::support::at(&format!("http://{}/v1", nothing.address), "openai-chat");
    let outcome = agent.limits(limits).build().unwrap().run("hi").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
    assert_eq!(outcome.model_calls, 3);
    assert!(outcome.decided_by.evidence.contains("could not be reached"), "{outcome:?}");
}

#[tokio::test]
async fn broken_streams_are_retried_from_start() {
    for api in ["openai-chat", "anthropic-messages", "gemini", "cohere-v2", "ollama"] {
        for fault in 0..3 {
            let server = Server::start(move |request| {
                let reply = Reply::turn(request, &Turn::text("a whole answer of some length"));
                match (request.number, fault) {
                    (1, 0) => reply.cut_after(300),
                    (1, 1) => reply.reset_after(300),
                    (1, _) => reply.cut_after(0),
                    _ => reply.split(7),
                }
            })
            .unwrap();
            let agent = crate::support::over(&server, api).build().unwrap().session();
            let outcome = agent.run("m").unwrap().await;
            assert_eq!(outcome.termination, Termination::Stop, "{api} {fault}: {outcome:?}");
            assert_eq!(outcome.model_calls, 2);
            assert_eq!(outcome.last_text.as_deref(), Some("a whole answer of some length"));
            assert_eq!(agent.messages().len(), 2, "nothing of the broken attempt remains");
        }
    }
}

#[tokio::test]
async fn mid_stream_error_is_retried() {
    let broken = "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"par\"}}]}\n\n\
        data: {\"error\":{\"message\":\"Rate limit reached, try again in 0.2s\",\"code\":\"rate_limit_exceeded\"}}\n\n";
    let server = Server::start(move |request| match request.number {
        1 => Reply::new(200, "text/event-stream", broken),
        _ => Reply::turn(request, &Turn::text("whole")),
    })
    .unwrap();
    let began = Instant::now();
    let outcome =
        crate::support::over(&server, "openai-chat").build().unwrap().run("m").unwrap().await;
    assert_eq!((outcome.termination, outcome.model_calls), (Termination::Stop, 2));
    assert!(began.elapsed() >= Duration::from_millis(200), "the suggestion is obeyed here too");

    let server = Server::start(move |_| Reply::new(200, "text/event-stream", broken)).unwrap();
    let limits = Limits { max_retries: Some(2), ..Limits::default() };
    let (builder, log) = busy_log(crate::support::over(&server, "openai-chat").limits(limits));
    let outcome = builder.build().unwrap().run("m").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
    assert_eq!(outcome.model_calls, 3);
    assert_eq!(outcome.last_text.as_deref(), Some("par"), "received text is preserved");
    assert_eq!(*log.lock().unwrap(), [true, false]);
}

#[tokio::test]
async fn cancel_stops_retry_of_broken_stream() {
    let server = Server::start(|request| match request.number {
        1 => Reply::new(500, "application/json", "{}"),
        _ => {
            Reply::turn(request, &Turn::text("word ".repeat(10_000)).pace(Duration::from_millis(5)))
        }
    })
    .unwrap();
    let agent = crate::support::over(&server, "openai-chat").build().unwrap();
    let mut handle = agent.run("m").unwrap();
    while !matches!(
        handle.next().await.map(|event| event.kind),
        Some(AgentEventKind::TextDelta { .. })
    ) {}
    agent.cancel();
    assert_eq!(handle.outcome().await.termination, Termination::Cancelled);
    eventually("the connection is closed", || server.open_connections() == 0).await;
}

#[tokio::test]
async fn errors_end_run_with_their_type() {
    let error = |code: &str, message: &str| json!({"error": {"message": message, "code": code, "type": "x"}});
    for (status, body, expected, calls) in [
        (502, error("", "bad gateway"), Termination::ErrorDuringExecution, 3),
        (429, error("rate_limit_exceeded", "slow down"), Termination::ErrorDuringExecution, 3),
        (500, error("", "oops"), Termination::ErrorDuringExecution, 3),
        (
            400,
            error("invalid_value", "max_tokens is too large"),
            Termination::ErrorProviderRejected,
            1,
        ),
        (400, error("", "invalid"), Termination::ErrorProviderRejected, 1),
        (401, error("invalid_api_key", "Incorrect API key"), Termination::ErrorProviderAuth, 1),
        (403, error("", "not allowed"), Termination::ErrorProviderAuth, 1),
        (404, error("model_not_found", "no such model"), Termination::ErrorProviderRejected, 1),
        (
            429,
            error("insufficient_quota", "You exceeded your current quota"),
            Termination::ErrorProviderRejected,
            1,
        ),
        (
            400,
            error("context_length_exceeded", "maximum context length"),
            Termination::ErrorPromptTooLong,
            1,
        ),
        (200, json!("{not json"), Termination::ErrorDuringExecution, 3),
    ] {
        let server = Server::start(move |_| {
            let text = match &body {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            Reply::new(status, "application/json", text)
        })
        .unwrap();
        let limits = Limits { max_retries: Some(2), ..Limits::default() };
        let agent = crate::support::over(&server, "openai-chat").limits(limits).build().unwrap();
        let outcome = agent.run("hello").unwrap().await;
        assert_eq!(outcome.termination, expected, "{status}: {outcome:?}");
        assert_eq!(outcome.model_calls, calls, "{status}: {:?}", outcome.decided_by);
        assert_ne!(outcome.category(), Category::Success);
        assert_eq!(agent.lifecycle(), Lifecycle::Idle);
    }
}

#[test]
fn runtime_shutdown_still_writes_outcome() {
    let agent = Agent::builder(slow()).build().unwrap().session();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let handle = runtime.block_on(async { agent.run("m").unwrap() });
    runtime.shutdown_timeout(HANG);
    let outcome = handle.try_outcome().expect("an ending is written whatever becomes of the task");
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
    assert_eq!(agent.lifecycle(), Lifecycle::Idle);
    // If the model has not answered, the conversation is unchanged; otherwise it starts with the
    // task.
    let messages = agent.messages();
    assert!(messages.first().is_none_or(|first| first.plain_text() == "m"), "{messages:?}");
}

#[tokio::test]
async fn panicking_tool_ends_run_once() {
    let agent = agent([Turn::text("on it").and_call("boom", &json!({})), Turn::text("fine")])
        .tool(tool_fn("boom", "Panics.", |_: Nothing, _| async {
            if true {
                panic!("asked to panic")
            }
            "never"
        }))
        .build()
        .unwrap()
        .session();
    let outcome = agent.run("m").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
    assert!(outcome.error_diagnostic.as_ref().unwrap().contains("asked to panic"));
    assert_eq!(outcome.last_text.as_deref(), Some("on it"));
    assert!(history_is_answered(&outcome));
    assert_eq!(agent.run("n").unwrap().await.termination, Termination::Stop);
}
