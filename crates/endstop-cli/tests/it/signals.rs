//! Signals: cancellation, exit status, and no remaining processes. Processes are found in `/proc`
//! by a mark in their environment.

use crate::cli::{Cli, Done, FORMATS, Started, agent_args, answering, eventually};
use endstop::testkit::{Reply, Server, Turn};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// A run with a mark that all its processes inherit.
struct Marked {
    mark: String,
    cli: Cli,
    started: Option<Started>,
}

impl Marked {
    fn new(server: &Server, api: &str, args: &[&str]) -> Marked {
        Marked::with(mark(), server, api, args)
    }

    fn with(mark: String, server: &Server, api: &str, args: &[&str]) -> Marked {
        let cli = Cli::new();
        let mut command = cli.command(agent_args(server, api, args));
        command.env("ENDSTOP_TEST_MARK", &mark);
        let started = Some(Started::new(command, ""));
        Marked { mark, cli, started }
    }

    fn running(&self) -> &Started {
        self.started.as_ref().unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.running().child), signal).unwrap();
    }

    /// Waits until the tool's two sleeping processes run.
    fn sleeping(&self) {
        eventually("two processes that sleep", || sleepers(&self.mark) == 2);
    }

    /// Waits until standard error contains this text.
    fn says(&self, text: &str) {
        eventually(text, || self.running().stderr().contains(text));
    }

    /// Waits for the end; asserts that no process is left.
    fn finish(self) -> Done {
        self.finish_in().0
    }

    /// Waits for the end; returns the folder, too.
    fn finish_in(mut self) -> (Done, Cli) {
        let done = self.started.take().unwrap().finish();
        eventually("no process is left", || processes(&self.mark).is_empty());
        (done, std::mem::replace(&mut self.cli, Cli::new()))
    }
}

/// Leaves no process behind if the test fails.
impl Drop for Marked {
    fn drop(&mut self) {
        drop(self.started.take());
        for (process, _) in processes(&self.mark) {
            let _ = kill_process(process, Signal::KILL);
        }
    }
}

fn mark() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("mark-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns the living processes with a mark, and their names; a zombie has no environment.
fn processes(mark: &str) -> Vec<(Pid, String)> {
    let entry = format!("ENDSTOP_TEST_MARK={mark}");
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) =
            process.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw)
        else {
            continue;
        };
        let read = |name: &str| std::fs::read(process.path().join(name)).unwrap_or_default();
        if read("environ").split(|byte| *byte == 0).any(|var| var == entry.as_bytes()) {
            let name = String::from_utf8_lossy(&read("comm")).trim().to_owned();
            found.push((pid, name));
        }
    }
    found
}

fn sleepers(mark: &str) -> usize {
    processes(mark).iter().filter(|(_, name)| name == "sleep").count()
}

/// A server whose answer takes minutes.
fn talking() -> Server {
    answering(|request| {
        let words = Turn::text("word ".repeat(10_000)).pace(Duration::from_millis(20));
        Reply::turn(request, &words)
    })
}

/// A server that requests a command, and then answers.
fn commanding(command: &'static str) -> Server {
    answering(move |request| {
        let turn = match request.number {
            1 => Turn::call("shell", &json!({"command": command})),
            _ => Turn::text("Never mind."),
        };
        Reply::turn(request, &turn)
    })
}

const SLEEP: &str = "sleep 1000 & sleep 1000";

/// A command whose processes ignore the request to end.
const DEAF: &str = "trap '' TERM HUP INT; sleep 1000 & sleep 1000";

#[test]
fn interrupt_during_stream_cancels() {
    for api in FORMATS {
        let server = talking();
        let run = Marked::new(&server, api, &["Talk.", "--events", "events.jsonl"]);
        eventually("some words", || run.running().stdout().contains("word word"));
        assert_eq!(server.open_connections(), 1);
        run.signal(Signal::INT);
        eventually("the server sees the hang-up", || server.open_connections() == 0);
        let (done, cli) = run.finish_in();
        let events = cli.read("events.jsonl");
        let outcome: Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
        assert_eq!(outcome["termination"], "cancelled");
        assert!(outcome["last_text"].as_str().unwrap().starts_with("word word"));
        done.exits(130).notes(&["stopped: cancelled (fatal)"]);
        assert_eq!(server.hung_up().len(), 1);
    }
}

