//! Cancel: it ends one run, keeps what was delivered, and answers every call.

use super::{Nothing, answers, busy_log, counting_tool, slow, slow_server};
use crate::support::{agent, eventually};
use endstop::event::AgentEventKind;
use endstop::testkit::{Reply, Server, Turn};
use endstop::tool::{ToolContext, ToolOutput, tool_fn};
use endstop::{Agent, Lifecycle, Termination, ToolStatus};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[tokio::test]
async fn cancel_on_idle_loop_does_nothing() {
    let (builder, log) = busy_log(agent([Turn::text("fine")]));
    let agent = builder.build().unwrap();
    agent.cancel();
    agent.cancel();
    assert!(log.lock().unwrap().is_empty());
    assert_eq!(agent.run("x").unwrap().outcome().await.termination, Termination::Stop);
}

#[tokio::test]
async fn cancel_mid_stream_delivers_nothing_more() {
    let (server, agent) = slow_server();
    let mut handle = agent.run("m").unwrap();
    while !matches!(
        handle.next().await.map(|event| event.kind),
        Some(AgentEventKind::TextDelta { .. })
    ) {}
    agent.cancel();
    let mut after = Vec::new();
    let outcome = loop {
        match handle.next().await.map(|event| event.kind) {
            Some(AgentEventKind::Finished { outcome, .. }) => break outcome,
            Some(event) => after.push(event),
            None => panic!("the stream ended without an outcome"),
        }
    };
    assert!(handle.next().await.is_none(), "the outcome is the last event");
    assert_eq!(outcome.termination, Termination::Cancelled);
    assert!(
        after.iter().all(|kind| matches!(kind, AgentEventKind::TextDelta { .. })),
        "only what was waiting already: {after:?}"
    );
    eventually("the connection is closed", || server.open_connections() == 0).await;
    assert_eq!(agent.lifecycle(), Lifecycle::Idle);
}

#[tokio::test]
async fn text_before_cancel_is_preserved() {
    let (_server, agent) = slow_server();
    let agent = agent.session();
    let mut handle = agent.run("m").unwrap();
    let mut shown = String::new();
    while shown.len() < 20 {
        if let Some(AgentEventKind::TextDelta { text, .. }) =
            handle.next().await.map(|event| event.kind)
        {
            shown.push_str(&text);
        }
    }
    agent.cancel();
    let outcome = handle.outcome().await;
    let kept = outcome.last_text.clone().unwrap();
    assert!(kept.starts_with(&shown), "{kept:?} does not begin with {shown:?}");
    assert_eq!(agent.messages().last().unwrap().plain_text(), kept);
}

