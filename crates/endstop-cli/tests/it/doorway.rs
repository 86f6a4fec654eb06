//! The first screen, the two forms of the help, tips for frequent mistakes, and the meaning of names.

use crate::cli::Cli;
use serde_json::Value;

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
