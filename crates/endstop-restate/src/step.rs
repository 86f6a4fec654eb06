//! A step: what the engine's journal stores of a run, and a run put together from its steps.
//!
//! ```
//! use endstop_restate::{Past, Step};
//! let mut past = Past::default();
//! past.take(&Step { header: Some("{\"id\":\"r1\"}".to_owned()), ..Step::default() });
//! assert_eq!((past.steps(), past.recorded()?.header.id.as_str()), (1, "r1"));
//! # Ok::<(), endstop::journal::JournalError>(())
//! ```

use crate::letter::Steered;
use endstop::journal::{JournalError, JournalErrorKind, Record, RecordedRun};
use endstop::park::ParkRequest;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::time::Duration;

/// One journalled step of a run: its new events, and the header before the first of them. The engine
/// stores a step before the effects of its events are performed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// SHA-256 of the JSON of the step before it, in hexadecimal; `None` in the first one. A step that
    /// a cut-off worker has stored is recognised, because no later step names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The header of the run as JSON; only in its first step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// The events since the previous step. Deltas of a turn are merged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<StoredRecord>,
    /// The letters to the run that were decided since the previous step, in the order of their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steered: Vec<Steered>,
    /// The state that the run is in after this step, if it does not work on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<StepEnd>,
}

impl Step {
    /// Returns SHA-256 of the step's JSON, in hexadecimal.
    pub fn sha256(&self) -> String {
        hash(&serde_json::to_vec(self).unwrap_or_default())
    }

    /// Returns the outcome as JSON, if the run has ended with this step.
    pub fn outcome(&self) -> Option<&str> {
        match &self.end {
            Some(StepEnd::Ended { outcome }) => Some(outcome),
            _ => None,
        }
    }
}

/// The state of a run that does not work on after a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum StepEnd {
    /// The run waits for a decision.
    Parked {
        /// The request.
        request: Box<ParkRequest>,
    },
    /// The run has ended.
    Ended {
        /// The outcome as JSON, without secrets.
        outcome: String,
    },
    /// The run could not be started or continued.
    Refused {
        /// The reason.
        why: String,
    },
}

/// An event with the effects that it requested, as a journal stores it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRecord {
    /// Time since the run began, on the run's clock, in nanoseconds.
    pub at_ns: u64,
    /// Wall clock in Unix milliseconds.
    pub wall_ms: u64,
    /// Name of the event.
    pub name: String,
    /// The event as JSON.
    pub event: String,
    /// The requested effects as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effects: Option<String>,
}

impl From<&Record> for StoredRecord {
    fn from(record: &Record) -> StoredRecord {
        StoredRecord {
            at_ns: u64::try_from(record.at.as_nanos()).unwrap_or(u64::MAX),
            wall_ms: record.wall_ms,
            name: record.name.clone(),
            event: record.event.clone(),
            effects: record.effects.clone(),
        }
    }
}

impl From<&StoredRecord> for Record {
    fn from(record: &StoredRecord) -> Record {
        Record {
            at: Duration::from_nanos(record.at_ns),
            wall_ms: record.wall_ms,
            name: record.name.clone(),
            event: record.event.clone(),
            effects: record.effects.clone(),
        }
    }
}

/// The events after which a run has made progress. A worker that dies before the next of them has
/// died in the same place again.
const PROGRESS: [&str; 8] = [
    "turn_ended",
    "turn_failed",
    "tool_ended",
    "answered",
    "decided",
    "compacted",
    "validated",
    "verified",
];

/// The part of a run that is journalled: all of its steps so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Past {
    header: Option<String>,
    records: Vec<Record>,
    steps: u64,
    last: Option<String>,
    steered: u64,
    outcome: Option<String>,
}

impl Past {
    /// Adds the next step.
    pub fn take(&mut self, step: &Step) {
        self.steps += 1;
        self.last = Some(step.sha256());
        if let Some(header) = &step.header {
            self.header = Some(header.clone());
        }
        self.records.extend(step.records.iter().map(Record::from));
        if let Some(last) = step.steered.last() {
            self.steered = last.number;
        }
        if let Some(outcome) = step.outcome() {
            self.outcome = Some(outcome.to_owned());
        }
    }

    /// Returns the number of steps.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns SHA-256 of the last step, which the next step names as the one before it.
    pub fn last(&self) -> Option<&str> {
        self.last.as_deref()
    }

    /// Returns the number of letters to the run that were decided: the next one has the number after it.
    pub fn steered(&self) -> u64 {
        self.steered
    }

    /// `true` if the run has started, so that it is resumed and not started.
    pub fn has_begun(&self) -> bool {
        self.header.is_some()
    }

    /// Returns the events with their effects.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Returns the outcome as JSON, if the run has ended.
    pub fn outcome(&self) -> Option<&str> {
        self.outcome.as_deref()
    }

    /// Returns the run as a journal would load it.
    ///
    /// # Errors
    /// The run has no header, or it cannot be read.
    pub fn recorded(&self) -> Result<RecordedRun, JournalError> {
        let Some(header) = &self.header else {
            let problem = "the run has not begun";
            return Err(JournalError::new("engine", problem, JournalErrorKind::NotFound));
        };
        RecordedRun::from_records(header, &self.records, self.outcome.as_deref())
    }

    /// Returns how many times the run was resumed since it last made progress.
    pub fn resumed_in_place(&self) -> usize {
        let names = self.records.iter().rev().map(|record| record.name.as_str());
        names.take_while(|name| !PROGRESS.contains(name)).filter(|name| *name == "resumed").count()
    }
}

/// Returns SHA-256 of a text, in hexadecimal.
pub(crate) fn hash(text: &[u8]) -> String {
    Sha256::digest(text).iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past(names: &[&str]) -> Past {
        let record =
            |name: &&str| StoredRecord { name: (*name).to_owned(), ..StoredRecord::default() };
        let records = names.iter().map(record).collect();
        let mut past = Past::default();
        past.take(&Step { records, ..Step::default() });
        past
    }

    #[test]
    fn progress_resets_resumed_count() {
        let count = |names: &[&str]| past(names).resumed_in_place();
        assert_eq!(count(&["start"]), 0);
        assert_eq!(count(&["start", "resumed", "delta", "resumed"]), 2);
        assert_eq!(count(&["start", "resumed", "turn_ended", "resumed"]), 1);
        assert_eq!(count(&["start", "resumed", "resumed", "tool_ended"]), 0);
    }

    #[test]
    fn step_survives_its_json() {
        let record = Record {
            at: Duration::from_nanos(1_500_000_001),
            wall_ms: 7,
            name: "tick".to_owned(),
            event: "{\"event\":\"tick\"}".to_owned(),
            effects: Some("[]".to_owned()),
        };
        let step = Step {
            after: Some("00ff".to_owned()),
            header: Some("{}".to_owned()),
            records: vec![StoredRecord::from(&record)],
            steered: vec![Steered { number: 3, refused: None }],
            end: Some(StepEnd::Refused { why: "why".to_owned() }),
        };
        let json = serde_json::to_string(&step).unwrap();
        let read: Step = serde_json::from_str(&json).unwrap();
        assert_eq!(read, step);
        assert_eq!(Record::from(&read.records[0]), record);
    }
}
