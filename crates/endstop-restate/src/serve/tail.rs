//! The events of a run as its steps in the store tell them, while other processes write them.
//!
//! A step is read once the engine has it. Readers of one run share what was read. Deltas of a turn are not
//! among the steps, so readers get the text of a turn when it is complete.

use crate::catalog::{Catalog, HeadState};
use crate::step::{Past, StepEnd};
use crate::store::{Store, StoreError};
use bytes::Bytes;
use endstop::park::ParkRequest;
use endstop::wire::redact::KnownKeys;
use endstop_serve::backend::{EventFrames, EventSource, Waiting};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

/// The shortest time between two looks at a run.
const SOONEST: Duration = Duration::from_millis(100);

/// The longest time between two looks at a run that has readers.
const LATEST: Duration = Duration::from_secs(1);

/// A look at a run may take this part of the time until the next one.
const SHARE: u32 = 4;

/// Number of runs whose steps stay in memory without a reader.
const RECENT: usize = 64;

/// A run as it was read last.
#[derive(Clone, Default)]
pub(super) struct Known {
    pub(super) frames: Arc<EventFrames>,
    /// The request that the run waits for, if it is parked.
    pub(super) request: Option<Arc<ParkRequest>>,
    pub(super) ended: bool,
}

/// The steps of one run.
pub(super) struct Tail {
    run: String,
    read: AsyncMutex<Read>,
}

#[derive(Default)]
struct Read {
    past: Past,
    known: Known,
    /// The time before which the run is not looked at again.
    fresh_until: Option<Instant>,
}

/// The runs that are being read.
pub(super) struct Tails {
    store: Store,
    catalog: Catalog,
    secrets: KnownKeys,
    all: Mutex<HashMap<String, Weak<Tail>>>,
    recent: Mutex<VecDeque<Arc<Tail>>>,
}

impl Tails {
    pub(super) fn new(store: Store, catalog: Catalog) -> Tails {
        let secrets = endstop::process::environment_secrets();
        Tails { store, catalog, secrets, all: Mutex::default(), recent: Mutex::default() }
    }

    /// Returns the steps of a run, which all callers share.
    pub(super) fn of(&self, run: &str) -> Arc<Tail> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get(run).and_then(Weak::upgrade);
        let tail = known.unwrap_or_else(|| {
            all.retain(|_, tail| tail.strong_count() > 0);
            let tail = Arc::new(Tail { run: run.to_owned(), read: AsyncMutex::default() });
            all.insert(run.to_owned(), Arc::downgrade(&tail));
            tail
        });
        drop(all);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.retain(|other| !Arc::ptr_eq(other, &tail));
        recent.push_back(Arc::clone(&tail));
        if recent.len() > RECENT {
            recent.pop_front();
        }
        tail
    }

    /// Reads the steps of a run that were added since the last time.
    ///
    /// # Errors
    /// The store cannot be read, or the run cannot be replayed.
    pub(super) async fn read(&self, tail: &Tail) -> Result<Known, StoreError> {
        // Held during the look, so that all readers of a run share it.
        let mut read = tail.read.lock().await;
        let now = Instant::now();
        if read.known.ended || read.fresh_until.is_some_and(|until| now < until) {
            return Ok(read.known.clone());
        }
        let (store, catalog) = (self.store.clone(), self.catalog.clone());
        // Taken and not copied, because a run can be large. If this future is dropped, or fails, all
        // steps are read again.
        let (run, past) = (tail.run.clone(), std::mem::take(&mut read.past));
        let (known, secrets) = (read.known.clone(), self.secrets.clone());
        let looked =
            tokio::task::spawn_blocking(move || look(&store, &catalog, &run, past, known, secrets));
        let looked =
            looked.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        let took = now.elapsed();
        let (past, known) = looked?;
        *read = Read {
            past,
            known: known.clone(),
            fresh_until: Some(Instant::now() + SOONEST.max(took * SHARE)),
        };
        Ok(known)
    }
}

/// Reads what was added to a run.
fn look(
    store: &Store,
    catalog: &Catalog,
    run: &str,
    mut past: Past,
    known: Known,
    secrets: KnownKeys,
) -> Result<(Past, Known), StoreError> {
    let Some(head) = catalog.head_of(run)? else {
        // A run without steps has not begun. One that had some was removed from the store.
        let ended = past.steps() > 0;
        return Ok((past, Known { ended, ..known }));
    };
    let ended = head.state == HeadState::Ended;
    // The note of a worker that was suspended for a while may be older than what was read.
    if head.tip.number + 1 < past.steps() || past.last() == Some(head.tip.sha256.as_str()) {
        return Ok((past, Known { ended, ..known }));
    }
    let mut request = None;
    for step in store.steps_to(run, &head.tip, past.last())? {
        request = match &step.end {
            Some(StepEnd::Parked { request }) => Some(Arc::new(ParkRequest::clone(request))),
            _ => None,
        };
        past.take(&step);
    }
    let frames = past.recorded().and_then(|recorded| EventFrames::of(&recorded, secrets));
    let frames = match frames {
        Ok(frames) => Arc::new(frames),
        // Its agent has a policy that only its own code can replay; its outcome is there all the same.
        Err(_) => known.frames,
    };
    Ok((past, Known { frames, request, ended }))
}

/// A reader of a run's events.
pub(super) struct TailReader {
    tails: Arc<Tails>,
    tail: Arc<Tail>,
    numbers: u64,
    wait: Duration,
    /// The events as this reader has seen them last.
    seen: Option<Arc<EventFrames>>,
}

impl TailReader {
    /// Returns a reader of the events after a number.
    pub(super) fn new(tails: Arc<Tails>, tail: Arc<Tail>, numbers: u64) -> TailReader {
        TailReader { tails, tail, numbers, wait: SOONEST, seen: None }
    }

    async fn next_frame(&mut self) -> Option<Bytes> {
        loop {
            // A store that cannot be read for a moment is read again; the reader has its place.
            if let Ok(known) = self.tails.read(&self.tail).await {
                self.seen = Some(Arc::clone(&known.frames));
                if let Some(frame) = self.ready() {
                    self.wait = SOONEST;
                    return Some(frame);
                }
                if known.ended {
                    return None;
                }
            }
            tokio::time::sleep(self.wait).await;
            self.wait = LATEST.min(self.wait * 3 / 2);
        }
    }
}

impl EventSource for TailReader {
    fn next(&mut self) -> Waiting<'_, Option<Bytes>> {
        Box::pin(self.next_frame())
    }

    fn ready(&mut self) -> Option<Bytes> {
        let frame = self.seen.as_ref()?.get(self.numbers)?;
        self.numbers += 1;
        Some(frame)
    }
}
