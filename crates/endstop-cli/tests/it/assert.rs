//! `endstop assert` on runs of the binary: each expectation, the report as text, JSON and JUnit XML, and
//! records that prove too little.

use crate::cli::{Cli, OPENAI_KEY, Started, agent_args, answering, eventually, playing};
use endstop::testkit::{Reply, Turn};
use serde_json::{Value, json};

const JOURNAL: [&str; 2] = ["--journal", "j.db"];

/// Stores a run that reads two files, tries the shell once, and answers; 4 turns of 120 tokens. The
/// shell is not among its tools, so that call does not start.
fn stored(more: &[&str]) -> Cli {
    let cli = Cli::new();
    cli.write("a.txt", "one\n");
    cli.write("b.txt", "two\n");
    let turns = [
        Turn::call("read_file", &json!({"path": "a.txt"})),
        Turn::call("shell", &json!({"command": "true"})),
        Turn::call("read_file", &json!({"path": "b.txt"})),
        Turn::text("The files say \"one\" & two."),
    ];
    let server = playing(turns.map(|turn| turn.usage(100, 20)));
    let args = ["Read the files.", "--tool", "read_file", "--events", "events.jsonl"];
    cli.agent(&server, "openai-chat", &[&args[..], &JOURNAL, more].concat());
    cli
}

const PRICED: [&str; 2] = ["--price", "in=1,out=2"];

#[track_caller]
fn asserted(cli: &Cli, run: &str, expectations: &[&str], status: i32) -> String {
    let args = [&["assert", run], &JOURNAL[..], expectations].concat();
    cli.run(args).exits(status).stdout
}

#[test]
fn expectations_of_a_success_hold() {
    let cli = stored(&PRICED);
    let told = asserted(
        &cli,
        "last",
        &[
            "--success",
            "--termination",
            "submitted",
            "--termination",
            "stop",
            "--category",
            "success",
            "--max-usd",
            "0.001",
            "--max-turns",
            "4",
            "--max-tokens",
            "480",
            "--max-duration",
            "10m",
            "--tool-called",
            "read_file",
            "--tool-called",
            "read_file=2",
            "--no-tool",
            "shell",
            "--final-contains",
            "\"one\" & two",
        ],
        0,
    );
    for line in [
        "✓ termination: stop (success), expected submitted or stop\n",
        "✓ max-usd: $0.00056, expected at most $0.001\n",
        "✓ max-turns: 4, expected at most 4\n",
        "✓ tool-called read_file: 2 calls, expected 2 calls\n",
        // The call was refused, because the run has no such tool.
        "✓ no-tool shell: 0 calls, expected 0 calls\n",
        "11 expectations met\n",
    ] {
        assert!(told.contains(line), "no {line:?} in {told}");
    }
}

#[test]
fn each_expectation_can_fail() {
    let cli = stored(&PRICED);
    for (expectation, line) in [
        (&["--termination", "submitted"][..], "termination: stop (success), expected submitted:"),
        (&["--category", "capacity"], "category: stop (success), expected capacity:"),
        (&["--verified"], "verified: no verifier has decided, expected accepted"),
        (&["--max-usd", "0.0005"], "max-usd: $0.00056, expected at most $0.0005"),
        (&["--max-turns", "3"], "max-turns: 4, expected at most 3"),
        (&["--max-tokens", "479"], "max-tokens: 480, expected at most 479"),
        (&["--max-duration", "1ms"], "max-duration: "),
        (
            &["--tool-called", "shel"],
            "tool-called shel: 0 calls, expected at least 1 call: the run has called read_file",
        ),
        (&["--tool-called", "read_file=1"], "tool-called read_file: 2 calls, expected 1 call"),
        (&["--tool-called", "read_file=3.."], "2 calls, expected at least 3 calls"),
        (&["--no-tool", "read_file"], "no-tool read_file: 2 calls, expected 0 calls"),
        (
            &["--final-contains", "three"],
            "\"The files say \\\"one\\\" & two.\", expected an answer with \"three\"",
        ),
    ] {
        let told = asserted(&cli, "last", &[expectation, &["--success"]].concat(), 1);
        let failed: Vec<&str> = told.lines().filter(|line| line.starts_with('✗')).collect();
        assert_eq!(failed.len(), 1, "{told}");
        assert!(failed[0].contains(line), "no {line:?} in {told}");
        assert!(told.ends_with("1 of 2 expectations not met\n"), "{told}");
    }
}

