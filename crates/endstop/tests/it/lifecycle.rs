//! Cancel and terminate of the loop: the `cx-*` scenarios of `testdata/conformance/lifecycle.json`
//! (for a quirk of the original, the behaviour that replaces it), with real time, sockets and
//! processes.
//!
//! [`COVERED`] names the test of each scenario; a scenario without one fails
//! `every_scenario_has_a_test`.

use crate::support::{agent, eventually, marker, processes_with};
use endstop::agent::AgentEvent;
use endstop::hook::{Hook, HookFuture};
use endstop::provider::http::{HttpOptions, HttpProvider};
use endstop::testkit::{Reply, ScriptedModel, Server, Turn};
use endstop::tool::{Shell, ToolContext, ToolOutput, tool_fn};
use endstop::{
    Agent, Answer, Category, ConsultPoint, Hooks, Lifecycle, Limits, Outcome, Part, Role, RunEvent,
    StartError, Termination, ToolStatus,
};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const COVERED: &[(&str, &str)] = &[
    ("cx-001-terminate-twice", "terminate_is_idempotent_and_final"),
    ("cx-002-run-after-terminate", "terminate_is_idempotent_and_final"),
    ("cx-003-terminate-fresh-callbacks", "terminate_of_fresh_loop_reports_once"),
    ("cx-004-cancel-fresh", "cancel_on_idle_loop_does_nothing"),
    ("cx-005-cancel-then-terminate", "terminate_of_fresh_loop_reports_once"),
    ("cx-006-terminate-then-cancel", "terminate_of_fresh_loop_reports_once"),
    ("cx-007-cancel-twice", "cancel_on_idle_loop_does_nothing"),
    ("cx-008-cancel-throws-inside-terminate", "terminate_survives_panicking_observers"),
    ("cx-009-callback-throws-in-cancel", "terminate_survives_panicking_observers"),
    ("cx-010-run-terminate-no-tools-midstream", "terminate_mid_stream_closes_connection"),
    ("cx-011-terminate-during-tool", "terminate_kills_tool_processes"),
    ("cx-012-terminate-during-tool-loading", "terminate_kills_tool_processes"),
    ("cx-013-terminate-before-tool-starts", "no_tool_starts_after_terminate"),
    ("cx-014-terminate-while-connecting", "terminate_while_connecting_ends_at_once"),
    ("cx-015-terminate-during-backoff", "terminate_in_backoff_ends_at_once"),
    ("cx-016-three-runs-then-terminate", "one_run_at_a_time"),
    ("cx-020-cancel-during-tool", "cancel_during_tool_answers_its_call"),
    ("cx-021-cancel-during-tool-detail", "cancel_during_tool_answers_its_call"),
    ("cx-022-next-run-after-cancelled-tool", "cancel_during_tool_answers_its_call"),
    ("cx-023-synthetic-abort-shape", "cancel_during_tool_answers_its_call"),
    ("cx-024-tool-finished-but-cancelled", "finished_tool_keeps_its_result"),
    ("cx-025-cancel-before-any-item", "cancel_mid_stream_delivers_nothing_more"),
    ("cx-026-cancel-race", "cancel_mid_stream_delivers_nothing_more"),
    ("cx-027-delivered-before-cancel", "text_before_cancel_is_preserved"),
    ("cx-028-zombie-run", "cancelled_run_leaks_nothing_into_next"),
    ("cx-029-cancel-never-aborts-stream", "cancel_mid_stream_delivers_nothing_more"),
    ("cx-030-interrupt-continue", "cancelled_run_leaks_nothing_into_next"),
    ("cx-031-cancel-in-flush-window", "late_cancel_changes_nothing"),
    ("cx-032-normal-end", "observers_receive_true_and_false_once"),
    ("cx-033-cancel-while-connecting", "terminate_while_connecting_ends_at_once"),
    ("cx-034-cancel-during-approval", "cancel_dismisses_the_approval"),
    ("cx-035-duplicate-item-ids", "duplicate_call_id_is_one_call"),
    ("cx-036-cross-instance-dedupe", "call_ids_are_local_to_loop"),
    ("cx-040-5xx-twice-then-ok", "transient_errors_are_retried"),
    ("cx-041-5xx-forever", "errors_end_run_with_their_type"),
    ("cx-042-429-forever", "errors_end_run_with_their_type"),
    ("cx-043-429-suggested", "suggested_wait_is_obeyed"),
    ("cx-044-429-suggested-ms", "suggested_wait_is_obeyed"),
    ("cx-045-connect-timeout", "refused_connection_is_retried"),
    ("cx-046-premature-close", "broken_streams_are_retried_from_start"),
    ("cx-047-econnreset", "broken_streams_are_retried_from_start"),
    ("cx-048-http-500-generic", "errors_end_run_with_their_type"),
    ("cx-049-max-tokens", "errors_end_run_with_their_type"),
    ("cx-050-invalid-request", "errors_end_run_with_their_type"),
    ("cx-051-auth-401", "errors_end_run_with_their_type"),
    ("cx-052-rate-limit-by-text", "errors_end_run_with_their_type"),
    ("cx-053-quota", "errors_end_run_with_their_type"),
    ("cx-054-midstream-429", "mid_stream_error_is_retried"),
    ("cx-055-midstream-429-forever", "mid_stream_error_is_retried"),
    ("cx-056-midstream-429-suggested-ignored", "mid_stream_error_is_retried"),
    ("cx-057-midstream-retry-loses-handle", "cancel_stops_retry_of_broken_stream"),
    ("cx-058-bad-json-stream", "errors_end_run_with_their_type"),
    ("cx-059-stream-type-error", "errors_end_run_with_their_type"),
    ("cx-060-abort-not-cancelled", "broken_streams_are_retried_from_start"),
    ("cx-061-unknown-error", "errors_end_run_with_their_type"),
    ("cx-062-status-incomplete", "truncated_turn_runs_no_tool"),
    ("cx-063-stream-without-completed", "broken_streams_are_retried_from_start"),
    ("cx-064-invalid-tool-args", "bad_calls_are_answered_as_errors"),
    ("cx-065-unknown-tool", "bad_calls_are_answered_as_errors"),
    ("cx-066-no-turn-limit", "endless_calls_reach_a_limit"),
    ("cx-070-exec-abort", "terminate_kills_tool_processes"),
    ("cx-071-exec-normal", "ended_shell_command_is_answered"),
    ("cx-072-exec-ignores-sigterm", "sigterm_ignored_is_killed_after_grace"),
    ("cx-073-exec-already-aborted", "no_tool_starts_after_terminate"),
];

