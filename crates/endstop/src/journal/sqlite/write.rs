//! Writing to the file: in transactions, with patience for another process or without.
//!
//! ```text
//! journal.writing(|connection| all_or_none(connection, || …))?;        // may block the thread
//! journal.try_writing(|connection| insert.execute(…))                  // `None`: it would have to wait
//! ```

use super::{SqliteJournal, schema};
use crate::journal::JournalError;
use rusqlite::{Connection, ErrorCode};
use std::sync::TryLockError;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl SqliteJournal {
    /// Waits for another process that holds the file, but after a wait in vain not again until
    /// something was written.
    pub(super) fn writing<T>(
        &self,
        write: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, JournalError> {
        let connection = self.connection();
        let impatient = self.0.impatient.load(Ordering::Relaxed);
        let patience = if impatient { Duration::ZERO } else { schema::PATIENCE };
        let written = connection.busy_timeout(patience).and_then(|()| write(&connection));
        self.0.impatient.store(is_busy(&written), Ordering::Relaxed);
        let result = written.map_err(|error| self.failure(&error))?;
        self.copy_log(&connection);
        Ok(result)
    }

    /// The same without waiting; `None`: it would have to.
    pub(super) fn try_writing<T>(
        &self,
        write: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Option<Result<T, JournalError>> {
        if self.0.in_log.load(Ordering::Relaxed) >= schema::MOST_IN_LOG {
            return None;
        }
        let connection = match self.0.connection.try_lock() {
            Ok(connection) => connection,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let written = connection.busy_timeout(Duration::ZERO).and_then(|()| write(&connection));
        if is_busy(&written) && !self.0.impatient.load(Ordering::Relaxed) {
            return None;
        }
        self.0.impatient.store(is_busy(&written), Ordering::Relaxed);
        Some(written.map_err(|error| self.failure(&error)))
    }

    /// Copies the write-ahead log to the file when it is long. That waits for the disk, so it is not
    /// left to whichever statement comes next.
    fn copy_log(&self, connection: &Connection) {
        if self.0.in_log.load(Ordering::Relaxed) < schema::MOST_IN_LOG {
            return;
        }
        self.0.in_log.store(0, Ordering::Relaxed);
        // Readers that hold a part of it back are no harm: the rest is copied the next time.
        let _ = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    }

    /// So many bytes were given to be written, in so many transactions of a few pages each.
    pub(super) fn grows(&self, bytes: usize) {
        self.0.in_log.fetch_add(bytes as u64 + schema::LEAST_IN_LOG, Ordering::Relaxed);
    }
}

/// Whether another process holds the file.
fn is_busy<T>(written: &rusqlite::Result<T>) -> bool {
    let busy = |error: &rusqlite::Error| error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy);
    written.as_ref().is_err_and(busy)
}

/// A transaction, by statements that are compiled once.
pub(super) fn all_or_none<T>(
    connection: &Connection,
    write: impl FnOnce() -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let run = |sql: &str| connection.prepare_cached(sql)?.execute([]).map(drop);
    run("BEGIN IMMEDIATE")?;
    let written = write().and_then(|done| run("COMMIT").map(|()| done));
    // A failure may have rolled it back by itself.
    if written.is_err() && !connection.is_autocommit() {
        run("ROLLBACK")?;
    }
    written
}
