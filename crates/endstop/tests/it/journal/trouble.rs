//! A journal that is damaged, of a later version, held, full or read-only: what is whole is used,
//! what is lost is said, and the run's ending is not lost.

use super::{Place, agent, echo};
use endstop::agent::AgentEvent;
use endstop::journal::{
    Journal, JournalError, JournalErrorKind, Record, RecordedRun, RunHeader, RunJournal,
    SqliteJournal,
};
use endstop::testkit::Turn;
use endstop::{Outcome, Resume, Termination};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

async fn one_run(journal: &SqliteJournal) -> Outcome {
    let turns = [Turn::call("echo", &json!({"text": "x".repeat(9_000)})), Turn::text("done")];
    agent(turns, journal).tool(echo()).build().unwrap().run("q").unwrap().outcome().await
}

#[tokio::test]
async fn of_a_file_that_was_cut_the_whole_part_is_read() {
    let place = Place::new();
    let id = {
        let journal = place.journal();
        let outcome = one_run(&journal).await;
        outcome.run_id.clone().unwrap()
    };
    // All is in the one file now.
    rusqlite::Connection::open(place.file())
        .unwrap()
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    let bytes = std::fs::read(place.file()).unwrap();
    let (mut read, mut refused) = (0, 0);
    for keep in (1..bytes.len()).step_by(2048) {
        std::fs::write(place.file(), &bytes[..keep]).unwrap();
        let journal = match SqliteJournal::read(place.file()) {
            Ok(journal) => journal,
            Err(error) => {
                refused += 1;
                assert!(!error.problem.is_empty());
                continue;
            }
        };
        match journal.load(&id) {
            Ok(run) => {
                read += 1;
                let Some(damage) = run.damage else { panic!("{keep} of {} bytes", bytes.len()) };
                assert!(damage.contains("event"), "{damage}");
                assert!(run.events.len() < 5);
            }
            Err(error) => {
                refused += 1;
                assert_ne!(error.kind, JournalErrorKind::Io, "{error}");
            }
        }
        // It is not written to.
        assert_eq!(std::fs::read(place.file()).unwrap().len(), keep);
    }
    assert!(read + refused > 5);
}

#[tokio::test]
async fn a_record_that_does_not_read_ends_what_is_used() {
    let place = Place::new();
    let journal = place.journal();
    let outcome = one_run(&journal).await;
    let id = outcome.run_id.as_deref().unwrap();
    let plain = rusqlite::Connection::open(place.file()).unwrap();
    plain.execute_batch("DROP TRIGGER what_happened_stands").unwrap();
    plain.execute("UPDATE log SET event = substr(event, 1, 20) WHERE key & 255 = 3", []).unwrap();
    let run = journal.load(id).unwrap();
    assert_eq!(run.events.len(), 3);
    assert!(run.damage.unwrap().starts_with("event 3 does not read: "));
    plain.execute("DELETE FROM log WHERE key & 255 = 1", []).unwrap();
    let run = journal.load(id).unwrap();
    assert_eq!(run.damage.as_deref(), Some("event 1 is missing, 2 is next"));
    // It is not gone on with, as if nothing had been there.
    plain
        .execute_batch(
            "DROP TRIGGER a_run_ends_once; UPDATE runs SET termination = NULL, outcome = NULL",
        )
        .unwrap();
    let again = agent([Turn::text("done")], &journal).tool(echo()).build().unwrap();
    let error = again.resume(Resume::new(id)).unwrap_err().to_string();
    assert!(error.contains("a part of it is lost") && error.contains("endstop explain"), "{error}");
}

/// The tables as version 1 had them.
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
ATTACH 'NEW' AS new;
INSERT INTO runs SELECT id, continues, started_ms, version, provider, model, task, header, driver,
    ended_ms, termination, category, turns, cost_usd, outcome, verified FROM new.runs;
INSERT INTO events SELECT * FROM new.events;
";

#[tokio::test]
async fn a_file_of_version_1_is_read_and_brought_up_to_date_with_all_that_is_in_it() {
    let place = Place::new();
    let journal = place.journal();
    one_run(&journal).await;
    one_run(&journal).await;
    // And one that has not ended.
    let endless =
        agent([Turn::call("echo", &json!({"text": "a"}))], &journal).tool(echo()).build().unwrap();
    drop(endless.run("go on").unwrap());
    endless.settled().await;
    let then: Vec<_> = journal.runs(10).unwrap();
    let events = |journal: &SqliteJournal| -> Vec<_> {
        then.iter().map(|run| journal.load(&run.id).unwrap().events).collect()
    };
    let were = events(&journal);
    drop((journal, endless));
    let old = place.dir.path().join("old.db");
    let make = VERSION_1.replace("NEW", place.file().to_str().unwrap());
    rusqlite::Connection::open(&old).unwrap().execute_batch(&make).unwrap();

    let read = SqliteJournal::read(&old).unwrap();
    assert_eq!(read.runs(10).unwrap(), then);
    assert_eq!(events(&read), were);
    drop(read);
    let journal = SqliteJournal::open(&old).unwrap();
    assert_eq!(journal.runs(10).unwrap(), then);
    assert_eq!(events(&journal), were);
    one_run(&journal).await;
    assert_eq!(journal.runs(10).unwrap().len(), then.len() + 1);
    let plain = rusqlite::Connection::open(&old).unwrap();
    let version: i64 = plain.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, 2);
    plain.execute("UPDATE log SET event = '{}'", []).unwrap_err();
    // A run that goes takes its events with it, and no other's.
    plain.execute("DELETE FROM runs WHERE id = ?1", [&then[0].id]).unwrap();
    let left: i64 = plain.query_row("SELECT count(*) FROM log", [], |row| row.get(0)).unwrap();
    let shown: i64 = plain.query_row("SELECT count(*) FROM events", [], |row| row.get(0)).unwrap();
    assert!(left > 0 && left == shown);
    let gone = journal.load(&then[0].id).unwrap_err();
    assert_eq!(gone.kind, JournalErrorKind::NotFound);
    assert_eq!(journal.load(&then[1].id).unwrap().events, were[1]);
}

