//! `endstop guard` with a journal and events. The guarded program is `endstop run`, whose provider is
//! a server on loopback.

use crate::cli::{Cli, Done, Started, answering, eventually};
use endstop::core::{Event, EventKind, TurnDelta};
use endstop::journal::{RecordedRun, SqliteJournal};
use endstop::testkit::{Reply, Server, Turn};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A key that only the guarded program has.
const OWN_KEY: &str = "own-4f1c9a77b2e84d0d9c3e5a61-key";

/// Runs a program that calls the model through guard, with a key of its own.
const PROGRAM: &str = r#"OPENAI_API_KEY="$OWN" exec "$ENDSTOP" run "Count the files." --model gpt-4o \
    --api openai-chat --base-url "$OPENAI_BASE_URL" --tool shell --journal off "$@" >client.txt 2>&1"#;

fn command(cli: &Cli, server: &Server, options: &[&str], client: &[&str]) -> Command {
    let before = ["guard", "--name", "counted", "--journal", "journal.db", "--events", "events"];
    let program = ["--", "sh", "-c", PROGRAM, "sh"];
    let mut command = cli.command([&before, options, &program, client].concat());
    command
        .env("ENDSTOP", env!("CARGO_BIN_EXE_endstop"))
        .env("OWN", OWN_KEY)
        .env("OPENAI_BASE_URL", server.base_url());
    command
}

fn guarded(cli: &Cli, server: &Server, options: &[&str]) -> Done {
    Started::new(command(cli, server, options, &[]), "").finish()
}

/// A run of Endstop has an ending for a refusal, and would take a text for the answer of the model.
#[test]
fn run_under_guard_is_no_success_at_a_limit() {
    let calls = AtomicU64::new(0);
    let server = answering(move |request| {
        let nth = calls.fetch_add(1, Ordering::Relaxed);
        let command = json!({"command": format!("echo {nth}")});
        Reply::turn(request, &Turn::call("shell", &command).usage(1_000, 100))
    });
    let cli = Cli::new();
    guarded(&cli, &server, &["--max-turns", "3"]).exits(20);
    let shown = std::fs::read_to_string(cli.path("client.txt")).unwrap();
    assert!(shown.contains("stopped: error_provider_rejected"), "{shown}");
    assert!(shown.contains("Run stopped by endstop: error_max_turns"), "{shown}");
}

#[test]
fn run_without_a_call_under_a_limit_is_stored() {
    let cli = Cli::new();
    let args =
        ["guard", "--name", "counted", "--journal", "journal.db", "--max-turns", "2", "--", "true"];
    cli.run(args).exits(20).notes(&[
        "── stopped: error_no_progress (capacity)",
        "why      guard saw no call of the program",
        "decided  caller `no_call`: no call came through guard, so no limit held",
        "agent    exit status 0",
        "next     let the program use the address in OPENAI_BASE_URL",
        "--allow-no-calls",
    ]);
    let stored = replays(&load(&cli, "counted"));
    assert_eq!((&stored["category"], &stored["turns"]), (&json!("capacity"), &json!(0)));
    let explained = cli.run(["explain", "counted", "--journal", "journal.db"]).exits(0).stdout;
    for part in ["no call came through guard, so no limit held", "--allow-no-calls"] {
        assert!(explained.contains(part), "no {part:?} in {explained}");
    }
    let page = cli.run(["explain", "counted", "--journal", "journal.db", "--json"]).exits(0);
    assert_eq!(page.lines()[0]["outcome"]["category"], "capacity", "as the action reads it");
}

/// A server whose model calls the shell `calls` times, and then answers.
fn counting(calls: u64) -> Server {
    answering(move |request| {
        let turn = match request.number {
            number if number <= calls => {
                Turn::call("shell", &json!({"command": format!("echo file {number}")}))
            }
            _ => Turn::text("There are 17 files."),
        };
        Reply::turn(request, &turn.usage(100, 20))
    })
}

