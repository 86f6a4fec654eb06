//! The store of a server, next to its journal: which runs were accepted, for whom, and how each
//! ended. What happened in a run is in the journal only.
//!
//! ```text
//! journal.db            events, outcomes
//! journal.db.serve      requests, keys of idempotent requests, the queue, summaries of endings
//! journal.db.serve.lock held by the one server of this journal
//! ```

use super::row::{COLUMNS, Ending, NewRun, RunRow, row};
use crate::backend::{BackendError, Filter, RunState, Stop};
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Version of the tables, stored as `user_version`.
const VERSION: i64 = 1;

const TABLES: &str = "
CREATE TABLE runs (
    number      INTEGER PRIMARY KEY AUTOINCREMENT, -- the order in which they were accepted
    id          TEXT NOT NULL UNIQUE,
    agent       TEXT NOT NULL,
    client      TEXT NOT NULL,     -- name of the token; empty on a server without tokens
    key         TEXT,              -- Idempotency-Key
    digest      BLOB NOT NULL,     -- SHA-256 of the request
    request     TEXT NOT NULL,     -- JSON, without known secrets
    redacted    INTEGER NOT NULL,  -- 1: secrets were cut out of the request
    state       TEXT NOT NULL,     -- queued, running, parked, ended
    stop        TEXT,              -- cancel or terminate, if a client has asked for it
    created_ms  INTEGER NOT NULL,  -- Unix time
    started_ms  INTEGER,
    ended_ms    INTEGER,
    termination TEXT,
    category    TEXT,
    turns       INTEGER,
    cost_usd    REAL,
    evidence    TEXT
) STRICT;
CREATE UNIQUE INDEX runs_by_key ON runs (client, key) WHERE key IS NOT NULL;
CREATE INDEX runs_by_state ON runs (state, number);
";

/// Number of ended runs that the list keeps, at least.
const MOST_ENDED: i64 = 100_000;

/// Number of new runs after which older ones are removed.
const PRUNED_EVERY: i64 = 1_000;

/// The error of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be read or written.
    #[error("{path}: {problem}")]
    File {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// Another server uses the same journal.
    #[error(
        "{path} is locked: another `endstop serve` uses this journal; stop it, or set another --journal FILE"
    )]
    Busy {
        /// The lock file.
        path: PathBuf,
    },
}

impl From<StoreError> for BackendError {
    fn from(_: StoreError) -> BackendError {
        // Paths of the machine are not for clients.
        BackendError::internal()
    }
}

/// The store.
pub(crate) struct Store {
    path: PathBuf,
    connection: Mutex<Connection>,
    /// The rows of new runs that work, until something of them changes. Clients ask for a run and for its
    /// events just after they have started it, and get both without a wait for the file.
    unchanged: Mutex<HashMap<String, RunRow>>,
    _lock: File,
}

