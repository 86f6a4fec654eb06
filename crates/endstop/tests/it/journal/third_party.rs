//! SQLite files from third parties that claim to be journals are refused quickly and do no harm.

use super::Place;
use endstop::journal::{JournalError, JournalErrorKind, SqliteJournal};
use rusqlite::Connection;
use std::path::Path;
use std::time::Instant;

const TABLES: &str = "
    CREATE TABLE runs (number INTEGER PRIMARY KEY, id TEXT, continues TEXT, started_ms INTEGER,
        version TEXT, provider TEXT, model TEXT, task TEXT, driver TEXT, ended_ms INTEGER,
        termination TEXT, category TEXT, turns INTEGER, cost_usd REAL, outcome TEXT,
        verified INTEGER, conversation INTEGER, ended_conversation INTEGER, project TEXT, uncounted TEXT);
    CREATE TABLE texts (number INTEGER PRIMARY KEY, digest BLOB, text TEXT);
    CREATE TABLE parts (run INTEGER, place TEXT, text INTEGER);
    CREATE TABLE log (key INTEGER PRIMARY KEY, at_ns INTEGER, wall_ms INTEGER, name TEXT,
        event TEXT, effects TEXT);";

/// Makes a file with the `application_id` of a journal and this schema.
fn make(path: &Path, sql: &str) {
    let _ = std::fs::remove_file(path);
    let connection = Connection::open(path).unwrap();
    connection.execute_batch(sql).unwrap();
    connection
        .execute_batch("PRAGMA application_id = 0x45737470; PRAGMA user_version = 2")
        .unwrap();
}

/// Opens the file and lists its runs, and checks that this does not hang.
fn read(path: &Path) -> Result<usize, JournalError> {
    let began = Instant::now();
    let listed = SqliteJournal::read(path).and_then(|journal| {
        let runs = journal.runs(u32::MAX)?;
        for run in &runs {
            let _ = journal.load(&run.id);
        }
        Ok(runs.len())
    });
    assert!(began.elapsed() < crate::support::HANG, "{:?}", began.elapsed());
    listed
}

const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
    SELECT i AS number, 'x' AS id, NULL AS continues, i AS started_ms, '1' AS version,
    NULL AS provider, NULL AS model, hex(zeroblob(400000)) AS task, NULL AS driver,
    NULL AS ended_ms, NULL AS termination, NULL AS category, NULL AS turns, NULL AS cost_usd,
    NULL AS outcome, NULL AS verified FROM n";

#[test]
fn schema_that_runs_code_is_refused() {
    let place = Place::new();
    let file = &place.file();
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let log = "CREATE TABLE log (key INTEGER PRIMARY KEY, at_ns, wall_ms, name, event, effects);";
    let task = "task TEXT GENERATED ALWAYS AS (hex(zeroblob(400000000)))";
    for sql in [
        format!("CREATE VIEW runs AS {ENDLESS}; {log}"),
        format!(
            "CREATE VIEW log AS {ENDLESS}; {}",
            &TABLES[..TABLES.find("CREATE TABLE log").unwrap()]
        ),
        TABLES.replace("task TEXT", task),
        TABLES.replace("task TEXT", &format!("{task} STORED")),
        format!("{TABLES} CREATE INDEX i ON runs (hex(zeroblob(number)))"),
        format!("{TABLES} CREATE VIRTUAL TABLE v USING fts5(a)"),
        format!("CREATE VIRTUAL TABLE runs USING fts5(id, task, driver); {log}"),
    ] {
        make(file, &sql);
        let error = read(file).unwrap_err();
        assert_eq!(error.kind, JournalErrorKind::Damaged, "{sql}: {error}");
        assert!(error.problem.contains("did not write"), "{sql}: {error}");
        assert!(error.to_string().starts_with(&file.display().to_string()));
        let error = SqliteJournal::open(file).unwrap_err();
        assert_eq!(error.kind, JournalErrorKind::Damaged, "{sql}: {error}");
    }
}

#[test]
fn views_and_triggers_do_not_run() {
    let place = Place::new();
    let file = &place.file();
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let row = "INSERT INTO runs (number, id, started_ms, version, task)
               VALUES (1, 'x', 1, '1', 'a task')";
    // A reader ignores a user's own view and does not run triggers.
    let sql = format!(
        "{TABLES} {row}; CREATE VIEW mine AS {ENDLESS};
         CREATE TRIGGER t AFTER INSERT ON runs BEGIN INSERT INTO log SELECT 1 FROM runs, runs, runs; END"
    );
    make(file, &sql);
    assert_eq!(read(file).unwrap(), 1);
    // A writer would run the trigger.
    let error = SqliteJournal::open(file).unwrap_err();
    assert!(error.problem.contains("trigger `t`"), "{error}");
}

#[test]
fn driver_name_reaches_no_other_file() {
    let place = Place::new();
    let file = &place.file();
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let victim = file.with_file_name("victim.txt");
    for name in [
        victim.display().to_string(),
        "../victim.txt".to_owned(),
        "1-a/../../victim.txt".to_owned(),
    ] {
        std::fs::write(&victim, "mine").unwrap();
        let row = format!(
            "INSERT INTO runs (number, id, started_ms, version, task, driver)
             VALUES (1, 'x', 1, '1', 'a task', '{name}')"
        );
        make(file, &format!("{TABLES} {row}"));
        std::fs::create_dir_all(format!("{}-drivers/1-a", file.display())).unwrap();
        assert_eq!(read(file).unwrap(), 1);
        assert!(!SqliteJournal::read(file).unwrap().is_running("x").unwrap());
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "mine", "{name}");
    }
}

#[test]
fn heavy_header_is_damage() {
    let place = Place::new();
    let file = &place.file();
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let row = format!(
        "INSERT INTO runs (number, id, started_ms, version, task, conversation)
         VALUES (1, 'x', 1, '1', 'a task', 0);
         INSERT INTO parts VALUES (1, '', 1);
         INSERT INTO texts VALUES (1, x'00', '{{\"settings\":[{}0]}}')",
        "[],".repeat(1_500_000)
    );
    make(file, &format!("{TABLES} {row}"));
    let error = SqliteJournal::read(file).unwrap().load("x").unwrap_err();
    assert!(error.problem.contains("too many values"), "{error}");
}

#[cfg(unix)]
#[test]
fn pipes_and_links_are_refused() {
    let place = Place::new();
    let file = &place.file();
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    make(file, TABLES);
    let beside = |ending: &str| format!("{}{ending}", file.display());
    let victim = file.with_file_name("victim.txt");
    std::fs::write(&victim, "mine").unwrap();
    for ending in ["-wal", "-shm", "-journal"] {
        for pipe in [true, false] {
            let _ = std::fs::remove_file(beside(ending));
            if pipe {
                let made = std::process::Command::new("mkfifo").arg(beside(ending)).status();
                assert!(made.unwrap().success());
            } else {
                std::os::unix::fs::symlink(&victim, beside(ending)).unwrap();
            }
            for error in [read(file).unwrap_err(), SqliteJournal::open(file).unwrap_err()] {
                assert!(error.problem.contains("not a regular file"), "{error}");
            }
        }
        std::fs::remove_file(beside(ending)).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "mine");
    assert!(SqliteJournal::read("/dev/zero").is_err());
}