#[test]
fn failed_run_is_named_with_its_evidence() {
    let cli = stored(&["--max-turns", "2"]);
    let told = asserted(&cli, "last", &["--success", "--final-contains", "one"], 1);
    let line = "✗ success: error_max_turns (capacity), expected success: limit `max_turns`: 2 of 2";
    assert!(told.contains(line), "{told}");
    assert!(told.contains("✗ final-contains \"one\": no answer"), "{told}");
    asserted(&cli, "last", &["--category", "capacity", "--termination", "error_max_turns"], 0);
}

#[test]
fn run_is_found_as_explain_finds_it() {
    let cli = stored(&[]);
    let listed = cli.run(["runs", "--json", "--journal", "j.db"]).exits(0).lines();
    let id = listed[0]["run_id"].as_str().unwrap();
    let checks = ["--tool-called", "read_file=2", "--max-turns", "4", "--success"];
    for run in [id, &id[..5], "last"] {
        let told = asserted(&cli, run, &checks, 0);
        assert!(told.starts_with(&format!("run {id} · stop (success) · 4 turns")), "{told}");
    }
    for file in ["j.db", "events.jsonl"] {
        let done = cli.run([&["assert", file][..], &checks].concat()).exits(0);
        assert!(done.stdout.contains("3 expectations met"), "{done:#?}");
    }
    let explained = cli.run(["explain", "j.db"]).exits(0).stdout;
    assert!(explained.contains(id), "{explained}");
}

#[test]
fn unknown_cost_does_not_pass() {
    let cli = stored(&[]);
    let told = asserted(&cli, "last", &["--max-usd", "1000"], 1);
    assert!(told.contains("the cost is not known: set a price"), "{told}");
}

#[test]
fn verifier_decides_verified_and_success() {
    for (command, status) in [("true", 0), ("false", 1)] {
        let cli = stored(&["--verify", command]);
        let told = asserted(&cli, "last", &["--verified", "--success"], status);
        let word = if status == 0 { "✓ verified: accepted" } else { "✗ verified: rejected" };
        assert!(told.contains(word), "{told}");
        assert_eq!(
            told.contains("stop (success), rejected by the verifier"),
            status == 1,
            "{told}"
        );
        // The ending itself stays a success.
        asserted(&cli, "last", &["--termination", "stop"], 0);
    }
}

#[test]
fn json_has_each_check() {
    let cli = stored(&PRICED);
    let args = ["assert", "last", "--journal", "j.db", "--max-turns", "3", "--success", "--json"];
    let lines = cli.run(args).exits(1).lines();
    assert_eq!(lines.len(), 1);
    let report = &lines[0];
    assert_eq!((&report["passed"], &report["state"]), (&json!(false), &json!("ended")));
    assert_eq!(report["ending"]["termination"], "stop");
    assert_eq!((&report["ending"]["turns"], &report["ending"]["tokens"]), (&json!(4), &json!(480)));
    assert_eq!(report["checks"][0]["passed"], true);
    let expected =
        json!({"name": "max-turns", "passed": false, "expected": "at most 3", "actual": "4"});
    assert_eq!(report["checks"][1], expected);
}

#[test]
fn junit_has_a_case_for_each_expectation() {
    let cli = stored(&PRICED);
    let checks = ["--max-turns", "3", "--success", "--final-contains", "<&\">"];
    let junit = [&checks[..], &["--junit", "report.xml"]].concat();
    asserted(&cli, "last", &junit, 1);
    let xml = cli.read("report.xml");
    for part in [
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"endstop assert\" tests=\"3\" failures=\"2\"",
        "<property name=\"termination\" value=\"stop\"/>",
        "<testcase classname=\"endstop.assert\" name=\"success\" time=\"0\"/>",
        "<failure type=\"expectation\" message=\"4, expected at most 3\">",
        "name=\"final-contains &quot;&lt;&amp;\\&quot;&gt;&quot;\"",
        "&quot;The files say \\&quot;one\\&quot; &amp; two.&quot;",
    ] {
        assert!(xml.contains(part), "no {part} in {xml}");
    }
    // A file with content is replaced only on request.
    let args = [&["assert", "last"], &JOURNAL[..], &junit].concat();
    cli.run(&args).exits(2).notes(&["--junit report.xml", "--overwrite"]);
    cli.run([&args[..], &["--overwrite"]].concat()).exits(1);
    // It is written also if all is well.
    asserted(&cli, "last", &["--success", "--junit", "good.xml"], 0);
    assert!(cli.read("good.xml").contains("tests=\"1\" failures=\"0\""));
}

