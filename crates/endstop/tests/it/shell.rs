//! Tests of the shell tool: a cancel, a time limit, a terminate, a drop and its own end all kill the
//! whole process tree of a command.
//!
//! This process has no keeper, so only the process group and the mark are tested here.

use crate::processes::{SOON, alive, gone, marker, soon, started};
use crate::support::{agent, over};
use endstop::process::{CommandLine, StopTokens};
use endstop::testkit::{Reply, Server, Turn};
use endstop::tool::{Shell, Tool, ToolContext, ToolOutput};
use endstop::{Limits, Outcome, Part, Termination, ToolStatus};
use serde_json::{Map, Value, json};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

fn arguments(command: &str) -> Map<String, Value> {
    json!({ "command": command }).as_object().unwrap().clone()
}

struct Tokens {
    call: CancellationToken,
    whole_loop: CancellationToken,
}

fn context(grace: Duration) -> (Tokens, ToolContext) {
    let tokens = Tokens { call: CancellationToken::new(), whole_loop: CancellationToken::new() };
    let context = ToolContext::new(
        "call_1".to_owned(),
        tokens.call.clone(),
        tokens.whole_loop.clone(),
        grace,
        None,
    );
    (tokens, context)
}

async fn shell(command: &str) -> ToolOutput {
    Shell::default().call(arguments(command), ToolContext::detached("call_1")).await
}

#[tokio::test]
async fn result_has_output_and_exit_status() {
    let output = shell("echo one; echo two >&2; printf three").await;
    assert_eq!(output, ToolOutput::ok("one\ntwo\nthree\n[exit status 0]"));
    let output = shell("echo no; exit 3").await;
    assert_eq!(output, ToolOutput::ok("no\n[exit status 3]"));
    let output = shell("kill -9 $$").await;
    assert_eq!(output, ToolOutput::error("[killed by signal 9]"));
    let output = shell("printf '\\377'").await;
    assert_eq!(output, ToolOutput::ok("\u{fffd}\n[exit status 0]"));
}

#[tokio::test]
async fn exit_status_is_not_error() {
    for (line, status) in [
        ("echo a | grep b", 1),
        ("test -f .", 1),
        ("exit 255", 255),
        ("no-such-program 2>/dev/null", 127),
        // If a signal kills a child of the shell, the shell reports an exit status.
        ("sh -c 'kill -9 $$' 2>/dev/null; exit $?", 137),
    ] {
        let output = shell(line).await;
        assert_eq!(output, ToolOutput::ok(format!("[exit status {status}]")), "{line}");
    }
}

#[tokio::test]
async fn invalid_timeout_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ran");
    for wish in [json!("60"), json!(0), json!(-1), json!([]), json!(true)] {
        let arguments =
            json!({"command": format!("touch {}", file.display()), "timeout_seconds": wish});
        let arguments = arguments.as_object().unwrap().clone();
        let output = Shell::default().call(arguments, ToolContext::detached("call_1")).await;
        let problem = "the argument `timeout_seconds` must be a number of seconds above 0";
        assert_eq!(output, ToolOutput::error(problem));
        assert!(!file.exists(), "{wish}");
    }
    let fixed = Shell::default().with_timeout(Duration::from_secs(5));
    assert!(
        fixed.timeout_argument().is_none()
            && fixed.schema()["properties"].get("timeout_seconds").is_none()
    );
}

/// Runs an agent that makes these shell calls, one per turn, and then ends.
async fn calling(calls: &[Value], limits: Limits) -> Outcome {
    let turns = calls.iter().map(|call| Turn::call("shell", call));
    let agent = agent(turns.chain([Turn::text("done")])).tool(Shell::default()).limits(limits);
    agent.build().unwrap().run("hi").unwrap().await
}

