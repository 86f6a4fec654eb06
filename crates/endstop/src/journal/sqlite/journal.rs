//! The file of a journal and its connection.
//!
//! ```text
//! let connection = journal.connection(); // locked, its timeout reset
//! ```

use super::driver::Driver;
use super::file::failure::{failure, problem};
use super::file::hardening::{self, Access, Deadline};
use super::file::{create, open_immutable};
use super::file::{schema, tables};
use super::runs::header::Headers;
use super::runs::texts::Known;
use crate::journal::error::{JournalError, JournalErrorKind};
use endstop_wire::redact::KnownKeys;
use rusqlite::{Connection, OpenFlags, params};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A journal in one SQLite file. Cloning is cheap; clones share the connection.
///
/// Next to the file are SQLite's own (`-wal`, `-shm`) and the folder `FILE-drivers`, with a lock of each
/// process that drives a run. Needs the feature `journal`.
#[derive(Clone)]
pub struct SqliteJournal(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) path: PathBuf,
    pub(super) connection: Mutex<Connection>,
    pub(super) deadline: Deadline,
    /// `None` if the journal was opened read-only.
    pub(super) driver: Option<Driver>,
    pub(super) keys: Mutex<Arc<KnownKeys>>,
    pub(super) known: Known,
    pub(super) headers: Headers,
    /// Description of permissions that were too wide when the file was opened.
    pub(super) exposed: Option<String>,
    /// Set after a wait for another process timed out. While it is set, writes do not wait again,
    /// because otherwise every step of the run would wait for the full timeout.
    pub(super) impatient: AtomicBool,
    /// Estimated bytes in the write-ahead log since the last checkpoint.
    pub(super) in_log: AtomicU64,
}

impl fmt::Debug for SqliteJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteJournal").field("path", &self.0.path).finish_non_exhaustive()
    }
}

impl SqliteJournal {
    /// Returns `true` if an SQLite file with this `application_id` is a journal, also if it is from before
    /// version 0.1 and therefore refused when it is opened.
    pub fn has_id(application_id: i64) -> bool {
        matches!(application_id, tables::APPLICATION | tables::BEFORE_0_1)
    }

    /// Opens a journal for writing. Creates the file and its folder if they do not exist; on Unix
    /// only the owner may read them.
    ///
    /// # Errors
    /// The file cannot be written, is not a journal, or is one of another version of Endstop.
    pub fn open(path: impl AsRef<Path>) -> Result<SqliteJournal, JournalError> {
        let path = path.as_ref();
        let io = |error: std::io::Error| problem(path, JournalErrorKind::Io, error.to_string());
        hardening::plain_files(path)?;
        // First, because `create` may change the permissions.
        schema::check_id(path)?;
        let exposed = create(path).map_err(io)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection =
            Connection::open_with_flags(path, flags).map_err(|error| failure(path, &error))?;
        let deadline = hardening::configure(&mut connection, Access::Write)
            .map_err(|error| failure(path, &error))?;
        if schema::check(&connection, path)? {
            hardening::plain_tables(&connection, path, Access::Write)?;
        }
        schema::prepare(&mut connection, path)?;
        // Last, so that a file that is refused leaves no lock file behind.
        let driver = Driver::new(path).map_err(io)?;
        Ok(SqliteJournal::new(path, connection, deadline, Some(driver), exposed))
    }

    /// Opens a journal for reading. Nothing is written to it, even if it is damaged.
    ///
    /// # Errors
    /// The file does not exist, is not a journal, or is one of another version of Endstop.
    pub fn read(path: impl AsRef<Path>) -> Result<SqliteJournal, JournalError> {
        let path = path.as_ref();
        if let Err(error) = std::fs::metadata(path) {
            return Err(problem(path, JournalErrorKind::Io, error.to_string()));
        }
        hardening::plain_files(path)?;
        schema::check_id(path)?;
        let open = |immutable: bool| -> Result<(Connection, Deadline), JournalError> {
            let connection = if immutable {
                open_immutable(path)
            } else {
                let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
                Connection::open_with_flags(path, flags)
            };
            let wrong = |error| failure(path, &error);
            let mut connection = connection.map_err(wrong)?;
            let deadline = hardening::configure(&mut connection, Access::Read).map_err(wrong)?;
            if !schema::check(&connection, path)? {
                let what = "the file is empty: it contains no run";
                return Err(problem(path, JournalErrorKind::NotFound, what));
            }
            hardening::plain_tables(&connection, path, Access::Read)?;
            Ok((connection, deadline))
        };
        let (connection, deadline) = match open(false) {
            // In a read-only folder SQLite cannot create the `-shm` file for its locks. `immutable`
            // makes it read without locks.
            Err(error) if error.kind == JournalErrorKind::Io => open(true)?,
            opened => opened?,
        };
        Ok(SqliteJournal::new(path, connection, deadline, None, None))
    }

