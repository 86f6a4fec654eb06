//! The SQLite journal: all runs in one database file, which any SQLite tool can read.
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
//! The file is in WAL mode, so everything that was written before a process is killed survives.
//! Several processes may store their runs in one file.

mod driver;
mod hardening;
mod header;
mod prune;
mod read;
mod schema;
mod space;
mod texts;
mod upgrade;
mod write;

pub use prune::{PruneSpec, Pruned};
pub use read::RunSummary;

use super::{
    Journal, JournalError, JournalErrorKind, Record, RecordedRun, RunHeader, RunJournal,
    without_secrets,
};
use driver::Driver;
use endstop_core::{Message, Outcome};
use endstop_wire::redact::KnownKeys;
use hardening::{Access, Deadline};
use rusqlite::{Connection, ErrorCode, OpenFlags, params};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use texts::{Known, Prepared, Stored};
use write::all_or_none;

/// A journal in one SQLite file. Cloning is cheap; clones share the connection.
#[derive(Clone)]
pub struct SqliteJournal(Arc<Inner>);

struct Inner {
    path: PathBuf,
    connection: Mutex<Connection>,
    /// Version of the tables. A file of an earlier version stays as it is if it is only read.
    version: i64,
    deadline: Deadline,
    /// `None` if the journal was opened read-only.
    driver: Option<Driver>,
    keys: Mutex<Arc<KnownKeys>>,
    known: Known,
    /// Description of permissions that were too wide when the file was opened.
    exposed: Option<String>,
    /// Set after a wait for another process timed out. While it is set, writes do not wait again,
    /// because otherwise every step of the run would wait for the full timeout.
    impatient: AtomicBool,
    /// Estimated bytes in the write-ahead log since the last checkpoint.
    in_log: AtomicU64,
}

impl fmt::Debug for SqliteJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteJournal").field("path", &self.0.path).finish_non_exhaustive()
    }
}

impl SqliteJournal {
    /// The `application_id` that marks an SQLite file as a journal: "Ends" in ASCII.
    pub const APPLICATION_ID: i64 = schema::APPLICATION;

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
        let version = schema::VERSION;
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

    fn keys(&self) -> Arc<KnownKeys> {
        Arc::clone(&self.0.keys.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        let connection = self.0.connection.lock().unwrap_or_else(PoisonError::into_inner);
        // A write or a destructor may have lowered the timeout, so it is reset for each use.
        let _ = connection.busy_timeout(schema::PATIENCE);
        self.0.deadline.renew();
        connection
    }

    fn failure(&self, error: &rusqlite::Error) -> JournalError {
        failure(&self.0.path, error)
    }

    fn no_json(&self, error: &serde_json::Error) -> JournalError {
        let what = format!("the run cannot be written as JSON: {error}");
        problem(&self.0.path, JournalErrorKind::Io, what)
    }

    /// Opens a second connection, which does not wait for the writes of this process's runs.
    fn another_connection(&self) -> Result<Connection, JournalError> {
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

    fn driver(&self) -> Result<&Driver, JournalError> {
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

impl Journal for SqliteJournal {
    fn begin(&self, header: &RunHeader) -> Result<Box<dyn RunJournal>, JournalError> {
        let driver = self.driver()?;
        let keys = self.keys().and(&header.keys);
        let parts = header::split(header, &keys).map_err(|error| self.no_json(&error))?;
        let task = keys.out_of_text(&header.spec.task);
        loop {
            let messages = &header.spec.messages;
            let prepared = Prepared::new(&self.0.known, messages, &keys)
                .map_err(|error| self.no_json(&error))?;
            let begin = |connection: &Connection| {
                let Some(numbers) = prepared.store(connection)? else { return Ok(None) };
                connection
                    .prepare_cached(
                        "INSERT INTO runs (id, continues, started_ms, version, provider, model, task,
                         header, driver, conversation) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, '', ?8, ?9)",
                    )?
                    .execute(params![
                        header.id,
                        header.continues,
                        whole(header.started_ms),
                        header.version,
                        header.spec.provider,
                        header.spec.model,
                        task,
                        driver.name,
                        prepared.number(&numbers),
                    ])?;
                let run = connection.last_insert_rowid();
                parts.store(connection, run)?;
                Ok(Some((run, numbers)))
            };
            self.grows(task.len() + prepared.bytes());
            let begun = self.writing(|connection| all_or_none(connection, || begin(connection)))?;
            if let Some((run, numbers)) = begun {
                let conversation = prepared.stored(&self.0.known, &numbers);
                return Ok(Box::new(Log::new(self, run, 0, conversation)));
            }
            // Another process has pruned the runs that this conversation was shared with. Forget
            // the cached numbers and store the whole conversation.
            self.0.known.forget();
        }
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
                "the run {id} is driven by another process; stop that process or wait until the run ends"
            );
            problem(&self.0.path, JournalErrorKind::Busy, what)
        };
        if driver.as_ref().is_some_and(|name| driver::is_alive(&self.0.path, name)) {
            return Err(busy());
        }
        // `driver IS ?3` makes this a compare-and-swap: if two processes resume the run at the same
        // time, only one update matches.
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
        // The place of the next event is counted and not remembered, because another process may
        // have written the events so far.
        let next: i64 = connection
            .query_row(
                "SELECT count(*) FROM log WHERE key BETWEEN ?1 AND ?2",
                [first, last],
                |row| row.get(0),
            )
            .map_err(wrong)?;
        drop(connection);
        Ok(Box::new(Log::new(self, run, next, Stored::default())))
    }
}

