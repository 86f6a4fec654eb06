//! Stores runs: the header of a run, its events as they happen, and its end.
//!
//! ```text
//! let log = journal.resume("4k2v9x0abc")?; // this process drives the run now
//! ```

use super::run_rows::{Beginning, Log, bytes_of, insert, store_end};
use super::texts::{Prepared, Stored};
use super::together;
use crate::journal::sqlite::driver;
use crate::journal::sqlite::file::failure::problem;
use crate::journal::sqlite::file::tables;
use crate::journal::sqlite::journal::SqliteJournal;
use crate::journal::sqlite::write::all_or_none;
use crate::journal::{
    BatchJournal, BatchRunJournal, Journal, JournalError, JournalErrorKind, Record, RecordedRun,
    RunHeader, RunJournal, RunWrite, without_secrets,
};
use endstop_core::{Message, Outcome};
use endstop_wire::redact::KnownKeys;
use rusqlite::{Connection, params};
use std::time::Duration;

impl Journal for SqliteJournal {
    fn hidden(&self) -> KnownKeys {
        KnownKeys::clone(&self.keys())
    }

    fn batch(&self) -> Option<&dyn BatchJournal> {
        Some(self)
    }

    fn begin(&self, header: &RunHeader) -> Result<Box<dyn RunJournal>, JournalError> {
        loop {
            let beginning = Beginning::new(self, header)?;
            self.grows(beginning.bytes());
            let store = |connection: &Connection| beginning.store(connection);
            let begun = self.writing(|connection| all_or_none(connection, || store(connection)))?;
            if let Some(begun) = begun {
                return Ok(Box::new(beginning.stored(self, begun)));
            }
            // Another process has pruned the runs that this conversation was shared with. Forget
            // the cached numbers and store the whole conversation.
            self.0.known.forget();
        }
    }

    fn load(&self, id: &str) -> Result<RecordedRun, JournalError> {
        SqliteJournal::load(self, id)
    }

    fn resume(&self, id: &str) -> Result<Box<dyn RunJournal>, JournalError> {
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
        let (first, last) = tables::keys(run);
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

impl BatchJournal for SqliteJournal {
    fn write_together(&self, writes: &mut [RunWrite<'_>]) -> bool {
        together::write(self, writes)
    }
}

impl Log {
    fn insert(&self, connection: &Connection, records: &[Record]) -> rusqlite::Result<()> {
        let keys = self.journal.keys();
        let write = || insert(connection, (self.run, self.next), records, &keys);
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
        self.journal.grows(bytes_of(records));
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

    fn parked(&mut self) -> Result<(), JournalError> {
        let driver = self.journal.driver()?.name.clone();
        self.journal.writing(|connection| {
            let sql = "UPDATE runs SET driver = NULL WHERE number = ?1 AND driver = ?2";
            connection.execute(sql, params![self.run, driver])
        })?;
        // There is nothing left to release.
        self.ended = true;
        Ok(())
    }

    fn ended(&mut self, outcome: &Outcome, text: &str) -> Result<(), JournalError> {
        let text = without_secrets(&self.journal.keys(), text.to_owned());
        let ending = self.ending.as_ref();
        let end = |connection: &Connection| store_end(connection, self.run, outcome, &text, ending);
        self.journal.grows(text.len() + ending.map_or(0, Prepared::bytes));
        let numbers =
            self.journal.writing(|connection| all_or_none(connection, || end(connection)))?;
        if let Some(ending) = ending {
            ending.stored(&self.journal.0.known, &numbers);
        }
        self.ended = true;
        Ok(())
    }

    fn batch(&mut self) -> Option<&mut dyn BatchRunJournal> {
        Some(self)
    }
}

impl BatchRunJournal for Log {
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
}
