//! `endstop audit` on the sessions of several agents: the database of opencode, hostile databases, a
//! home directory, outcomes, and the table by agent.

use crate::cli::Cli;
use rusqlite::Connection;
use serde_json::{Value, json};
use std::path::PathBuf;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../endstop-trajectory/fixtures").join(name)
}

const TABLES: &str = "
    CREATE TABLE session (id TEXT PRIMARY KEY, parent_id TEXT, version TEXT, time_created INTEGER);
    CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, data TEXT);
    CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, data TEXT);";

/// Writes exported sessions into a database, each with its parent.
fn database(path: &std::path::Path, sessions: &[(&str, Option<&str>)]) {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch(TABLES).unwrap();
    for (nth, (name, parent)) in sessions.iter().enumerate() {
        let text = std::fs::read_to_string(fixture(name)).unwrap();
        let export: Value = serde_json::from_str(&text).unwrap();
        let id = export["info"]["id"].as_str().unwrap();
        connection
            .execute("INSERT INTO session VALUES (?1, ?2, '1.18.33', ?3)", (id, parent, nth as i64))
            .unwrap();
        for (at, message) in export["messages"].as_array().unwrap().iter().enumerate() {
            let own = message["info"]["id"].as_str().unwrap();
            let row = (own, id, at as i64, message["info"].to_string());
            connection.execute("INSERT INTO message VALUES (?1, ?2, ?3, ?4)", row).unwrap();
            for part in message["parts"].as_array().unwrap() {
                let row = (part["id"].as_str().unwrap(), own, id, part.to_string());
                connection.execute("INSERT INTO part VALUES (?1, ?2, ?3, ?4)", row).unwrap();
            }
        }
    }
}

fn audited(cli: &Cli, args: &[&str]) -> Value {
    let done = cli.run(["audit"].iter().chain(args).chain(&["--json"])).exits(0);
    serde_json::from_str(&done.stdout).unwrap()
}

#[test]
fn opencode_database_is_audited() {
    let cli = Cli::new();
    std::fs::create_dir_all(cli.path("data")).unwrap();
    let parent = "ses_dfd769503ffeh1f7ERJ3iIkBd6";
    let sessions = [
        ("opencode/invalid_arguments.json", None),
        ("opencode/subagent.json", Some(parent)),
        ("opencode/killed.json", None),
    ];
    database(&cli.path("data/opencode.db"), &sessions);
    for path in ["data/opencode.db", "data"] {
        let audit = audited(&cli, &[path]);
        // The subagent is part of the session that started it.
        assert_eq!((&audit["sessions"], &audit["formats"]["opencode"]), (&json!(2), &json!(2)));
        assert_eq!(audit["spent"]["turns"], 4 + 2 + 1, "{audit:#}");
        assert_eq!(audit["calls"], 3 + 1 + 1);
        assert_eq!(audit["spent"]["input_tokens"], 5200 + 2200 + 1000);
        assert_eq!(audit["ended"]["answered"]["sessions"], 1);
        assert_eq!(audit["agents"]["opencode, claude-sonnet-4-5"]["failed"], 1);
        assert_eq!((&audit["problems"], &audit["skipped"]), (&json!({}), &json!(0)));
    }
    let test = cli.run(["backtest", "data/opencode.db", "--json"]).exits(0);
    assert!(test.stdout.contains("\"runs\""), "{test:#?}");
    assert!(!cli.path("data/opencode.db-journal").exists(), "nothing is written next to it");
}