#[test]
fn sigterm_and_sighup_exit_143() {
    for (api, signal) in FORMATS.into_iter().zip([Signal::TERM, Signal::HUP]) {
        let server = talking();
        let run = Marked::new(&server, api, &["Talk.", "--json"]);
        eventually("some words", || run.running().stdout().contains("word"));
        run.signal(signal);
        let outcome = run.finish().exits(143).outcome();
        assert_eq!(outcome["termination"], "cancelled");
        eventually("the server sees the hang-up", || server.open_connections() == 0);
    }
}

#[test]
fn cancel_leaves_no_process() {
    for (api, signal, code) in [
        (FORMATS[0], Signal::INT, 130),
        (FORMATS[1], Signal::TERM, 143),
        (FORMATS[0], Signal::HUP, 143),
    ] {
        let server = commanding(SLEEP);
        let run = Marked::new(&server, api, &["Sleep.", "--tool", "shell", "--json"]);
        run.sleeping();
        run.signal(signal);
        let outcome = run.finish().exits(code).outcome();
        assert_eq!(outcome["termination"], "cancelled");
        // The history contains a result for the call, which describes its cancellation.
        let messages = outcome["messages"].to_string();
        assert!(messages.contains("aborted"), "{messages}");
        assert_eq!(outcome["tool_calls"], 1);
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn deaf_tool_is_killed_after_grace() {
    let server = commanding(DEAF);
    let args = ["Sleep.", "--tool", "shell", "--cancel-grace", "300ms", "--json"];
    let run = Marked::new(&server, FORMATS[0], &args);
    run.sleeping();
    run.signal(Signal::INT);
    let outcome = run.finish().exits(130).outcome();
    assert_eq!(outcome["termination"], "cancelled");
}

#[test]
fn second_interrupt_skips_the_grace() {
    for (api, signal) in FORMATS.into_iter().zip([Signal::INT, Signal::TERM]) {
        let server = commanding(DEAF);
        let args = ["Sleep.", "--tool", "shell", "--cancel-grace", "1h"];
        let run = Marked::new(&server, api, &args);
        run.sleeping();
        run.signal(signal);
        run.says("■ stopping (cancelled)");
        assert_eq!(sleepers(&run.mark), 2);
        run.signal(signal);
        run.finish().exits(143).notes(&["stopped: terminated (fatal)"]);
    }
}

#[test]
fn second_interrupt_during_stream_is_safe() {
    let server = talking();
    let run = Marked::new(&server, FORMATS[0], &["Talk.", "--json"]);
    eventually("some words", || run.running().stdout().contains("word"));
    run.signal(Signal::INT);
    run.signal(Signal::INT);
    let done = run.finish();
    // The second signal may arrive after the first has ended the run.
    let expected = match done.outcome()["termination"].as_str().unwrap() {
        "cancelled" => 130,
        "terminated" => 143,
        other => panic!("{other}"),
    };
    done.exits(expected);
}

#[test]
fn tool_timeout_kills_its_processes() {
    for (api, command) in FORMATS.into_iter().zip([SLEEP, DEAF]) {
        let mark = mark();
        let seen = mark.clone();
        let server = answering(move |request| {
            if request.number == 1 {
                return Reply::turn(request, &Turn::call("shell", &json!({"command": command})));
            }
            // The run continues, and the tool's processes are dead or dying. A panic closes the
            // connection, and the run fails.
            eventually("the call's processes are dead", || sleepers(&seen) == 0);
            Reply::turn(request, &Turn::text("Never mind."))
        });
        let args = [
            "Sleep.",
            "--tool",
            "shell",
            "--tool-timeout",
            "300ms",
            "--cancel-grace",
            "300ms",
            "--json",
        ];
        let run = Marked::with(mark, &server, api, &args);
        let done = run.finish().exits(0);
        assert_eq!(done.outcome()["termination"], "stop");
        let ended = done.lines().into_iter().find(|line| line["type"] == "tool_finished").unwrap();
        assert_eq!(ended["status"], "timeout");
        let told = server.requests()[1].body["messages"].to_string();
        assert!(told.contains("time"), "{told}");
    }
}

#[test]
fn background_processes_end_with_command() {
    let server = commanding("sleep 1000 >/dev/null 2>&1 & echo started");
    let run = Marked::new(&server, FORMATS[0], &["Go.", "--tool", "shell"]);
    run.finish().exits(0).notes(&["← shell ok"]);
}

#[test]
fn signal_reaches_the_verifier() {
    for (api, signal, code) in [(FORMATS[0], Signal::INT, 130), (FORMATS[1], Signal::TERM, 143)] {
        let server = answering(|request| Reply::turn(request, &Turn::text("Done.")));
        let run = Marked::new(&server, api, &["Do it.", "--verify", SLEEP, "--json"]);
        run.sleeping();
        run.signal(signal);
        let outcome = run.finish().exits(code).outcome();
        // The run had already ended; the verifier's result is unknown.
        assert_eq!(outcome["termination"], "stop");
        assert_eq!(outcome["verified"], Value::Null);
    }
}

/// An MCP server that interrupts the run while it is closed, which is after the last turn and before
/// the verifier.
const INTERRUPTING: &str = r#"
while read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
    case $line in
    *'"initialize"'*) answer='"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}';;
    *'"tools/list"'*) answer='"result":{"tools":[{"name":"look","inputSchema":{"type":"object"}}]}';;
    *) answer='"error":{"code":-32601,"message":"no"}';;
    esac
    [ -z "$id" ] || printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$answer"
