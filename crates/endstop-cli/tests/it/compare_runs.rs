//! `endstop compare runs`: endings, costs, and the turn in which runs diverge.

use crate::cli::{Cli, agent_args, answering, playing};
use endstop::testkit::{Reply, Server, Turn};
use serde_json::{Value, json};

const JOURNAL: [&str; 2] = ["--journal", "j.db"];

/// A run that writes three files, and answers. Returns its id.
fn stored(cli: &Cli, server: &Server) -> String {
    let args = ["Write files.", "--tool", "shell", "--price", "in=1,out=2"];
    cli.run(agent_args(server, "openai-chat", &[&args[..], &JOURNAL].concat())).exits(0);
    newest(cli)
}

fn newest(cli: &Cli) -> String {
    let runs = cli.run(["runs", "--json", "--journal", "j.db"]).exits(0).lines();
    runs[0]["run_id"].as_str().unwrap().to_owned()
}

fn shell(command: &str) -> Turn {
    Turn::text(format!("I run {command}.")).and_call("shell", &json!({"command": command}))
}

fn writing() -> Server {
    playing([shell("echo 1"), shell("echo 2"), shell("echo 3"), Turn::text("All written.")])
}

fn branch(cli: &Cli, run: &str, at: &str, server: &Server, more: &[&str]) -> String {
    let url = server.base_url();
    let args = ["branch", run, "--at", at, "--base-url", &url, "--trust-journal"];
    cli.run([&args[..], &JOURNAL, more].concat());
    newest(cli)
}

fn compared(cli: &Cli, runs: &[&str]) -> Value {
    let args = [&["compare", "runs"], runs, &["--json"], &JOURNAL].concat();
    cli.run(args).exits(0).lines().remove(0)
}

#[test]
fn branch_diverges_where_its_calls_do() {
    let cli = Cli::new();
    let first = stored(&cli, &writing());
    let other = playing([
        Turn::text("I run echo 3.").and_call("shell", &json!({"command": "echo '<b>4</b>'"})),
        Turn::text("Written otherwise."),
    ]);
    let second = branch(&cli, &first, "2", &other, &[]);
    let found = compared(&cli, &[&first, &second]);
    assert_eq!(found["type"], "run_comparison");
    let [a, b] = &found["runs"].as_array().unwrap()[..] else { panic!("{found}") };
    assert_eq!((&a["name"], &a["run_id"], &a["turns"]), (&json!("A"), &json!(first), &json!(4)));
    assert_eq!((&b["name"], &b["run_id"], &b["turns"]), (&json!("B"), &json!(second), &json!(2)));
    assert_eq!((&a["turns_before"], &b["turns_before"]), (&json!(0), &json!(2)));
    assert_eq!(b["branched_from"]["run_id"], json!(first));
    assert_eq!((&a["termination"], &b["category"]), (&json!("stop"), &json!("success")));
    let pair = &found["pairs"][0];
    assert_eq!((&pair["same_turns"], &pair["diverge"]["turn"]), (&json!(2), &json!(3)), "{pair}");
    assert_eq!(pair["diverge"]["kind"], "calls");
    assert_eq!(pair["diverge"]["a"]["calls"][0]["arguments"], json!(r#"{"command":"echo 3"}"#));
    assert_eq!(pair["diverge"]["b"]["calls"][0]["status"], "ok");

    let args = [&["compare", "runs", &first, &second, "--report", "c.html"], &JOURNAL[..]].concat();
    let text = cli.run(&args).exits(0).stdout;
    for says in [
        "stop (success)",
        "A and B are the same up to turn 2; the calls of turn 3 differ:",
        r#"shell({"command":"echo 3"}) → ok: 3 ⏎ [exit status 0]"#,
        &format!("branch of {first} after turn 2; with the turns before: 4 turns, "),
    ] {
        assert!(text.contains(says), "no {says:?} in {text}");
    }
    let page = cli.read("c.html");
    assert!(page.contains("&lt;b&gt;4") && page.contains("class=\"pair\""), "{page}");
    for outside in ["<script", "http://", "https://", "src=", "url(", "<b>4"] {
        assert!(!page.contains(outside), "{outside}");
    }
    // The page is not replaced unasked.
    cli.run(&args).exits(2);
}

#[test]
fn branches_are_compared_with_each_other() {
    let cli = Cli::new();
    let first = stored(&cli, &writing());
    let late = branch(&cli, &first, "3", &playing([Turn::text("Written late.")]), &[]);
    let early = branch(&cli, &first, "1", &playing([shell("echo 2"), Turn::text("Early.")]), &[]);
    let nested = branch(&cli, &early, "1", &playing([Turn::text("Nested.")]), &[]);
    let found = compared(&cli, &[&late, &early, &nested, &first]);
    let pair = |nth: usize| {
        let pair = &found["pairs"][nth];
        (
            pair["same_turns"].clone(),
            pair["diverge"]["turn"].clone(),
            pair["diverge"]["kind"].clone(),
        )
    };
    // The turns before a branch are those of the runs that it branched from.
    assert_eq!(pair(0), (json!(2), json!(3), json!("text")), "{found}");
    assert_eq!(pair(1), (json!(2), json!(3), json!("text")));
    assert_eq!(pair(2), (json!(3), json!(4), json!("text")));
    assert_eq!(found["runs"][2]["turns_before"], 2);
    let same = compared(&cli, &[&first, &first]);
    assert_eq!(same["pairs"][0], json!({"a": "A", "b": "B", "same_turns": 4, "diverge": null}));
    // A branch that was cut is shorter than its run.
    let cut = branch(&cli, &first, "0", &writing(), &["--max-turns", "2"]);
    let pair = &compared(&cli, &[&first, &cut])["pairs"][0];
    assert_eq!((&pair["same_turns"], &pair["diverge"]["kind"]), (&json!(2), &json!("ended")));
}

#[test]
fn unrelated_runs_and_files_compare() {
    let cli = Cli::new();
    let first = stored(&cli, &writing());
    let server = answering(|request| Reply::turn(request, &Turn::text("No.")));
    let args = ["Another task.", "--events", "e.jsonl"];
    cli.run(agent_args(&server, "openai-chat", &[&args[..], &JOURNAL].concat())).exits(0);
    let found = compared(&cli, &[&first, "e.jsonl"]);
    assert_eq!(
        (&found["runs"][1]["run_id"], &found["runs"][1]["turns"]),
        (&json!("e.jsonl"), &json!(1))
    );
    assert_eq!(found["pairs"][0]["diverge"]["turn"], 1);
    // Without the journal, the turns before a branch are not known, and are not compared.
    let url = server.base_url();
    let args = ["branch", &first, "--at", "2", "--base-url", &url, "--trust-journal"];
    cli.run([&args[..], &["--events", "b.jsonl"], &JOURNAL].concat()).exits(0);
    let found = cli.run(["compare", "runs", "b.jsonl", "e.jsonl", "--json", "--journal", "no.db"]);
    let found = found.exits(0).lines().remove(0);
    assert_eq!(found["runs"][0]["turns_before"], 2);
    let problem = found["runs"][0]["problems"][0].as_str().unwrap();
    assert!(problem.contains("the turns before it branched off are not known"), "{problem}");

    for (args, says) in [
        (&[&*first][..], "2 values required"),
        (&[&first, "gone"], "gone: No such file"),
        (&["e.jsonl"; 27], "at most 26 can be compared"),
    ] {
        let done = cli.run([&["compare", "runs"], args, &JOURNAL].concat()).exits(2);
        assert!(done.stderr.contains(says), "{says}: {}", done.stderr);
    }
}
