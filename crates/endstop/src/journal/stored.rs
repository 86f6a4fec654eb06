//! The stored form of a run, for journals that are not SQLite: what to write, and how to read it.
//!
//! ```text
//! let header = header.to_json()?;                                  // Journal::begin
//! let run = RecordedRun::from_records(&header, &records, outcome)?; // Journal::load
//! ```

use super::error::{JournalError, JournalErrorKind};
use super::interface::Record;
use super::recorded::{RecordedRun, RunHeader};
use super::redaction::{cuts_for_model, without_secrets};
use endstop_core::{Event, EventKind, bounded_json};
use serde_json::Value;

impl RunHeader {
    /// Returns the header as JSON, without the secrets in [`keys`](RunHeader::keys). The number of
    /// secrets that were cut out is its member `redacted`.
    ///
    /// # Errors
    /// The header cannot be written as JSON, for example because of a limit that is not a number.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        Ok(without_secrets(&self.keys, serde_json::to_string(self)?))
    }
}

impl RecordedRun {
    /// Reads a run from its stored parts: the text of [`RunHeader::to_json`], the records, and the
    /// text that [`RunJournal::ended`](super::RunJournal::ended) received, with its messages. If a
    /// record cannot be read, the run has everything before it, and `damage`.
    ///
    /// # Errors
    /// The header cannot be read.
    pub fn from_records(
        header: &str,
        records: &[Record],
        outcome: Option<&str>,
    ) -> Result<RecordedRun, JournalError> {
        let header: RunHeader = bounded_json::from_str(header).map_err(|error| {
            let problem = format!("the header of the run cannot be read: {error}");
            JournalError::new("journal", problem, JournalErrorKind::Damaged)
        })?;
        let mut run = RecordedRun { redacted: header.redacted, header, ..RecordedRun::default() };
        match outcome.map(bounded_json::from_str).transpose() {
            Ok(outcome) => run.outcome = outcome,
            Err(error) => run.damage = Some(format!("its outcome cannot be read: {error}")),
        }
        for (number, record) in records.iter().enumerate() {
            match parsed(record) {
                Ok((event, effects)) => {
                    run.redacted += cuts_for_model(&event.kind, &record.event);
                    run.events.push(event);
                    run.wall_ms.push(record.wall_ms);
                    run.effects.push(effects);
                }
                Err(error) => {
                    run.damage = Some(format!("event {number} cannot be read: {error}"));
                    break;
                }
            }
        }
        Ok(run)
    }
}

fn parsed(record: &Record) -> Result<(Event, Vec<Value>), serde_json::Error> {
    let kind: EventKind = bounded_json::from_str(&record.event)?;
    let effects = record.effects.as_deref().map(bounded_json::from_str).transpose()?;
    Ok((Event::new(record.at, kind), effects.unwrap_or_default()))
}