fn events(cli: &Cli) -> Vec<Value> {
    cli.read("events").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn load(cli: &Cli, id: &str) -> RecordedRun {
    SqliteJournal::read(cli.path("journal.db")).unwrap().load(id).unwrap()
}

/// Asserts that the events of a stored run lead to its stored outcome.
#[track_caller]
fn replays(run: &RecordedRun) -> Value {
    let stored = run.outcome.clone().unwrap();
    let replay = run.replay(None).unwrap();
    let again = serde_json::to_value(replay.outcome().unwrap()).unwrap();
    assert_eq!(again, stored);
    assert_eq!(run.damage, None);
    stored
}

#[test]
fn stored_run_replays_its_outcome() {
    let (cli, server) = (Cli::new(), counting(2));
    guarded(&cli, &server, &[]).exits(0).notes(&[
        "── stopped: stop (success)",
        "run      counted (endstop explain counted --journal journal.db)",
    ]);
    let stored = replays(&load(&cli, "counted"));
    assert_eq!(stored["termination"], "stop");
    assert_eq!(stored["turns"], 3);
    assert_eq!(stored["last_text"], "There are 17 files.");
    assert_eq!(stored["run_id"], "counted");
    let told = events(&cli).pop().unwrap();
    assert_eq!((&told["turns"], &told["usage"]), (&stored["turns"], &stored["usage"]));
}

#[test]
fn guarded_run_can_be_asserted() {
    let (cli, server) = (Cli::new(), counting(2));
    guarded(&cli, &server, &["--price", "in=1,out=2"]).exits(0);
    let checks = [
        "--success",
        "--max-turns",
        "3",
        "--max-tokens",
        "360",
        "--max-usd",
        "0.001",
        "--tool-called",
        "shell=2",
        "--no-tool",
        "write_file",
        "--final-contains",
        "17 files",
    ];
    let from_journal = [&["assert", "counted", "--journal", "journal.db"][..], &checks].concat();
    for args in [from_journal, [&["assert", "events"][..], &checks].concat()] {
        let told = cli.run(args).exits(0).stdout;
        assert!(told.starts_with("run counted · stop (success) · 3 turns"), "{told}");
        assert!(told.ends_with("7 expectations met\n"), "{told}");
    }
    let args = ["assert", "counted", "--journal", "journal.db", "--tool-called", "shell=3"];
    let told = cli.run(args).exits(1).stdout;
    assert!(told.contains("✗ tool-called shell: 2 calls, expected 3 calls"), "{told}");
}

#[test]
fn limit_is_stored_and_explained() {
    let (cli, server) = (Cli::new(), counting(100));
    guarded(&cli, &server, &["--max-turns", "2"]).exits(20);
    let stored = replays(&load(&cli, "counted"));
    assert_eq!(stored["termination"], "error_max_turns");
    assert_eq!(stored["decided_by"]["evidence"], "2 of 2 turns");
    let explained = cli.run(["explain", "counted", "--journal", "journal.db"]).exits(0).stdout;
    for part in ["gpt-4o", "echo file 2", "error_max_turns", "max_turns 1 of 2 turns"] {
        assert!(explained.contains(part), "no {part:?} in {explained}");
    }
    assert!(!explained.contains("--resume"), "{explained}");
    let listed = cli.run(["runs", "--journal", "journal.db"]).exits(0).stdout;
    assert!(listed.contains("counted") && listed.contains("error_max_turns"), "{listed}");
    let from_file = cli.run(["explain", "events"]).exits(0).stdout;
    assert!(from_file.contains("echo file 2"), "{from_file}");
}

#[test]
fn audit_reads_guarded_runs() {
    let (cli, server) = (Cli::new(), counting(4));
    guarded(&cli, &server, &[]).exits(0);
    let audit = cli.run(["audit", "journal.db", "--json"]).exits(0).lines().remove(0);
    assert_eq!((&audit["sessions"], &audit["spent"]["turns"]), (&json!(1), &json!(5)), "{audit}");
}

#[test]
fn second_run_of_name_gets_own_id() {
    let cli = Cli::new();
    guarded(&cli, &counting(0), &[]).exits(0);
    let second = guarded(&cli, &counting(1), &["--overwrite"]).exits(0);
    assert!(second.stderr.contains("run      counted-"), "{second:#?}");
    assert_eq!(SqliteJournal::read(cli.path("journal.db")).unwrap().runs(9).unwrap().len(), 2);
}

#[test]
fn events_name_their_conversation() {
    let (cli, server) = (Cli::new(), counting(100));
    // As other programs, which get a text.
    let other = ["--user-agent", "other/1"];
    let command = command(&cli, &server, &["--max-turns", "1", "--json"], &other);
    Started::new(command, "").finish().exits(20);
    let events = events(&cli);
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    for kind in ["thread_started", "turn_started", "turn_finished", "tool_started", "tool_finished"]
    {
        assert!(kinds.contains(&kind), "no {kind} in {kinds:?}");
    }
    assert!(kinds.contains(&"limit_told"), "{kinds:?}");
    assert_eq!(kinds.last(), Some(&"outcome"));
    let named = events.iter().filter(|event| event["type"] != "outcome");
    assert!(named.clone().all(|event| event["thread"] == "main"), "{events:?}");
    assert_eq!(events.last().unwrap()["agent"]["final_texts"], 1);
}

#[test]
fn echoed_request_key_is_not_stored() {
    let cli = Cli::new();
    let server = answering(|request| {
        let turn = match request.number {
            // In two pieces, as a stream has it.
            1 => Turn::pieces(&["Your key is own-4f1c9a77b2e8", "4d0d9c3e5a61-key, isn't it?"])
                .and_call("shell", &json!({"command": format!("echo {OWN_KEY}")})),
            _ => Turn::text(format!("I saw {OWN_KEY}.")),
        };
        Reply::turn(request, &turn.usage(100, 20))
    });
    let done = guarded(&cli, &server, &["--json"]).exits(0);
    assert!(server.requests()[0].headers.iter().any(|(_, value)| value.contains(OWN_KEY)));
    let mut places = vec![("stdout", done.stdout.into_bytes()), ("card", done.stderr.into_bytes())];
    for name in ["journal.db", "journal.db-wal", "events"] {
        places.push((name, std::fs::read(cli.path(name)).unwrap_or_default()));
    }
    for (name, bytes) in places {
        let found = bytes.windows(OWN_KEY.len()).any(|part| part == OWN_KEY.as_bytes());
        assert!(!found, "the key is in {name}");
    }
    let stored = load(&cli, "counted");
    assert!(stored.redacted > 0);
    assert_eq!(stored.outcome.unwrap()["last_text"], "I saw [redacted].");
}

#[test]
fn killed_guard_leaves_readable_journal() {
    let cli = Cli::new();
    let server = answering(|request| {
        let line = if request.number == 1 { "echo one" } else { "sleep 3600" };
        Reply::turn(request, &Turn::call("shell", &json!({"command": line})).usage(100, 20))
    });
    let mut started = Started::new(command(&cli, &server, &[], &["--tool-timeout", "1h"]), "");
    let journal = cli.path("journal.db");
    eventually("two responses are stored", || {
        let run = SqliteJournal::read(&journal).and_then(|journal| journal.load("counted"));
        run.is_ok_and(|run| {
            run.events.iter().filter(|event| event.kind.name() == "turn_ended").count() == 2
        })
    });
    started.child.kill().unwrap();
    started.child.wait().unwrap();
    let run = load(&cli, "counted");
    assert!(run.outcome.is_none() && run.damage.is_none());
    let listed = cli.run(["runs", "--journal", "journal.db"]).exits(0).stdout;
    assert!(listed.contains("(its process died)"), "{listed}");
    let explained = cli.run(["explain", "counted", "--journal", "journal.db"]).exits(0);
    assert!(explained.stdout.contains("sleep 3600"), "{explained:#?}");
    cli.run(["run", "--resume", "counted", "--journal", "journal.db"]).exits(2);
}

#[test]
fn killed_guard_leaves_the_open_response() {
    let cli = Cli::new();
    let words: Vec<String> = (0..400).map(|n| format!("word{n} ")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let turn = Turn::pieces(&words).usage(100, 400);
    // A few words a second, and no end for a long time.
    let server =
        answering(move |request| Reply::turn(request, &turn).drip(Duration::from_millis(1)));
    let limit = ["--max-budget-usd", "5", "--price", "in=1,out=2"];
    let mut started = Started::new(command(&cli, &server, &limit, &[]), "");
    let journal = cli.path("journal.db");
    let streamed = |run: &RecordedRun| -> String {
        let text = |event: &Event| match &event.kind {
            EventKind::Delta { delta: TurnDelta::Text(text), .. } => Some(text.clone()),
            _ => None,
        };
        run.events.iter().filter_map(text).collect()
    };
    eventually("a part of the open response is stored", || {
        let run = SqliteJournal::read(&journal).and_then(|journal| journal.load("counted"));
        run.is_ok_and(|run| streamed(&run).contains("word3 "))
    });
    started.child.kill().unwrap();
    started.child.wait().unwrap();
    let run = load(&cli, "counted");
    assert!(run.outcome.is_none() && run.damage.is_none());
    assert!(streamed(&run).starts_with("word0 word1 "), "{:?}", streamed(&run));
    let explained = cli.run(["explain", "counted", "--journal", "journal.db"]).exits(0).stdout;
    for part in ["open: the call has no recorded end", "reserved in addition to", "word0 word1"] {
        assert!(explained.contains(part), "no {part:?} in {explained}");
    }
}

#[test]
fn journal_off_stores_nothing() {
    let (cli, server) = (Cli::new(), counting(0));
    let off = cli
        .command(["guard", "--journal", "off", "--", "sh", "-c", PROGRAM, "sh"])
        .env("ENDSTOP", env!("CARGO_BIN_EXE_endstop"))
        .env("OWN", OWN_KEY)
        .env("OPENAI_BASE_URL", server.base_url())
        .output()
        .unwrap();
    assert!(off.status.success());
    assert!(!cli.path("journal.db").exists());
    assert!(!String::from_utf8_lossy(&off.stderr).contains("endstop explain"));
}

/// A guarded program that waits, while the test makes its calls.
struct Waiting {
    cli: Cli,
    started: Option<Started>,
    _server: Server,
}

impl Waiting {
    fn new() -> Waiting {
        let server = answering(|request| {
            Reply::turn(request, &Turn::text(format!("Answer {}.", request.number)).usage(100, 20))
        });
        let cli = Cli::new();
        let wait = "echo \"$OPENAI_BASE_URL\" >new && mv new address; \
            while [ ! -e done ]; do sleep 0.05; done";
        let mut command = cli.command([
            "guard",
            "--name",
            "waited",
            "--journal",
            "journal.db",
            "--",
            "sh",
            "-c",
            wait,
        ]);
        command.env("OPENAI_BASE_URL", server.base_url());
        let started = Some(Started::new(command, ""));
        eventually("the program has started", || cli.path("address").exists());
        Waiting { cli, started, _server: server }
    }

    /// Makes a model call with this first message, and returns the answer.
    fn call(&self, first: &str, tools: &Value) -> Value {
        let address = self.cli.read("address");
        let (host, path) = address.trim().strip_prefix("http://").unwrap().split_once('/').unwrap();
        let messages = json!([{"role": "user", "content": first}]);
        let mut body = json!({"model": "gpt-4o", "messages": messages});
        if !tools.is_null() {
            body["tools"] = tools.clone();
        }
        let body = body.to_string();
        let mut stream = TcpStream::connect(host).unwrap();
        write!(
            stream,
            "POST /{path}/chat/completions HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
             Authorization: Bearer {OWN_KEY}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        // The body may be in chunks, each with its length before it.
        let json = &response[response.find('{').unwrap()..=response.rfind('}').unwrap()];
        serde_json::from_str(json).unwrap()
    }

    /// Lets the program end, and returns the stored outcome.
    fn finish(mut self) -> Value {
        self.cli.write("done", "");
        self.started.take().unwrap().finish().exits(0);
        replays(&load(&self.cli, "waited"))
    }
}

#[test]
fn ending_of_other_conversation_is_stored() {
    let tools = json!([{"type": "function", "function": {"name": "look", "parameters": {}}}]);
    let program = Waiting::new();
    program.call("Count the files.", &tools);
    program.call("Something else.", &tools);
    let stored = program.finish();
    assert_eq!((&stored["termination"], &stored["turns"]), (&json!("stop"), &json!(2)));
    assert_eq!(stored["last_text"], "Answer 2.");
    assert_eq!(stored["usage"]["output_tokens"], 40);
}

#[test]
fn program_without_tools_is_stored() {
    let program = Waiting::new();
    program.call("What is the capital of France?", &Value::Null);
    let stored = program.finish();
    assert_eq!((&stored["termination"], &stored["turns"]), (&json!("stop"), &json!(1)));
    assert_eq!(stored["last_text"], "Answer 1.");
    assert_eq!(stored["usage"]["output_tokens"], 20);
}

#[test]
fn program_without_calls_is_stored() {
    let stored = Waiting::new().finish();
    assert_eq!(stored["termination"], "error_during_execution");
    assert_eq!(stored["decided_by"]["name"], "no_call");
    assert_eq!(stored["decided_by"]["evidence"], "no call came through guard");
}
