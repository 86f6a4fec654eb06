//! The `next` and `run` lines of the card: every printed command works when it is copied into a
//! shell, and no command is printed that would fail.

use crate::cli::{
    ANTHROPIC_KEY, Cli, Done, FORMATS, OPENAI_KEY, Started, agent_args, answering, eventually,
    playing,
};
use endstop::testkit::{Reply, Server, Turn};
use serde_json::json;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Returns a row of the card, with its continuation lines.
pub(crate) fn row(done: &Done, name: &str) -> String {
    row_of(&done.stderr, name)
}

pub(crate) fn row_of(text: &str, name: &str) -> String {
    let (_, card) = text.rsplit_once("── stopped: ").unwrap_or_else(|| panic!("{text}"));
    let mut lines = card.lines().skip_while(|line| !line.starts_with(&format!("  {name:<9}")));
    let first = lines.next().map(|line| line[11..].to_owned());
    let more = lines.take_while(|line| line.starts_with("           "));
    first.into_iter().chain(more.map(|line| line[11..].to_owned())).collect::<Vec<_>>().join(" ")
}

/// Returns the commands in a text.
pub(crate) fn commands(text: &str) -> Vec<String> {
    let starts = text.match_indices("endstop ").map(|(at, _)| &text[at..]);
    let ends = |command: &str| command.find([';', ')', '`']).unwrap_or(command.len());
    starts.map(|command| command[..ends(command)].to_owned()).collect()
}

/// Runs a command in a shell.
pub(crate) fn shell(cli: &Cli, command: &str) -> Done {
    let rest = command.strip_prefix("endstop ").unwrap();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &format!("{} {rest}", env!("CARGO_BIN_EXE_endstop"))])
        .current_dir(cli.dir.path())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("OPENAI_API_KEY", OPENAI_KEY)
        .env("ANTHROPIC_API_KEY", ANTHROPIC_KEY);
    Started::new(shell, "").finish()
}

/// Runs each command of the card; those that resume a run must succeed in doing so.
#[track_caller]
fn followed(cli: &Cli, done: &Done) -> Vec<Done> {
    let explain = commands(&row(done, "run"));
    assert_eq!(explain.len(), 1, "{done:#?}");
    let explained = shell(cli, &explain[0]).exits(0);
    let next = row(done, "next");
    // The card and `explain` give the same advice.
    assert_eq!(row_of(&explained.stdout, "next"), next);
    let followed = commands(&next).into_iter().map(|command| {
        let done = shell(cli, &command);
        assert!(![2, 70].contains(&done.code()), "{command}: {done:#?}");
        if command.contains("--resume") {
            assert!(done.stderr.contains("▶ resuming run"), "{command}: {done:#?}");
        }
        done
    });
    followed.collect()
}

/// A model that calls a tool without end, with different arguments each time.
fn busy() -> Server {
    answering(|request| {
        let command = format!("echo {}", request.number);
        let turn = Turn::call("shell", &json!({"command": command})).usage(1_000, 100);
        Reply::turn(request, &turn)
    })
}

const JOURNAL: &str = "my runs.db";

fn run(cli: &Cli, server: &Server, args: &[&str]) -> Done {
    cli.agent(server, "openai-chat", &[&["Go."], args, &["--journal", JOURNAL]].concat())
}

#[test]
fn raised_limit_lets_the_run_continue() {
    for limits in [
        &["--max-turns", "2"][..],
        &["--max-turns", "0"],
        &["--max-budget-usd", "0.01", "--price", "in=3,out=15"],
        &["--max-budget-usd", "0.0001", "--price", "in=3,out=15"],
        &["--max-tokens", "2500"],
        &["--max-tokens", "10"],
    ] {
        let cli = Cli::new();
        let server = busy();
        let args = [&["--tool", "shell"], limits].concat();
        let done = run(&cli, &server, &args).exits(20);
        let asked = server.requests().len();
        let followed = followed(&cli, &done);
        assert_eq!(followed.len(), 1, "{limits:?}: {done:#?}");
        assert!(server.requests().len() > asked, "{limits:?}: {followed:#?}");
        assert_eq!(followed[0].code(), 20, "{followed:#?}");
    }
}