#[test]
fn killed_run_meets_no_expectation_about_its_ending() {
    let cli = Cli::new();
    cli.write("a.txt", "one\n");
    let server = answering(|request| {
        let turn = match request.number {
            1 => Turn::call("read_file", &json!({"path": "a.txt"})),
            _ => Turn::call("shell", &json!({"command": "sleep 3600"})),
        };
        Reply::turn(request, &turn.usage(100, 20))
    });
    let task = ["Go.", "--tool", "shell", "--tool", "read_file", "--tool-timeout", "1h"];
    let args = agent_args(&server, "openai-chat", &[&task[..], &JOURNAL].concat());
    let mut started = Started::new(cli.command(args), "");
    let explained = ["explain", "last", "--journal", "j.db"];
    eventually("the shell has started", || {
        let done = cli.command(explained).output().unwrap();
        String::from_utf8_lossy(&done.stdout).contains("sleep 3600")
    });
    let told = asserted(&cli, "last", &["--success"], 1);
    assert!(told.contains("the run has not ended: a process still drives it"), "{told}");
    started.child.kill().unwrap();
    started.child.wait().unwrap();
    let told =
        asserted(&cli, "last", &["--success", "--max-turns", "9", "--no-tool", "write_file"], 1);
    assert!(told.contains("3 of 3 expectations not met"), "{told}");
    assert!(told.contains("its process died"), "{told}");
    // The steps before are recorded.
    asserted(&cli, "last", &["--tool-called", "read_file", "--tool-called", "shell=1.."], 0);
}

#[test]
fn invalid_assertions_are_refused() {
    let cli = stored(&[]);
    cli.write("broken", "no event\n");
    for (args, says) in [
        (&["last"][..], &["no expectation", "--success"][..]),
        (
            &["last", "--termination", "sumbitted"],
            &["unknown termination `sumbitted`", "submitted"],
        ),
        (&["last", "--category", "good"], &["'good'", "success, retryable, capacity, fatal"]),
        (&["last", "--max-usd", "-1"], &["--max-usd", "-1"]),
        (&["last", "--max-usd", "much"], &["expected US dollars, for example 0.50"]),
        (&["last", "--max-turns", "few"], &["--max-turns", "few"]),
        (&["last", "--max-duration", "5 parsecs"], &["expected a time, for example 90s or 5m"]),
        (&["last", "--tool-called", "shell=x"], &["invalid count `x`", "1..3"]),
        (&["last", "--tool-called", "shell=3..1"], &["invalid count `3..1`"]),
        (&["last", "--no-tool", ""], &["expected the name of one tool"]),
        (&["last", "--final-contains", ""], &["the text is empty"]),
        (&["zzz", "--success"], &["zzz: No such file"]),
        (&["broken", "--success"], &["broken: line 1"]),
        (&["last", "--success", "--junit", "."], &["--junit", "is a directory"]),
    ] {
        let args = [&["assert"], args, &JOURNAL].concat();
        let done = cli.run(&args).exits(2).notes(says);
        assert_eq!(done.stdout, "", "{done:#?}");
        let done = cli.run([&args[..], &["--json"]].concat()).exits(2);
        let lines: Vec<Value> = done.lines();
        assert_eq!(lines[0]["type"], "error", "{done:#?}");
    }
}

#[test]
fn answer_is_shown_without_secrets_and_controls() {
    let cli = Cli::new();
    let server = playing([Turn::text(format!("\u{1b}[2J{OPENAI_KEY} done"))]);
    // The run prints the answer as it is.
    let args = agent_args(&server, "openai-chat", &[&["Go."][..], &JOURNAL].concat());
    assert!(cli.command(args).output().unwrap().status.success());
    let args = ["--final-contains", "absent", "--junit", "r.xml"];
    let told = asserted(&cli, "last", &args, 1);
    assert!(told.contains("[redacted] done") && !told.contains('\u{1b}'), "{told}");
    let xml = cli.read("r.xml");
    assert!(xml.contains("[redacted] done") && !xml.contains('\u{1b}'), "{xml}");
    assert!(!xml.contains(OPENAI_KEY));
}
