//! Terminate: it is final, and nothing of a run outlives it.

use super::{answers, busy_log, counting_tool, history_is_answered, slow, slow_server};
use crate::support::{HANG, agent, eventually, marker, processes_with};
use endstop::event::AgentEventKind;
use endstop::testkit::{Reply, Server, Turn};
use endstop::tool::Shell;
use endstop::{Agent, Lifecycle, Limits, StartError, Termination};
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

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
async fn terminate_mid_stream_closes_connection() {
    let (server, agent) = slow_server();
    let mut handle = agent.run("m").unwrap();
    while !matches!(
        handle.next().await.map(|event| event.kind),
        Some(AgentEventKind::TextDelta { .. })
    ) {}
    agent.terminate();
    let outcome = handle.outcome().await;
    assert_eq!(outcome.termination, Termination::Terminated);
    assert!(outcome.last_text.unwrap().starts_with("word"));
    eventually("the connection is closed", || server.open_connections() == 0).await;
}

#[tokio::test]
async fn terminate_while_connecting_ends_at_once() {
    for terminate in [true, false] {
        let server = Server::start(|request| {
            Reply::turn(request, &Turn::text("late").after(Duration::from_secs(3600)))
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
        assert!(asked.elapsed() < HANG);
        eventually("the connection is closed", || server.open_connections() == 0).await;
    }
}

#[tokio::test]
async fn terminate_in_backoff_ends_at_once() {
    let agent = agent([Turn::error(429, "slow down")]).build().unwrap();
    let mut handle = agent.run("m").unwrap();
    loop {
        match handle.next().await.map(|event| event.kind) {
            Some(AgentEventKind::AttemptFailed { retry_in_ms: Some(_), .. }) => break,
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
    agent.terminate();
    assert_eq!(
        *log.lock().unwrap(),
        [true, false],
        "reported at once, not after the tool has ended"
    );
    let outcome = handle.outcome().await;
    assert_eq!(outcome.termination, Termination::Terminated);
    eventually("no process is left", || processes_with(&mark) == 0).await;
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
    assert!(answers(&outcome)[0].1.contains("finished"));
}

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
            if matches!(event.kind, AgentEventKind::ToolStarted { .. })
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
