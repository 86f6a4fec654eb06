//! Creates the tables of the journal, checks their version, and refuses other files.
//!
//! ```text
//! schema::check_id(path)?;                 // before the file is opened for good
//! schema::prepare(&mut connection, path)?; // creates the tables
//! ```

use super::failure::{failure, problem};
use super::hardening;
use super::tables::{
    APPLICATION, BEFORE_0_1, PATIENCE, RUNS_AND_LOG, SHARED, SPENDING, TRIGGERS, VERSION,
};
use crate::journal::sqlite::file;
use crate::journal::{JournalError, JournalErrorKind};
use rusqlite::Connection;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// The pragma for the number in the header that names the program of a file.
const APPLICATION_ID: &str = "application_id";

/// Creates the tables in an empty file. Refuses a file that is not a journal or is of another version.
pub(in crate::journal::sqlite) fn prepare(
    connection: &mut Connection,
    path: &Path,
) -> Result<(), JournalError> {
    let wrong = |error| failure(path, &error);
    connection.busy_timeout(PATIENCE).map_err(wrong)?;
    let is_new = !check(connection, path)?;
    if is_new {
        // Can only be set in an empty file. It lets pages of removed runs be returned to the file
        // system.
        connection.pragma_update(None, "auto_vacuum", "incremental").map_err(wrong)?;
    }
    connection.pragma_update(None, "journal_mode", "wal").map_err(wrong)?;
    set_up(connection).map_err(wrong)?;
    if !is_new {
        return Ok(());
    }
    // Another process may create the tables at the same moment, so this is checked again under the
    // write lock.
    let transaction = connection
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .map_err(wrong)?;
    if check(&transaction, path)? {
        return Ok(());
    }
    for tables in [RUNS_AND_LOG, SHARED, SPENDING, TRIGGERS] {
        transaction.execute_batch(tables).map_err(wrong)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION).map_err(wrong)?;
    transaction.pragma_update(None, "user_version", VERSION).map_err(wrong)?;
    transaction.commit().map_err(wrong)
}

/// Configures a connection that writes.
pub(in crate::journal::sqlite) fn set_up(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(PATIENCE)?;
    // In WAL mode `normal` loses nothing if the process is killed; a power failure may lose the
    // last moments. `full` would sync at every step of a run.
    connection.pragma_update(None, "synchronous", "normal")?;
    // In KiB, because it is negative. A writer mostly appends, and reads few pages again, so more would
    // only be memory.
    connection.pragma_update(None, "cache_size", -512)?;
    // `copy_log` checkpoints instead, on a thread that may wait for the disk.
    connection.pragma_update(None, "wal_autocheckpoint", 0)
}

/// Refuses a file with the `application_id` of another program, or of a journal from before version 0.1,
/// and leaves it as it is: when SQLite opens a file in WAL mode it creates files next to it, and a
/// writer copies the log into it.
pub(in crate::journal::sqlite) fn check_id(path: &Path) -> Result<(), JournalError> {
    if std::fs::metadata(path).map_or(0, |found| found.len()) == 0 {
        return Ok(());
    }
    let id = file::open_immutable(path).and_then(|connection| number(&connection, APPLICATION_ID));
    match id {
        Ok(0) => match id_in_log(path) {
            Some(id) => known(id, path),
            // `check` reads it from the tables.
            None => Ok(()),
        },
        Ok(id) => known(id, path),
        // If the file cannot be opened, `open` and `read` report it.
        Err(_) => Ok(()),
    }
}

/// Reads the `application_id` from the log of a file that has none yet, because its process was killed
/// before the first checkpoint. Its first transaction created the tables, and begins with page 1.
fn id_in_log(path: &Path) -> Option<i64> {
    // The header of the log, the header of a frame, and the part of the page up to the number.
    let mut begin = [0; 32 + 24 + 72];
    File::open(hardening::companion(path, "-wal")).ok()?.read_exact(&mut begin).ok()?;
    let number = |at: usize| Some(i32::from_be_bytes(*begin.get(at..)?.first_chunk()?));
    (number(32)? == 1).then(|| number(124)).flatten().map(i64::from).filter(|id| *id != 0)
}

/// Returns `Ok` for the `application_id` of a journal that this version reads.
fn known(id: i64, path: &Path) -> Result<(), JournalError> {
    match id {
        APPLICATION => Ok(()),
        BEFORE_0_1 => {
            let what = "a journal from before version 0.1 of Endstop, which this version cannot read; choose another file";
            Err(problem(path, JournalErrorKind::Version, what))
        }
        _ => {
            let what = "an SQLite database, but not an Endstop journal; choose another file";
            Err(problem(path, JournalErrorKind::Damaged, what))
        }
    }
}

/// Returns `true` if the file contains the tables of a journal, and `false` if it is empty.
pub(in crate::journal::sqlite) fn check(
    connection: &Connection,
    path: &Path,
) -> Result<bool, JournalError> {
    // One snapshot, because another process may create the tables between two reads. Within the
    // caller's transaction there is one already.
    let snapshot = connection.is_autocommit().then(|| connection.unchecked_transaction());
    let _snapshot = snapshot.transpose().map_err(|error| failure(path, &error))?;
    let number = |name: &str| number(connection, name).map_err(|error| failure(path, &error));
    let (id, version) = (number(APPLICATION_ID)?, number("user_version")?);
    if id == 0 && version == 0 {
        let tables: i64 = connection
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .map_err(|error| failure(path, &error))?;
        if tables == 0 {
            return Ok(false);
        }
    }
    known(id, path)?;
    if version != VERSION {
        let what = format!(
            "written by another version of Endstop (version {version} of the tables; this program supports {VERSION}): use that version, or choose another file"
        );
        return Err(problem(path, JournalErrorKind::Version, what));
    }
    Ok(true)
}

fn number(connection: &Connection, pragma: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, pragma, |row| row.get(0))
}