/// The record of one run in the file.
struct Log {
    journal: SqliteJournal,
    /// Number of the run in `runs`.
    run: i64,
    next: i64,
    ended: bool,
    /// The conversation that the run began with, if this process has stored it.
    conversation: Stored,
    /// The conversation that the run ended with.
    ending: Option<Prepared>,
}

impl Log {
    fn new(journal: &SqliteJournal, run: i64, next: i64, conversation: Stored) -> Log {
        Log { journal: journal.clone(), run, next, ended: false, conversation, ending: None }
    }
}

impl Log {
    fn insert(&self, connection: &Connection, records: &[Record]) -> rusqlite::Result<()> {
        let keys = self.journal.keys();
        // The recorder has already removed the run's own keys and secrets of known formats. Only
        // the keys from `hide` are left, and scanning for none of them would cost time for nothing.
        let clean = |text: &str| {
            let text = text.to_owned();
            if keys.is_empty() { text } else { without_secrets(&keys, text) }
        };
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
                    clean(&record.event),
                    record.effects.as_deref().map(clean),
                ])?;
            }
            Ok(())
        };
        match records {
            [] => Ok(()),
            // A single statement is a transaction by itself; `BEGIN` and `COMMIT` would only cost
            // time.
            [_] => write(),
            _ => all_or_none(connection, write),
        }
    }

    fn appended(&mut self, records: &[Record]) {
        self.next += records.len() as i64;
        self.journal.grows(records.iter().map(|record| record.event.len()).sum());
    }
}

impl Drop for Log {
    /// Releases a run that has not ended, so that another process can resume it.
    fn drop(&mut self) {
        let Ok(driver) = self.journal.driver() else { return };
        if !self.ended {
            let connection = self.journal.connection();
            // A destructor may run on an async thread, so it must not wait for another process. If
            // the update fails, the lock file still shows that this process is gone after it exits.
            let _ = connection.busy_timeout(Duration::ZERO);
            let _ = connection.execute(
                "UPDATE runs SET driver = NULL WHERE number = ?1 AND driver = ?2",
                params![self.run, driver.name],
            );
        }
    }
}

