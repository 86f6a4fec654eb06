//! Stores what several runs have to write in one transaction.
//!
//! ```text
//! recorders.for_each(Recorder::gather);
//! let mut writes: Vec<_> = recorders.filter_map(Recorder::unwritten).collect();
//! if journal.batch().is_some_and(|journal| journal.write_together(&mut writes)) {
//!     recorders.for_each(Recorder::stored_together);
//! } else {
//!     recorders.for_each(Recorder::write_alone);
//! }
//! ```

use super::ending::Ending;
use super::{Recorder, begin, hidden};
use crate::journal::{Journal, RunEnd, RunHeader, RunWrite};
use endstop_core::Outcome;
use std::sync::Arc;

impl Recorder {
    /// Records a new run, which the first write begins.
    pub(crate) fn later(journal: Arc<dyn Journal>, header: Box<RunHeader>) -> Recorder {
        let keys = header.keys.clone();
        let all_keys = keys.and(&hidden(&*journal));
        let begins = Some((journal, header));
        // Only a write of this module may begin the run.
        Recorder { begins, keys, all_keys, is_holding: true, ..Recorder::default() }
    }

    /// Keeps the outcome until it is written; nothing follows.
    pub(crate) fn ends(&mut self, mut outcome: Outcome) {
        if self.is_recording() {
            let messages = std::mem::take(&mut outcome.messages);
            let text = self.clean(serde_json::to_string(&outcome).unwrap_or_default());
            self.ending = Some(Ending { outcome, text, messages });
        }
    }

    /// `true` if the end of the run waits to be written.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Makes records of the deltas that wait, which must precede [`unwritten`](Recorder::unwritten).
    pub(crate) fn gather(&mut self) {
        self.join();
    }

    /// Returns what waits to be written.
    pub(crate) fn unwritten(&mut self) -> Option<RunWrite<'_>> {
        let header = self.begins.as_ref().map(|(_, header)| &**header);
        let is_idle = header.is_none() && self.batch.is_empty() && self.ending.is_none();
        if is_idle || !self.is_recording() {
            return None;
        }
        let keys = &self.keys;
        let end = self.ending.as_ref().map(|Ending { outcome, text, messages }| RunEnd {
            outcome,
            text,
            messages,
            keys,
        });
        Some(RunWrite { header, log: &mut self.log, records: &self.batch, end })
    }

    /// Notes that everything that waited has been written.
    pub(crate) fn stored_together(&mut self) {
        self.begins = None;
        self.batch.clear();
        self.behind = 0;
        self.ending = None;
    }

    /// Writes what waits, without other runs. This may block the thread.
    pub(crate) fn write_alone(&mut self) {
        if let Some((journal, header)) = self.begins.take() {
            let begun = begin(&*journal, &header);
            self.take_back(begun);
        }
        self.write();
        let Some(Ending { mut outcome, text, messages }) = self.ending.take() else { return };
        outcome.messages = messages;
        if !self.ended(&mut outcome) && self.log.is_some() {
            let messages = std::mem::take(&mut outcome.messages);
            self.ending = Some(Ending { outcome, text, messages });
        }
    }
}