fn statuses(outcome: &Outcome) -> Vec<ToolStatus> {
    let parts = outcome.messages.iter().flat_map(|message| &message.parts);
    parts
        .filter_map(|part| match part {
            Part::ToolResult(result) => Some(result.status),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn failing_commands_do_not_end_run() {
    let lines = ["echo a | grep b", "test -f .", "echo FAIL; exit 1", "exit 2"];
    let calls: Vec<Value> = lines.iter().map(|line| json!({ "command": line })).collect();
    let outcome = calling(&calls, Limits::default()).await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    assert_eq!(statuses(&outcome), [ToolStatus::Ok; 4]);
}

#[tokio::test]
async fn model_may_request_longer_timeout() {
    let tick = Some(Duration::from_millis(300));
    let limits = Limits { tool_timeout: tick, cancel_grace: Duration::ZERO, ..Limits::default() };
    let longer = json!({"command": "sleep 1; echo done", "timeout_seconds": 60});
    let outcome =
        calling(&[longer.clone(), json!({"command": "sleep 1000"})], limits.clone()).await;
    assert_eq!(statuses(&outcome), [ToolStatus::Ok, ToolStatus::Timeout], "{outcome:?}");
    let capped = Limits { max_tool_timeout: tick, ..limits };
    let outcome = calling(&[longer], capped).await;
    assert_eq!(statuses(&outcome), [ToolStatus::Timeout], "{outcome:?}");
}

#[tokio::test]
async fn schema_states_default_and_maximum_timeout() {
    let described = async |limits: Limits| {
        let server = Server::start(|request| Reply::turn(request, &Turn::text("done"))).unwrap();
        let agent = over(&server, "openai-chat").tool(Shell::default()).limits(limits);
        agent.build().unwrap().run("hi").unwrap().await;
        let body = &server.requests()[0].body;
        let argument = "/tools/0/function/parameters/properties/timeout_seconds/description";
        body.pointer(argument).unwrap().as_str().unwrap().to_owned()
    };
    let text = "Seconds after which the command is stopped.";
    assert_eq!(described(Limits::default()).await, format!("{text} Default: 60. Maximum: 600."));
    let off = Limits { tool_timeout: None, max_tool_timeout: None, ..Limits::default() };
    assert!(!described(off).await.contains("Default"));
}

#[tokio::test]
async fn shell_command_has_no_input() {
    assert_eq!(shell("cat; echo done").await, ToolOutput::ok("done\n[exit status 0]"));
}

#[tokio::test]
async fn cancel_stops_whole_group() {
    let mark = marker();
    let (tokens, context) = context(Duration::from_secs(60));
    let tool = Shell::default();
    let line = format!("echo begun; sleep {mark} & sleep {mark}");
    let mut call = tool.call(arguments(&line), context);
    tokio::select! {
        _ = &mut call => panic!("it does not end by itself"),
        _ = started(mark, 2) => {}
    }
    let asked = Instant::now();
    tokens.call.cancel();
    let output = call.await;
    assert!(asked.elapsed() < SOON, "the grace was not waited out: {:?}", asked.elapsed());
    assert!(output.is_error());
    assert_eq!(output.content, "begun\n[stopped before it finished: killed by signal 15]");
    gone(mark);
}

#[tokio::test]
async fn deaf_command_is_killed_after_grace() {
    let mark = marker();
    let grace = Duration::from_millis(300);
    let (tokens, context) = context(grace);
    let tool = Shell::default();
    // The children inherit the ignored signal.
    let line = format!("trap '' TERM; sleep {mark} & sleep {mark}; sleep {mark}");
    let mut call = tool.call(arguments(&line), context);
    tokio::select! {
        _ = &mut call => panic!("it does not end by itself"),
        _ = started(mark, 2) => {}
    }
    let asked = Instant::now();
    tokens.call.cancel();
    let output = call.await;
    let took = asked.elapsed();
    assert!(took >= grace && took < grace + SOON, "{took:?}");
    assert_eq!(output.content, "[stopped before it finished: killed by signal 9]");
    gone(mark);
}

#[tokio::test]
async fn cleanup_in_grace_is_reported() {
    let mark = marker();
    let (tokens, context) = context(SOON);
    let tool = Shell::default();
    let line = format!("trap 'echo cleaned; exit 7' TERM; sleep {mark} & wait");
    let mut call = tool.call(arguments(&line), context);
    tokio::select! {
        _ = &mut call => panic!("it does not end by itself"),
        _ = started(mark, 1) => {}
    }
    // The trap is in place, because the shell sets it before it starts the sleep.
    tokens.call.cancel();
    let output = call.await;
    assert_eq!(output.content, "cleaned\n[stopped before it finished: exit status 7]");
    gone(mark);
}

#[tokio::test]
async fn zero_grace_kills_at_once() {
    let mark = marker();
    let (tokens, context) = context(Duration::ZERO);
    let tool = Shell::default();
    let line = format!("trap '' TERM; sleep {mark}; sleep {mark}");
    let mut call = tool.call(arguments(&line), context);
    tokio::select! {
        _ = &mut call => panic!("it does not end by itself"),
        _ = started(mark, 1) => {}
    }
    tokens.call.cancel();
    assert!(call.await.content.contains("killed by signal 9"));
    gone(mark);
}

#[tokio::test]
async fn terminate_cuts_grace_short() {
    let mark = marker();
    let (tokens, context) = context(Duration::from_secs(600));
    let tool = Shell::default();
    let line = format!("trap 'echo asked' TERM; while true; do sleep {mark} & wait; done");
    let mut call = tool.call(arguments(&line), context);
    tokio::select! {
        _ = &mut call => panic!("it does not end by itself"),
        _ = started(mark, 1) => {}
    }
    tokens.call.cancel();
    // The command was asked and is still in its grace period.
    let still = tokio::time::timeout(Duration::from_millis(100), &mut call).await;
    assert!(still.is_err());
    tokens.whole_loop.cancel();
    assert!(call.await.content.contains("killed by signal 9"));
    gone(mark);
}

#[tokio::test]
async fn dropped_call_kills_at_once() {
    let mark = marker();
    let tool = Shell::default();
    let line = format!("trap '' TERM; sleep {mark} & sleep {mark}");
    let mut call = tool.call(arguments(&line), ToolContext::detached("call_1"));
    tokio::select! {
        _ = &mut call => panic!("it does not end by itself"),
        _ = started(mark, 2) => {}
    }
    drop(call);
    gone(mark);
}

#[tokio::test]
async fn call_dropped_early_leaves_no_process() {
    // One poll starts the command. It must die whether or not its shell runs yet.
    for _ in 0..20 {
        let mark = marker();
        let tool = Shell::default();
        let line = format!("sleep {mark} & sleep {mark}");
        let mut call = tool.call(arguments(&line), ToolContext::detached("call_1"));
        let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Pending);
        drop(call);
        gone(mark);
    }
}

#[tokio::test]
async fn unpolled_call_starts_nothing() {
    let mark = marker();
    let tool = Shell::default();
    drop(tool.call(arguments(&format!("sleep {mark}")), ToolContext::detached("call_1")));
    assert!(alive(mark).is_empty());
}

#[tokio::test]
async fn cancelled_call_starts_nothing() {
    let (tokens, context) = context(SOON);
    tokens.call.cancel();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ran");
    let line = format!("touch {}", file.display());
    let output = Shell::default().call(arguments(&line), context).await;
    assert_eq!(output, ToolOutput::error("stopped before it started"));
    assert!(!file.exists());
}

#[test]
fn runtime_shutdown_kills_commands() {
    let mark = marker();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let tasks = tokio_util::task::TaskTracker::new();
    tasks.spawn_on(
        async move { shell(&format!("trap '' TERM; sleep {mark} & sleep {mark}")).await },
        runtime.handle(),
    );
    runtime.block_on(started(mark, 2));
    drop(runtime);
    gone(mark);
}

#[tokio::test]
async fn timeout_kills_command() {
    let mark = marker();
    let line = format!("sleep {mark} & sleep {mark}");
    let limit = Duration::from_millis(200);
    let limited = tokio::time::timeout(limit, shell(&line)).await;
    assert!(limited.is_err());
    gone(mark);
}

#[tokio::test]
async fn background_processes_die_with_command() {
    let mark = marker();
    let begun = Instant::now();
    let output = shell(&format!("sleep {mark} & sleep {mark} & echo done")).await;
    assert_eq!(output, ToolOutput::ok("done\n[exit status 0]"));
    assert!(begun.elapsed() < SOON, "the pipe was waited for");
    gone(mark);
}

/// Tests the process group alone, as on systems without `/proc`.
#[tokio::test]
async fn group_dies_with_leader() {
    let mark = marker();
    let tool = Shell::default().leave_daemons();
    let line = format!("trap '' TERM HUP; sleep {mark} & sleep {mark} & echo done");
    let output = tool.call(arguments(&line), ToolContext::detached("call_1")).await;
    // Without a mark the result does not wait for the deaths, so on a busy machine a dying process may
    // still hold the pipe, and the status is followed by a remark.
    assert!(!output.is_error() && output.content.starts_with("done\n[exit status 0"), "{output:?}");
    gone(mark);
}

#[tokio::test]
async fn process_outside_group_dies_too() {
    let mark = marker();
    // A daemon: it is in its own session, and its parent is gone.
    let line = format!("(setsid sleep {mark} >/dev/null 2>&1 &); setsid sleep {mark} & echo done");
    let output = shell(&line).await;
    assert!(!output.is_error(), "{output:?}");
    gone(mark);

    // The same if the call is dropped.
    let mark = marker();
    let tool = Shell::default();
    let line = format!("setsid sleep {mark} & sleep {mark}");
    let mut call = tool.call(arguments(&line), ToolContext::detached("call_1"));
    tokio::select! {
        _ = &mut call => panic!("it does not end by itself"),
        _ = started(mark, 2) => {}
    }
    drop(call);
    gone(mark);
}

#[tokio::test]
async fn held_pipe_does_not_delay_result() {
    let mark = marker();
    let begun = Instant::now();
    let tool = Shell::default().leave_daemons();
    let line = format!("setsid sleep {mark} & echo done");
    let output = tool.call(arguments(&line), ToolContext::detached("call_1")).await;
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert!(output.content.starts_with("done\n[exit status 0"), "{output:?}");
    // `setsid` may not have left the group yet when the group was killed.
    if output.content.contains("may still be running") {
        soon("the daemon lives", || alive(mark).len() == 1);
    }
    for pid in alive(mark) {
        std::process::Command::new("kill").arg("-9").arg(pid.to_string()).status().unwrap();
    }
    gone(mark);
}

#[tokio::test]
async fn flood_of_output_is_bounded() {
    let output = shell("head -c 100000000 /dev/zero | tr '\\0' x; echo end; echo end >&2").await;
    assert!(output.content.len() < 66_000, "{}", output.content.len());
    assert!(output.content.starts_with("xxx"));
    assert!(output.content.ends_with("end\nend\n[exit status 0]"));
    assert!(output.content.contains("[… 99934472 bytes left out …]"), "the cut is marked");
}

#[tokio::test]
async fn endless_output_can_be_cancelled() {
    let (tokens, context) = context(Duration::from_secs(60));
    let tool = Shell::default();
    let mut call = pin!(tool.call(arguments("yes"), context));
    let waited = tokio::time::timeout(Duration::from_millis(100), &mut call).await;
    assert!(waited.is_err());
    tokens.call.cancel();
    let output = call.await;
    assert!(output.content.contains("stopped before it finished"), "{output:?}");
}

/// The environment of a process with threads cannot be changed safely, so this test runs itself again
/// in a process that has secrets.
#[tokio::test]
async fn shell_withholds_secrets() {
    if std::env::var_os("ENDSTOP_TEST_API_KEY").is_none() {
        let again = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "shell::shell_withholds_secrets"])
            .env("ENDSTOP_TEST_API_KEY", "hidden")
            .env("ENDSTOP_TEST_PASSWORD", "allowed")
            .env("ENDSTOP_TEST_PLAIN", "shown")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&again.stdout).into_owned();
        assert!(again.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let line = "echo \"[$ENDSTOP_TEST_API_KEY] [$ENDSTOP_TEST_PASSWORD] [$ENDSTOP_TEST_PLAIN]\"";
    assert_eq!(shell(line).await, ToolOutput::ok("[] [] [shown]\n[exit status 0]"));
    let tool = Shell::default().allow_variable("ENDSTOP_TEST_PASSWORD");
    let output = tool.call(arguments(line), ToolContext::detached("call_1")).await;
    assert_eq!(output, ToolOutput::ok("[] [allowed] [shown]\n[exit status 0]"));
}

#[tokio::test]
async fn start_failure_names_reason() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent");
    let context = ToolContext::new(
        "call_1".to_owned(),
        CancellationToken::new(),
        CancellationToken::new(),
        SOON,
        Some(absent.clone()),
    );
    let output = Shell::default().call(arguments("true"), context).await;
    assert!(output.is_error());
    let says = format!("{} does not exist", absent.display());
    assert!(output.content.contains(&says), "{output:?}");
    let output = Shell::default().call(Map::new(), ToolContext::detached("call_1")).await;
    assert_eq!(output, ToolOutput::error("the argument `command` is missing"));
    let output = shell("a\0b").await;
    assert!(output.is_error() && output.content.contains("nul"), "{output:?}");
}

#[tokio::test]
async fn command_runs_in_working_folder() {
    let dir = tempfile::tempdir().unwrap();
    let real = dir.path().canonicalize().unwrap();
    let finished = CommandLine::new("pwd").in_dir(&real).run(&StopTokens::never()).await.unwrap();
    assert_eq!(finished.output.text(), format!("{}\n", real.display()));
    assert!(finished.success() && !finished.pipe_held);
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_shells_end_independently() {
    let mark = marker();
    let calls = tokio_util::task::TaskTracker::new();
    let mut running = Vec::new();
    for n in 0..40 {
        running.push(calls.spawn(async move {
            let output = shell(&format!("sleep {mark} & echo {n}")).await;
            assert_eq!(output, ToolOutput::ok(format!("{n}\n[exit status 0]")));
        }));
    }
    for call in running {
        call.await.unwrap();
    }
    gone(mark);
}
