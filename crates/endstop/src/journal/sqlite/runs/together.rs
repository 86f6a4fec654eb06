//! Stores what several runs have to write in one transaction, because most of what a small
//! transaction costs is its commit.
//!
//! ```text
//! if !together::write(&journal, &mut writes) { /* nothing was stored: write each run separately */ }
//! ```

use super::run_rows::{Beginning, Begun, Log, bytes_of, insert, store_end};
use super::texts::{Prepared, Stored};
use crate::journal::sqlite::journal::SqliteJournal;
use crate::journal::sqlite::write::all_or_none;
use crate::journal::{Record, RunEnd, RunHeader, RunJournal, RunWrite, without_secrets};
use endstop_core::Outcome;
use endstop_wire::redact::KnownKeys;
use rusqlite::Connection;
use std::any::Any;
use std::sync::Arc;

/// Stores all of these writes, or none of them. Returns `false` if none was stored.
pub(in crate::journal::sqlite) fn write(
    journal: &SqliteJournal,
    writes: &mut [RunWrite<'_>],
) -> bool {
    let keys = journal.keys();
    // Serialises everything before the file is locked.
    let parts = writes.iter_mut().map(|write| {
        let place = place(journal, write.header, write.log.as_deref_mut())?;
        Part::new(journal, place, write.records, write.end)
    });
    let parts: Option<Vec<_>> = parts.collect();
    let Some(parts) = parts else { return false };
    let bytes = parts.iter().map(Part::bytes).sum();
    let store = |connection: &Connection| -> rusqlite::Result<Vec<Numbers>> {
        parts.iter().map(|part| part.store(connection, &keys)).collect()
    };
    journal.grows(bytes);
    let stored = journal.writing(|connection| all_or_none(connection, || store(connection)));
    let Ok(stored) = stored else { return false };
    for ((write, part), numbers) in writes.iter_mut().zip(parts).zip(stored) {
        part.stored(journal, write.log, numbers);
    }
    true
}

/// The unwritten part of one run, as it is stored.
struct Part<'w> {
    run: Run<'w>,
    records: &'w [Record],
    end: Option<End<'w>>,
}

enum Run<'w> {
    New(Beginning<'w>),
    /// The number of the run, and the place of its next record.
    Old(i64, i64),
}

struct End<'w> {
    outcome: &'w Outcome,
    text: String,
    conversation: Prepared,
}

/// The numbers of what was stored.
struct Numbers {
    begun: Option<Begun>,
    /// Those of the messages at the end.
    messages: Vec<i64>,
}

/// Returns the run to write, and what is stored of its conversation; `None` if this journal cannot write
/// it.
fn place<'w>(
    journal: &'w SqliteJournal,
    header: Option<&'w RunHeader>,
    log: Option<&mut (dyn RunJournal + 'static)>,
) -> Option<(Run<'w>, Stored)> {
    match (header, log) {
        (Some(header), None) => {
            // The conversation has no number yet, so that all of it is stored at the end; the
            // messages that are already there are found.
            Some((Run::New(Beginning::new(journal, header).ok()?), Stored::default()))
        }
        (None, Some(log)) => {
            let log: &Log = (log.batch()? as &dyn Any).downcast_ref()?;
            let mine = Arc::ptr_eq(&log.journal.0, &journal.0) && !log.ended;
            Some((Run::Old(log.run, log.next), mine.then_some(log.conversation)?))
        }
        _ => None,
    }
}

impl<'w> Part<'w> {
    /// Returns `None` if this journal cannot write it.
    fn new(
        journal: &SqliteJournal,
        (run, conversation): (Run<'w>, Stored),
        records: &'w [Record],
        end: Option<RunEnd<'w>>,
    ) -> Option<Part<'w>> {
        let end = match end {
            Some(RunEnd { outcome, text, messages, keys }) => {
                let own = journal.keys();
                let keys = own.and(keys);
                let known = &journal.0.known;
                let conversation = Prepared::after(conversation, known, messages, &keys).ok()?;
                let text = without_secrets(&own, text.to_owned());
                Some(End { outcome, text, conversation })
            }
            None => None,
        };
        Some(Part { run, records, end })
    }

    fn bytes(&self) -> usize {
        let begins = match &self.run {
            Run::New(beginning) => beginning.bytes(),
            Run::Old(..) => 0,
        };
        let ends = self.end.as_ref().map_or(0, |end| end.text.len() + end.conversation.bytes());
        begins + bytes_of(self.records) + ends
    }

    fn store(&self, connection: &Connection, keys: &KnownKeys) -> rusqlite::Result<Numbers> {
        let (begun, run, next) = match &self.run {
            Run::New(beginning) => {
                // `None`: another process has pruned the conversation that it continues.
                let begun = beginning.store(connection)?;
                let begun = begun.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
                let run = begun.0;
                (Some(begun), run, 0)
            }
            Run::Old(run, next) => (None, *run, *next),
        };
        insert(connection, (run, next), self.records, keys)?;
        let messages = match &self.end {
            Some(End { outcome, text, conversation }) => {
                store_end(connection, run, outcome, text, Some(conversation))?
            }
            None => Vec::new(),
        };
        Ok(Numbers { begun, messages })
    }

    /// Updates the record of the run, after the transaction was committed.
    fn stored(
        self,
        journal: &SqliteJournal,
        log: &mut Option<Box<dyn RunJournal>>,
        numbers: Numbers,
    ) {
        if let (Run::New(beginning), Some(begun)) = (&self.run, numbers.begun) {
            *log = Some(Box::new(beginning.stored(journal, begun)));
        }
        let log = log.as_deref_mut().and_then(|log| {
            let log: &mut dyn Any = log.batch()?;
            log.downcast_mut::<Log>()
        });
        // `new` has checked the type.
        if let Some(log) = log {
            log.next += self.records.len() as i64;
            log.ended = self.end.is_some();
        }
        if let Some(end) = self.end {
            end.conversation.stored(&journal.0.known, &numbers.messages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Journal, RunHeader};
    use std::path::Path;

    const PAGE: u64 = 4096;
    const RUNS: u64 = 40;

    /// The number of pages in the write-ahead log.
    fn pages(file: &Path) -> u64 {
        std::fs::metadata(file.with_extension("db-wal")).unwrap().len() / PAGE
    }

    /// In a table in the order of the runs, each run would write at least a page of its own.
    #[test]
    fn events_of_runs_that_write_at_once_share_pages() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal.db");
        let journal = SqliteJournal::open(&file).unwrap();
        let begin = |run: u64| {
            let header = RunHeader { id: format!("r{run}"), ..RunHeader::default() };
            Some(journal.begin(&header).unwrap())
        };
        let mut logs: Vec<_> = (0..RUNS).map(begin).collect();
        // Seven of these events fit in a page.
        let records = [Record { event: "x".repeat(500), ..Record::default() }];
        let rounds = 10;
        let before = pages(&file);
        for _ in 0..rounds {
            let write = |log| RunWrite { header: None, log, records: &records, end: None };
            let mut writes: Vec<_> = logs.iter_mut().map(write).collect();
            assert!(super::write(&journal, &mut writes));
        }
        let written = pages(&file) - before;
        assert!(written > rounds * RUNS / 7, "{written} pages");
        assert!(written < rounds * RUNS / 2, "{written} pages for {} events", rounds * RUNS);
    }
}