    fn new(
        path: &Path,
        connection: Connection,
        deadline: Deadline,
        driver: Option<Driver>,
        exposed: Option<String>,
    ) -> SqliteJournal {
        SqliteJournal(Arc::new(Inner {
            path: path.to_owned(),
            connection: Mutex::new(connection),
            deadline,
            driver,
            keys: Mutex::default(),
            known: Known::default(),
            headers: Headers::default(),
            exposed,
            impatient: AtomicBool::new(false),
            in_log: AtomicU64::new(0),
        }))
    }

    /// Sets secrets that must not be written to the file. The keys of a run's own provider are
    /// always removed, also without this call.
    pub fn hide(&self, keys: KnownKeys) {
        *self.0.keys.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }

    /// Describes the access that other users had to the file when it was opened, and what was done
    /// about it. `None` if they had none.
    pub fn exposed(&self) -> Option<&str> {
        self.0.exposed.as_deref()
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    pub(super) fn keys(&self) -> Arc<KnownKeys> {
        Arc::clone(&self.0.keys.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn connection(&self) -> MutexGuard<'_, Connection> {
        let connection = self.0.connection.lock().unwrap_or_else(after_panic);
        // A write or a destructor may have lowered the timeout, so it is reset for each use.
        let _ = connection.busy_timeout(tables::PATIENCE);
        self.0.deadline.renew();
        connection
    }

    pub(super) fn failure(&self, error: &rusqlite::Error) -> JournalError {
        failure(&self.0.path, error)
    }

    pub(super) fn no_json(&self, error: &serde_json::Error) -> JournalError {
        let what = format!("the run cannot be written as JSON: {error}");
        problem(&self.0.path, JournalErrorKind::Io, what)
    }

    /// Opens a second connection, which does not wait for the writes of this process's runs.
    pub(super) fn another_connection(&self) -> Result<Connection, JournalError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Connection::open_with_flags(&self.0.path, flags)
            .and_then(|connection| {
                schema::set_up(&connection)?;
                // The caller is not on an async thread and may wait for the disk, so SQLite may
                // checkpoint by itself (the default of 1000 pages).
                connection.pragma_update(None, "wal_autocheckpoint", 1000)?;
                Ok(connection)
            })
            .map_err(|error| self.failure(&error))
    }

    pub(super) fn driver(&self) -> Result<&Driver, JournalError> {
        self.0.driver.as_ref().ok_or_else(|| {
            problem(
                &self.0.path,
                JournalErrorKind::Io,
                "it was opened read-only; open it with `SqliteJournal::open` to write",
            )
        })
    }

    /// Stores the verdict of a verifier on an ended run.
    ///
    /// # Errors
    /// The verdict cannot be stored.
    pub fn verified(&self, id: &str, verified: bool) -> Result<(), JournalError> {
        self.connection()
            .execute("UPDATE runs SET verified = ?1 WHERE id = ?2", params![verified, id])
            .map_err(|error| self.failure(&error))?;
        Ok(())
    }
}

/// Returns the connection after a write that panicked. Its transaction may still be open; no other one could begin,
/// and later writes would be lost with it.
pub(super) fn after_panic(
    poisoned: PoisonError<MutexGuard<'_, Connection>>,
) -> MutexGuard<'_, Connection> {
    let connection = poisoned.into_inner();
    if !connection.is_autocommit() {
        // If it fails, so does the next write, which reports it.
        let _ = connection.execute_batch("ROLLBACK");
    }
    connection
}
