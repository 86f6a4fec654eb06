//! `endstop audit`: sessions of agents, from fixtures and generated here: a loop, an unsupported
//! claim, an interrupted session.

use crate::backtest::transcript;
use crate::cli::{ANTHROPIC_KEY, Cli, Started, playing};
use endstop::testkit::Turn;
use serde_json::{Value, json};
use std::path::PathBuf;

fn fixtures(folder: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../endstop-trajectory/fixtures").join(folder)
}

/// A session of Claude Code, one record for each line.
struct Transcript {
    lines: Vec<String>,
    model: &'static str,
}

impl Transcript {
    fn new(task: &str) -> Transcript {
        let mut transcript = Transcript { lines: Vec::new(), model: "claude-opus-4-5" };
        transcript.record("user", &json!({"role": "user", "content": task}));
        transcript
    }

    fn record(&mut self, kind: &str, message: &Value) {
        let nth = self.lines.len();
        let parent = nth.checked_sub(1).map(|nth| format!("u{nth}"));
        let record = json!({
            "type": kind, "uuid": format!("u{nth}"), "parentUuid": parent, "sessionId": "s",
            "isSidechain": false, "timestamp": format!("2026-03-04T05:{:02}:{:02}.000Z", nth / 60, nth % 60),
            "message": message,
        });
        self.lines.push(record.to_string());
    }

    /// Adds a response with text and a call, which used 1,000 tokens in and 100 out.
    fn turn(&mut self, text: &str, command: Option<&str>) {
        let nth = self.lines.len();
        let mut content = Vec::new();
        if !text.is_empty() {
            content.push(json!({"type": "text", "text": text}));
        }
        if let Some(command) = command {
            content.push(json!({
                "type": "tool_use", "id": format!("t{nth}"), "name": "Bash", "input": {"command": command}
            }));
        }
        let stop = if command.is_some() { "tool_use" } else { "end_turn" };
        self.record(
            "assistant",
            &json!({
                "id": format!("m{nth}"), "role": "assistant", "model": self.model, "content": content,
                "stop_reason": stop, "usage": {"input_tokens": 1000, "output_tokens": 100}
            }),
        );
    }

    /// Adds the result of the last call.
    fn result(&mut self, content: &str, failed: bool) {
        let id = format!("t{}", self.lines.len() - 1);
        let result = json!({"type": "tool_result", "tool_use_id": id, "content": content, "is_error": failed});
        self.record("user", &json!({"role": "user", "content": [result]}));
    }

    fn text(&self) -> String {
        self.lines.join("\n") + "\n"
    }
}

/// Nine times the same command with the same failure, and no answer.
fn looping() -> Transcript {
    let mut session = Transcript::new("Make the tests pass.");
    for _ in 0..9 {
        session.turn("", Some("cargo test"));
        session.result("test result: FAILED. 2 failed", true);
    }
    session
}

/// The last test failed, but the final text claims success.
fn claiming() -> Transcript {
    let mut session = Transcript::new("Fix the parser.");
    session.turn("I look.", Some("cargo test"));
    session.result("Exit code 101\ntest result: FAILED. 1 failed", true);
    session.turn("I fix it.", Some("sed -i s/a/b/ src/lib.rs"));
    session.result("", false);
    session.turn("I fixed the parser. All tests pass now.", None);
    session
}

/// A session that ends during a call.
fn cut() -> Transcript {
    let mut session = Transcript::new("Deploy it.");
    session.turn("I deploy.", Some("make deploy"));
    session
}

fn written() -> Cli {
    let cli = Cli::new();
    std::fs::create_dir_all(cli.path("sessions/app")).unwrap();
    cli.write("sessions/app/loop.jsonl", looping().text());
    cli.write("sessions/app/claim.jsonl", claiming().text());
    cli.write("sessions/app/cut.jsonl", cut().text());
    cli
}

fn dollars(turns: f64) -> f64 {
    // $5 per million tokens in, $25 out.
    turns * (1000.0 * 5.0 + 100.0 * 25.0) / 1e6
}

