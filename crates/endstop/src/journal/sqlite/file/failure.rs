//! Describes the failures of SQLite.
//!
//! ```text
//! connection.execute(sql, []).map_err(|error| failure(path, &error))?;
//! ```

use crate::journal::error::{JournalError, JournalErrorKind};
use rusqlite::ErrorCode;
use std::path::Path;

/// Returns an error with this description.
pub(in crate::journal::sqlite) fn problem(
    path: &Path,
    kind: JournalErrorKind,
    what: impl Into<String>,
) -> JournalError {
    JournalError { journal: path.display().to_string(), problem: what.into(), kind }
}

/// Describes an error of SQLite and its fix.
pub(in crate::journal::sqlite) fn failure(path: &Path, error: &rusqlite::Error) -> JournalError {
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
        rusqlite::Error::IntegralValueOutOfRange(_, amount) if *amount < 0 => {
            (Kind::Damaged, "it is damaged: the books of the day have a negative amount")
        }
        _ => (Kind::Damaged, ""),
    };
    let what = if what.is_empty() { error.to_string() } else { format!("{what} ({error})") };
    problem(path, kind, what)
}
