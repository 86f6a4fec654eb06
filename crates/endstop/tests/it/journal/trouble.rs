//! A journal that is damaged, of another version, locked or full: the intact part is used, the
//! damage is reported, and the outcome of the run is not lost.

use super::{Place, agent, echo};
use endstop::event::AgentEventKind;
use endstop::journal::{
    BatchRunJournal, Journal, JournalError, JournalErrorKind, Record, RecordedRun, RunHeader,
    RunJournal, SqliteJournal,
};
use endstop::testkit::Turn;
use endstop::wire::redact::KnownKeys;
use endstop::{Message, Outcome, Resume, Termination};
use serde_json::json;
use std::ffi::OsString;
use std::fs::Permissions;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

async fn one_run(journal: &SqliteJournal) -> Outcome {
    let turns = [Turn::call("echo", &json!({"text": "x".repeat(9_000)})), Turn::text("done")];
    agent(turns, journal).tool(echo()).build().unwrap().run("q").unwrap().outcome().await
}

#[tokio::test]
async fn intact_part_of_truncated_file_loads() {
    let place = Place::new();
    let id = {
        let journal = place.journal();
        let outcome = one_run(&journal).await;
        outcome.run_id.clone().unwrap()
    };
    // Move everything from the log into the file that is cut below.
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
                // The final messages may be lost although the events are intact.
                let outcome = damage.starts_with("its outcome cannot be read");
                assert!(outcome || damage.contains("event"), "{damage}");
                assert!(outcome || run.events.len() < 5);
            }
            Err(error) => {
                refused += 1;
                assert_ne!(error.kind, JournalErrorKind::Io, "{error}");
            }
        }
        // A reader does not write to the file.
        assert_eq!(std::fs::read(place.file()).unwrap().len(), keep);
    }
    assert!(read + refused > 5);
}

#[tokio::test]
async fn unreadable_record_ends_loaded_events() {
    let place = Place::new();
    let journal = place.journal();
    let outcome = one_run(&journal).await;
    let id = outcome.run_id.as_deref().unwrap();
    let plain = rusqlite::Connection::open(place.file()).unwrap();
    plain.execute_batch("DROP TRIGGER what_happened_stands").unwrap();
    plain.execute("UPDATE log SET event = substr(event, 1, 20) WHERE key & 255 = 3", []).unwrap();
    let run = journal.load(id).unwrap();
    assert_eq!(run.events.len(), 3);
    assert!(run.damage.unwrap().starts_with("event 3 cannot be read: "));
    plain.execute("DELETE FROM log WHERE key & 255 = 1", []).unwrap();
    let run = journal.load(id).unwrap();
    assert_eq!(run.damage.as_deref(), Some("event 1 is missing, 2 is next"));
    // A damaged run is not resumed, because the lost part would be missing from its conversation.
    plain
        .execute_batch(
            "DROP TRIGGER a_run_ends_once; UPDATE runs SET termination = NULL, outcome = NULL",
        )
        .unwrap();
    let again = agent([Turn::text("done")], &journal).tool(echo()).build().unwrap();
    let error = again.resume(Resume::new(id)).unwrap_err().to_string();
    assert!(
        error.contains("a part of it is lost") && error.contains("SqliteJournal::load"),
        "{error}"
    );
}

#[tokio::test]
async fn other_version_is_refused() {
    let place = Place::new();
    let journal = place.journal();
    one_run(&journal).await;
    drop(journal);
    let plain = rusqlite::Connection::open(place.file()).unwrap();
    plain.pragma_update(None, "user_version", 9).unwrap();
    let error = SqliteJournal::open(place.file()).unwrap_err();
    assert_eq!(error.kind, JournalErrorKind::Version);
    assert!(
        error.to_string().contains("version 9 of the tables; this program supports 2"),
        "{error}"
    );

    let other = place.dir.path().join("other.db");
    rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    let error = SqliteJournal::open(&other).unwrap_err();
    assert_eq!(error.kind, JournalErrorKind::Damaged);
    assert!(error.problem.contains("not an Endstop journal"), "{error}");
    let text = place.dir.path().join("notes.txt");
    std::fs::write(&text, "dear diary, ".repeat(100)).unwrap();
    assert_eq!(SqliteJournal::open(&text).unwrap_err().kind, JournalErrorKind::Damaged);
    assert!(std::fs::read_to_string(&text).unwrap().starts_with("dear diary"));
    let folder = SqliteJournal::open(place.dir.path()).unwrap_err();
    assert_eq!(folder.kind, JournalErrorKind::Io);
    let nowhere = SqliteJournal::read(place.dir.path().join("none.db")).unwrap_err();
    assert_eq!(nowhere.kind, JournalErrorKind::Io);
}

