//! Limits on tool calls, and on the windows of a subscription, in live and stored runs and from settings files.

use crate::cli::{Cli, Started, agent_args, answering, playing};
use endstop::testkit::{Reply, Server, Turn};
use serde_json::{Value, json};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A server whose responses report a window of a Claude plan: for its first turn, a tool call, and for the others.
/// Headers built from those that clients read; not recorded.
fn plan(first: (&'static str, u64), then: (&'static str, u64)) -> Server {
    answering(move |request| {
        let is_first = !request.body.to_string().contains("tool_result");
        let (used, reset) = if is_first { first } else { then };
        let turn = match is_first {
            true => Turn::call("shell", &json!({"command": "echo 42"})),
            false => Turn::text("It printed 42."),
        };
        Reply::turn(request, &turn)
            .header("anthropic-ratelimit-unified-7d-status", "allowed_warning")
            .header("anthropic-ratelimit-unified-7d-utilization", used)
            .header("anthropic-ratelimit-unified-7d-reset", &reset.to_string())
    })
}

#[expect(clippy::disallowed_methods, reason = "a reset is a wall-clock time")]
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn outcome(lines: &[Value]) -> Value {
    lines.last().unwrap().clone()
}

#[test]
fn used_window_ends_a_run_that_is_stored() {
    let cli = Cli::new();
    let server = plan(("0.93", now() + 3600), ("0.94", now() + 3600));
    let args = ["Go.", "--tool", "shell", "--journal", "j.db", "--max-window", "7d=90%", "--json"];
    let done = cli.agent(&server, "anthropic-messages", &args).exits(20);
    let ended = outcome(&done.lines());
    assert_eq!(ended["termination"], "error_max_window", "{ended}");
    assert_eq!(ended["decided_by"]["name"], "max_window");
    let seconds = ended["retry_after_ms"].as_f64().map(|ms| ms / 1000.0);
    assert!(seconds.is_some_and(|wait| (3500.0..=3600.0).contains(&wait)), "{ended}");
    assert_eq!(server.requests().len(), 1);
    // The stored events give the same ending, and the run continues under another limit.
    let explained = cli.run(["explain", "last", "--journal", "j.db"]).exits(0).stdout;
    assert!(explained.contains("93% of the 7d window of anthropic used, of 90%"), "{explained}");
    let resumed =
        ["--resume", "last", "--journal", "j.db", "--max-window", "7d=95%", "--trust-journal"];
    let done = cli.agent(&server, "anthropic-messages", &resumed).exits(0);
    assert!(done.stdout.contains("It printed 42."), "{}", done.stdout);
}

#[test]
fn waiting_run_continues_after_the_reset() {
    let cli = Cli::new();
    let server = plan(("0.93", now() + 3), ("0.01", now() + 600_000));
    let args = ["Go.", "--tool", "shell", "--journal", "j.db", "--max-window", "5h=80%,7d=90%"];
    let began = Instant::now();
    let waits = [&args[..], &["--wait-for-window", "--timeout", "1m"]].concat();
    let done = cli.agent(&server, "anthropic-messages", &waits).exits(0);
    assert!(began.elapsed().as_secs() >= 2, "{:?}", began.elapsed());
    assert!(done.stderr.contains("· pauses for "), "{}", done.stderr);
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn call_too_many_of_a_tool_ends_the_run() {
    let cli = Cli::new();
    let turn = |at: usize| Turn::call("shell", &json!({"command": format!("echo {at}")}));
    let turns: Vec<Turn> = (0..4).map(turn).collect();
    cli.write("endstop.toml", "[max_calls]\nshell = 2\n");
    let server = playing(turns.clone());
    let args = ["Go.", "--tool", "shell", "--journal", "off", "--json"];
    let done = cli.agent(&server, "openai-chat", &args).exits(20);
    let ended = outcome(&done.lines());
    assert_eq!(ended["termination"], "error_max_tool_calls", "{ended}");
    assert_eq!(
        ended["decided_by"]["evidence"],
        "2 of 2 calls of `shell`; another one was not started"
    );
    assert_eq!(ended["tool_calls"], 2);
    // A flag is over the file.
    let server = playing(turns.clone());
    let all = [&args[..], &["--max-calls", "shell=9", "--max-tool-calls", "3"]].concat();
    let ended = outcome(&cli.agent(&server, "openai-chat", &all).exits(20).lines());
    assert_eq!(ended["decided_by"]["evidence"], "3 of 3 tool calls; `shell` was not started");
    for (option, says) in [
        ("shell", "--max-calls `shell`: expected TOOL=N, for example shell=20"),
        ("shell=-1", "--max-calls `shell=-1`: expected TOOL=N"),
        ("shel=1", "unknown tool `shel` in `max_calls`"),
    ] {
        let wrong = [&args[..], &["--max-calls", option]].concat();
        let done = cli.agent(&server, "openai-chat", &wrong).exits(2);
        assert!(done.stderr.contains(says), "{}", done.stderr);
    }
}

#[test]
fn repository_may_only_lower_the_calls_of_a_tool() {
    let cli = Cli::new();
    let server = playing([Turn::text("done"), Turn::text("done")]);
    std::fs::create_dir_all(cli.path("config/endstop")).unwrap();
    cli.write("config/endstop/config.toml", "[max_calls]\nshell = 5\n");
    for (calls, status) in [("shell = 4", 0), ("shell = 6", 2), ("read_file = 6", 0)] {
        cli.write("endstop.toml", format!("[max_calls]\n{calls}\n"));
        let args = ["Go.", "--tool", "shell", "--tool", "read_file", "--journal", "off"];
        let mut command = cli.command(agent_args(&server, "openai-chat", &args));
        command.env("XDG_CONFIG_HOME", cli.path("config"));
        let done = Started::new(command, "").finish().exits(status);
        assert_eq!(status == 2, done.stderr.contains("endstop trust"), "{}", done.stderr);
    }
}
