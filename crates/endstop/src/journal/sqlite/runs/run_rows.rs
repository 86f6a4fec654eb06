//! The rows of a run: its beginning, its records and its end, each stored inside a transaction.
//!
//! ```text
//! let beginning = Beginning::new(&journal, &header)?;       // JSON, before the file is locked
//! let begun = beginning.store(&connection)?;                // inside a transaction
//! let log = beginning.stored(&journal, begun);              // after it was committed
//! ```

use super::header;
use super::texts::{Prepared, Stored};
use crate::journal::sqlite::file::tables;
use crate::journal::sqlite::journal::SqliteJournal;
use crate::journal::{JournalError, Record, RunHeader, without_secrets};
use endstop_core::{NanoUsd, Outcome};
use endstop_wire::redact::KnownKeys;
use rusqlite::{Connection, params};
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

/// A run that is about to be stored.
pub(in crate::journal::sqlite) struct Beginning<'h> {
    header: &'h RunHeader,
    driver: &'h str,
    task: Cow<'h, str>,
    parts: Arc<header::Parts>,
    conversation: Prepared,
}

/// The number of a run that was stored, and those of its messages.
pub(in crate::journal::sqlite) type Begun = (i64, Vec<i64>);

impl<'h> Beginning<'h> {
    /// Serialises the header, before the file is locked.
    pub(in crate::journal::sqlite) fn new(
        journal: &'h SqliteJournal,
        header: &'h RunHeader,
    ) -> Result<Beginning<'h>, JournalError> {
        let driver = &journal.driver()?.name;
        let keys = journal.keys().and(&header.keys);
        let wrong = |error: serde_json::Error| journal.no_json(&error);
        let parts = journal.0.headers.split(header, &keys).map_err(wrong)?;
        let task = keys.out_of_text(&header.spec.task);
        let conversation =
            Prepared::new(&journal.0.known, &header.spec.messages, &keys).map_err(wrong)?;
        Ok(Beginning { header, driver, task, parts, conversation })
    }

    /// Returns the approximate number of bytes to be written.
    pub(in crate::journal::sqlite) fn bytes(&self) -> usize {
        self.task.len() + self.conversation.bytes()
    }

    /// Stores the run; must be called inside a transaction. Returns `None` if the conversation that
    /// it continues is no longer stored.
    pub(in crate::journal::sqlite) fn store(
        &self,
        connection: &Connection,
    ) -> rusqlite::Result<Option<Begun>> {
        let Some(numbers) = self.conversation.store(connection)? else { return Ok(None) };
        let Beginning { header, driver, task, .. } = self;
        connection
            .prepare_cached(
                "INSERT INTO runs (id, continues, started_ms, version, provider, model, task,
                 driver, conversation, project, uncounted)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            )?
            .execute(params![
                header.id,
                header.continues,
                whole(header.started_ms),
                header.version,
                header.spec.provider,
                header.spec.model,
                task,
                driver,
                self.conversation.number(&numbers),
                header.settings.get("project").and_then(Value::as_str),
                uncounted(&header.settings),
            ])?;
        let run = connection.last_insert_rowid();
        self.parts.store(connection, run)?;
        Ok(Some((run, numbers)))
    }

    /// Returns the record of the run, after the transaction was committed.
    pub(in crate::journal::sqlite) fn stored(
        &self,
        journal: &SqliteJournal,
        (run, numbers): Begun,
    ) -> Log {
        let conversation = self.conversation.stored(&journal.0.known, &numbers);
        Log::new(journal, run, 0, conversation)
    }
}

/// Stores records of a run, the first one at this place; must be called inside a transaction unless it is
/// one record.
pub(in crate::journal::sqlite) fn insert(
    connection: &Connection,
    (run, next): (i64, i64),
    records: &[Record],
    keys: &KnownKeys,
) -> rusqlite::Result<()> {
    let from = tables::keys(run).0 + next;
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
            clean(keys, &record.event),
            record.effects.as_deref().map(|text| clean(keys, text)),
        ])?;
    }
    Ok(())
}

/// Stores the end of a run; must be called inside a transaction. Returns the numbers of the messages
/// that it ended with.
pub(in crate::journal::sqlite) fn store_end(
    connection: &Connection,
    run: i64,
    outcome: &Outcome,
    text: &str,
    ending: Option<&Prepared>,
) -> rusqlite::Result<Vec<i64>> {
    let (numbers, conversation) = match ending {
        // The base conversation belongs to this run, and a driven run is never pruned. Therefore `store`
        // cannot return `None` here.
        Some(ending) => {
            let numbers = ending.store(connection)?.unwrap_or_default();
            let number = ending.number(&numbers);
            (numbers, Some(number))
        }
        None => (Vec::new(), None),
    };
    connection
        .prepare_cached(
            "UPDATE runs SET ended_ms = ?2, termination = ?3, category = ?4, turns = ?5,
             cost_usd = ?6, outcome = ?7, verified = ?8, ended_conversation = ?9,
             provider = COALESCE(provider, ?10), model = COALESCE(model, ?11),
             driver = NULL WHERE number = ?1",
        )?
        .execute(params![
            run,
            whole(crate::clock::wall_ms()),
            outcome.termination.as_str(),
            outcome.category().as_str(),
            outcome.turns,
            outcome.known_cost().map(NanoUsd::to_usd),
            text,
            outcome.verified,
            conversation,
            // Of a guest they are known from its calls only.
            outcome.provider,
            outcome.model,
        ])?;
    Ok(numbers)
}

/// The record of one run in the file.
pub(in crate::journal::sqlite) struct Log {
    pub(in crate::journal::sqlite) journal: SqliteJournal,
    /// Number of the run in `runs`.
    pub(in crate::journal::sqlite) run: i64,
    pub(in crate::journal::sqlite) next: i64,
    pub(in crate::journal::sqlite) ended: bool,
    /// The conversation that the run began with, if this process has stored it.
    pub(in crate::journal::sqlite) conversation: Stored,
    /// The conversation that the run ended with.
    pub(in crate::journal::sqlite) ending: Option<Prepared>,
}

impl Log {
    pub(in crate::journal::sqlite) fn new(
        journal: &SqliteJournal,
        run: i64,
        next: i64,
        conversation: Stored,
    ) -> Log {
        Log { journal: journal.clone(), run, next, ended: false, conversation, ending: None }
    }
}

pub(in crate::journal::sqlite) fn bytes_of(records: &[Record]) -> usize {
    records.iter().map(|record| record.event.len()).sum()
}

/// Removes the keys from `hide`. The recorder has already removed the run's own keys and secrets of
/// known formats, so that without such keys the text is not searched again.
fn clean<'t>(keys: &KnownKeys, text: &'t str) -> Cow<'t, str> {
    if keys.is_empty() { text.into() } else { without_secrets(keys, text.to_owned()).into() }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns why a run spends nothing: the demo of its settings, or a recording.
fn uncounted(settings: &Value) -> Option<&str> {
    let is_replay = settings.get("replay").and_then(Value::as_bool) == Some(true);
    settings.get("demo").and_then(Value::as_str).or(is_replay.then_some("replay"))
}