#[test]
fn audit_reports_loops_claims_and_costs() {
    let cli = written();
    let run = cli.run(["audit", "sessions", "--json"]);
    assert_eq!(run.code(), 0, "{}", run.stderr);
    let audit: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(audit["sessions"], 3);
    assert_eq!(audit["spent"]["turns"], 13);
    assert_eq!(audit["spent"]["input_tokens"], 13_000);
    assert!((audit["spent"]["usd"].as_f64().unwrap() - dollars(13.0)).abs() < 1e-9);
    assert_eq!(audit["ended"]["answered"]["sessions"], 1);
    assert_eq!(audit["ended"]["interrupted"]["sessions"], 1);
    assert_eq!(audit["ended"]["no_answer"]["sessions"], 1);
    assert_eq!(audit["signs"]["sessions"], 1);
    assert_eq!((&audit["loops"], &audit["looped"]), (&json!(1), &json!(1)));
    // The loop was detected in the third turn, so six turns came after it.
    assert_eq!(audit["behind_loops"]["turns"], 6);
    assert!((audit["behind_loops"]["usd"].as_f64().unwrap() - dollars(6.0)).abs() < 1e-9);
    assert_eq!(audit["stopped"], 1);
    assert_eq!(audit["stopped_answered"], 0);
    let worst = audit["worst"].as_array().unwrap();
    let files: Vec<&str> = worst.iter().map(|one| one["file"].as_str().unwrap()).collect();
    assert_eq!(
        files,
        ["sessions/app/loop.jsonl", "sessions/app/claim.jsonl", "sessions/app/cut.jsonl"]
    );
    assert_eq!(worst[0]["loops"][0]["what"], "Bash(cargo test)");
    assert_eq!(worst[0]["loops"][0]["turn"], 3);
    assert_eq!(worst[1]["sign"]["command"], "cargo test");
    assert_eq!(worst[1]["sign"]["claim"], "I fixed the parser.");
    assert_eq!(worst[2]["ended"]["words"], "cut off in the middle of Bash");
}

