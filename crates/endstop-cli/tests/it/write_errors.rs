//! A write error of standard output or of `--events` changes the exit status; a closed pipe does not.

use crate::backtest::clear;
use crate::cli::{Cli, Done, Started, agent_args, playing};
use endstop::testkit::{Server, Turn};
use serde_json::json;
use std::fs::File;
use std::process::{Command, Stdio};

/// A device on which each write fails, as on a full disk.
const FULL: &str = "/dev/full";

/// Returns an invocation of each command that writes to standard output, in a folder with runs and
/// input files, and its status.
fn printers(cli: &Cli, server: &Server) -> Vec<(i32, Vec<String>)> {
    cli.write("endstop.toml", "");
    cli.write("runs.jsonl", clear(120, 60));
    cli.write("scenario.json", r#"{"turns": [{"text": "Hi."}]}"#);
    cli.write("scenarios.jsonl", "{}\n{}\n");
    cli.write("steps.jsonl", r#"{"result": {"output": "FINAL('a')"}}"#);
    let stored = ["Go.", "--journal", "j.db", "--events", "events.jsonl"];
    cli.agent(server, "openai-chat", &stored).exits(0);
    let of = |status: i32, line: &str| {
        (status, line.split(' ').map(str::to_owned).collect::<Vec<String>>())
    };
    let run =
        |line: &str| (0, agent_args(server, "openai-chat", &line.split(' ').collect::<Vec<_>>()));
    let mut all = vec![
        of(0, "--help"),
        of(0, "--version"),
        of(0, "--version --verbose"),
        of(0, "help"),
        of(0, "run --help"),
        run("Go. --journal j.db"),
        run("Go. --journal j.db --json"),
        run("Go. --journal j.db --answer-only"),
        of(0, "guard --print-env=sh"),
        of(0, "guard --json --journal off -- true"),
        of(0, "demo fix --json"),
        of(0, "demo fix"),
        of(0, "detect --api openai-chat scenario.json"),
        of(2, "detect --jsonl scenarios.jsonl"),
        of(0, "decide --policy final_pattern steps.jsonl"),
        of(0, "simulate scenario.json"),
        of(2, "simulate --jsonl scenarios.jsonl"),
        of(0, "runs --journal j.db"),
        of(0, "runs --journal j.db --json"),
        of(0, "runs prune --keep 9 --journal j.db"),
        of(0, "runs prune --keep 9 --journal j.db --json"),
        of(0, "spend --journal j.db"),
        of(0, "spend --journal j.db --json"),
        of(0, "explain last --journal j.db"),
        of(0, "explain last --journal j.db --json"),
        of(0, "assert events.jsonl --success"),
        of(1, "assert events.jsonl --max-turns 0"),
        of(0, "assert events.jsonl --success --json"),
        of(0, "audit runs.jsonl"),
        of(0, "audit runs.jsonl --json"),
        of(0, "backtest runs.jsonl --policies default"),
        of(0, "backtest runs.jsonl --policies default --json"),
        of(0, "compare runs events.jsonl events.jsonl"),
        of(0, "compare sets runs.jsonl runs.jsonl --json"),
        of(0, "providers"),
        of(0, "providers openai"),
        of(0, "providers --json"),
        of(0, "prices openai/gpt-4o"),
        of(0, "prices openai/gpt-4o --json"),
        of(0, "conform list"),
        of(0, "conform list --json"),
        of(0, "policies"),
        of(0, "policies --json"),
        of(0, "config show"),
        of(0, "config show --json"),
        of(0, "completions bash"),
        of(0, "explain error_no_progress"),
        of(0, "man"),
        of(0, "runs --since 1d --journal j.db"),
    ];
    let url = server.base_url();
    all.push(of(0, &format!("branch last --at 0 --base-url {url} --journal j.db")));
    // A parked run: its call waits for an answer.
    let calling = playing([Turn::call("shell", &json!({"command": "true"}))]);
    let parks = ["Go.", "--tool", "shell", "--ask", "park", "--journal", "p.db"];
    cli.agent(&calling, "openai-chat", &parks).exits(75);
    let pending = cli.run(["pending", "--json", "--journal", "p.db"]).exits(0).lines();
    let id = pending[0]["run_id"].as_str().unwrap();
    all.extend([
        of(0, "pending --journal p.db"),
        of(0, "pending --journal p.db --json"),
        of(0, "answer last --approve --journal p.db"),
        of(0, &format!("cancel {id} --journal p.db --json")),
    ]);
    all.push(of(2, "--json no-such-command"));
    let help = cli.run(["help"]).exits(0).stdout;
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let commands = commands.lines().take_while(|line| !line.is_empty());
    for name in commands.filter_map(|line| line.strip_prefix("  ")?.split(' ').next()) {
        let is_tried = all.iter().any(|(_, args)| args[0] == name);
        // `acp` has a test of its own. The others print one line that confirms a change, or that
        // names an address.
        let others = ["", "acp", "limits", "serve", "trust", "worker"];
        assert!(is_tried || others.contains(&name), "no invocation of `{name}`");
    }
    all
}

fn to_full_disk(mut command: Command) -> Done {
    let full = File::options().write(true).open(FULL).unwrap();
    Started::unread(
        command.stdin(Stdio::null()).stdout(full).stderr(Stdio::piped()).spawn().unwrap(),
    )
    .finish()
}

/// Runs the command with a standard output whose reader is gone.
fn to_closed_pipe(mut command: Command) -> Done {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    Started::unread(
        command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped()).spawn().unwrap(),
    )
    .finish()
}

#[test]
fn full_disk_is_status_74() {
    let cli = Cli::new();
    let server = playing([Turn::text("Hi.")]);
    for (status, args) in printers(&cli, &server) {
        let done = to_full_disk(cli.command(&args));
        let expected = if status == 2 { 2 } else { 74 };
        assert_eq!(done.code(), expected, "{args:?}: {done:#?}");
        let line = "endstop: standard output: No space left on device";
        assert_eq!(done.stderr.matches(line).count(), 1, "{args:?}: {done:#?}");
    }
    // The run was paid for, and went to its end.
    let stored = cli.run(["explain", "last", "--journal", "j.db"]).exits(0);
    assert!(stored.stdout.contains("stopped: stop"), "{stored:#?}");
}

#[cfg(feature = "acp")]
#[test]
fn full_disk_ends_protocol() {
    use std::io::Write as _;
    let cli = Cli::new();
    let mut command = cli.command(["acp", "--model", "openai/gpt-5"]);
    let full = File::options().write(true).open(FULL).unwrap();
    let mut child =
        command.stdin(Stdio::piped()).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}});
    writeln!(child.stdin.as_mut().unwrap(), "{hello}").unwrap();
    Started::unread(child).finish().exits(74).notes(&["standard output: No space left"]);
}

