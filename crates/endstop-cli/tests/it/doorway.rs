//! The first screen, the two forms of the help, tips for frequent mistakes, and the meaning of names.

use crate::cli::{ANTHROPIC_KEY, Cli, Started};
use serde_json::Value;
use std::net::TcpListener;

#[test]
fn first_screen_is_no_error() {
    let cli = Cli::new();
    let bare = cli.run([""; 0]).exits(0).stdout;
    assert_eq!(bare, cli.run(["-h"]).exits(0).stdout);
    for line in ["endstop demo loop", "Run         run  guard  serve", "20 a limit"] {
        assert!(bare.contains(line), "no {line:?} in {bare}");
    }
}

#[test]
fn short_help_lists_the_most_used_flags() {
    let cli = Cli::new();
    for command in ["run", "branch", "guard"] {
        let short = cli.run([command, "-h"]).exits(0).stdout;
        let long = cli.run([command, "--help"]).exits(0).stdout;
        assert!(short.contains("--max-turns") && !short.contains("--stall-timeout"), "{short}");
        assert!(short.lines().count() < 40, "{short}");
        assert!(long.contains("Journal and money:") && long.contains("--price"), "{long}");
        // A description begins in the line of its flag, unless the flags of its group are long.
        assert!(long.lines().any(|line| line.contains("--price <PRICE>  ")));
    }
    let run = cli.run(["run", "--help"]).exits(0).stdout;
    let headings = ["Model and server:", "Tools and approval:", "Limits", "Judging the result:"];
    let more = ["Request parameters:", "Recording and resuming:", "Journal and money:", "Output:"];
    let places: Vec<_> = headings.iter().chain(&more).map(|title| run.find(title)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} in {run}");
    assert!(run.contains("--stall-timeout") && run.contains("--stop <TEXT>"), "{run}");
}

#[test]
fn guard_help_has_its_own_limits() {
    let help = Cli::new().run(["guard", "--help"]).exits(0).stdout;
    assert!(!help.contains("--retry-for") && !help.contains("[default: 25]"), "{help}");
}

#[test]
fn frequent_mistakes_have_tips() {
    let cli = Cli::new();
    let cases: [(&[&str], &str); 4] = [
        (&["run", "--model", "openai/x", "What", "is", "a", "B-tree?"], "\"What is a B-tree?\""),
        (&["guard", "--max-turns", "5", "python3", "agent.py"], "-- python3 agent.py"),
        (&["rnu", "Go."], "did you mean `run`"),
        (&["explain", "error_no_progess"], "did you mean `error_no_progress`"),
    ];
    for (args, tip) in cases {
        cli.run(args).exits(2).notes(&[tip]);
    }
}

