//! `--steer`, typed lines, and `endstop limits` for a run that works.

use crate::cli::{Cli, Started, agent_args, answering, eventually, playing};
use crate::run::last_message;
use crate::terminal::Terminal;
use endstop::testkit::{Reply, Server, Turn};
use serde_json::{Value, json};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A server that plays these turns; the first waits for permission.
fn waiting(turns: Vec<Turn>) -> (Server, Arc<AtomicBool>) {
    let permitted = Arc::new(AtomicBool::new(false));
    let wait = Arc::clone(&permitted);
    let server = answering(move |request| {
        // Bounded, because the server ends only after its answers, also in a test that fails.
        let hang = Instant::now() + Duration::from_secs(60);
        while !wait.load(Ordering::Relaxed) && Instant::now() < hang {
            std::thread::sleep(Duration::from_millis(5));
        }
        let at = usize::try_from(request.number - 1).unwrap().min(turns.len() - 1);
        Reply::turn(request, &turns[at])
    });
    (server, permitted)
}

fn mkfifo(cli: &Cli, name: &str) {
    let made = std::process::Command::new("mkfifo").arg(cli.path(name)).status().unwrap();
    assert!(made.success());
}

#[test]
fn lines_of_fifo_reach_the_model() {
    let cli = Cli::new();
    mkfifo(&cli, "steer");
    let (server, permitted) = waiting(vec![Turn::text("Half done."), Turn::text("Done.")]);
    let args = ["Go.", "--steer", "steer", "--journal", "j.db", "--json"];
    let run = Started::new(cli.command(agent_args(&server, "openai-chat", &args)), "");
    eventually("the call", || run.stdout().contains("turn_started"));
    // Two writers, one after the other: the FIFO does not end with the first.
    for line in ["Leave the database alone.\n", "\nAnd \u{1b}[2Jhurry.\n"] {
        let mut fifo = std::fs::File::options().write(true).open(cli.path("steer")).unwrap();
        fifo.write_all(line.as_bytes()).unwrap();
    }
    let sent = "the message is sent with the next model call";
    eventually("both messages", || run.stderr().matches(sent).count() == 2);
    permitted.store(true, Ordering::Relaxed);
    let done = run.finish().exits(0);
    let outcome = done.outcome();
    assert_eq!((&outcome["termination"], &outcome["turns"]), (&json!("stop"), &json!(2)));
    let requests = server.requests();
    let texts = requests[1].body["messages"].to_string();
    assert!(texts.contains("Leave the database alone."), "{texts}");
    assert!(last_message(&requests[1].body).contains("And \\u001b[2Jhurry."), "{texts}");
    let told = done.lines().into_iter().filter(|line| line["why"] == "said");
    assert_eq!(told.count(), 2);
    let text = cli.run(["explain", "last", "--journal", "j.db"]).exits(0).stdout;
    assert!(text.contains("message to the model (said): Leave the database"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
}

#[test]
fn wrong_fifo_is_refused_before_the_run() {
    let cli = Cli::new();
    cli.write("file", "not a FIFO");
    let server = playing([Turn::text("Done.")]);
    for name in ["file", "none"] {
        let done = cli.agent(&server, "openai-chat", &["Go.", "--steer", name]).exits(2);
        done.notes(&[&format!("--steer {name}: "), "create a FIFO with `mkfifo"]);
    }
    assert!(server.requests().is_empty());
}

#[test]
fn typed_line_reaches_the_model() {
    let (server, permitted) = waiting(vec![Turn::text("Half."), Turn::text("Done.")]);
    let mut terminal = Terminal::run(&server, &["Go."]);
    eventually("the call", || terminal.rows().concat().contains("turn 1"));
    terminal.types("Use the mirror.\n");
    eventually("the note", || terminal.rows().concat().contains("the message is sent"));
    permitted.store(true, Ordering::Relaxed);
    let (code, seen) = terminal.finish();
    assert_eq!(code, 0, "{seen}");
    let last = last_message(&server.requests()[1].body);
    assert!(last.contains("\"Use the mirror.\""), "{last}");
}

#[test]
fn changed_limits_decide_and_replay() {
    let cli = Cli::new();
    cli.write("a.txt", "the content");
    let read = |n: u32| Turn::call("read_file", &json!({"path": "a.txt", "start_line": n}));
    let (server, permitted) = waiting((1..20).map(read).collect());
    let args = ["Go.", "--tool", "read_file", "--max-turns", "9", "--journal", "j.db", "--json"];
    let with_state = |mut command: std::process::Command| {
        command.env("XDG_STATE_HOME", cli.path("state"));
        command
    };
    let command = with_state(cli.command(agent_args(&server, "openai-chat", &args)));
    let run = Started::new(command, "");
    let live = || {
        let list = Started::new(with_state(cli.command(["runs", "--live", "--json"])), "");
        list.finish().exits(0).lines()
    };
    eventually("the live run", || live().first().is_some_and(|run| run["phase"] == "calling"));
    let id = live()[0]["run_id"].as_str().unwrap().to_owned();
    let limits = ["limits", &id, "--max-turns", "3", "--timeout", "1h"];
    Started::new(with_state(cli.command(limits)), "").finish().exits(0);
    permitted.store(true, Ordering::Relaxed);
    let done = run.finish().exits(20);
    let outcome = done.outcome();
    assert_eq!(
        (&outcome["termination"], &outcome["turns"]),
        (&json!("error_max_turns"), &json!(3))
    );
    let changed: Vec<Value> =
        done.lines().into_iter().filter(|line| line["type"] == "limits_changed").collect();
    assert_eq!(changed.len(), 1);
    assert_eq!(changed[0]["limits"], json!({"max_turns": 3, "timeout": "3600000ms"}));
    // The card and the replay use the new limits.
    let text = cli.run(["explain", "last", "--journal", "j.db"]).exits(0).stdout;
    assert!(text.contains("3 of 3 turns") && text.contains("limits changed"), "{text}");
    assert!(text.contains("3/3 turns"), "{text}");
    // A resumed run continues under the changed limits, unless a flag raises them.
    let resume = ["run", "--resume", "last", "--journal", "j.db", "--trust-journal", "--json"];
    cli.run(resume).exits(2).notes(&["would end again"]);
    let again = cli.run(resume.iter().chain(&["--max-turns", "5"])).exits(20).outcome();
    assert_eq!(again["turns"], 5);
}
