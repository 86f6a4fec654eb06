//! The journal in one file of SQLite, which any tool for SQLite reads.
//!
//! ```no_run
//! use endstop::journal::SqliteJournal;
//! let journal = SqliteJournal::open("journal.db")?;
//! for run in journal.runs(10)? {
//!     println!("{} {}", run.id, run.termination.as_deref().unwrap_or("not ended"));
//! }
//! # Ok::<(), endstop::journal::JournalError>(())
//! ```
//!
//! The file is in WAL mode: what was kept when a process is killed is there, whatever it was doing.
//! Several processes may keep their runs in one file.

mod driver;
mod read;
mod schema;

pub use read::RunSummary;

use super::{Journal, JournalError, JournalErrorKind, Record, RecordedRun, RunHeader, RunJournal};
use driver::Driver;
use endstop_core::Outcome;
use endstop_wire::redact::KnownKeys;
use rusqlite::{Connection, ErrorCode, OpenFlags, params};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Runs in one file of SQLite. Cheap to clone; clones share the file.
#[derive(Clone)]
pub struct SqliteJournal(Arc<Inner>);

struct Inner {
    path: PathBuf,
    connection: Mutex<Connection>,
    /// Of the tables: an earlier one is only read.
    version: i64,
    /// `None`: opened to be read.
    driver: Option<Driver>,
    keys: Mutex<Arc<KnownKeys>>,
    /// Whoever holds the file was waited for once; the run does not wait at every step.
    impatient: AtomicBool,
}

impl fmt::Debug for SqliteJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteJournal").field("path", &self.0.path).finish_non_exhaustive()
    }
}

impl SqliteJournal {
    /// What tells a journal from other files of SQLite: its `application_id`, "Ends".
    pub const APPLICATION_ID: i64 = schema::APPLICATION;

    /// Opens a journal, and makes it where there is none: its folder too. On Unix only its owner may
    /// read it.
    ///
    /// # Errors
    /// It cannot be written, is no journal, or a later version of Endstop made it.
    pub fn open(path: impl AsRef<Path>) -> Result<SqliteJournal, JournalError> {
        let path = path.as_ref();
        let io = |error: std::io::Error| problem(path, JournalErrorKind::Io, error.to_string());
        create(path).map_err(io)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection =
            Connection::open_with_flags(path, flags).map_err(|error| failure(path, &error))?;
        schema::prepare(&mut connection, path)?;
        let driver = Driver::new(path).map_err(io)?;
        Ok(SqliteJournal::new(path, connection, schema::VERSION, Some(driver)))
    }