impl Store {
    /// Opens the store of a journal, and locks it for this process.
    pub(crate) fn open(journal: &Path) -> Result<Store, StoreError> {
        let path = sibling(journal, ".serve");
        let lock = lock(sibling(journal, ".serve.lock"))?;
        // Created first, because SQLite would create it for others to read.
        let io = |error: std::io::Error| file_error(&path, &error);
        private().create(true).truncate(false).open(&path).map_err(io)?;
        let wrong = |error: rusqlite::Error| file_error(&path, &error);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&path, flags).map_err(wrong)?;
        connection.busy_timeout(Duration::from_secs(2)).map_err(wrong)?;
        connection.pragma_update(None, "journal_mode", "wal").map_err(wrong)?;
        // In WAL mode `normal` loses nothing if the process is killed.
        connection.pragma_update(None, "synchronous", "normal").map_err(wrong)?;
        let version: i64 =
            connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(wrong)?;
        match version {
            0 => {
                let transaction = connection.unchecked_transaction().map_err(wrong)?;
                transaction.execute_batch(TABLES).map_err(wrong)?;
                transaction.pragma_update(None, "user_version", VERSION).map_err(wrong)?;
                transaction.commit().map_err(wrong)?;
            }
            VERSION => {}
            _ => {
                let problem = "written by a later version of Endstop; use that version";
                return Err(StoreError::File { path, problem: problem.to_owned() });
            }
        }
        let (connection, unchanged) = (Mutex::new(connection), Mutex::default());
        Ok(Store { path, connection, unchanged, _lock: lock })
    }

    fn unchanged(&self) -> MutexGuard<'_, HashMap<String, RunRow>> {
        self.unchanged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the row of a run whose row is in memory. Never blocks for the file.
    pub(crate) fn get_unchanged(&self, id: &str) -> Option<RunRow> {
        self.unchanged().get(id).cloned()
    }

    /// Changes the row of a run.
    fn change(
        &self,
        id: &str,
        change: impl FnOnce(&Connection) -> rusqlite::Result<usize>,
    ) -> Result<(), StoreError> {
        let changed = self.with(change);
        // Afterwards, and also after a failure: from then on the file is asked.
        self.unchanged().remove(id);
        changed.map(drop)
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        work(&self.connection()).map_err(|error| file_error(&self.path, &error))
    }

    /// Stores a new run.
    pub(crate) fn insert(&self, run: &NewRun<'_>) -> Result<(), StoreError> {
        let request = serde_json::to_string(run.request).unwrap_or_default();
        let number = self.with(|connection| {
            connection
                .prepare_cached(
                    "INSERT INTO runs (id, agent, client, key, digest, request, redacted, state,
                     created_ms, started_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                )?
                .execute(params![
                    run.id,
                    run.request.agent,
                    run.client,
                    run.key,
                    run.digest,
                    request,
                    run.redacted,
                    run.state().as_str(),
                    run.now_ms as i64,
                    run.started_ms().map(|ms| ms as i64),
                ])?;
            let number = connection.last_insert_rowid();
            if number % PRUNED_EVERY == 0 {
                let sql = "DELETE FROM runs WHERE state = 'ended' AND number <= ?1";
                connection.execute(sql, [number - MOST_ENDED])?;
            }
            Ok(number)
        })?;
        if run.is_started {
            self.unchanged().insert(run.id.to_owned(), run.row(number));
        }
        Ok(())
    }

    /// Returns the run that a client has started with this key.
    pub(crate) fn by_key(&self, client: &str, key: &str) -> Result<Option<RunRow>, StoreError> {
        self.with(|connection| {
            // Without the client, one token could learn of the runs of another by their keys.
            let sql = format!("SELECT {COLUMNS} FROM runs WHERE client = ?1 AND key = ?2");
            connection.prepare_cached(&sql)?.query_row([client, key], row).optional()
        })
    }

    /// Returns the run with this id.
    pub(crate) fn get(&self, id: &str) -> Result<Option<RunRow>, StoreError> {
        self.with(|connection| {
            let sql = format!("SELECT {COLUMNS} FROM runs WHERE id = ?1");
            connection.prepare_cached(&sql)?.query_row([id], row).optional()
        })
    }

    /// Returns the runs that a filter fits, the newest first.
    pub(crate) fn list(&self, filter: &Filter) -> Result<Vec<RunRow>, StoreError> {
        // A JSON array, because SQLite has no parameters that are lists.
        let agents =
            filter.agents.as_ref().map(|names| serde_json::to_string(names).unwrap_or_default());
        self.with(|connection| {
            let sql = format!(
                "SELECT {COLUMNS} FROM runs WHERE (?1 IS NULL OR state = ?1)
                 AND (?2 IS NULL OR category = ?2)
                 AND (?3 IS NULL OR agent IN (SELECT value FROM json_each(?3)))
                 AND (?4 IS NULL OR number < ?4) ORDER BY number DESC LIMIT ?5"
            );
            let state = filter.state.map(RunState::as_str);
            let parameters = params![state, filter.category, agents, filter.before, filter.most];
            connection.prepare_cached(&sql)?.query_map(parameters, row)?.collect()
        })
    }

    /// Returns the runs that have not ended: first those that worked, then the queue, then the parked
    /// ones.
    pub(crate) fn unfinished(&self) -> Result<Vec<RunRow>, StoreError> {
        self.with(|connection| {
            let sql = format!(
                "SELECT {COLUMNS} FROM runs WHERE state IN ('queued', 'running', 'parked')
                 ORDER BY state DESC, number"
            );
            connection.prepare(&sql)?.query_map([], row)?.collect()
        })
    }

    /// Records that a run starts.
    pub(crate) fn started(&self, id: &str, now_ms: u64) -> Result<(), StoreError> {
        self.change(id, |connection| {
            // A resumed run keeps the time of its first start.
            let sql = "UPDATE runs SET state = 'running', started_ms = coalesce(started_ms, ?2)
                       WHERE id = ?1 AND state = 'queued'";
            connection.prepare_cached(sql)?.execute(params![id, now_ms as i64])
        })
    }

    /// Records that a run is parked.
    pub(crate) fn parked(&self, id: &str) -> Result<(), StoreError> {
        self.change(id, |connection| {
            let sql = "UPDATE runs SET state = 'parked' WHERE id = ?1 AND state = 'running'";
            connection.prepare_cached(sql)?.execute([id])
        })
    }

    /// Records that a parked run waits for a place.
    pub(crate) fn unparked(&self, id: &str) -> Result<(), StoreError> {
        self.change(id, |connection| {
            let sql = "UPDATE runs SET state = 'queued' WHERE id = ?1 AND state = 'parked'";
            connection.prepare_cached(sql)?.execute([id])
        })
    }

    /// Records that a client has asked for a stop.
    pub(crate) fn stop_requested(&self, id: &str, stop: Stop) -> Result<(), StoreError> {
        self.change(id, |connection| {
            // Never lowered: a cancel after a terminate changes nothing.
            let sql = "UPDATE runs SET stop = ?2 WHERE id = ?1 AND stop IS NOT 'terminate'";
            connection.prepare_cached(sql)?.execute([id, stop.as_str()])
        })
    }

    /// Records the ending of a run, once.
    pub(crate) fn ended(&self, id: &str, ending: &Ending, now_ms: u64) -> Result<(), StoreError> {
        self.change(id, |connection| {
            connection
                .prepare_cached(
                    "UPDATE runs SET state = 'ended', ended_ms = ?2, termination = ?3,
                     category = ?4, turns = ?5, cost_usd = ?6, evidence = ?7
                     WHERE id = ?1 AND state != 'ended'",
                )?
                .execute(params![
                    id,
                    now_ms as i64,
                    ending.termination,
                    ending.category,
                    ending.turns,
                    ending.cost_usd,
                    ending.evidence,
                ])
        })
    }
}

