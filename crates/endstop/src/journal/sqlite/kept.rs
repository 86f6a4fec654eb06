//! Small values that a long-lived process keeps in the journal, so that they survive its restart.
//!
//! ```no_run
//! use endstop::journal::SqliteJournal;
//! let journal = SqliteJournal::open("journal.db")?;
//! journal.keep("proxy", &[("salt".to_owned(), "5f1c".to_owned())], 10)?;
//! assert_eq!(journal.kept("proxy")?, [("salt".to_owned(), "5f1c".to_owned())]);
//! # Ok::<(), endstop::journal::JournalError>(())
//! ```

use super::journal::SqliteJournal;
use super::write::all_or_none;
use crate::journal::JournalError;
use rusqlite::{Connection, params};

/// The table. It is created by its first use, because few journals need it.
const TABLE: &str = "
CREATE TABLE IF NOT EXISTS kept (
    number      INTEGER PRIMARY KEY AUTOINCREMENT, -- in the order in which they were kept
    owner       TEXT NOT NULL,
    name        TEXT NOT NULL,
    value       TEXT NOT NULL,
    UNIQUE (owner, name)
) STRICT;
";

/// The longest value that is read, in bytes. A journal can come from anyone.
const LONGEST: i64 = 4096;

impl SqliteJournal {
    /// Keeps values of an owner by their names. A name that is known gets the new value; of more than `most`
    /// names the oldest go.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn keep(
        &self,
        owner: &str,
        values: &[(String, String)],
        most: usize,
    ) -> Result<(), JournalError> {
        let connection = self.connection();
        let kept = all_or_none(&connection, || write(&connection, owner, values, most));
        kept.map_err(|error| self.failure(&error))
    }

    /// Returns the values of an owner, the oldest first.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn kept(&self, owner: &str) -> Result<Vec<(String, String)>, JournalError> {
        read(&self.connection(), owner).map_err(|error| self.failure(&error))
    }
}

fn write(
    connection: &Connection,
    owner: &str,
    values: &[(String, String)],
    most: usize,
) -> rusqlite::Result<()> {
    connection.execute_batch(TABLE)?;
    let mut insert = connection
        .prepare_cached("INSERT OR REPLACE INTO kept (owner, name, value) VALUES (?1, ?2, ?3)")?;
    for (name, value) in values {
        insert.execute(params![owner, name, value])?;
    }
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    connection.execute(
        "DELETE FROM kept WHERE owner = ?1 AND number <= (
             SELECT number FROM kept WHERE owner = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)",
        params![owner, most],
    )?;
    Ok(())
}

fn read(connection: &Connection, owner: &str) -> rusqlite::Result<Vec<(String, String)>> {
    let has_table = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'kept'";
    if connection.query_row(has_table, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(Vec::new());
    }
    let mut select = connection.prepare(
        "SELECT name, value FROM kept WHERE owner = ?1
         AND length(name) <= ?2 AND length(value) <= ?2 ORDER BY number",
    )?;
    let rows = select.query_map(params![owner, LONGEST], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(values: &[(&str, &str)]) -> Vec<(String, String)> {
        values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn newest_values_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.db");
        let journal = SqliteJournal::open(&path).unwrap();
        assert_eq!(journal.kept("a").unwrap(), []);
        journal.keep("a", &pairs(&[("1", "x"), ("2", "y"), ("3", "z")]), 3).unwrap();
        journal.keep("b", &pairs(&[("1", "other")]), 3).unwrap();
        // The first is the newest now, so the second goes.
        journal.keep("a", &pairs(&[("1", "new"), ("4", "w")]), 3).unwrap();
        drop(journal);
        let journal = SqliteJournal::open(&path).unwrap();
        assert_eq!(journal.kept("a").unwrap(), pairs(&[("3", "z"), ("1", "new"), ("4", "w")]));
        assert_eq!(journal.kept("b").unwrap(), pairs(&[("1", "other")]));
        journal.keep("a", &[], 0).unwrap();
        assert_eq!(journal.kept("a").unwrap(), []);
    }
}