impl RunJournal for Log {
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        self.journal.writing(|connection| self.insert(connection, records))?;
        self.appended(records);
        Ok(())
    }

    fn try_append(&mut self, records: &[Record]) -> Option<Result<(), JournalError>> {
        let written = self.journal.try_writing(|connection| self.insert(connection, records))?;
        if written.is_ok() {
            self.appended(records);
        }
        Some(written)
    }

    fn messages(&mut self, messages: &[Message], keys: &KnownKeys) -> bool {
        let keys = self.journal.keys().and(keys);
        let known = &self.journal.0.known;
        self.ending = Prepared::after(self.conversation, known, messages, &keys).ok();
        self.ending.is_some()
    }

    fn ended(&mut self, outcome: &Outcome, text: &str) -> Result<(), JournalError> {
        let keys = self.journal.keys();
        let end = |connection: &Connection| {
            let conversation = match &self.ending {
                // The base conversation belongs to this run, and a driven run is never pruned.
                // Therefore `store` cannot return `None` here.
                Some(ending) => Some((ending, ending.store(connection)?.unwrap_or_default())),
                None => None,
            };
            connection
                .prepare_cached(
                    "UPDATE runs SET ended_ms = ?2, termination = ?3, category = ?4, turns = ?5,
                     cost_usd = ?6, outcome = ?7, verified = ?8, ended_conversation = ?9,
                     driver = NULL WHERE number = ?1",
                )?
                .execute(params![
                    self.run,
                    whole(crate::clock::wall_ms()),
                    outcome.termination.as_str(),
                    outcome.category().as_str(),
                    outcome.turns,
                    // If no price is known, the cost is unknown and not 0. If part of it is known,
                    // that part is a lower bound.
                    (!outcome.cost_unknown || outcome.cost.0 > 0).then(|| outcome.cost.to_usd()),
                    without_secrets(&keys, text.to_owned()),
                    outcome.verified,
                    conversation.as_ref().map(|(ending, numbers)| ending.number(numbers)),
                ])?;
            Ok(conversation)
        };
        self.journal.grows(text.len() + self.ending.as_ref().map_or(0, Prepared::bytes));
        let written =
            self.journal.writing(|connection| all_or_none(connection, || end(connection)))?;
        if let Some((ending, numbers)) = written {
            ending.stored(&self.journal.0.known, &numbers);
        }
        self.ended = true;
        Ok(())
    }
}

/// Creates the file if it does not exist, readable only by its owner. Removes the access of other
/// users to an existing file, and returns a description of the access that they had.
fn create(path: &Path) -> std::io::Result<Option<String>> {
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
    let file = options.open(path)?;
    Ok(tighten(path, &file))
}

/// Removes access to the file and to SQLite's companion files for everyone but the owner.
#[cfg(unix)]
fn tighten(path: &Path, file: &std::fs::File) -> Option<String> {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |metadata: &std::fs::Metadata| metadata.permissions().mode() & 0o7777;
    let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let was = mode(&metadata);
    let others = was & 0o077;
    if others == 0 {
        return None;
    }
    if let Err(error) = file.set_permissions(Permissions::from_mode(was & 0o700)) {
        return Some(format!(
            "other users can access it (mode {was:04o}), and its permissions could not be changed: {error}"
        ));
    }
    for end in ["-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        if let Ok(metadata) = std::fs::symlink_metadata(&name).as_ref()
            && metadata.is_file()
        {
            let _ = std::fs::set_permissions(&name, Permissions::from_mode(mode(metadata) & 0o700));
        }
    }
    Some(format!("other users could access it (mode {was:04o}); from now on only its owner can"))
}

/// Does nothing: other systems have no such modes.
#[cfg(not(unix))]
fn tighten(_: &Path, _: &std::fs::File) -> Option<String> {
    None
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
                (Kind::Busy, "another process has locked it")
            }
            ErrorCode::DatabaseCorrupt => (
                Kind::Damaged,
                "it is damaged: the intact part can still be read; move the file away to start a new journal",
            ),
            // The file is shorter than its header states.
            ErrorCode::SystemIoFailure
                if code.extended_code == rusqlite::ffi::SQLITE_IOERR_SHORT_READ =>
            {
                (Kind::Damaged, "it is truncated: the intact part can still be read")
            }
            ErrorCode::NotADatabase => {
                (Kind::Damaged, "not an Endstop journal; choose another file")
            }
            ErrorCode::OperationInterrupted => {
                (Kind::Damaged, "reading it takes too long; choose another file")
            }
            ErrorCode::DiskFull => (Kind::Io, "the disk is full"),
            ErrorCode::ReadOnly => (Kind::Io, "it cannot be written"),
            _ => (Kind::Io, ""),
        },
        _ => (Kind::Damaged, ""),
    };
    let what = if what.is_empty() { error.to_string() } else { format!("{what} ({error})") };
    problem(path, kind, what)
}
