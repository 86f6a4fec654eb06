//! The file of a journal and its connection.
//!
//! ```text
//! let connection = journal.connection(); // locked, its timeout reset
//! ```

use super::driver::Driver;
use super::failure::{failure, problem};
use super::file::create;
use super::hardening::{self, Access, Deadline};
use super::header::Headers;
use super::texts::Known;
use super::{schema, tables};
use crate::journal::error::{JournalError, JournalErrorKind};
use endstop_wire::redact::KnownKeys;
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use rusqlite::{Connection, OpenFlags, params};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The bytes that have a meaning in the path of a URI.
const IN_URI: &AsciiSet = &CONTROLS.add(b'?').add(b'#').add(b'%');

/// A journal in one SQLite file. Cloning is cheap; clones share the connection.
///
/// Next to the file are SQLite's own (`-wal`, `-shm`) and the folder `FILE-drivers`, with a lock of each
/// process that drives a run. Needs the feature `journal`.
#[derive(Clone)]
pub struct SqliteJournal(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) path: PathBuf,
    pub(super) connection: Mutex<Connection>,
    /// Version of the tables. A file of an earlier version stays as it is if it is only read.
    pub(super) version: i64,
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
    /// The `application_id` that marks an SQLite file as a journal: "Ends" in ASCII.
    pub const APPLICATION_ID: i64 = tables::APPLICATION;

    /// Opens a journal for writing. Creates the file and its folder if they do not exist; on Unix
    /// only the owner may read them.
    ///
    /// # Errors
    /// The file cannot be written, is not a journal, or was written by a later version of Endstop.
    pub fn open(path: impl AsRef<Path>) -> Result<SqliteJournal, JournalError> {
        let path = path.as_ref();
        let io = |error: std::io::Error| problem(path, JournalErrorKind::Io, error.to_string());
        let exposed = create(path).map_err(io)?;
        hardening::plain_files(path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection =
            Connection::open_with_flags(path, flags).map_err(|error| failure(path, &error))?;
        let deadline = hardening::configure(&mut connection, Access::Write)
            .map_err(|error| failure(path, &error))?;
        if schema::check(&connection, path)?.is_some() {
            hardening::plain_tables(&connection, path, Access::Write)?;
        }
        schema::prepare(&mut connection, path)?;
        // Last, so that a file that is refused leaves no lock file behind.
        let driver = Driver::new(path).map_err(io)?;
        let version = tables::VERSION;
        Ok(SqliteJournal::new(path, connection, deadline, version, Some(driver), exposed))
    }

    /// Opens a journal for reading. Nothing is written to it, even if it is damaged.
    ///
    /// # Errors
    /// The file does not exist, is not a journal, or was written by a later version of Endstop.
    pub fn read(path: impl AsRef<Path>) -> Result<SqliteJournal, JournalError> {
        let path = path.as_ref();
        if let Err(error) = std::fs::metadata(path) {
            return Err(problem(path, JournalErrorKind::Io, error.to_string()));
        }
        hardening::plain_files(path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_URI;
        let open = |immutable: bool| -> Result<(Connection, Deadline, i64), JournalError> {
            let connection = if immutable {
                // `immutable` can only be set in a URI, so the path must be percent-encoded.
                let path = path.as_os_str().as_encoded_bytes();
                let address = percent_encode(path, IN_URI);
                Connection::open_with_flags(format!("file:{address}?immutable=1"), flags)
            } else {
                Connection::open_with_flags(path, flags - OpenFlags::SQLITE_OPEN_URI)
            };
            let wrong = |error| failure(path, &error);
            let mut connection = connection.map_err(wrong)?;
            let deadline = hardening::configure(&mut connection, Access::Read).map_err(wrong)?;
            let Some(version) = schema::check(&connection, path)? else {
                let what = "the file is empty: it contains no run";
                return Err(problem(path, JournalErrorKind::NotFound, what));
            };
            hardening::plain_tables(&connection, path, Access::Read)?;
            Ok((connection, deadline, version))
        };
        let (connection, deadline, version) = match open(false) {
            // In a read-only folder SQLite cannot create the `-shm` file for its locks. `immutable`
            // makes it read without locks.
            Err(error) if error.kind == JournalErrorKind::Io => open(true)?,
            opened => opened?,
        };
        Ok(SqliteJournal::new(path, connection, deadline, version, None, None))
    }

    fn new(
        path: &Path,
        connection: Connection,
        deadline: Deadline,
        version: i64,
        driver: Option<Driver>,
        exposed: Option<String>,
    ) -> SqliteJournal {
        SqliteJournal(Arc::new(Inner {
            path: path.to_owned(),
            connection: Mutex::new(connection),
            version,
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
