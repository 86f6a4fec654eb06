//! Errors of a journal.
//!
//! ```text
//! if error.kind == JournalErrorKind::Busy { … }
//! ```

use crate::park::AnswerRefused;

/// Error of a journal operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{journal}: {problem}")]
pub struct JournalError {
    /// Path of the journal's file.
    pub journal: String,
    /// Description of the problem and of how to fix it.
    pub problem: String,
    /// Category of the problem, for programs.
    pub kind: JournalErrorKind,
}

impl JournalError {
    /// Creates an error of a journal with this name or path.
    pub fn new(
        journal: impl Into<String>,
        problem: impl Into<String>,
        kind: JournalErrorKind,
    ) -> JournalError {
        JournalError { journal: journal.into(), problem: problem.into(), kind }
    }
}

/// The reason why the request of a parked run could not be decided.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DecideError {
    /// No decision is possible.
    #[error(transparent)]
    Refused(#[from] AnswerRefused),
    /// The journal has no such run, or cannot be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Category of a [`JournalError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JournalErrorKind {
    /// The file cannot be opened, read or written: no such folder, no permission, a full disk.
    Io,
    /// Another process has locked the file or drives the run.
    Busy,
    /// The file is damaged, or it is not a journal.
    Damaged,
    /// The file was written by a version of Endstop with other tables.
    Version,
    /// The journal has no such run.
    NotFound,
}