#[test]
fn every_scenario_has_a_test() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/conformance/lifecycle.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let ids: Vec<&str> = file["cases"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|case| case["id"].as_str())
        .filter(|id| id.starts_with("cx-"))
        .collect();
    let covered: Vec<&str> = COVERED.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, covered);
    let source = include_str!("lifecycle.rs");
    for (id, test) in COVERED {
        assert!(source.contains(&format!("fn {test}()")), "{id}: there is no test {test}");
    }
}

fn busy_log(builder: endstop::AgentBuilder) -> (endstop::AgentBuilder, Arc<Mutex<Vec<bool>>>) {
    let log = Arc::<Mutex<Vec<bool>>>::default();
    let heard = Arc::clone(&log);
    (builder.on_busy(move |busy| heard.lock().unwrap().push(busy)), log)
}

fn slow() -> ScriptedModel {
    ScriptedModel::new([Turn::text("word ".repeat(10_000)).pace(Duration::from_millis(2))])
}

#[tokio::test]
async fn terminate_is_idempotent_and_final() {
    let agent = agent([Turn::text("x")]).build().unwrap();
    agent.terminate();
    agent.terminate();
    agent.cancel();
    assert_eq!(agent.lifecycle(), Lifecycle::Terminated);
    let refused = agent.run("user message").unwrap_err();
    assert_eq!(refused, StartError::Terminated);
    assert_eq!(refused.to_string(), "AgentLoop has been terminated");
}

#[tokio::test]
async fn terminate_of_fresh_loop_reports_once() {
    let (builder, log) = busy_log(agent([]));
    let agent = builder.build().unwrap();
    agent.cancel();
    agent.terminate();
    agent.terminate();
    agent.cancel();
    assert_eq!(*log.lock().unwrap(), [false]);
}

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
async fn observers_receive_true_and_false_once() {
    let (builder, log) = busy_log(agent([Turn::text("one"), Turn::text("two")]));
    let agent = builder.build().unwrap();
    agent.run("x").unwrap().outcome().await;
    assert_eq!(*log.lock().unwrap(), [true, false]);
    agent.run("x").unwrap().outcome().await;
    assert_eq!(*log.lock().unwrap(), [true, false, true, false]);
}

