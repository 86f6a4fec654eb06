//! Files of earlier versions are read as they are, and upgraded without loss.

use super::{Place, agent, echo};
use endstop::journal::{DayBudget, RecordedRun, RunSummary, SqliteJournal};
use endstop::testkit::Turn;
use endstop::{Agent, NanoUsd, Outcome};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The tables of version 1.
const VERSION_1: &str = "
PRAGMA application_id = 1164862579;
PRAGMA user_version = 1;
CREATE TABLE runs (
    id TEXT PRIMARY KEY, continues TEXT, started_ms INTEGER NOT NULL, version TEXT NOT NULL,
    provider TEXT, model TEXT, task TEXT NOT NULL, header TEXT NOT NULL, driver TEXT,
    ended_ms INTEGER, termination TEXT, category TEXT, turns INTEGER, cost_usd REAL, outcome TEXT,
    verified INTEGER
) STRICT;
CREATE INDEX runs_by_time ON runs (started_ms);
CREATE TABLE events (
    run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE, seq INTEGER NOT NULL,
    at_ns INTEGER NOT NULL, wall_ms INTEGER NOT NULL, name TEXT NOT NULL, event TEXT NOT NULL,
    effects TEXT, PRIMARY KEY (run, seq)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER a_run_ends_once BEFORE UPDATE OF outcome, termination ON runs
    WHEN OLD.termination IS NOT NULL BEGIN SELECT RAISE(ABORT, 'the run has ended already'); END;
CREATE TRIGGER what_happened_stands BEFORE UPDATE ON events
    BEGIN SELECT RAISE(ABORT, 'events are not changed'); END;
";

/// The tables of version 2.
const VERSION_2: &str = "
PRAGMA application_id = 1164862579;
PRAGMA user_version = 2;
CREATE TABLE runs (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, continues TEXT,
    started_ms INTEGER NOT NULL, version TEXT NOT NULL, provider TEXT, model TEXT,
    task TEXT NOT NULL, header TEXT NOT NULL, driver TEXT, ended_ms INTEGER, termination TEXT,
    category TEXT, turns INTEGER, cost_usd REAL, outcome TEXT, verified INTEGER
) STRICT;
CREATE INDEX runs_by_time ON runs (started_ms);
CREATE TABLE log (
    key INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, wall_ms INTEGER NOT NULL, name TEXT NOT NULL,
    event TEXT NOT NULL, effects TEXT
) STRICT;
CREATE VIEW events (run, seq, at_ns, wall_ms, name, event, effects) AS
    SELECT runs.id, log.key & 4294967295, at_ns, wall_ms, name, event, effects
    FROM runs JOIN log ON log.key BETWEEN runs.number << 32 AND runs.number << 32 | 4294967295;
CREATE TRIGGER a_run_ends_once BEFORE UPDATE OF outcome, termination ON runs
    WHEN OLD.termination IS NOT NULL BEGIN SELECT RAISE(ABORT, 'the run has ended already'); END;
CREATE TRIGGER what_happened_stands BEFORE UPDATE ON log
    BEGIN SELECT RAISE(ABORT, 'events are not changed'); END;
CREATE TRIGGER a_run_goes_whole AFTER DELETE ON runs
    BEGIN DELETE FROM log WHERE key BETWEEN OLD.number << 32 AND OLD.number << 32 | 4294967295; END;
";

/// Returns the complete header and outcome, which those versions stored in the row of a run.
fn whole(run: &RecordedRun) -> (String, Option<String>) {
    let outcome = run.outcome.as_ref().map(Value::to_string);
    (serde_json::to_string(&run.header).unwrap(), outcome)
}

/// Makes a file of version 1 or 2 with the runs of this journal, the oldest first.
fn earlier_file(version: i64, journal: &SqliteJournal, from: &Path) -> PathBuf {
    let old = from.with_file_name(format!("version_{version}.db"));
    let file = rusqlite::Connection::open(&old).unwrap();
    file.execute_batch(if version == 1 { VERSION_1 } else { VERSION_2 }).unwrap();
    file.execute("ATTACH ?1 AS new", [from.to_str().unwrap()]).unwrap();
    let mut runs = journal.runs(100).unwrap();
    runs.reverse();
    for run in runs {
        let (header, outcome) = whole(&journal.load(&run.id).unwrap());
        let columns = "id, continues, started_ms, version, provider, model, task, driver, ended_ms,
            termination, category, turns, cost_usd, verified";
        let copy = format!(
            "INSERT INTO runs ({columns}, header, outcome)
             SELECT {columns}, ?2, ?3 FROM new.runs WHERE id = ?1"
        );
        file.execute(&copy, rusqlite::params![run.id, header, outcome]).unwrap();
    }
    let copy = if version == 1 {
        "INSERT INTO events SELECT * FROM new.events"
    } else {
        "INSERT INTO log SELECT * FROM new.log"
    };
    file.execute(copy, []).unwrap();
    old
}

async fn one_run(agent: &Agent) -> Outcome {
    agent.run("say it").unwrap().outcome().await
}

/// Makes three runs of one conversation, and one that has not ended.
async fn some_runs(journal: &SqliteJournal) {
    let turns = (0..3).flat_map(|_| {
        [Turn::call("echo", &json!({"text": "x".repeat(9_000)})), Turn::text("said")]
    });
    let talk = agent(turns, journal).tool(echo()).system("Be brief. ".repeat(50)).build().unwrap();
    for _ in 0..3 {
        assert!(one_run(&talk).await.is_success());
    }
    let endless = agent([Turn::call("echo", &json!({"text": "a"}))], journal).tool(echo());
    let endless = endless.build().unwrap();
    drop(endless.run("go on").unwrap());
    endless.settled().await;
}

fn everything(journal: &SqliteJournal, runs: &[RunSummary]) -> Vec<String> {
    let shown = |run: &RunSummary| {
        let run = journal.load(&run.id).unwrap();
        assert_eq!(run.damage, None);
        format!("{:?} {:?} {:?} {:?}", whole(&run), run.events, run.wall_ms, run.effects)
    };
    runs.iter().map(shown).collect()
}

#[tokio::test]
async fn earlier_versions_are_upgraded_without_loss() {
    for version in [1, 2] {
        let place = Place::new();
        let journal = place.journal();
        some_runs(&journal).await;
        let then = journal.runs(10).unwrap();
        let were = everything(&journal, &then);
        let old = earlier_file(version, &journal, &place.file());
        drop(journal);

        let read = SqliteJournal::read(&old).unwrap();
        assert_eq!(read.runs(10).unwrap(), then);
        assert_eq!(read.find("last").unwrap(), then[0].id);
        assert_eq!(everything(&read, &then), were, "read as version {version}");
        let prefix = |journal: &SqliteJournal| {
            // A run that has ended: its task, its call and the result.
            journal.load(&then[1].id).unwrap().prefix(1, None).unwrap().messages.len()
        };
        assert_eq!((prefix(&read), read.branches(&then[1].id).unwrap().len()), (3, 0));
        drop(read);
        let journal = SqliteJournal::open(&old).unwrap();
        assert_eq!(journal.runs(10).unwrap(), then);
        assert_eq!(everything(&journal, &then), were, "upgraded from version {version}");
        assert_eq!(prefix(&journal), 3);

        let plain = rusqlite::Connection::open(&old).unwrap();
        let number = |sql: &str| plain.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(number("PRAGMA user_version"), 4);
        assert_eq!(number("SELECT count(*) FROM runs WHERE header != ''"), 0);
        // The last run's messages contain those of the two before it, the unfinished one's is its
        // own.
        let last = journal.load(&then[1].id).unwrap().outcome.unwrap();
        let messages = last["messages"].as_array().unwrap().len() as i64;
        assert_eq!(
            number("SELECT count(*) FROM conversations"),
            messages + 1 + unfinished(&journal, &then)
        );
        plain.execute("UPDATE log SET event = '{}'", []).unwrap_err();

        // A run that goes takes its events with it, and no other's.
        let gone = &then[0].id;
        plain.execute("DELETE FROM runs WHERE id = ?1", [gone]).unwrap();
        assert!(number("SELECT count(*) FROM log") == number("SELECT count(*) FROM events"));
        journal.load(gone).unwrap_err();
        assert_eq!(everything(&journal, &then[1..]), were[1..]);
        let talk = agent([Turn::text("done")], &journal).build().unwrap();
        let new = one_run(&talk).await;
        assert_eq!(journal.find("last").unwrap(), new.run_id.unwrap());
    }
}

/// Messages that only the run that was dropped has, beyond its task.
fn unfinished(journal: &SqliteJournal, runs: &[RunSummary]) -> i64 {
    let outcome = journal.load(&runs[0].id).unwrap().outcome;
    outcome.map_or(0, |outcome| outcome["messages"].as_array().unwrap().len() as i64 - 1)
}

#[tokio::test]
async fn version_3_gains_projects_and_books() {
    let place = Place::new();
    let journal = place.journal();
    some_runs(&journal).await;
    let then = journal.runs(10).unwrap();
    let were = everything(&journal, &then);
    drop(journal);
    let plain = rusqlite::Connection::open(place.file()).unwrap();
    plain
        .execute_batch(
            "ALTER TABLE runs DROP COLUMN project; DROP TABLE spending; DROP TABLE booked;
             PRAGMA user_version = 3;",
        )
        .unwrap();
    let read = SqliteJournal::read(place.file()).unwrap();
    assert_eq!(everything(&read, &then), were);
    let spending = read.spending(0).unwrap();
    assert_eq!(spending.len(), then.len());
    assert!(spending.iter().all(|run| run.project.is_none()));
    assert_eq!(read.day_books(spending[0].started_ms / 86_400_000, 0).unwrap(), []);
    let journal = SqliteJournal::open(place.file()).unwrap();
    assert_eq!(everything(&journal, &then), were);
    assert_eq!(journal.spending(0).unwrap(), spending);
    let budget = DayBudget::new().max_usd(NanoUsd::from_usd(50.0)).open(&journal).unwrap();
    assert!(budget.bounds_cost());
    // The runs of today that had ended are in the books of the first budget.
    let books = journal.day_books(spending[0].started_ms / 86_400_000, 0).unwrap();
    let cost = spending.iter().filter_map(|run| run.cost).fold(NanoUsd::ZERO, |a, b| a + b);
    assert!(books[0].spent >= cost && cost > NanoUsd::ZERO, "{books:?}");
}

#[tokio::test]
async fn unreadable_row_survives_the_upgrade() {
    let place = Place::new();
    let journal = place.journal();
    some_runs(&journal).await;
    let then = journal.runs(10).unwrap();
    let old = earlier_file(2, &journal, &place.file());
    let plain = rusqlite::Connection::open(&old).unwrap();
    plain
        .execute_batch(&format!(
            "DROP TRIGGER a_run_ends_once;
             UPDATE runs SET header = '{{not JSON', outcome = '[1, 2]' WHERE id = '{}';
             CREATE TRIGGER a_run_ends_once BEFORE UPDATE OF outcome, termination ON runs
                 WHEN OLD.termination IS NOT NULL BEGIN SELECT RAISE(ABORT, 'ended'); END;",
            then[2].id
        ))
        .unwrap();
    let upgraded = SqliteJournal::open(&old).unwrap();
    let (header, outcome): (String, String) = plain
        .query_row("SELECT header, outcome FROM runs WHERE id = ?1", [&then[2].id], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert_eq!((header.as_str(), outcome.as_str()), ("{not JSON", "[1, 2]"));
    assert!(upgraded.load(&then[2].id).unwrap_err().problem.contains("header cannot be read"));
    assert_eq!(everything(&upgraded, &then[..2]), everything(&journal, &then[..2]));
}

#[tokio::test]
async fn version_2_row_loads_after_upgrade() {
    // A process of the earlier version that still has the file open continues to write complete
    // rows.
    let place = Place::new();
    let journal = place.journal();
    some_runs(&journal).await;
    let run = journal.runs(10).unwrap().remove(1);
    let (header, outcome) = whole(&journal.load(&run.id).unwrap());
    let header = header.replace(&run.id, "theirs");
    let plain = rusqlite::Connection::open(place.file()).unwrap();
    plain
        .execute(
            "INSERT INTO runs (id, started_ms, version, task, header, ended_ms, termination, outcome)
             VALUES ('theirs', 1, '0.1.0', 'say it', ?1, 2, 'stop', ?2)",
            rusqlite::params![header, outcome],
        )
        .unwrap();
    let (ours, theirs) = (journal.load(&run.id).unwrap(), journal.load("theirs").unwrap());
    assert_eq!(theirs.header.spec.messages, ours.header.spec.messages);
    assert_eq!(theirs.outcome, ours.outcome);
}