/// Each mistake ends before a call, with one line that has the problem, the place and the fix.
#[test]
fn each_mistake_gets_one_line() {
    let cli = Cli::new();
    for folder in ["broken", "slip", "empty"] {
        std::fs::create_dir(cli.path(folder)).unwrap();
    }
    cli.write("broken/endstop.toml", "[limits\n");
    cli.write("slip/endstop.toml", "[limits]\nmax_turn = 3\n");
    cli.write("rec.jsonl", "{\"type\":\"recording\",\"version\":1}\n");
    cli.write("newer.jsonl", "{\"type\":\"recording\",\"version\":99}\n");
    cli.write("no.txt", "hello\n");
    let model = ["run", "--model", "openai/gpt-4.1-mini"];
    let with = |more: &[&'static str]| [&model[..], more].concat();
    let cases: Vec<(Vec<&str>, &[&str])> = vec![
        (with(&["What", "is", "it?"]), &["unexpected argument 'is'", "\"What is it?\""]),
        (vec!["guard", "claude"], &["write `--` before the program", "-- claude"]),
        (vec!["run", "--model", "gpt5", "Go."], &["`gpt5`", "`openai/gpt5`"]),
        (vec!["run", "--model", "groq/x", "Go."], &["no key for Groq", "set GROQ_API_KEY"]),
        (with(&["--max-budget-usd", "50c", "Go."]), &["--max-budget-usd", "50c", "such as 0.50"]),
        (with(&["--max-budget-usd", "3,15", "Go."]), &["--max-budget-usd", "3,15", "such as 0.50"]),
        (with(&["--timeout", "1h30", "Go."]), &["--timeout", "1h30", "\"1h30m\""]),
        (
            with(&["--tool", "shell,read_file", "Go."]),
            &["shell,read_file", "give each tool by itself"],
        ),
        (with(&["--max-turn", "3", "Go."]), &["'--max-turn'", "did you mean '--max-turns'"]),
        (vec!["rnu"], &["'rnu'", "did you mean `run`"]),
        (vec!["runs", "--ended", "error_no_progess"], &["did you mean `error_no_progress`"]),
        (with(&["--policy", "final_patern", "Go."]), &["--policy", "did you mean `final_pattern`"]),
        (with(&["--watch", "stop:stuk", "Go."]), &["--watch stop:stuk", "did you mean `stuck`"]),
        (with(&["--verify", "", "Go."]), &["--verify", "blank", "set a command"]),
        (with(&["--answer-only", "--json", "Go."]), &["--answer-only", "--json"]),
        (vec!["run", "--replay", "newer.jsonl", "Go."], &["newer.jsonl", "`99`", "expected 1"]),
        (vec!["explain", "rec.jsonl"], &["rec.jsonl", "a recording", "--replay FILE"]),
        (vec!["backtest", "empty"], &["no runs could be read", "audit --find"]),
        (vec!["runs"], &["no home folder for the journal", "--journal FILE"]),
    ];
    for (args, says) in cases {
        let done = cli.run(&args).exits(2).notes(says);
        let lines: Vec<&str> = done.stderr.lines().collect();
        assert!(lines.len() == 1 && lines[0].starts_with("endstop: "), "{args:?}: {}", done.stderr);
    }
    let mut last = cli.command(["cancel", "last"]);
    last.env("HOME", cli.dir.path());
    Started::new(last, "").finish().exits(2).notes(&["no live run `last`", "runs --live"]);
    for (folder, says) in [("broken", "endstop.toml: line 1"), ("slip", "did you mean `max_turns`")]
    {
        let mut command = cli.command(with(&["Go."]));
        command.current_dir(cli.path(folder));
        Started::new(command, "").finish().exits(2).notes(&["endstop.toml", says]);
    }
    let mut other = cli.command(with(&["Go."]));
    other.env("OPENAI_API_KEY", ANTHROPIC_KEY);
    let says = ["the key in OPENAI_API_KEY is one of Anthropic", "set the right key"];
    Started::new(other, "").finish().exits(2).notes(&says);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let serve = ["serve", "--listen", &address, "--journal", "serve.db"];
    cli.run(serve).exits(2).notes(&[&format!("--listen {address}"), "expected for example"]);
    let none = cli.run(["audit", "no.txt"]).exits(2).stdout;
    assert!(none.contains("no.txt: unknown format"), "{none}");
}

#[test]
fn names_are_explained_from_their_tables() {
    let cli = Cli::new();
    for (name, says) in [
        ("error_no_progress", "20 is the exit status"),
        ("error_no_progress", "max_unproductive_turns"),
        ("submitted", "0 is the exit status"),
        ("max_turns", "--max-turns"),
        ("stuck", "--watch MODE:stuck"),
        ("final_pattern", "--policy final_pattern"),
    ] {
        let text = cli.run(["explain", name]).exits(0).stdout;
        assert!(text.starts_with(name) && text.contains(says), "no {says:?} in {text}");
    }
    let json = cli.run(["explain", "error_max_turns", "--json"]).exits(0).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["type"], &json["limits"]),
        (&"ending".into(), &"max_turns (endstop explain NAME)".into())
    );
}

#[test]
fn completions_and_pages_name_the_flags() {
    let cli = Cli::new();
    assert!(cli.run(["completions", "bash"]).exits(0).stdout.contains("--max-budget-usd"));
    assert!(cli.run(["man"]).exits(0).stdout.contains(".TH endstop"));
    cli.run(["man", "pages"]).exits(0);
    assert!(cli.read("pages/endstop-run.1").contains("max\\-turns"));
}