fn sibling(journal: &Path, suffix: &str) -> PathBuf {
    let mut name = journal.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Locks a file as long as the process lives. The operating system releases the lock however the
/// process dies.
fn lock(path: PathBuf) -> Result<File, StoreError> {
    let io = |error: std::io::Error| file_error(&path, &error);
    let file = private().create(true).truncate(false).open(&path).map_err(io)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Busy { path }),
        Err(TryLockError::Error(error)) => Err(file_error(&path, &error)),
    }
}

/// Returns options for a file that only its owner may read.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn file_error(path: &Path, problem: &dyn std::error::Error) -> StoreError {
    StoreError::File { path: path.to_owned(), problem: problem.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::RunRequest;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        /// However a run continues, its row in memory is that of the file.
        #[test]
        fn row_in_memory_is_the_stored_one(
            is_started: bool,
            changes in proptest::collection::vec(0..5_u8, 0..4),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let store = Store::open(&folder.path().join("journal.db")).unwrap();
            let request = RunRequest {
                agent: "a".to_owned(),
                task: "t".to_owned(),
                limits: serde_json::Map::new(),
                origin: None,
                trace_parent: None,
            };
            let new = NewRun {
                id: "r",
                client: "",
                key: None,
                digest: request.digest(),
                request: &request,
                redacted: false,
                now_ms: 7,
                is_started,
            };
            store.insert(&new).unwrap();
            prop_assert_eq!(store.get_unchanged("r").is_some(), is_started);
            for change in [None].into_iter().chain(changes.into_iter().map(Some)) {
                match change {
                    None => {}
                    Some(0) => store.started("r", 8).unwrap(),
                    Some(1) => store.parked("r").unwrap(),
                    Some(2) => store.unparked("r").unwrap(),
                    Some(3) => store.stop_requested("r", Stop::Cancel).unwrap(),
                    Some(_) => store.ended("r", &Ending::interrupted("why"), 9).unwrap(),
                }
                let stored = store.get("r").unwrap();
                let in_memory = store.get_unchanged("r");
                prop_assert!(in_memory.is_none() || in_memory == stored, "{:?}", stored);
            }
        }
    }
}