#[test]
fn hostile_opencode_databases_are_problems() {
    let cli = Cli::new();
    std::fs::create_dir_all(cli.path("runs")).unwrap();
    let make = |name: &str, sql: &str| {
        Connection::open(cli.path("runs").join(name)).unwrap().execute_batch(sql).unwrap();
    };
    let endless =
        "CREATE VIEW session AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
        SELECT 'x' AS id, NULL AS parent_id, '1' AS version, i AS time_created FROM n;
        CREATE TABLE message (id TEXT, session_id TEXT, time_created INTEGER, data TEXT);
        CREATE TABLE part (id TEXT, message_id TEXT, session_id TEXT, data TEXT);";
    make("endless.db", endless);
    let computed = TABLES.replace("version TEXT", "version TEXT AS (hex(zeroblob(400000000)))");
    make("computed.db", &computed);
    make(
        "circle.db",
        &format!("{TABLES} INSERT INTO session VALUES ('a', 'b', '1', 0), ('b', 'a', '1', 0);"),
    );
    make(
        "broken.db",
        &format!(
            "{TABLES} INSERT INTO session VALUES ('a', NULL, '1', 0);
        INSERT INTO message VALUES ('m', 'a', 0, '{{\"role\":');"
        ),
    );
    make(
        "null.db",
        &format!(
            "{TABLES} INSERT INTO session VALUES ('a', NULL, NULL, 0);
        INSERT INTO message VALUES ('m', 'a', 0, NULL);"
        ),
    );
    make("empty.db", TABLES);
    // Another program's database is left alone.
    make("other.db", "CREATE TABLE notes (text TEXT);");
    std::fs::copy(fixture("opencode/filtered.json"), cli.path("runs/good.json")).unwrap();
    let audit = audited(&cli, &["runs"]);
    assert_eq!((&audit["sessions"], &audit["skipped"]), (&json!(1), &json!(1)), "{audit:#}");
    let skipped = &audit["skipped_for"]["not a run, by its file extension"];
    assert_eq!(skipped["count"], 1, "{audit:#}");
    let problems = audit["problems"]["unreadable"].to_string();
    for (file, why) in [
        ("endless.db", "it has no table `session`"),
        ("computed.db", "`session` has generated columns"),
        ("circle.db", "2 sessions are subagents of each other"),
        ("broken.db", "is not JSON"),
        ("null.db", "a message of `m` has no data"),
    ] {
        let said = problems.contains(file) && problems.contains(why);
        assert!(said, "{file}: {problems}");
    }
}

#[test]
fn home_directory_is_searched() {
    let cli = Cli::new();
    for (from, to) in [
        ("claude_code/agent_clis_subagent.jsonl", ".claude/projects/p/agent-1.jsonl"),
        ("codex/agent_clis_interrupted.jsonl", ".codex/sessions/rollout-1.jsonl"),
        ("gemini_cli/answered.jsonl", ".gemini/tmp/x/chats/session-1.jsonl"),
        ("qwen_code/cancelled.jsonl", ".qwen/projects/p/chats/1.jsonl"),
        ("pi/answered.jsonl", ".pi/agent/sessions/p/1.jsonl"),
        ("neutral/mixed.jsonl", "visible.jsonl"),
    ] {
        let to = cli.path("home").join(to);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(fixture(from), to).unwrap();
    }
    std::fs::create_dir_all(cli.path("home/.cache")).unwrap();
    let data = cli.path("home/.local/share/opencode");
    std::fs::create_dir_all(&data).unwrap();
    database(&data.join("opencode.db"), &[("opencode/filtered.json", None)]);
    let audit = audited(&cli, &["home"]);
    for format in ["claude-code", "codex", "gemini-cli", "qwen-code", "pi", "opencode"] {
        assert_eq!(audit["formats"][format], 1, "{format}: {audit:#}");
    }
    assert_eq!(audit["looked_at"].as_array().unwrap().len(), 6);
    // The hidden folders were read; only what no reader wants was skipped.
    assert_eq!(audit["skipped"], 1, "{audit:#}");
    let hidden = &audit["skipped_for"]["hidden"];
    let unread = json!({"count": 1, "first": ["home/.cache"]});
    assert_eq!(hidden, &unread, "{audit:#}");
    assert_eq!(audit["ended"]["stopped"]["sessions"], 2);
    // Recorded outcomes decide, and the text shows them.
    assert_eq!(audit["judged"], 9, "{audit:#}");
    let text = cli.run(["audit", "home"]).exits(0).stdout;
    assert!(text.contains("By agent and model") && text.contains("Outcomes: "), "{text}");
    assert!(text.contains("pi, mock-model"), "{text}");
    assert!(text.contains("Note: skipped: hidden (1)"), "{text}");
    let noted = audit["notes"]["records that are not messages"]["count"].as_u64();
    assert!(noted.is_some_and(|count| count > 0) && text.contains("Note: noted in sessions: "));
}