#[test]
fn report_fits_hundred_columns() {
    let cli = written();
    let run = cli.run(["audit", "sessions", "--top", "2"]);
    assert_eq!(run.code(), 0, "{}", run.stderr);
    let out = &run.stdout;
    let verdict =
        "2 of 3 sessions ended wrongly: 1 without an answer, 1 interrupted during calls\n\n";
    let which = "3 sessions, 2026-03-04 to 2026-03-04: claude-code 3\n";
    assert!(out.starts_with(&format!("{verdict}{which}")), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");
    for part in [
        "3 requests · 13 turns · 12 tool calls (10 failed) · 14,300 tokens",
        "$0.0975",
        "Loops: 1 in 1 session; after them 6 turns, 6,600 tokens, $0.0450",
        "signs in 1 session",
        "The worst 2 of 3 that ended wrongly, looped or claimed what did not happen:",
        " 1. $0.0675 in question · claude-opus-4-5 · 2026-03-04 05:00 · 9 turns, 9,900 tokens",
        "    sessions/app/loop.jsonl",
        "task: Make the tests pass.",
        "`--watch stop:stuck`",
        "sign: the final text says \"I fixed the parser.\"",
    ] {
        assert!(out.contains(part), "{part}\n\n{out}");
    }
    assert!(!out.contains("cut.jsonl"), "{out}");
}

#[test]
fn missing_tool_results_are_reported_unknown() {
    let cli = Cli::new();
    std::fs::create_dir_all(cli.path("cursor")).unwrap();
    cli.write("cursor/a.jsonl", transcript(3, "All tests pass now."));
    cli.write("cursor/b.jsonl", transcript(3, ""));
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let why = "Unknown in 2 sessions: failures, loops and claims, because the recording has no tool \
               results.";
    let told = cli.run(["audit", "cursor", "--report", "a.html"]).exits(0).stdout;
    for says in [
        "6 tool calls (failures unknown)",
        "Loops: unknown",
        "Claims that the record does not support: unknown",
        why,
    ] {
        assert!(flat(&told).contains(says), "no {says:?} in {told}");
        assert!(cli.read("a.html").contains(says), "no {says:?} in the page");
    }
    for says in ["0 failed", "none", "no signs"] {
        assert!(!told.contains(says), "{says:?} in {told}");
    }
    assert!(told.lines().all(|line| line.chars().count() <= 100), "{told}");
    let audit: Value = cli.run(["audit", "cursor", "--json"]).exits(0).lines().pop().unwrap();
    assert_eq!((&audit["sessions"], &audit["lacking_results"]), (&json!(2), &json!(2)));

    // Together with a complete session, the text reports for how many sessions it is unknown.
    cli.write("sound.jsonl", cut().text());
    let told = cli.run(["audit", "cursor", "sound.jsonl"]).exits(0).stdout;
    for says in [
        "7 tool calls (0 failed, unknown in 2 sessions)",
        "Loops: none, unknown in 2 sessions",
        "no signs, unknown in 2 sessions",
        why,
    ] {
        assert!(flat(&told).contains(says), "no {says:?} in {told}");
    }
    let told = cli.run(["audit", "sound.jsonl"]).exits(0).stdout;
    assert!(!told.contains("nknown in"), "{told}");
    assert!(told.contains("1 tool call (0 failed)") && told.contains("Loops: none\n"), "{told}");
}

#[test]
fn unknown_models_are_listed_without_price() {
    let cli = Cli::new();
    let run =
        cli.run(["audit".into(), fixtures("claude_code"), fixtures("codex"), "--json".into()]);
    assert_eq!(run.code(), 0, "{}", run.stderr);
    let audit: Value = serde_json::from_str(&run.stdout).unwrap();
    assert!(audit["formats"]["claude-code"].as_u64().unwrap() >= 17, "{audit}");
    assert_eq!(audit["formats"]["codex"], 6);
    assert_eq!(audit["models"]["claude-fx-1"]["usd"], 0.0);
    assert!(audit["models"]["claude-fx-1"]["unpriced_tokens"].as_u64().unwrap() > 0);
    let ended: u64 = audit["ended"]
        .as_object()
        .unwrap()
        .values()
        .map(|group| group["sessions"].as_u64().unwrap())
        .sum();
    assert_eq!(audit["sessions"], ended);
}

#[test]
fn find_lists_folders_and_sessions() {
    let cli = Cli::new();
    let home = |name: &str| cli.path("home").join(name);
    let find = |more: &[&str]| {
        let mut command = cli.command(["audit", "--find"].iter().chain(more));
        command.env("HOME", cli.path("home"));
        Started::new(command, "").finish()
    };
    let run = find(&[]);
    assert_eq!(run.code(), 0, "{}", run.stderr);
    assert!(run.stdout.contains(".claude/projects: folder not found"), "{}", run.stdout);
    assert!(run.stdout.contains("No sessions found."), "{}", run.stdout);

    std::fs::create_dir_all(home(".claude/projects/app/memory")).unwrap();
    std::fs::create_dir_all(home(".codex/sessions/2026/07/25")).unwrap();
    std::fs::write(home(".claude/projects/app/a.jsonl"), claiming().text()).unwrap();
    std::fs::write(home(".claude/projects/app/memory/notes.md"), "# Notes\n").unwrap();
    std::fs::copy(
        fixtures("codex/ccsc_codex_rollout.jsonl"),
        home(".codex/sessions/2026/07/25/rollout-2026-07-25.jsonl"),
    )
    .unwrap();
    std::fs::write(home(".codex/sessions/history.jsonl"), "{}\n").unwrap();
    let run = find(&[]);
    assert_eq!(run.code(), 0, "{}", run.stderr);
    assert!(run.stdout.contains(".claude/projects: 1 session in 1 file"), "{}", run.stdout);
    assert!(run.stdout.contains(".codex/sessions: 1 session in 1 file"), "{}", run.stdout);
    assert!(run.stdout.contains("2 sessions, 2026-03-04 to 2026-07-25"), "{}", run.stdout);

    let late = find(&["--since", "2026-07-01", "--json"]);
    let audit: Value = serde_json::from_str(&late.stdout).unwrap();
    assert_eq!((&audit["sessions"], &audit["too_old"]), (&json!(1), &json!(1)));
}

#[test]
fn unreadable_input_is_reported() {
    let cli = Cli::new();
    std::fs::create_dir_all(cli.path("empty")).unwrap();
    let run = cli.run(["audit", "empty"]);
    assert_eq!(run.code(), 0);
    assert!(run.stdout.contains("No sessions found."), "{}", run.stdout);
    assert!(run.stdout.contains("0 files scanned"), "{}", run.stdout);

    let run = cli.run(["audit", "nowhere"]);
    assert_eq!(run.code(), 2);
    assert!(run.stderr.contains("nowhere: "), "{}", run.stderr);

    cli.write("notes.jsonl", "no json at all\n");
    let run = cli.run(["audit", "notes.jsonl"]);
    assert_eq!(run.code(), 2);
    assert!(run.stderr.contains("no sessions could be read: notes.jsonl"), "{}", run.stderr);

    let run = cli.run(["audit"]);
    assert_eq!(run.code(), 2);
    assert!(run.stderr.contains("give files or folders, or pass --find"), "{}", run.stderr);
    let run = cli.run(["audit", "empty", "--since", "soon"]);
    assert_eq!(run.code(), 2);
    assert!(run.stderr.contains("invalid --since `soon`: expected a duration"), "{}", run.stderr);
    let run = cli.run(["audit", "empty", "--format", "word"]);
    assert_eq!(run.code(), 2);
    assert!(run.stderr.contains("unknown format `word`"), "{}", run.stderr);

    // Half a line at the end: the records before it count.
    let mut text = claiming().text();
    text.push_str(r#"{"type":"assistant","mess"#);
    cli.write("half.jsonl", text);
    let run = cli.run(["audit", "half.jsonl", "--json"]);
    assert_eq!(run.code(), 0);
    let audit: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        (&audit["sessions"], &audit["problems"]["half_record"]["count"]),
        (&json!(1), &json!(1))
    );
}

#[test]
fn page_is_self_contained_and_escaped() {
    let cli = written();
    let mut session = Transcript::new("<script>alert(1)</script>");
    session.turn("", Some("echo '<b>'"));
    cli.write("sessions/app/page.jsonl", session.text());
    let run = cli.run(["audit", "sessions", "--report", "audit.html"]);
    assert_eq!(run.code(), 0, "{}", run.stderr);
    assert!(run.stderr.contains("written: audit.html"), "{}", run.stderr);
    let page = cli.read("audit.html");
    assert!(page.contains("<svg") && page.contains("viewport") && page.ends_with("</html>\n"));
    assert!(page.contains("&lt;script&gt;alert(1)"), "the task is shown");
    for outside in ["<script", "http://", "https://", "src=", "<link", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("4 sessions audited"));
    assert!(page.contains("cut off in the middle of Bash"));
}

#[test]
fn no_key_is_printed() {
    let cli = Cli::new();
    let other = "sk-ant-api03-AnotherKeyThatNobodyKnows1234567890";
    let mut session = Transcript::new(&format!("Use the key {ANTHROPIC_KEY} please."));
    for _ in 0..5 {
        session.turn("", Some(&format!("curl -H 'x-api-key: {other}' https://example.com")));
        session.result(&format!("401: {ANTHROPIC_KEY} is not a key"), true);
    }
    cli.write("keys.jsonl", session.text());
    for args in [vec!["audit", "keys.jsonl"], vec!["audit", "keys.jsonl", "--json"]] {
        let run = cli.run(args.into_iter().chain(["--report", "keys.html", "--overwrite"]));
        assert_eq!(run.code(), 0, "{}", run.stderr);
        for text in [run.stdout.clone(), run.stderr.clone(), cli.read("keys.html")] {
            assert!(!text.contains(other) && !text.contains(ANTHROPIC_KEY), "{text}");
            assert!(
                !text.contains("AnotherKeyThat") && !text.contains("Anthr0picKeyThat"),
                "{text}"
            );
        }
        assert!(run.stdout.contains("[redacted]"), "{}", run.stdout);
    }
}

#[test]
fn advice_matches_the_card() {
    for (turn, args, status, says) in [
        (
            Turn::text("I would ").finish("content_filter"),
            &[][..],
            30,
            "change the task, because the same wording will be refused again",
        ),
        (
            Turn::call("read_file", &json!({"path": "absent"})),
            &["--max-consecutive-mistakes", "off"],
            20,
            "describe the obstacle to the model",
        ),
        (Turn::error(401, "{}"), &[], 30, "check the key: `endstop providers"),
    ] {
        let cli = Cli::new();
        let server = playing([turn]);
        let run = [&["Go.", "--journal", "j.db", "--tool", "read_file"], args].concat();
        cli.agent(&server, "openai-chat", &run).exits(status).notes(&[says]);
        let text = cli.run(["audit", "j.db"]).exits(0).stdout;
        let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(joined.contains(says), "no {says:?} in {text}");
        assert!(!text.contains("--max-retries"), "{text}");
        assert!(!joined.contains("the provider failed"), "{text}");
    }
}
