//! Runs that branched off other runs. The row of a branch has the other run, its header the turn.
//!
//! ```text
//! let branches = journal.branches("4k2v9x0abc")?; // [{ id: "7kq2m9xe0p", turn: 4 }]
//! ```

use crate::journal::JournalError;
use crate::journal::sqlite::journal::SqliteJournal;
use endstop_core::{BranchPoint, bounded_json};
use rusqlite::{Connection, OptionalExtension as _};
use serde::{Deserialize, Serialize};

/// Maximum number of runs that are looked at.
const MOST: u32 = 1000;

/// A run that branched off another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BranchSummary {
    /// Id of the branch.
    #[serde(rename = "run_id")]
    pub id: String,
    /// Number of turns of the other run that it began with.
    pub turn: u32,
}

impl SqliteJournal {
    /// Returns the runs that branched off this run, oldest first, at most a thousand.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn branches(&self, id: &str) -> Result<Vec<BranchSummary>, JournalError> {
        let connection = self.connection();
        let wrong = |error| self.failure(&error);
        let mut select = connection
            .prepare_cached(
                "SELECT id, rowid FROM runs WHERE continues = ?1 ORDER BY rowid LIMIT ?2",
            )
            .map_err(wrong)?;
        let rows = select
            .query_map((id, MOST), |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))
            .map_err(wrong)?;
        let mut branches = Vec::new();
        for row in rows {
            let (branch, number) = row.map_err(wrong)?;
            let turn = branched_at(&connection, number, id).map_err(wrong)?;
            branches.extend(turn.map(|turn| BranchSummary { id: branch, turn }));
        }
        Ok(branches)
    }
}

/// Returns the turn at which a run branched off the one that its row names; `None` if it only
/// continues that run.
pub(in crate::journal::sqlite) fn branched_at(
    connection: &Connection,
    number: i64,
    from: &str,
) -> rusqlite::Result<Option<u32>> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Header {
        spec: Spec,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Spec {
        branched_from: Option<BranchPoint>,
    }
    let mut select = connection.prepare_cached(
        "SELECT texts.text FROM parts JOIN texts ON texts.number = parts.text
         WHERE run = ?1 AND place = ''",
    )?;
    let text: Option<String> = select.query_row([number], |row| row.get(0)).optional()?;
    // A header that cannot be read belongs to a damaged run, which is listed without its turn.
    let header = text.and_then(|text| bounded_json::from_str::<Header>(&text).ok());
    // A run that continues a branch has the header of the branch.
    let point = header.and_then(|header| header.spec.branched_from);
    Ok(point.filter(|point| point.run_id == from).map(|point| point.turn))
}
