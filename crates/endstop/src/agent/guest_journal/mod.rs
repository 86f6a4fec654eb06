//! Journals the runs of guests on a thread of its own, so that no client waits for a disk.
//!
//! ```text
//! let record = journal.begin(header, report);
//! record.hide(keys of the request);  // before the events that may quote them
//! record.events(guest.take_events(), guest.run().is_none());
//! record.ended(outcome);
//! ```

#[cfg(test)]
mod tests;
mod work;
mod writer;

use crate::journal::{Journal, RunHeader};
use endstop_core::guest::Recorded;
use endstop_core::{EventKind, Message, Outcome, Part};
use endstop_wire::redact::KnownKeys;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use tokio::sync::oneshot;
use work::{
    ALWAYS_WAITING, Beginning, MOST_IN_WRITE, MOST_WAITING, MOST_WAITING_IN_ALL, Shared, Step,
    THREAD_ENDED, USUAL, Work,
};
use writer::Writer;

/// Journals the runs of guests. Cloning is cheap; clones share the thread that writes.
///
/// The records of all runs within 50 milliseconds are stored in one transaction, if the journal
/// implements [`Journal::batch`]. The thread ends when the last clone and the last
/// [`GuestRecord`] are dropped.
///
/// ```
/// # #[cfg(feature = "journal")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use endstop::agent::GuestJournal;
/// use endstop::core::RunSpec;
/// use endstop::core::guest::{Guest, GuestStart};
/// use endstop::journal::{RunHeader, SqliteJournal};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// let folder = tempfile::tempdir()?;
/// let journal = SqliteJournal::open(folder.path().join("journal.db"))?;
/// let guests = GuestJournal::start(Arc::new(journal.clone()))?;
///
/// let spec = RunSpec { guest: Some(Default::default()), ..RunSpec::default() };
/// let header = RunHeader { id: "g1".into(), spec: spec.clone_with(None), ..RunHeader::default() };
/// let record = guests.begin(header, |problem| panic!("{problem}"));
/// let mut guest = Guest::new(spec, GuestStart { record: true, ..GuestStart::default() });
/// let outcome = guest.close(Duration::from_secs(1), true, "no call was made");
/// record.events(guest.take_events(), true);
/// record.ended(outcome);
/// record.close().await;
/// assert!(journal.load("g1")?.outcome.is_some());
/// # Ok(()) }
/// # #[cfg(not(feature = "journal"))] fn main() {}
/// ```
#[derive(Clone)]
pub struct GuestJournal {
    send: Sender<Work>,
    shared: Arc<Shared>,
}

impl fmt::Debug for GuestJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestJournal").finish_non_exhaustive()
    }
}

impl GuestJournal {
    /// Starts the thread that writes.
    ///
    /// # Errors
    /// The system starts no further thread.
    pub fn start(journal: Arc<dyn Journal>) -> io::Result<GuestJournal> {
        let (send, receive) = channel();
        let shared = Arc::new(Shared::default());
        let writer = Writer::new(journal, receive, Arc::clone(&shared));
        std::thread::Builder::new().name("guest journal".to_owned()).spawn(|| writer.run())?;
        Ok(GuestJournal { send, shared })
    }

    /// Begins the record of a run. `report` receives the failure of the journal, at most once, on the
    /// thread that writes. The records of all runs wait until it returns.
    pub fn begin(
        &self,
        header: RunHeader,
        report: impl FnOnce(String) + Send + 'static,
    ) -> GuestRecord {
        let run = self.shared.next.fetch_add(1, Ordering::Relaxed);
        self.shared.open.fetch_add(1, Ordering::Relaxed);
        let waiting = Arc::<AtomicU64>::default();
        let record = GuestRecord { run, journal: self.clone(), waiting: Arc::clone(&waiting) };
        record.send(Step::Begin(Box::new(Beginning { header, report: Box::new(report), waiting })));
        record
    }
}

/// The record of a guest's run in a journal.
///
/// No method waits for the journal, except [`close`](GuestRecord::close). A process that is killed
/// loses at most the events of the last 50 milliseconds and what waits for a slow disk. A journal that
/// fails does not end the run: the failure is reported once. To drop the record closes it, but does not
/// wait.
pub struct GuestRecord {
    run: u64,
    journal: GuestJournal,
    /// Bytes of this run that wait for the journal.
    waiting: Arc<AtomicU64>,
}

impl fmt::Debug for GuestRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestRecord").finish_non_exhaustive()
    }
}

impl GuestRecord {
    fn send(&self, step: Step) {
        // The thread ends only after all records are dropped, unless it panics.
        if let Err(unsent) = self.journal.send.send(Work { run: self.run, step })
            && let Step::Begin(beginning) = unsent.0.step
        {
            (beginning.report)(THREAD_ENDED.to_owned());
        }
    }

    /// Redacts these secrets from the records that follow.
    pub fn hide(&self, keys: &KnownKeys) {
        if !keys.is_empty() {
            self.send(Step::Hide(keys.clone()));
        }
    }

    /// Journals events of [`Guest::take_events`](endstop_core::Guest::take_events). `ended` is `true`
    /// if the last of them ended the run.
    pub fn events(&self, events: Vec<Recorded>, ended: bool) {
        if events.is_empty() {
            return;
        }
        let shared = &self.journal.shared;
        let bytes: u64 = events.iter().map(bytes_of).sum();
        let own = self.waiting.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let before = shared.waiting.fetch_add(bytes, Ordering::Relaxed);
        let all = before.saturating_add(bytes);
        // The channel itself has no bound, because a bounded one would count events and not bytes.
        let most = if own > MOST_WAITING {
            Some(MOST_WAITING)
        } else {
            (all > MOST_WAITING_IN_ALL && own > ALWAYS_WAITING).then_some(MOST_WAITING_IN_ALL)
        };
        if let Some(most) = most {
            self.waiting.fetch_sub(bytes, Ordering::Relaxed);
            shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
            return self.send(Step::Lost(most));
        }
        self.send(Step::Events { events, ended, bytes });
        if before < MOST_IN_WRITE && all >= MOST_IN_WRITE {
            shared.end_rest();
        }
    }

    /// Journals the outcome; nothing follows.
    pub fn ended(&self, outcome: Arc<Outcome>) {
        self.send(Step::Ended(outcome));
    }

    /// Waits until everything is written, or could not be written.
    pub async fn close(self) {
        let (send, receive) = oneshot::channel();
        self.send(Step::Close(Some(send)));
        // If others are recorded, their events may be written with the end of this run.
        if self.journal.shared.open.load(Ordering::Relaxed) == 1 {
            self.journal.shared.hurry();
        }
        // An error: the sender was dropped, which is the sign.
        let _ = receive.await;
    }
}

impl Drop for GuestRecord {
    fn drop(&mut self) {
        self.send(Step::Close(None));
        self.journal.shared.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The approximate size of an event's content.
fn bytes_of(recorded: &Recorded) -> u64 {
    let of = |parts: &[Part]| parts.iter().map(Part::byte_len).sum::<u64>();
    let content = match &recorded.event.kind {
        EventKind::Asked { call } => call.input.iter().map(Message::byte_len).sum(),
        EventKind::TurnEnded { turn, .. } | EventKind::TurnFailed { partial: Some(turn), .. } => {
            of(&turn.parts)
        }
        EventKind::ToolEnded { report, .. } => report.content.len() as u64,
        _ => 0,
    };
    USUAL + content
}
