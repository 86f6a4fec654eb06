//! The records of one session.

use super::record::Record;
use crate::read::build::conversation::Tally;

/// The records of a session, in the order of the file.
#[derive(Default)]
pub(super) struct Session {
    pub(super) ids: Vec<String>,
    pub(super) records: Vec<Record>,
    /// Irregularities of the session's records.
    pub(super) odd: Tally,
}
