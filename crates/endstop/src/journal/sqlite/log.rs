//! Stores runs: the header of a run, its events as they happen, and its end.
//!
//! ```text
//! let log = journal.go_on("4k2v9x0abc")?; // this process drives the run now
//! ```

use super::failure::problem;
use super::journal::SqliteJournal;
use super::texts::{Prepared, Stored};
use super::write::all_or_none;
use super::{driver, header, tables};
use crate::journal::{
    Journal, JournalError, JournalErrorKind, Record, RecordedRun, RunHeader, RunJournal,
    without_secrets,
};
use endstop_core::{Message, NanoUsd, Outcome};
use endstop_wire::redact::KnownKeys;
use rusqlite::{Connection, params};
use serde_json::Value;
use std::borrow::Cow;
use std::time::Duration;

impl Journal for SqliteJournal {
    fn hidden(&self) -> KnownKeys {
        KnownKeys::clone(&self.keys())
    }

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
                         header, driver, conversation, project)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, '', ?8, ?9, ?10)",
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
                        header.settings.get("project").and_then(Value::as_str),
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
        let from = tables::keys(self.run).0 + self.next;
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
                    clean(&keys, &record.event),
                    record.effects.as_deref().map(|text| clean(&keys, text)),
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
                    outcome.known_cost().map(NanoUsd::to_usd),
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

/// Removes the keys from `hide`. The recorder has already removed the run's own keys and secrets of
/// known formats, so that without such keys the text is not searched again.
fn clean<'t>(keys: &KnownKeys, text: &'t str) -> Cow<'t, str> {
    if keys.is_empty() { text.into() } else { without_secrets(keys, text.to_owned()).into() }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