/// Names, contents, times and permissions of the files in a folder.
fn files(folder: &Path) -> Vec<(OsString, Vec<u8>, SystemTime, Permissions)> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| {
        let path = file.unwrap().path();
        let found = std::fs::metadata(&path).unwrap();
        let name = path.file_name().unwrap().to_owned();
        (name, std::fs::read(&path).unwrap(), found.modified().unwrap(), found.permissions())
    });
    let mut files: Vec<_> = files.collect();
    files.sort_by(|a, b| a.0.cmp(&b.0));
    files
}

/// The `application_id` of journals from before version 0.1, and another program's.
const OTHERS: [(i64, &str); 2] =
    [(0x456e_6473, "from before version 0.1"), (0x1234, "not an Endstop journal")];

#[test]
fn file_of_others_is_left_untouched() {
    for (id, reason) in OTHERS {
        // The fifth file is one whose process was killed before the first checkpoint: its number is in
        // the log.
        for version in 1..=5 {
            let place = Place::new();
            let source = place.dir.path().join("source.db");
            let plain = rusqlite::Connection::open(&source).unwrap();
            plain
                .execute_batch(&format!(
                    "PRAGMA auto_vacuum = incremental; PRAGMA journal_mode = wal;
                     BEGIN; CREATE TABLE runs (id TEXT); INSERT INTO runs VALUES ('a');
                     PRAGMA application_id = {id}; PRAGMA user_version = {version}; COMMIT;"
                ))
                .unwrap();
            let folder = place.dir.path().join("state");
            std::fs::create_dir(&folder).unwrap();
            if version == 5 {
                let log = place.dir.path().join("source.db-wal");
                std::fs::copy(log, folder.join("journal.db-wal")).unwrap();
            } else {
                plain.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
            }
            std::fs::copy(source, place.file()).unwrap();
            let header = std::fs::read(place.file()).unwrap();
            assert_eq!(header[68..72] == [0; 4], version == 5, "the number is in the log only");
            let before = files(&folder);
            for opened in [SqliteJournal::read(place.file()), SqliteJournal::open(place.file())] {
                let error = opened.unwrap_err();
                assert!(error.problem.contains(reason), "{version}: {error}");
                assert!(error.problem.ends_with("choose another file"), "{error}");
                assert_eq!(files(&folder), before, "{version}");
            }
        }
    }
}

#[tokio::test]
async fn run_warns_if_journal_stays_locked() {
    let place = Place::new();
    let journal = place.journal();
    let mut other = rusqlite::Connection::open(place.file()).unwrap();
    let held = other.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&warnings);
    let agent = agent([Turn::text("done")], &journal)
        .on_event(move |event| {
            if let AgentEventKind::Warning { message, .. } = &event.kind {
                heard.lock().unwrap().push(message.clone());
            }
        })
        .build()
        .unwrap();
    let outcome = agent.run("q").unwrap().outcome().await;
    assert_eq!(outcome.termination, Termination::Stop);
    let warnings = warnings.lock().unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("another process has locked it"), "{warnings:?}");
    drop(held);
}

/// A journal on a disk that is full at first.
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
    fn resume(&self, id: &str) -> Result<Box<dyn RunJournal>, JournalError> {
        self.inner.resume(id)
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
    fn batch(&mut self) -> Option<&mut dyn BatchRunJournal> {
        Some(self)
    }
}

impl BatchRunJournal for FullLog {
    fn try_append(&mut self, _: &[Record]) -> Option<Result<(), JournalError>> {
        None
    }
    fn messages(&mut self, messages: &[Message], keys: &KnownKeys) -> bool {
        self.inner.batch().is_some_and(|log| log.messages(messages, keys))
    }
}

#[tokio::test]
async fn refused_records_are_passed_again() {
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
