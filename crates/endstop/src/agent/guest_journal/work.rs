//! The messages from the records to the thread that writes, and the state that both share.

use crate::journal::RunHeader;
use endstop_core::Outcome;
use endstop_core::guest::Recorded;
use endstop_wire::redact::KnownKeys;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Maximum size in bytes of the events of a run that wait for a slow disk. Above it the journal of
/// the run is given up, because the memory of a guest must be bounded, and its client must not wait.
pub(super) const MOST_WAITING: u64 = 64 << 20;
/// Maximum size in bytes of what waits for all runs. Above it, the runs for which much waits are
/// given up.
pub(super) const MOST_WAITING_IN_ALL: u64 = 512 << 20;
/// The size in bytes that may wait for each run, whatever waits for others: no run loses its record
/// because of the others.
pub(super) const ALWAYS_WAITING: u64 = 1 << 20;
/// Assumed size of an event without its content, in bytes.
pub(super) const USUAL: u64 = 512;
/// Events of this many bytes are written together, and without delay, because they wait in memory.
pub(super) const MOST_IN_WRITE: u64 = 256 << 10;

/// The report for a run whose record no thread writes.
pub(super) const THREAD_ENDED: &str =
    "the journal cannot store this run: the thread that writes it has ended by a panic";

/// The state that the thread shares with the records.
#[derive(Default)]
pub(super) struct Shared {
    /// Bytes that wait for the journal.
    pub(super) waiting: AtomicU64,
    /// Number of the next run.
    pub(super) next: AtomicU64,
    /// Number of the records that are not closed.
    pub(super) open: AtomicUsize,
    /// `true` if the thread must not wait for more.
    pub(super) hurries: Mutex<bool>,
    pub(super) changed: Condvar,
}

impl Shared {
    pub(super) fn hurries(&self) -> MutexGuard<'_, bool> {
        self.hurries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for this time, until enough for a write is waiting, or until the thread must not wait.
    pub(super) fn rest(&self, time: Duration) {
        let must_wait =
            |hurries: &mut bool| !*hurries && self.waiting.load(Ordering::Relaxed) < MOST_IN_WRITE;
        let waited = self.changed.wait_timeout_while(self.hurries(), time, must_wait);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }

    /// Ends a rest, because enough for a write is waiting.
    pub(super) fn end_rest(&self) {
        // With the lock, so that it does not come between the check and the wait.
        let hurries = self.hurries();
        self.changed.notify_all();
        drop(hurries);
    }

    /// Ends a rest, or prevents the next one.
    pub(super) fn hurry(&self) {
        *self.hurries() = true;
        self.changed.notify_all();
    }
}

/// Work for the thread that writes.
pub(super) struct Work {
    pub(super) run: u64,
    pub(super) step: Step,
}

pub(super) enum Step {
    Begin(Box<Beginning>),
    Hide(KnownKeys),
    Events {
        events: Vec<Recorded>,
        ended: bool,
        bytes: u64,
    },
    /// Events were dropped, because more than this number of bytes waited.
    Lost(u64),
    Ended(Arc<Outcome>),
    /// The sender is dropped when the run is written.
    Close(Option<oneshot::Sender<()>>),
}

pub(super) struct Beginning {
    pub(super) header: RunHeader,
    pub(super) report: Report,
    pub(super) waiting: Arc<AtomicU64>,
}

/// Receives the failure of the journal.
pub(super) type Report = Box<dyn FnOnce(String) + Send>;