#[tokio::test]
async fn cancel_during_tool_answers_its_call() {
    let server = Server::start(|request| match request.number {
        1 => Reply::turn(request, &Turn::call("wait", &json!({})).and_call("wait", &json!({}))),
        _ => Reply::turn(request, &Turn::text("continuing")),
    })
    .unwrap();
    let agent = crate::support::over(&server, "openai-chat")
        .tool(tool_fn("wait", "Waits.", |_: Nothing, context: ToolContext| async move {
            context.cancelled().await;
            ToolOutput::error("stopped")
        }))
        .build()
        .unwrap()
        .session();
    let mut handle = agent.run("do something").unwrap();
    while !matches!(
        handle.next().await.map(|event| event.kind),
        Some(AgentEventKind::ToolStarted { .. })
    ) {}
    agent.cancel();
    let outcome = handle.outcome().await;
    assert_eq!(outcome.termination, Termination::Cancelled);
    let statuses: Vec<ToolStatus> = answers(&outcome).into_iter().map(|(s, _)| s).collect();
    assert_eq!(statuses, [ToolStatus::Aborted, ToolStatus::Aborted]);
    // The next run's request answers both calls, before the user's message.
    let next = agent.run("new command").unwrap().outcome().await;
    assert_eq!(next.termination, Termination::Stop);
    let body = &server.requests()[1].body["messages"];
    let roles: Vec<&str> =
        body.as_array().unwrap().iter().filter_map(|m| m["role"].as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool", "user"]);
    assert_eq!(body[2]["tool_call_id"], body[1]["tool_calls"][0]["id"]);
    assert!(body[2]["content"].as_str().unwrap().contains("may have"));
    assert!(body[3]["content"].as_str().unwrap().contains("not run"));
}

#[tokio::test]
async fn finished_tool_keeps_its_result() {
    let agent = agent([Turn::call("quick", &json!({})).and_call("wait", &json!({}))])
        .tool(tool_fn("quick", "Quick.", |_: Nothing, _| async {
            ToolOutput::ok("the side effect")
        }))
        .tool(tool_fn("wait", "Waits.", |_: Nothing, context: ToolContext| async move {
            context.cancelled().await;
            ToolOutput::error("stopped")
        }))
        .build()
        .unwrap();
    let mut handle = agent.run("m").unwrap();
    let mut started = 0;
    while started < 2 {
        if let Some(AgentEventKind::ToolStarted { .. }) =
            handle.next().await.map(|event| event.kind)
        {
            started += 1;
        }
    }
    agent.cancel();
    let outcome = handle.outcome().await;
    assert_eq!(answers(&outcome)[0], (ToolStatus::Ok, "the side effect".to_owned()));
    assert_eq!(answers(&outcome)[1].0, ToolStatus::Aborted);
}

#[tokio::test]
async fn cancelled_run_leaks_nothing_into_next() {
    let server = Server::start(|request| match request.number {
        1 => Reply::turn(request, &Turn::call("work", &json!({})).after(Duration::from_secs(3))),
        _ => Reply::turn(request, &Turn::text("second").after(Duration::from_millis(3200))),
    })
    .unwrap();
    let count = Arc::<AtomicUsize>::default();
    let agent = crate::support::over(&server, "openai-chat")
        .tool(counting_tool(&count))
        .build()
        .unwrap()
        .session();
    let first = agent.run("A").unwrap();
    eventually("the request is there", || server.requests().len() == 1).await;
    first.cancel();
    let first = first.outcome().await;
    let mut second = agent.run("B").unwrap();
    let mut turns = 0;
    let outcome = loop {
        match second.next().await.map(|event| event.kind) {
            Some(AgentEventKind::TurnStarted { .. }) => turns += 1,
            Some(AgentEventKind::Finished { outcome, .. }) => break outcome,
            Some(_) => {}
            None => panic!("no outcome"),
        }
    };
    assert_eq!(
        (first.termination, outcome.termination),
        (Termination::Cancelled, Termination::Stop)
    );
    assert_eq!((turns, outcome.last_text.as_deref()), (1, Some("second")));
    assert_eq!(count.load(Ordering::SeqCst), 0, "the first run's tool never ran");
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn late_cancel_changes_nothing() {
    let agent = agent([Turn::text("done"), Turn::text("again")]).build().unwrap();
    let handle = agent.run("m").unwrap();
    eventually("it has ended", || handle.try_outcome().is_some()).await;
    handle.cancel();
    agent.cancel();
    assert_eq!(handle.outcome().await.termination, Termination::Stop);
    let next = agent.run("n").unwrap().outcome().await;
    assert_eq!(next.termination, Termination::Stop, "a cancel of one run never ends another");
}

#[tokio::test]
async fn cancel_dismisses_the_approval() {
    struct Asked(Arc<AtomicUsize>);
    struct Down(Arc<AtomicUsize>);
    impl Drop for Down {
        fn drop(&mut self) {
            self.0.fetch_add(100, Ordering::SeqCst);
        }
    }
    impl endstop::hook::Approver for Asked {
        fn approve(&self, _: endstop::ToolCall) -> endstop::hook::HookFuture<'_> {
            let down = Down(Arc::clone(&self.0));
            Box::pin(async move {
                let down = down;
                down.0.fetch_add(1, Ordering::SeqCst);
                std::future::pending().await
            })
        }
    }
    let asked = Arc::<AtomicUsize>::default();
    let count = Arc::<AtomicUsize>::default();
    let agent = agent([Turn::call("work", &json!({}))])
        .tool(counting_tool(&count))
        .permission("work", endstop::Permission::Ask)
        .approver(Asked(Arc::clone(&asked)))
        .build()
        .unwrap();
    let handle = agent.run("m").unwrap();
    eventually("the question is asked", || asked.load(Ordering::SeqCst) == 1).await;
    agent.cancel();
    assert_eq!(handle.outcome().await.termination, Termination::Cancelled);
    eventually("the question is down", || asked.load(Ordering::SeqCst) == 101).await;
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn dropped_handle_cancels_detached_does_not() {
    let agent = Agent::builder(slow()).build().unwrap().session();
    drop(agent.run("m").unwrap());
    eventually("the run is cancelled", || agent.lifecycle() == Lifecycle::Idle).await;
    let agent =
        crate::support::agent([Turn::text("word ".repeat(20)).pace(Duration::from_millis(2))])
            .build()
            .unwrap()
            .session();
    agent.run("m").unwrap().detach();
    eventually("the run ends by itself", || agent.messages().len() == 2).await;
    assert_eq!(agent.messages()[1].plain_text().len(), 100);
}