    /// Opens a journal to read it; nothing is written, not even where it is damaged.
    ///
    /// # Errors
    /// It is not there, is no journal, or a later version of Endstop made it.
    pub fn read(path: impl AsRef<Path>) -> Result<SqliteJournal, JournalError> {
        let path = path.as_ref();
        if let Err(error) = std::fs::metadata(path) {
            return Err(problem(path, JournalErrorKind::Io, error.to_string()));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_URI;
        let open = |immutable: bool| -> Result<(Connection, i64), JournalError> {
            let connection = if immutable {
                // As an address it is spelled in ASCII.
                let spelled = |byte: &u8| match byte {
                    b'?' | b'#' | b'%' | 0x80.. => format!("%{byte:02x}"),
                    _ => char::from(*byte).to_string(),
                };
                let path = path.as_os_str().as_encoded_bytes();
                let address: String = path.iter().map(spelled).collect();
                Connection::open_with_flags(format!("file:{address}?immutable=1"), flags)
            } else {
                Connection::open_with_flags(path, flags - OpenFlags::SQLITE_OPEN_URI)
            };
            let connection = connection.map_err(|error| failure(path, &error))?;
            let Some(version) = schema::check(&connection, path)? else {
                let what = "an empty file: no run was kept in it";
                return Err(problem(path, JournalErrorKind::NotFound, what));
            };
            Ok((connection, version))
        };
        let (connection, version) = match open(false) {
            // In a folder that cannot be written a reader has no room for its own locks.
            Err(error) if error.kind == JournalErrorKind::Io => open(true)?,
            opened => opened?,
        };
        Ok(SqliteJournal::new(path, connection, version, None))
    }

    fn new(
        path: &Path,
        connection: Connection,
        version: i64,
        driver: Option<Driver>,
    ) -> SqliteJournal {
        SqliteJournal(Arc::new(Inner {
            path: path.to_owned(),
            connection: Mutex::new(connection),
            version,
            driver,
            keys: Mutex::default(),
            impatient: AtomicBool::new(false),
        }))
    }

    /// These must not come to the file. The keys of a run's own provider are known without it.
    pub fn hide(&self, keys: KnownKeys) {
        *self.0.keys.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    fn keys(&self) -> Arc<KnownKeys> {
        Arc::clone(&self.0.keys.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.0.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After a wait in vain, no more waiting until something was written again.
    fn wait_less(&self, connection: &Connection, written: &rusqlite::Result<()>) {
        let busy = written
            .as_ref()
            .is_err_and(|error| error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy));
        let was = self.0.impatient.swap(busy, Ordering::Relaxed);
        if was != busy {
            let patience = if busy { Duration::ZERO } else { schema::PATIENCE };
            let _ = connection.busy_timeout(patience);
        }
    }

    fn failure(&self, error: &rusqlite::Error) -> JournalError {
        failure(&self.0.path, error)
    }

    fn driver(&self) -> Result<&Driver, JournalError> {
        self.0.driver.as_ref().ok_or_else(|| {
            problem(&self.0.path, JournalErrorKind::Io, "it was opened to be read, not written")
        })
    }

    /// Keeps what a verifier said of an ended run's work.
    ///
    /// # Errors
    /// It cannot be kept.
    pub fn verified(&self, id: &str, verified: bool) -> Result<(), JournalError> {
        self.connection()
            .execute("UPDATE runs SET verified = ?1 WHERE id = ?2", params![verified, id])
            .map_err(|error| self.failure(&error))?;
        Ok(())
    }
}

impl Journal for SqliteJournal {
    fn begin(&self, header: &RunHeader) -> Result<Box<dyn RunJournal>, JournalError> {
        let driver = self.driver()?;
        let keys = self.keys().and(&header.keys);
        let text = serde_json::to_string(header).map_err(|error| {
            problem(
                &self.0.path,
                JournalErrorKind::Io,
                format!("the run has no JSON form: {error}"),
            )
        })?;
        let connection = self.connection();
        connection
            .prepare_cached(
                "INSERT INTO runs (id, continues, started_ms, version, provider, model, task, header, driver)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )
            .and_then(|mut insert| {
                insert.execute(params![
                    header.id,
                    header.continues,
                    whole(header.started_ms),
                    header.version,
                    header.spec.provider,
                    header.spec.model,
                    keys.out_of_text(&header.spec.task),
                    keys.out_of_text(&text),
                    driver.name,
                ])
            })
            .map_err(|error| self.failure(&error))?;
        let run = connection.last_insert_rowid();
        drop(connection);
        Ok(Box::new(Log { journal: self.clone(), run, next: 0, ended: false }))
    }

    fn load(&self, id: &str) -> Result<RecordedRun, JournalError> {
        SqliteJournal::load(self, id)
    }

    fn go_on(&self, id: &str) -> Result<Box<dyn RunJournal>, JournalError> {
        let mine = self.driver()?;
        let connection = self.connection();
        let wrong = |error| self.failure(&error);
        let (run, driver, ended): (i64, Option<String>, bool) = connection
            .query_row(
                "SELECT number, driver, termination IS NOT NULL FROM runs WHERE id = ?1",
                [id],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .map_err(wrong)?;
        if ended {
            let what = format!("the run {id} has ended");
            return Err(problem(&self.0.path, JournalErrorKind::Busy, what));
        }
        let busy = || {
            let what = format!(
                "the run {id} is under way in another process: stop that first, or wait for its end"
            );
            problem(&self.0.path, JournalErrorKind::Busy, what)
        };
        if driver.as_ref().is_some_and(|name| driver::is_alive(&self.0.path, name)) {
            return Err(busy());
        }
        // Whoever is first takes it.
        let taken = connection
            .execute(
                "UPDATE runs SET driver = ?1 WHERE number = ?2 AND driver IS ?3",
                params![mine.name, run, driver],
            )
            .map_err(wrong)?;
        if taken == 0 {
            return Err(busy());
        }
        let (first, last) = schema::keys(run);
        let next: i64 = connection
            .query_row(
                "SELECT count(*) FROM log WHERE key BETWEEN ?1 AND ?2",
                [first, last],
                |row| row.get(0),
            )
            .map_err(wrong)?;
        drop(connection);
        Ok(Box::new(Log { journal: self.clone(), run, next, ended: false }))
    }
}

/// One run in the file.
struct Log {
    journal: SqliteJournal,
    /// Its number.
    run: i64,
    next: i64,
    ended: bool,
}

impl Drop for Log {
    /// Nobody drives it any more, though it has not ended.
    fn drop(&mut self) {
        let Ok(driver) = self.journal.driver() else { return };
        if !self.ended {
            let _ = self.journal.connection().execute(
                "UPDATE runs SET driver = NULL WHERE number = ?1 AND driver = ?2",
                params![self.run, driver.name],
            );
        }
    }
}

impl RunJournal for Log {
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        let keys = self.journal.keys();
        let connection = self.journal.connection();
        let from = schema::keys(self.run).0 + self.next;
        let write = || -> rusqlite::Result<()> {
            let mut insert = connection.prepare_cached(
                "INSERT INTO log (key, at_ns, wall_ms, name, event, effects)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?;
            for (key, record) in (from..).zip(records) {
                insert.execute(params![
                    key,
                    i64::try_from(record.at.as_nanos()).unwrap_or(i64::MAX),
                    whole(record.wall_ms),
                    record.name,
                    keys.out_of_text(&record.event),
                    record.effects.as_ref().map(|effects| keys.out_of_text(effects)),
                ])?;
            }
            Ok(())
        };
        let written = match records {
            [] => Ok(()),
            // One statement is a transaction of its own.
            [_] => write(),
            _ => all_or_none(&connection, write),
        };
        self.journal.wait_less(&connection, &written);
        written.map_err(|error| self.journal.failure(&error))?;
        self.next += records.len() as i64;
        Ok(())
    }

    fn ended(&mut self, outcome: &Outcome, text: &str) -> Result<(), JournalError> {
        let keys = self.journal.keys();
        self.journal
            .connection()
            .prepare_cached(
                "UPDATE runs SET ended_ms = ?2, termination = ?3, category = ?4, turns = ?5,
                 cost_usd = ?6, outcome = ?7, verified = ?8, driver = NULL WHERE number = ?1",
            )
            .and_then(|mut update| {
                update.execute(params![
                    self.run,
                    whole(crate::clock::wall_ms()),
                    outcome.termination.as_str(),
                    outcome.category().as_str(),
                    outcome.turns,
                    // No price is no cost of nothing.
                    (!outcome.cost_unknown).then(|| outcome.cost.to_usd()),
                    keys.out_of_text(text),
                    outcome.verified,
                ])
            })
            .map_err(|error| self.journal.failure(&error))?;
        self.ended = true;
        Ok(())
    }
}

/// A transaction, by statements that are compiled once.
fn all_or_none(
    connection: &Connection,
    write: impl FnOnce() -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let run = |sql: &str| connection.prepare_cached(sql)?.execute([]).map(drop);
    run("BEGIN IMMEDIATE")?;
    let written = write().and_then(|()| run("COMMIT"));
    // A failure may have rolled it back by itself.
    if written.is_err() && !connection.is_autocommit() {
        run("ROLLBACK")?;
    }
    written
}

/// Makes the file where there is none, for its owner alone.
fn create(path: &Path) -> std::io::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(folder)?;
    }
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn problem(path: &Path, kind: JournalErrorKind, what: impl Into<String>) -> JournalError {
    JournalError { journal: path.display().to_string(), problem: what.into(), kind }
}

fn failure(path: &Path, error: &rusqlite::Error) -> JournalError {
    use JournalErrorKind as Kind;
    let (kind, what) = match error {
        rusqlite::Error::QueryReturnedNoRows => (Kind::NotFound, "there is no such run"),
        rusqlite::Error::SqliteFailure(code, _) => match code.code {
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
                (Kind::Busy, "another process holds it")
            }
            ErrorCode::DatabaseCorrupt => (
                Kind::Damaged,
                "it is damaged: what is whole can be read; move it away to begin a new one",
            ),
            // A page that the file should have is not there.
            ErrorCode::SystemIoFailure
                if code.extended_code == rusqlite::ffi::SQLITE_IOERR_SHORT_READ =>
            {
                (Kind::Damaged, "it is cut: what is whole can be read")
            }
            ErrorCode::NotADatabase => (Kind::Damaged, "no journal of Endstop: give another file"),
            ErrorCode::DiskFull => (Kind::Io, "the disk is full"),
            ErrorCode::ReadOnly => (Kind::Io, "it cannot be written"),
            _ => (Kind::Io, ""),
        },
        _ => (Kind::Damaged, ""),
    };
    let what = if what.is_empty() { error.to_string() } else { format!("{what} ({error})") };
    problem(path, kind, what)
}
