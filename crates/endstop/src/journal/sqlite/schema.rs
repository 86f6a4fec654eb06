//! Creates the tables of the journal, checks their version, and refuses other files.
//!
//! ```text
//! schema::prepare(&mut connection, path)?; // creates or upgrades the tables
//! ```

use super::failure::{failure, problem};
use super::tables::{APPLICATION, PATIENCE, RUNS_AND_LOG, SHARED, SPENDING, TRIGGERS, VERSION};
use super::{space, upgrade};
use crate::journal::{JournalError, JournalErrorKind};
use rusqlite::Connection;
use std::path::Path;

/// Creates the tables in an empty file and upgrades those of an earlier version. Refuses a file
/// that is not a journal or is of a later version.
pub(super) fn prepare(connection: &mut Connection, path: &Path) -> Result<(), JournalError> {
    let wrong = |error| failure(path, &error);
    connection.busy_timeout(PATIENCE).map_err(wrong)?;
    let known = check(connection, path)?;
    if known.is_none() {
        // Can only be set in an empty file. It lets pages of removed runs be returned to the file
        // system.
        connection.pragma_update(None, "auto_vacuum", "incremental").map_err(wrong)?;
    }
    connection.pragma_update(None, "journal_mode", "wal").map_err(wrong)?;
    set_up(connection).map_err(wrong)?;
    if known == Some(VERSION) {
        return Ok(());
    }
    // Another process may create the tables at the same moment, so the version is checked again
    // under the write lock.
    let transaction = connection
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .map_err(wrong)?;
    match check(&transaction, path)? {
        Some(VERSION) => return Ok(()),
        Some(version) => upgrade::upgrade(&transaction, version),
        None => [RUNS_AND_LOG, SHARED, SPENDING, TRIGGERS]
            .iter()
            .try_for_each(|tables| transaction.execute_batch(tables)),
    }
    .map_err(wrong)?;
    transaction.pragma_update(None, "application_id", APPLICATION).map_err(wrong)?;
    transaction.pragma_update(None, "user_version", VERSION).map_err(wrong)?;
    transaction.commit().map_err(wrong)?;
    if known.is_some() {
        space::return_much(path);
    }
    Ok(())
}

/// Configures a connection that writes.
pub(super) fn set_up(connection: &Connection) -> rusqlite::Result<()> {
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

/// Returns the version of the journal's tables, or `None` if the file is empty.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<Option<i64>, JournalError> {
    // One snapshot, because another process may create the tables between two reads. Within the
    // caller's transaction there is one already.
    let snapshot = connection.is_autocommit().then(|| connection.unchecked_transaction());
    let _snapshot = snapshot.transpose().map_err(|error| failure(path, &error))?;
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
            return Ok(None);
        }
    }
    if application != APPLICATION {
        let what = "an SQLite database, but not an Endstop journal; choose another file";
        return Err(problem(path, JournalErrorKind::Damaged, what));
    }
    if version > VERSION {
        let what = format!(
            "written by a later version of Endstop (version {version} of the tables; this program supports up to {VERSION}): use that version, or choose another file"
        );
        return Err(problem(path, JournalErrorKind::Newer, what));
    }
    Ok(Some(version))
}
