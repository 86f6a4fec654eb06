//! The tables of the journal's file, and how a file is made, known and refused.
//!
//! ```text
//! sqlite3 journal.db "SELECT id, termination, cost_usd FROM runs ORDER BY started_ms DESC LIMIT 5"
//! sqlite3 journal.db "SELECT seq, name, effects FROM events WHERE run = '…' ORDER BY seq"
//! ```

use super::{failure, problem};
use crate::journal::{JournalError, JournalErrorKind};
use rusqlite::Connection;
use std::path::Path;
use std::time::Duration;

/// The version of the tables.
pub(super) const VERSION: i64 = 1;

/// What tells a journal from other files of SQLite: "Ends".
const APPLICATION: i64 = 0x456e_6473;

/// How long another process may hold the file for a moment.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

const TABLES: &str = "
CREATE TABLE runs (
    id          TEXT PRIMARY KEY,
    continues   TEXT,              -- the ended run that this one goes on with
    started_ms  INTEGER NOT NULL,  -- Unix time
    version     TEXT NOT NULL,     -- of Endstop
    provider    TEXT,
    model       TEXT,
    task        TEXT NOT NULL,
    header      TEXT NOT NULL,     -- JSON: all that the run was made of
    driver      TEXT,              -- the process that drives it
    ended_ms    INTEGER,
    termination TEXT,
    category    TEXT,
    turns       INTEGER,
    cost_usd    REAL,
    outcome     TEXT,              -- JSON
    verified    INTEGER
) STRICT;
CREATE INDEX runs_by_time ON runs (started_ms);
CREATE TABLE events (
    run         TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    seq         INTEGER NOT NULL,  -- from 0, without a gap
    at_ns       INTEGER NOT NULL,  -- on the run's clock
    wall_ms     INTEGER NOT NULL,  -- Unix time
    name        TEXT NOT NULL,
    event       TEXT NOT NULL,     -- JSON: what the kernel was told
    effects     TEXT,              -- JSON: what it asked for then, about to be done
    PRIMARY KEY (run, seq)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER a_run_ends_once BEFORE UPDATE OF outcome, termination ON runs
    WHEN OLD.termination IS NOT NULL
    BEGIN SELECT RAISE(ABORT, 'the run has ended already'); END;
CREATE TRIGGER what_happened_stands BEFORE UPDATE ON events
    BEGIN SELECT RAISE(ABORT, 'events are not changed'); END;
";

/// Makes an empty file a journal; refuses what is none, or of a later version.
pub(super) fn prepare(connection: &mut Connection, path: &Path) -> Result<(), JournalError> {
    let wrong = |error| failure(path, &error);
    connection.busy_timeout(PATIENCE).map_err(wrong)?;
    let known = check(connection, path)?;
    connection.pragma_update(None, "journal_mode", "wal").map_err(wrong)?;
    // With WAL a killed process loses nothing; a power failure may lose the last moments.
    connection.pragma_update(None, "synchronous", "normal").map_err(wrong)?;
    connection.pragma_update(None, "foreign_keys", true).map_err(wrong)?;
    if known {
        return Ok(());
    }
    // Another process may make it at the same moment.
    let transaction = connection
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .map_err(wrong)?;
    if !check(&transaction, path)? {
        transaction.execute_batch(TABLES).map_err(wrong)?;
        transaction.pragma_update(None, "application_id", APPLICATION).map_err(wrong)?;
        transaction.pragma_update(None, "user_version", VERSION).map_err(wrong)?;
    }
    transaction.commit().map_err(wrong)
}

/// Whether the file is a journal that can be read; `false`: it is empty.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<bool, JournalError> {
    let number = |name: &str| {
        connection
            .pragma_query_value(None, name, |row| row.get::<_, i64>(0))
            .map_err(|error| failure(path, &error))
    };
    let (application, version) = (number("application_id")?, number("user_version")?);
    if application == 0 && version == 0 {
        let tables: i64 = connection
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .map_err(|error| failure(path, &error))?;
        if tables == 0 {
            return Ok(false);
        }
    }
    if application != APPLICATION {
        let what = "a database, but no journal of Endstop: give another file";
        return Err(problem(path, JournalErrorKind::Damaged, what));
    }
    if version > VERSION {
        let what = format!(
            "made by a later version of Endstop (its tables are of version {version}, this one knows {VERSION}): take that version, or give another file"
        );
        return Err(problem(path, JournalErrorKind::Newer, what));
    }
    Ok(true)
}
