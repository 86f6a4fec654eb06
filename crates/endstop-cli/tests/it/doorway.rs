//! The first screen, the two forms of the help, tips for frequent mistakes, and the meaning of names.

use crate::cli::{ANTHROPIC_KEY, Cli, Refusing, Started, answering};
use endstop::testkit::Reply;
use serde_json::Value;
use std::net::TcpListener;

/// A session of Claude Code.
const SESSION: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../endstop-trajectory/fixtures/claude_code/agentpile_images.jsonl"
);

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
    let cases: [(&[&str], &str); 7] = [
        (&["run", "--model", "openai/x", "What", "is", "a", "B-tree?"], "\"What is a B-tree?\""),
        (&["guard", "--max-turns", "5", "python3", "agent.py"], "-- python3 agent.py"),
        (&["rnu", "Go."], "did you mean `run`"),
        (&["explain", "error_no_progess"], "did you mean `error_no_progress`"),
        (&["explain", "stuk"], "did you mean `stuck`"),
        (&["explain", "max_turnz"], "did you mean `max_turns`"),
        (&["explain", "no_cal"], "did you mean `no_call`"),
    ];
    for (args, tip) in cases {
        cli.run(args).exits(2).notes(&[tip]);
    }
}

/// Each mistake ends before a call, with one line that has the problem, the place and the fix.
#[test]
fn each_mistake_gets_one_line() {
    let cli = Cli::new();
    for folder in ["broken", "slip", "blank", "empty"] {
        std::fs::create_dir(cli.path(folder)).unwrap();
    }
    cli.write("broken/endstop.toml", "[limits\n");
    cli.write("blank/endstop.toml", "[limits]\nmax_turns = \n");
    cli.write("slip/endstop.toml", "[limits]\nmax_turn = 3\n");
    cli.write("rec.jsonl", "{\"type\":\"recording\",\"version\":1}\n");
    cli.write("newer.jsonl", "{\"type\":\"recording\",\"version\":99}\n");
    cli.write("no.txt", "hello\n");
    let model = ["run", "--model", "openai/gpt-4.1-mini"];
    let with = |more: &[&'static str]| [&model[..], more].concat();
    let cases: Vec<(Vec<&str>, &[&str])> = vec![
        (with(&["What", "is", "it?"]), &["unexpected argument 'is'", "\"What is it?\""]),
        (vec!["guard", "claude"], &["write `--` before the program", "-- claude"]),
        (vec!["run", "--model", "gpt5", "Go."], &["`gpt5`", "`openai/gpt-5`"]),
        (vec!["run", "--model", "gtp/x", "Go."], &["`gtp`", "did you mean `openai`"]),
        (vec!["run", "--model", "openai", "Go."], &["no model is named", "write openai/MODEL"]),
        (vec!["run", "--model", "groq/x", "Go."], &["no key for Groq", "set GROQ_API_KEY"]),
        (with(&["--max-budget-usd", "50c", "Go."]), &["--max-budget-usd", "50c", "such as 0.50"]),
        (with(&["--max-budget-usd", "3,15", "Go."]), &["--max-budget-usd", "3,15", "such as 0.50"]),
        (with(&["--timeout", "1h30", "Go."]), &["--timeout", "1h30", "\"1h30m\""]),
        (
            with(&["--tool", "shell,read_file", "Go."]),
            &["shell,read_file", "give each tool by itself: `shell`, `read_file`"],
        ),
        (with(&["--max-turn", "3", "Go."]), &["'--max-turn'", "did you mean '--max-turns'"]),
        (vec!["assert", "last", "--ended", "x"], &["'--ended'", "`endstop assert --help` lists"]),
        (vec!["rnu"], &["'rnu'", "did you mean `run`"]),
        (vec!["runs", "--ended", "error_no_progess"], &["did you mean `error_no_progress`"]),
        (with(&["--policy", "final_patern", "Go."]), &["--policy", "did you mean `final_pattern`"]),
        (with(&["--policy", "finl", "Go."]), &["`finl`", "did you mean `final_pattern`"]),
        (with(&["--watch", "stop:stuk", "Go."]), &["--watch stop:stuk", "did you mean `stuck`"]),
        (with(&["--verify", "", "Go."]), &["--verify", "blank", "set a command"]),
        // The streams of this test are pipes.
        (vec!["run"], &["no model is configured", "endstop demo fix"]),
        (
            with(&["--ask", "--tool", "shell", "Go."]),
            &["--ask: standard input is not a terminal", "with --ask park"],
        ),
        (with(&["--answer-only", "--json", "Go."]), &["--answer-only", "--json"]),
        (vec!["run", "--replay", "newer.jsonl", "Go."], &["newer.jsonl", "`99`", "expected 1"]),
        (vec!["explain", "rec.jsonl"], &["rec.jsonl", "a recording", "--replay FILE"]),
        (vec!["explain", "rec.jsonl"], &["the flags of the recorded run"]),
        (vec!["explain", SESSION], &["the format `claude-code`", "endstop audit"]),
        (vec!["runs", "-n", "x"], &["--number", "expected a whole number"]),
        (vec!["config", "show", "nope"], &["`nope`", "the flags of `endstop run`"]),
        (vec!["audit", "last"], &["endstop explain last"]),
        (vec!["branch", "x", "--at", "1", "--message", "…"], &["--message …", "your own words"]),
        (vec!["run", "--resume", "last", "Go."], &["cannot be used with", "endstop branch RUN"]),
        (vec!["audit", "no.txt"], &["no.txt: unknown format", "audit --find"]),
        (vec!["backtest", "no.txt"], &["no.txt: unknown format", "audit --find"]),
        (vec!["audit", "rec.jsonl"], &["it is a recording of a", "--replay"]),
        (vec!["explain", "last", "--journal", "j.db"], &["j.db: no journal found"]),
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
    for (folder, says) in [
        ("broken", "endstop.toml: line 1"),
        ("blank", "line 2: not valid TOML: a value is missing"),
        ("slip", "did you mean `max_turns`"),
        ("slip", "endstop.toml: line 2"),
    ] {
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
    let says = format!("endstop: --listen {address}: ");
    let used = cli.run(serve).exits(2).notes(&[&says, "choose another port"]);
    assert!(used.stderr.lines().count() == 1, "{}", used.stderr);
    let misspelt = cli.run(["guard", "--max-turn", "3", "--", "claude"]).exits(2);
    assert!(misspelt.stderr.contains("did you mean '--max-turns'"), "{}", misspelt.stderr);
    assert!(!misspelt.stderr.contains("-- --max-turn"), "{}", misspelt.stderr);
    let mut keys = cli.command(["run", "--model", "openai/gpt-4.1-mini", "Go."]);
    keys.env_remove("OPENAI_API_KEY").env("ANTHROPIC_API_KEY", ANTHROPIC_KEY);
    let says = ["set OPENAI_API_KEY", "ANTHROPIC_API_KEY is set, for models of Anthropic"];
    Started::new(keys, "").finish().exits(2).notes(&says);
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
        ("no_call", "none of its calls had been asked for"),
        ("unknown_price", "has no known price"),
        ("rate_limit", "error_during_execution"),
        ("capacity", "error_max_turns"),
        ("20", "error_max_turns"),
        ("74", "--events could not be written"),
        ("cancelled", "endstop run --resume RUN"),
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

/// An address that is not that of an API, and one at which no server listens: found out with few requests, and the card says
/// what to check.
#[test]
fn wrong_address_is_found_soon() {
    let pages = answering(|_| Reply::html(200));
    let page = Cli::new().agent(&pages, "openai-chat", &["Go."]).exits(30);
    page.notes(&["error_provider_rejected", "a page of HTML", "often ends in /v1"]);
    let files = answering(|_| Reply::html(501));
    let file = Cli::new().agent(&files, "openai-chat", &["Go."]).exits(30);
    file.notes(&["check the model name and the address"]);
    assert_eq!((pages.requests().len(), files.requests().len()), (1, 1));
    let refusing = Refusing::new();
    for (address, says) in [
        (refusing.address.as_str(), "start the server there"),
        ("endstop.invalid", "check the name of the host"),
    ] {
        let url = format!("http://{address}/v1");
        let to = ["--model", "m", "--api", "openai-chat", "--base-url", &url, "--allow-http"];
        let done = Cli::new().run([&["run", "--json"][..], &to, &["Go."]].concat()).exits(10);
        let failed = done.lines().iter().filter(|line| line["type"] == "attempt_failed").count();
        assert!(failed == 3 && done.stdout.contains(says), "{failed} of {}", done.stdout);
    }
}

#[test]
fn run_that_cannot_be_stored_says_so() {
    let cli = Cli::new();
    let homeless = cli.run(["demo", "loop"]).exits(20);
    assert!(!homeless.stderr.contains('\x1b'), "escapes in a pipe: {}", homeless.stderr);
    homeless.notes(&["run      not stored: no home folder", "--journal FILE"]);
    // A file, because the superuser of some machines can write into any folder.
    cli.write("home", "");
    let mut closed = cli.command(["demo", "loop"]);
    closed.env("HOME", cli.path("home"));
    Started::new(closed, "").finish().exits(20).notes(&["this run is not stored"]);
}

#[test]
fn demo_and_its_money_are_no_work() {
    let cli = Cli::new();
    let mut demo = cli.command(["demo", "budget"]);
    demo.env("ENDSTOP_JOURNAL", "j.db");
    Started::new(demo, "").finish().exits(20);
    let resume = ["run", "--resume", "last", "--journal", "j.db"];
    cli.run(resume).exits(2).notes(&["a demo has no model to continue with"]);
    cli.run(["branch", "last", "--at", "1", "--journal", "j.db"])
        .exits(2)
        .notes(&["a demo has no model to continue with"]);
    cli.run(["spend", "--journal", "j.db"]).exits(0).notes(&["1 run left out, as a demo"]);
}

#[test]
fn guard_ignores_settings_of_run() {
    let cli = Cli::new();
    cli.write("endstop.toml", "model = \"openai/gpt-4.1\"\n[limits]\nmax_turns = 5\n");
    let args = ["guard", "--journal", "off", "--allow-no-calls", "--", "true"];
    cli.run(args).exits(0).notes(&["`model` of endstop.toml is not used"]);
    cli.run(["run", "Go."]).exits(2).notes(&["needs your consent"]);
}

#[test]
fn version_is_an_object_on_request() {
    let version = cli_json(&["--version", "--json"]);
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert!(version["features"]["otlp"].is_boolean());
}

fn cli_json(args: &[&str]) -> Value {
    serde_json::from_str(&Cli::new().run(args).exits(0).stdout).unwrap()
}

#[test]
fn completions_and_pages_name_the_flags() {
    let cli = Cli::new();
    assert!(cli.run(["completions", "bash"]).exits(0).stdout.contains("--max-budget-usd"));
    assert!(cli.run(["man"]).exits(0).stdout.contains(".TH endstop"));
    cli.run(["man", "pages"]).exits(0);
    assert!(cli.read("pages/endstop-run.1").contains("max\\-turns"));
}