#[tokio::test]
async fn terminate_survives_panicking_observers() {
    let agent = Agent::builder(slow())
        .on_busy(|_| panic!("asked to panic"))
        .on_event(|_| panic!("asked to panic"))
        .build()
        .unwrap();
    let handle = agent.run("x").unwrap();
    agent.terminate();
    agent.terminate();
    let outcome = handle.outcome().await;
    assert!(
        matches!(outcome.termination, Termination::Terminated | Termination::ErrorDuringExecution),
        "{outcome:?}"
    );
    assert!(matches!(agent.run("y"), Err(StartError::Terminated)));
}

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

/// A server that streams slowly without end, and an agent that calls it.
fn slow_server() -> (Server, Agent) {
    let server = Server::start(|request| {
        Reply::turn(request, &Turn::text("word ".repeat(10_000)).pace(Duration::from_millis(2)))
    })
    .unwrap();
    let agent = crate::support::over(&server, "openai-chat").build().unwrap();
    (server, agent)
}

#[tokio::test]
async fn terminate_mid_stream_closes_connection() {
    let (server, agent) = slow_server();
    let mut handle = agent.run("m").unwrap();
    while !matches!(handle.next().await, Some(AgentEvent::Delta(_))) {}
    let asked = Instant::now();
    agent.terminate();
    let outcome = handle.outcome().await;
    assert_eq!(outcome.termination, Termination::Terminated);
    assert!(outcome.last_text.unwrap().starts_with("word"));
    eventually("the connection is closed", || server.open_connections() == 0).await;
    assert!(asked.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn cancel_mid_stream_delivers_nothing_more() {
    let (server, agent) = slow_server();
    let mut handle = agent.run("m").unwrap();
    while !matches!(handle.next().await, Some(AgentEvent::Delta(_))) {}
    agent.cancel();
    let mut after = Vec::new();
    let outcome = loop {
        match handle.next().await {
            Some(AgentEvent::Ended(outcome)) => break outcome,
            Some(event) => after.push(event),
            None => panic!("the stream ended without an outcome"),
        }
    };
    assert!(handle.next().await.is_none(), "the outcome is the last event");
    assert_eq!(outcome.termination, Termination::Cancelled);
    assert!(
        after.iter().all(|event| matches!(event, AgentEvent::Delta(_))),
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
        if let Some(AgentEvent::Delta(delta)) = handle.next().await
            && let endstop::TurnDelta::Text(text) = delta.delta
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
async fn terminate_while_connecting_ends_at_once() {
    for terminate in [true, false] {
        let server = Server::start(|request| {
            Reply::turn(request, &Turn::text("late").after(Duration::from_secs(30)))
        })
        .unwrap();
        let agent = crate::support::over(&server, "openai-chat").build().unwrap();
        let handle = agent.run("m").unwrap();
        eventually("the request is there", || server.requests().len() == 1).await;
        if terminate {
            agent.terminate()
        } else {
            agent.cancel()
        }
        let asked = Instant::now();
        let outcome = handle.outcome().await;
        let expected = if terminate { Termination::Terminated } else { Termination::Cancelled };
        assert_eq!(outcome.termination, expected);
        assert!(asked.elapsed() < Duration::from_millis(500));
        eventually("the connection is closed", || server.open_connections() == 0).await;
    }
}

#[tokio::test]
async fn terminate_in_backoff_ends_at_once() {
    let agent = agent([Turn::error(429, "slow down")]).build().unwrap();
    let mut handle = agent.run("m").unwrap();
    loop {
        match handle.next().await {
            Some(AgentEvent::Run(RunEvent::AttemptFailed { retry_in_ms: Some(_), .. })) => break,
            Some(_) => {}
            None => panic!("no retry"),
        }
    }
    agent.terminate();
    assert_eq!(handle.outcome().await.termination, Termination::Terminated);
}

#[tokio::test]
async fn one_run_at_a_time() {
    let agent = Agent::builder(slow()).build().unwrap().session();
    let first = agent.run("a").unwrap();
    assert_eq!(agent.run("b").unwrap_err(), StartError::Busy);
    agent.terminate();
    assert_eq!(first.outcome().await.termination, Termination::Terminated);
    assert_eq!(agent.run("d").unwrap_err(), StartError::Terminated);
}

#[cfg(unix)]
#[tokio::test]
async fn terminate_kills_tool_processes() {
    let mark = marker();
    let command = format!("MARK={mark} sleep 1000 & MARK={mark} sleep 1000");
    let (builder, log) = busy_log(agent([Turn::call("shell", &json!({"command": command}))]));
    let agent = builder.tool(Shell::default()).build().unwrap();
    let handle = agent.run("m").unwrap();
    eventually("both sleeps run", || processes_with(&mark) >= 2).await;
    let asked = Instant::now();
    agent.terminate();
    assert_eq!(
        *log.lock().unwrap(),
        [true, false],
        "reported at once, not after the tool has ended"
    );
    let outcome = handle.outcome().await;
    assert_eq!(outcome.termination, Termination::Terminated);
    eventually("no process is left", || processes_with(&mark) == 0).await;
    assert!(asked.elapsed() < Duration::from_secs(1));
    assert_eq!(*log.lock().unwrap(), [true, false]);
    assert!(history_is_answered(&outcome));
    agent.settled().await;
}

#[cfg(unix)]
#[tokio::test]
async fn sigterm_ignored_is_killed_after_grace() {
    let mark = marker();
    let command =
        format!("trap '' TERM; MARK={mark} sleep 1000 & MARK={mark} sleep 1000; sleep 1000");
    let limits = Limits { cancel_grace: Duration::from_millis(300), ..Limits::default() };
    let agent = agent([Turn::call("shell", &json!({"command": command}))])
        .tool(Shell::default())
        .limits(limits)
        .build()
        .unwrap();
    let handle = agent.run("m").unwrap();
    eventually("both sleeps run", || processes_with(&mark) >= 2).await;
    let asked = Instant::now();
    agent.cancel();
    assert_eq!(handle.outcome().await.termination, Termination::Cancelled);
    assert!(asked.elapsed() >= Duration::from_millis(290), "it had its grace");
    eventually("no process is left", || processes_with(&mark) == 0).await;
}

#[cfg(unix)]
#[tokio::test]
async fn ended_shell_command_is_answered() {
    let agent =
        agent([Turn::call("shell", &json!({"command": "echo finished"})), Turn::text("done")])
            .tool(Shell::default())
            .build()
            .unwrap();
    let outcome = agent.run("m").unwrap().outcome().await;
    assert_eq!(outcome.termination, Termination::Stop);
    assert!(results(&outcome)[0].1.contains("finished"));
}

fn counting_tool(count: &Arc<AtomicUsize>) -> impl endstop::tool::Tool + use<> {
    let count = Arc::clone(count);
    tool_fn("work", "Works.", move |_: Nothing, _: ToolContext| {
        let count = Arc::clone(&count);
        async move {
            count.fetch_add(1, Ordering::SeqCst);
            ToolOutput::ok("worked")
        }
    })
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

#[tokio::test]
async fn no_tool_starts_after_terminate() {
    // The call arrives while an observer terminates the loop: after the kernel has requested the
    // tool and before the tool would start.
    let count = Arc::<AtomicUsize>::default();
    let the_loop = Arc::new(Mutex::new(None::<Agent>));
    let inner = Arc::clone(&the_loop);
    let agent = agent([Turn::call("work", &json!({}))])
        .tool(counting_tool(&count))
        .on_event(move |event| {
            if matches!(event, AgentEvent::Run(RunEvent::ToolStarted { .. }))
                && let Some(agent) = &*inner.lock().unwrap()
            {
                agent.terminate();
            }
        })
        .build()
        .unwrap();
    *the_loop.lock().unwrap() = Some(agent.clone());
    let outcome = agent.run("m").unwrap().outcome().await;
    assert_eq!(outcome.termination, Termination::Terminated);
    agent.settled().await;
    assert_eq!(count.load(Ordering::SeqCst), 0);
    the_loop.lock().unwrap().take();
}

fn results(outcome: &Outcome) -> Vec<(ToolStatus, String)> {
    outcome
        .messages
        .iter()
        .flat_map(|message| &message.parts)
        .filter_map(|part| match part {
            Part::ToolResult(result) => Some((result.status, result.content.clone())),
            _ => None,
        })
        .collect()
}

fn history_is_answered(outcome: &Outcome) -> bool {
    outcome.messages.iter().enumerate().all(|(at, message)| {
        let calls = message.tool_calls().count();
        calls == 0
            || outcome
                .messages
                .get(at + 1)
                .is_some_and(|next| next.role == Role::Tool && next.parts.len() == calls)
    })
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
    while !matches!(handle.next().await, Some(AgentEvent::Run(RunEvent::ToolStarted { .. }))) {}
    agent.cancel();
    let outcome = handle.outcome().await;
    assert_eq!(outcome.termination, Termination::Cancelled);
    let statuses: Vec<ToolStatus> = results(&outcome).into_iter().map(|(s, _)| s).collect();
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
        if let Some(AgentEvent::Run(RunEvent::ToolStarted { .. })) = handle.next().await {
            started += 1;
        }
    }
    agent.cancel();
    let outcome = handle.outcome().await;
    assert_eq!(results(&outcome)[0], (ToolStatus::Ok, "the side effect".to_owned()));
    assert_eq!(results(&outcome)[1].0, ToolStatus::Aborted);
}

#[tokio::test]
async fn cancelled_run_leaks_nothing_into_next() {
    let server = Server::start(|request| match request.number {
        1 => {
            Reply::turn(request, &Turn::call("work", &json!({})).after(Duration::from_millis(150)))
        }
        _ => Reply::turn(request, &Turn::text("second").after(Duration::from_millis(200))),
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
        match second.next().await {
            Some(AgentEvent::Run(RunEvent::TurnStarted { .. })) => turns += 1,
            Some(AgentEvent::Ended(outcome)) => break outcome,
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
    let answered = results(&outcome).len();
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
    for (text, least) in [("try again in 1.3s", 1300), ("Please try again in 350ms", 350)] {
        let body = json!({"error": {"message": format!("Rate limit reached. {text}."),
                                     "code": "rate_limit_exceeded"}});
        let server = Server::start(move |request| match request.number {
            1 => Reply::new(429, "application/json", body.to_string()),
            _ => Reply::turn(request, &Turn::text("ok")),
        })
        .unwrap();
        let agent = crate::support::over(&server, "openai-chat").build().unwrap();
        let began = Instant::now();
        let outcome = agent.run("m").unwrap().await;
        assert_eq!((outcome.termination, outcome.model_calls), (Termination::Stop, 2));
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(least), "{text}: {took:?}");
        assert!(took < Duration::from_millis(least + 2000), "{text}: {took:?}");
    }
}

#[tokio::test]
async fn refused_connection_is_retried() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let limits = Limits { max_retries: Some(2), ..Limits::default() };
    let agent = crate::support::at(&format!("http://127.0.0.1:{port}/v1"), "openai-chat");
    let outcome = agent.limits(limits).build().unwrap().run("hi").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
    assert_eq!(outcome.model_calls, 3);
    assert!(outcome.decided_by.evidence.contains("could not be reached"), "{outcome:?}");
}

#[tokio::test]
async fn gemini_address_has_model_and_stream() {
    for streaming in [true, false] {
        let server = Server::script([
            Turn::call("look", &json!({"at": "it"})).reasoning("hm"),
            Turn::text("It is there."),
        ])
        .unwrap();
        let options = HttpOptions {
            model: "google/gemini-2.5-flash".to_owned(),
            base_url: Some(server.base_url().replace("/v1", "")),
            ..HttpOptions::default()
        };
        let key = |name: &str| (name == "GEMINI_API_KEY").then(|| "dummy".to_owned());
        let provider = HttpProvider::new(&options, &key).unwrap();
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
        _ => Reply::turn(request, &Turn::text("word ".repeat(1000)).pace(Duration::from_millis(5))),
    })
    .unwrap();
    let agent = crate::support::over(&server, "openai-chat").build().unwrap();
    let mut handle = agent.run("m").unwrap();
    while !matches!(handle.next().await, Some(AgentEvent::Delta(_))) {}
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
    let answers = results(&outcome);
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

#[test]
fn runtime_shutdown_still_writes_outcome() {
    let agent = Agent::builder(slow()).build().unwrap().session();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let handle = runtime.block_on(async { agent.run("m").unwrap() });
    runtime.shutdown_timeout(Duration::from_secs(5));
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
                let settled = tokio::time::timeout(Duration::from_secs(20), agent.settled());
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
            0 => Answer::ProceedWith("and of Spain?".to_owned()),
            1 => Answer::ProceedWith("and of Italy?".to_owned()),
            _ => Answer::Proceed,
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
