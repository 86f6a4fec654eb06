//! Third-party files: a journal that would run code, and text that a terminal or a browser would
//! obey.

use crate::cli::Cli;
use rusqlite::Connection;
use serde_json::Value;

const ESCAPE: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\nfake   line";

fn journal(cli: &Cli, name: &str, sql: &str) {
    let connection = Connection::open(cli.path(name)).unwrap();
    let mark = "PRAGMA application_id = 0x45737470; PRAGMA user_version = 2";
    connection.execute_batch(&format!("{sql}; {mark}")).unwrap();
}

const RUNS: &str = "CREATE TABLE runs (number INTEGER PRIMARY KEY, id TEXT, continues TEXT,
    started_ms INTEGER, version TEXT, provider TEXT, model TEXT, task TEXT, driver TEXT,
    ended_ms INTEGER, termination TEXT, category TEXT, turns INTEGER, cost_usd REAL,
    outcome TEXT, verified INTEGER, uncounted TEXT)";
const LOG: &str = "CREATE TABLE log (key INTEGER PRIMARY KEY, at_ns INTEGER, wall_ms INTEGER,
    name TEXT, event TEXT, effects TEXT)";

#[test]
fn audit_reports_endless_journal() {
    let cli = Cli::new();
    std::fs::create_dir(cli.path("runs")).unwrap();
    let good = r#"{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]}"#;
    cli.write("runs/a.json", good);
    cli.write("runs/z.json", good);
    let endless =
        "CREATE VIEW runs AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
        SELECT 'x' AS id, NULL AS continues, i AS started_ms, hex(zeroblob(400000000)) AS task,
        NULL AS ended_ms, NULL AS provider, NULL AS model, NULL AS termination, NULL AS category,
        NULL AS turns, NULL AS cost_usd, NULL AS verified, NULL AS driver FROM n";
    journal(&cli, "runs/m.db", &format!("{endless}; {LOG}"));
    let done = cli.run(["audit", "runs", "--json"]).exits(0);
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(report["sessions"], 2, "{report:#}");
    let problem = report["problems"]["unreadable"]["first"].to_string();
    assert!(problem.contains("m.db") && problem.contains("`runs` is a view"), "{problem}");
    cli.run(["backtest", "runs"]).exits(0);
    for args in [["runs", "--journal"], ["audit", "--json"], ["backtest", "--json"]] {
        let done = cli.run([args[0], args[1], "runs/m.db"]).exits(2);
        assert!(done.stderr.contains("m.db: `runs` is a view"), "{args:?}: {done:#?}");
    }
    let done = cli.run(["explain", "last", "--journal", "runs/m.db"]).exits(2);
    assert!(done.stderr.contains("`runs` is a view"), "{done:#?}");
}

#[test]
fn escapes_of_files_are_made_visible() {
    let cli = Cli::new();
    journal(&cli, "j.db", &format!("{RUNS}; {LOG}"));
    Connection::open(cli.path("j.db"))
        .unwrap()
        .execute(
            "INSERT INTO runs (number, id, started_ms, version, task, termination)
             VALUES (1, ?1, 1, '1', ?1, ?1)",
            [ESCAPE],
        )
        .unwrap();
    let listed = cli.run(["runs", "--journal", "j.db"]).exits(0).stdout;
    assert_eq!(listed.lines().count(), 2, "a run is a line: {listed}");
    assert!(listed.contains("␛]0;owned␇␛[2J fake"), "{listed}");
    assert!(!listed.contains(['\u{1b}', '\u{7}']));

    let event = serde_json::json!({ "type": ESCAPE });
    cli.write("bad.jsonl", format!("{event}\n{event}\n"));
    let done = cli.run(["explain", "bad.jsonl"]).exits(2);
    assert!(done.stderr.contains("␛]0;owned␇") && !done.stderr.contains('\u{1b}'), "{done:#?}");
}

#[test]
fn pages_have_a_content_security_policy() {
    let cli = Cli::new();
    cli.write(
        "a.json",
        r#"{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]}"#,
    );
    cli.run(["audit", "a.json", "--report", "audit.html"]).exits(0);
    let page = cli.read("audit.html");
    let policy = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';";
    let (at, style) = (page.find(policy).unwrap(), page.find("<style>").unwrap());
    assert!(at < style && at < page.find("<title>").unwrap());
    // The styles are inline, and no attribute or script runs code.
    assert!(page.contains("style-src 'unsafe-inline'"));
    for code in ["<script", " onload=", " onclick=", "javascript:"] {
        assert!(!page.contains(code), "{code}");
    }
}