done
kill -INT "$(cat pid)"
"#;

#[test]
fn interrupted_run_starts_no_verifier() {
    // Several runs, because without an order the signal would still win every second time.
    for _ in 0..4 {
        let (asked, waits) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (into, until) = (Arc::clone(&asked), Arc::clone(&waits));
        let server = answering(move |request| {
            into.store(1, Ordering::SeqCst);
            eventually("the pid is written", || until.load(Ordering::SeqCst) == 1);
            Reply::turn(request, &Turn::text("Done."))
        });
        let cli = Cli::new();
        cli.write("server.sh", INTERRUPTING);
        let args = ["Do it.", "--mcp", "x=sh server.sh", "--verify", "touch started", "--json"];
        let run = Started::new(cli.command(agent_args(&server, FORMATS[0], &args)), "");
        eventually("the first request", || asked.load(Ordering::SeqCst) == 1);
        cli.write("pid", run.child.id().to_string());
        waits.store(1, Ordering::SeqCst);
        let outcome = run.finish().exits(130).outcome();
        assert_eq!(outcome["termination"], "stop");
        assert_eq!(outcome["verified"], Value::Null);
        assert!(!cli.path("started").exists());
    }
}

#[test]
fn background_processes_end_with_verifier() {
    let server = answering(|request| Reply::turn(request, &Turn::text("Done.")));
    let verify = "sleep 1000 >/dev/null 2>&1 & true";
    let run = Marked::new(&server, FORMATS[0], &["Do it.", "--verify", verify]);
    run.finish().exits(0).notes(&["verified yes"]);
}

#[test]
fn mark_finds_only_its_processes() {
    assert_eq!(processes(&mark()), []);
    let mark = mark();
    let mut child = std::process::Command::new("sleep")
        .arg("1000")
        .env("ENDSTOP_TEST_MARK", &mark)
        .spawn()
        .unwrap();
    eventually("the marked process", || sleepers(&mark) == 1);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(processes(&mark), []);
}