#[cfg(unix)]
#[test]
fn timed_out_run_can_continue() {
    let cli = Cli::new();
    let sleep = Turn::call("shell", &json!({"command": "sleep 30"}));
    let server = playing([sleep, Turn::text("Done.")]);
    let done = run(&cli, &server, &["--tool", "shell", "--timeout", "1s"]).exits(20);
    let followed = followed(&cli, &done);
    assert_eq!(followed.len(), 1, "{done:#?}");
    followed[0].outcome_is("stop");
}

#[test]
fn repairs_can_be_raised() {
    let cli = Cli::new();
    cli.write("schema.json", r#"{"type": "object", "required": ["n"]}"#);
    let server = playing([Turn::text("none"), Turn::text("none"), Turn::text(r#"{"n": 1}"#)]);
    let args = ["--output-schema", "schema.json", "--max-structured-output-retries", "1"];
    let done = run(&cli, &server, &args).exits(20);
    followed(&cli, &done)[0].outcome_is("stop");
}

#[test]
fn recovered_server_answers_resumed_run() {
    let cli = Cli::new();
    let recovered = Arc::new(AtomicBool::new(false));
    let now = recovered.clone();
    let server = answering(move |request| {
        let turn = if now.load(Ordering::SeqCst) {
            Turn::text("Here I am.")
        } else {
            Turn::error(503, r#"{"error": {"message": "overloaded"}}"#)
        };
        Reply::turn(request, &turn)
    });
    let done = run(&cli, &server, &["--max-retries", "0"]).exits(10);
    recovered.store(true, Ordering::SeqCst);
    followed(&cli, &done)[0].outcome_is("stop");
}

#[cfg(target_os = "linux")]
#[test]
fn cancelled_run_can_continue() {
    use rustix::process::{Pid, Signal, kill_process};
    let cli = Cli::new();
    let server = answering(|request| {
        let slow = Turn::text("word ".repeat(10_000)).pace(Duration::from_millis(20));
        Reply::turn(request, if request.number == 1 { &slow } else { &SHORT })
    });
    static SHORT: std::sync::LazyLock<Turn> = std::sync::LazyLock::new(|| Turn::text("Done."));
    let args = agent_args(&server, "openai-chat", &["Go.", "--journal", JOURNAL]);
    let started = Started::new(cli.command(args), "");
    eventually("text", || started.stdout().contains("word"));
    kill_process(Pid::from_child(&started.child), Signal::INT).unwrap();
    let done = started.finish().exits(130);
    followed(&cli, &done)[0].outcome_is("stop");
}

#[test]
fn refused_key_names_its_variable() {
    for api in FORMATS {
        let cli = Cli::new();
        let server = playing([Turn::error(401, r#"{"error": {"message": "no"}}"#)]);
        let done = cli.agent(&server, api, &["Go.", "--journal", JOURNAL]).exits(30);
        let followed = followed(&cli, &done);
        assert!(followed[0].stdout.contains("_API_KEY"), "{followed:#?}");
    }
}

#[test]
fn recurring_ending_has_no_command() {
    let filtered = Turn::text("I would rather ").finish("content_filter");
    for (turn, args, status, words) in [
        (filtered, &[][..], 30, "the same wording will be refused again"),
        (Turn::error(400, r#"{"error": {"message": "no"}}"#), &[], 30, "fix the request"),
        (Turn::error(404, r#"{"error": {"message": "no"}}"#), &[], 30, "the model name"),
    ] {
        let cli = Cli::new();
        let done = run(&cli, &playing([turn]), args).exits(status);
        assert!(row(&done, "next").contains(words), "{words}: {done:#?}");
        assert!(followed(&cli, &done).is_empty(), "{done:#?}");
        assert!(!row(&done, "next").contains("max-retries"), "{done:#?}");
    }
}

#[test]
fn accepted_answer_is_not_paid_again() {
    let cli = Cli::new();
    let server = playing([Turn::text("It is whole.").finish("brand_new"), Turn::text("Other.")]);
    let done = run(&cli, &server, &[]).exits(10);
    let followed = followed(&cli, &done);
    followed[0].outcome_is("stop");
    assert_eq!(followed[0].stdout, "It is whole.\n");
    assert_eq!(server.requests().len(), 1);
    // Another resume has nothing to do, and the first run keeps its ending.
    let resume = ["run", "--resume", "last", "--journal", JOURNAL, "--trust-journal"];
    cli.run(resume).exits(2).notes(&["already ended as stop"]);
    let runs = cli.run(["runs", "--json", "--journal", JOURNAL]).exits(0).lines();
    let endings: Vec<_> = runs.iter().map(|run| run["termination"].as_str().unwrap()).collect();
    assert_eq!(endings, ["stop", "error_during_execution"]);
}

#[test]
fn advised_flags_are_accepted() {
    let args = "--max-output-tokens 9 --max-continuations 1 --max-turns 9 --max-tokens 99999 \
        --timeout 9s --max-structured-output-retries 1 --stall-timeout 9s --turn-timeout 9s";
    let mut args: Vec<&str> = args.split_whitespace().collect();
    args.push("--accept-unknown-finish");
    run(&Cli::new(), &playing([Turn::text("Hi.")]), &args).exits(0);
}

#[test]
fn replayed_run_is_not_resumed() {
    let cli = Cli::new();
    let server = busy();
    let limit = ["--tool", "shell", "--max-turns", "1"];
    run(&cli, &server, &[&limit[..], &["--record", "r.jsonl"]].concat()).exits(20);
    for config in [&[][..], &["--config", "other.toml"]] {
        cli.write("other.toml", "model = \"openai/gpt-4.1-mini\"\n");
        let replay = [&["run", "--replay", "r.jsonl", "--journal", JOURNAL], &limit[..], config];
        let done = cli.run(replay.concat()).exits(20);
        assert_eq!(row(&done, "next"), "raise --max-turns, or reduce the task");
        followed(&cli, &done);
        cli.run(["run", "--resume", "last", "--max-turns", "2", "--journal", JOURNAL])
            .exits(2)
            .notes(&["it was replayed from a recording", "--model PROVIDER/MODEL"]);
    }
}

#[test]
fn demo_advice_is_for_other_runs() {
    for (name, status) in [("loop", 20), ("cut", 20), ("budget", 20), ("filtered", 30)] {
        let cli = Cli::new();
        let mut command = cli.command(["demo", name]);
        command.env("ENDSTOP_JOURNAL", cli.path("j.db"));
        let done = Started::new(command, "").finish().exits(status);
        assert!(row(&done, "next").starts_with("in a real run: "));
        assert!(!row(&done, "next").contains("--resume"), "{done:#?}");
    }
}

#[test]
fn readme_card_has_rows_of_demo() {
    /// Returns the names of the rows of a card.
    fn names(card: &str) -> Vec<&str> {
        let rows = card.lines().take_while(|line| line.starts_with("  "));
        rows.map(|line| line[..11].trim()).filter(|name| !name.is_empty()).collect()
    }
    let readme = include_str!("../../../../README.md");
    let (_, shown) = readme.split_once("$ endstop demo loop\n").unwrap();
    let (_, shown) = shown.split_once("── stopped: ").unwrap();
    let (_, shown) = shown.split_once('\n').unwrap();
    let cli = Cli::new();
    let mut command = cli.command(["demo", "loop"]);
    command.env("ENDSTOP_JOURNAL", cli.path("j.db"));
    let done = Started::new(command, "").finish().exits(20);
    let (_, card) = done.stderr.rsplit_once("── stopped: ").unwrap();
    let (_, card) = card.split_once('\n').unwrap();
    assert_eq!(names(shown), names(card), "README.md");
}

#[test]
fn stopping_policy_is_named() {
    let cli = Cli::new();
    let policy = r#"max_steps={"steps": 1}"#;
    let done = run(&cli, &busy(), &["--tool", "shell", "--policy", policy]).exits(30);
    assert_eq!(row(&done, "why"), "the policy `max_steps` stopped the run");
    assert!(row(&done, "next").contains("change the policy `max_steps`"), "{done:#?}");
    assert!(!row(&done, "next").contains("above"), "{done:#?}");
    followed(&cli, &done);
    // The answer is the tool's result here, which the model did not submit.
    let policy = r#"tool_called={"name": "shell", "answer": "result"}"#;
    let done = run(&cli, &busy(), &["--tool", "shell", "--policy", policy]).exits(0);
    assert_eq!(row(&done, "why"), "the policy `tool_called` accepted the answer");
}
