//! Writes to the file in transactions, either waiting for another process or not.
//!
//! ```text
//! journal.writing(|connection| all_or_none(connection, || …))?;        // may block the thread
//! journal.try_writing(|connection| insert.execute(…))                  // `None`: it would have to wait
//! ```

use super::file::tables;
use super::journal::{SqliteJournal, after_panic};
use crate::journal::JournalError;
use rusqlite::{Connection, ErrorCode};
use std::sync::TryLockError;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl SqliteJournal {
    /// Writes, and waits for another process that has locked the file. After a wait that timed out,
    /// the next calls do not wait again until a write has succeeded.
    pub(super) fn writing<T>(
        &self,
        write: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, JournalError> {
        let connection = self.connection();
        let impatient = self.0.impatient.load(Ordering::Relaxed);
        let patience = if impatient { Duration::ZERO } else { tables::PATIENCE };
        let written = connection.busy_timeout(patience).and_then(|()| write(&connection));
        self.0.impatient.store(is_busy(&written), Ordering::Relaxed);
        let result = written.map_err(|error| self.failure(&error))?;
        self.copy_log(&connection);
        Ok(result)
    }

    /// As [`writing`](Self::writing) but without waiting. Returns `None` if it would have to wait.
    pub(super) fn try_writing<T>(
        &self,
        write: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Option<Result<T, JournalError>> {
        // A checkpoint is due, and it waits for the disk.
        if self.0.in_log.load(Ordering::Relaxed) >= tables::MOST_IN_LOG {
            return None;
        }
        let connection = match self.0.connection.try_lock() {
            Ok(connection) => connection,
            Err(TryLockError::Poisoned(poisoned)) => after_panic(poisoned),
            Err(TryLockError::WouldBlock) => return None,
        };
        let written = connection.busy_timeout(Duration::ZERO).and_then(|()| write(&connection));
        // The first failure is left to `writing`, which waits. After a wait that timed out, the
        // failure is reported at once: the caller keeps the records and passes them again.
        if is_busy(&written) && !self.0.impatient.load(Ordering::Relaxed) {
            return None;
        }
        self.0.impatient.store(is_busy(&written), Ordering::Relaxed);
        Some(written.map_err(|error| self.failure(&error)))
    }

    /// Checkpoints the write-ahead log when it is long. That waits for the disk, so it happens
    /// here, on a thread that may block, and not in an arbitrary later statement.
    fn copy_log(&self, connection: &Connection) {
        if self.0.in_log.load(Ordering::Relaxed) < tables::MOST_IN_LOG {
            return;
        }
        self.0.in_log.store(0, Ordering::Relaxed);
        // A reader may prevent part of the copy; the next checkpoint copies the rest.
        let _ = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    }

    /// Adds the bytes of a write to the estimated length of the log, plus the pages that a
    /// transaction writes at least.
    pub(super) fn grows(&self, bytes: usize) {
        self.0.in_log.fetch_add(bytes as u64 + tables::LEAST_IN_LOG, Ordering::Relaxed);
    }
}

/// Returns `true` if the write failed because another process has locked the file.
fn is_busy<T>(written: &rusqlite::Result<T>) -> bool {
    let busy = |error: &rusqlite::Error| error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy);
    written.as_ref().is_err_and(busy)
}

/// Runs `write` in a transaction. Uses cached statements, because a transaction starts at almost
/// every step of a run.
pub(super) fn all_or_none<T>(
    connection: &Connection,
    write: impl FnOnce() -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let run = |sql: &str| connection.prepare_cached(sql)?.execute([]).map(drop);
    // `IMMEDIATE` takes the write lock now. A deferred transaction would take it at the first
    // write, and SQLite then fails without waiting if another process has written in between.
    run("BEGIN IMMEDIATE")?;
    let written = write().and_then(|done| run("COMMIT").map(|()| done));
    // SQLite rolls some failures back by itself, for example a full disk.
    if written.is_err() && !connection.is_autocommit() {
        run("ROLLBACK")?;
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Journal, RunHeader};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn write_that_panics_is_rolled_back() {
        let folder = tempfile::tempdir().unwrap();
        let journal = SqliteJournal::open(folder.path().join("journal.db")).unwrap();
        let insert = |connection: &Connection| {
            connection.execute("INSERT INTO conversations (before, text) VALUES (0, 0)", [])
        };
        let write = |connection: &Connection| {
            all_or_none(connection, || {
                insert(connection)?;
                panic!("on purpose")
            })
        };
        let panics = catch_unwind(AssertUnwindSafe(|| journal.writing::<()>(write)));
        assert!(panics.is_err());
        let header = RunHeader { id: "later".to_owned(), ..RunHeader::default() };
        drop(journal.begin(&header).unwrap());
        let sql = "SELECT count(*) FROM conversations";
        let rows: i64 = journal.connection().query_row(sql, [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 0);
        assert!(journal.try_writing(insert).unwrap().is_ok());
    }
}