#[test]
fn closed_pipe_keeps_status() {
    let cli = Cli::new();
    let server = playing([Turn::text("Hi.")]);
    for (status, args) in printers(&cli, &server) {
        let done = to_closed_pipe(cli.command(&args));
        assert_eq!(done.code(), status, "{args:?}: {done:#?}");
        assert!(!done.stderr.contains("standard output:"), "{args:?}: {done:#?}");
    }
}

#[test]
fn closed_pipe_ends_reading() {
    let cli = Cli::new();
    // The input has no end, so only the closed pipe ends the command.
    let mut yes = Command::new("yes");
    let mut yes = yes.arg(r#"{"result": {"output": "a"}}"#).stdout(Stdio::piped()).spawn().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = cli.command(["decide", "--policy", "final_pattern"]);
    command.stdin(yes.stdout.take().unwrap()).stdout(writer).stderr(Stdio::piped());
    let started = Started::unread(command.spawn().unwrap());
    // It holds the reading end of the input.
    drop(command);
    started.finish().exits(0);
    yes.wait().unwrap();
}

#[test]
fn full_disk_keeps_stronger_status() {
    let cli = Cli::new();
    let server = playing([Turn::text("Hi.")]);
    let agent = |args: &[&str]| cli.command(agent_args(&server, "openai-chat", args));
    // A parked run has not ended, and its request is in the journal.
    let calling = playing([Turn::call("shell", &json!({"command": "true"}))]);
    let parks = ["Go.", "--json", "--tool", "shell", "--ask", "park", "--journal", "p.db"];
    to_full_disk(cli.command(agent_args(&calling, "openai-chat", &parks))).exits(75);
    // The statuses of an ending are replaced.
    to_full_disk(agent(&["Go.", "--json", "--max-turns", "0"])).exits(74);
    to_full_disk(agent(&["Go.", "--json", "--verify", "false"])).exits(74);
    // The file of `--events` is an output like standard output.
    for status in ["stop", "error_max_turns"] {
        let turns = if status == "stop" { "1" } else { "0" };
        let args = ["Go.", "--events", FULL, "--max-turns", turns];
        let done = Started::new(agent(&args), "").finish().exits(74);
        assert_eq!(
            done.stderr.matches("--events /dev/full: No space left").count(),
            1,
            "{done:#?}"
        );
        done.outcome_is(status);
    }
    // The status of a guarded program belongs to that program.
    let guard = |more: &[&str], program: &str| {
        let args = [&["guard", "--journal", "off"], more, &["--", "sh", "-c", program]].concat();
        to_full_disk(cli.command(args))
    };
    guard(&["--json"], "exit 1").exits(1);
    guard(&["--json"], "exit 10").exits(10);
    guard(&["--events", FULL], "exit 30").exits(30).notes(&["--events /dev/full: "]);
    guard(&["--events", FULL], "true").exits(74);
}