#[tokio::test]
async fn a_later_version_and_what_is_no_journal_are_refused_and_left_alone() {
    let place = Place::new();
    let journal = place.journal();
    one_run(&journal).await;
    drop(journal);
    let plain = rusqlite::Connection::open(place.file()).unwrap();
    plain.pragma_update(None, "user_version", 9).unwrap();
    let error = SqliteJournal::open(place.file()).unwrap_err();
    assert_eq!(error.kind, JournalErrorKind::Newer);
    assert!(error.to_string().contains("version 9, this one knows 2"), "{error}");

    let other = place.dir.path().join("other.db");
    rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    let error = SqliteJournal::open(&other).unwrap_err();
    assert_eq!(error.kind, JournalErrorKind::Damaged);
    assert!(error.problem.contains("no journal of Endstop"), "{error}");
    let text = place.dir.path().join("notes.txt");
    std::fs::write(&text, "dear diary, ".repeat(100)).unwrap();
    assert_eq!(SqliteJournal::open(&text).unwrap_err().kind, JournalErrorKind::Damaged);
    assert!(std::fs::read_to_string(&text).unwrap().starts_with("dear diary"));
    let folder = SqliteJournal::open(place.dir.path()).unwrap_err();
    assert_eq!(folder.kind, JournalErrorKind::Io);
    let nowhere = SqliteJournal::read(place.dir.path().join("none.db")).unwrap_err();
    assert_eq!(nowhere.kind, JournalErrorKind::Io);
}

#[tokio::test]
async fn a_run_whose_journal_is_held_for_ever_ends_and_says_so() {
    let place = Place::new();
    let journal = place.journal();
    let mut other = rusqlite::Connection::open(place.file()).unwrap();
    let held = other.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&warnings);
    let agent = agent([Turn::text("done")], &journal)
        .on_event(move |event| {
            if let AgentEvent::Warning(warning) = event {
                heard.lock().unwrap().push(warning.message.clone());
            }
        })
        .build()
        .unwrap();
    let outcome = agent.run("q").unwrap().outcome().await;
    assert_eq!(outcome.termination, Termination::Stop);
    let warnings = warnings.lock().unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("another process holds it"), "{warnings:?}");
    drop(held);
}

/// A disk that is full for a while.
struct Full {
    inner: SqliteJournal,
    full: Arc<AtomicBool>,
    refused: Arc<AtomicU32>,
}

struct FullLog {
    inner: Box<dyn RunJournal>,
    full: Arc<AtomicBool>,
    refused: Arc<AtomicU32>,
}

impl Journal for Full {
    fn begin(&self, header: &RunHeader) -> Result<Box<dyn RunJournal>, JournalError> {
        let inner = self.inner.begin(header)?;
        let (full, refused) = (Arc::clone(&self.full), Arc::clone(&self.refused));
        Ok(Box::new(FullLog { inner, full, refused }))
    }
    fn load(&self, id: &str) -> Result<RecordedRun, JournalError> {
        self.inner.load(id)
    }
    fn go_on(&self, id: &str) -> Result<Box<dyn RunJournal>, JournalError> {
        self.inner.go_on(id)
    }
}

impl RunJournal for FullLog {
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        if self.full.load(Ordering::SeqCst) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return Err(JournalError {
                journal: "journal.db".to_owned(),
                problem: "the disk is full".to_owned(),
                kind: JournalErrorKind::Io,
            });
        }
        self.inner.append(records)
    }
    fn ended(&mut self, outcome: &Outcome, text: &str) -> Result<(), JournalError> {
        self.inner.ended(outcome, text)
    }
}

#[tokio::test]
async fn what_a_full_disk_did_not_take_is_given_again() {
    let place = Place::new();
    let (full, refused) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU32::new(0)));
    let journal =
        Full { inner: place.journal(), full: Arc::clone(&full), refused: Arc::clone(&refused) };
    let tool = endstop::tool::tool_fn("echo", "Frees the disk.", move |note: super::Note, _| {
        full.store(false, Ordering::SeqCst);
        async move { endstop::tool::ToolOutput::ok(note.text) }
    });
    let turns = [Turn::call("echo", &json!({"text": "x"})), Turn::text("done")];
    let plain = place.journal();
    let agent = agent(turns, &plain).journal(journal).tool(tool).build().unwrap();
    let outcome = agent.run("q").unwrap().outcome().await;
    assert!(refused.load(Ordering::SeqCst) >= 2);
    let run = plain.load(outcome.run_id.as_deref().unwrap()).unwrap();
    assert_eq!(run.damage, None, "no hole");
    let replay = run.replay(None).unwrap();
    assert_eq!(
        serde_json::to_string(replay.outcome().unwrap()).unwrap(),
        serde_json::to_string(&outcome).unwrap()
    );
}
