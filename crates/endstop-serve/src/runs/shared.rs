//! The state that the tasks of a server share: the queue, the live runs, and the store.

use super::live::Live;
use super::metrics::Metrics;
use super::row::Ending;
use super::store::Store;
use crate::agents::Agents;
use crate::backend::{EventFrames, RunRequest};
use crate::clock::wall_ms;
use crate::options::ServeOptions;
use endstop::core::{Park, ParkRequest};
use endstop::journal::{JournalError, SqliteJournal};
use endstop::wire::redact::KnownKeys;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The state that the tasks of a server share.
pub(super) struct Shared {
    pub(super) store: Store,
    pub(super) journal: SqliteJournal,
    pub(super) agents: Agents,
    pub(super) options: ServeOptions,
    pub(super) metrics: Metrics,
    /// Secrets of the environment, which no stored text may contain.
    pub(super) secrets: KnownKeys,
    pub(super) tasks: TaskTracker,
    /// Cancelled when a shutdown begins.
    pub(super) shutdown: CancellationToken,
    /// Notified when a place became free.
    pub(super) ended: Notify,
    /// Problems that concern no client, for the operator.
    pub(super) report: Box<dyn Fn(&str) + Send + Sync>,
    stories: Mutex<HashMap<String, Weak<EventFrames>>>,
    state: Mutex<State>,
}

/// The runs that have not ended.
#[derive(Default)]
pub(super) struct State {
    /// Runs that wait for a free place, the oldest first.
    pub(super) queue: VecDeque<Waiting>,
    /// Runs that were released until their request is decided.
    pub(super) parked: HashMap<String, Parked>,
    /// All runs that have not ended, by their ids.
    pub(super) live: HashMap<String, Arc<Live>>,
    /// Number of runs that have a place.
    pub(super) running: usize,
    /// `true` after a shutdown began: nothing starts any more.
    pub(super) draining: bool,
}

/// A run that waits for a free place.
#[derive(Clone)]
pub(super) struct Waiting {
    pub(super) id: String,
    /// Name of the token that started it; empty on a server without tokens.
    pub(super) client: Arc<str>,
    pub(super) request: RunRequest,
    pub(super) live: Arc<Live>,
    /// `true` if the journal has a part of the run.
    pub(super) resume: bool,
    /// `true` if the store has it as a run that works.
    pub(super) is_started: bool,
}

/// A parked run, which has no place.
#[derive(Clone)]
pub(super) struct Parked {
    pub(super) waiting: Waiting,
    pub(super) request: Arc<ParkRequest>,
}

impl Shared {
    pub(super) fn new(
        store: Store,
        journal: SqliteJournal,
        agents: Agents,
        options: ServeOptions,
        report: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Shared {
        let tasks = TaskTracker::new();
        // Closed from the start, so that the shutdown can wait for it; tasks can still be added.
        tasks.close();
        Shared {
            store,
            journal,
            agents,
            options,
            metrics: Metrics::default(),
            secrets: endstop::process::environment_secrets(),
            tasks,
            shutdown: CancellationToken::new(),
            ended: Notify::new(),
            report,
            stories: Mutex::default(),
            state: Mutex::default(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a run to the queue.
    pub(super) fn enqueue(&self, waiting: Waiting) {
        self.add_live(&waiting);
        self.state().queue.push_back(waiting);
    }

    /// Adds a run to those that have not ended.
    pub(super) fn add_live(&self, waiting: &Waiting) {
        self.state().live.insert(waiting.id.clone(), Arc::clone(&waiting.live));
    }

    /// Records that a run is parked. Its readers stay, and its place becomes free.
    pub(super) fn park(&self, waiting: &Waiting, request: Arc<ParkRequest>) {
        if let Err(error) = self.store.parked(&waiting.id) {
            (self.report)(&error.to_string());
        }
        let waiting = Waiting { resume: true, is_started: false, ..waiting.clone() };
        let live = Arc::clone(&waiting.live);
        {
            let mut state = self.state();
            // Under the lock, because a decision may continue the run as soon as it is listed.
            live.park();
            state.parked.insert(waiting.id.clone(), Parked { waiting, request });
        }
        // For an answer that waits until the run is parked.
        live.feed.notify();
    }

    /// Takes a parked run out of the parked ones.
    pub(super) fn take_parked(&self, id: &str) -> Option<Waiting> {
        self.state().parked.remove(id).map(|parked| parked.waiting)
    }

    /// Returns the terms under which runs are parked.
    pub(super) fn terms_of_park(&self) -> Park {
        let expires_after_ms = self.options.park_expiry.map(|time| time.as_millis() as u64);
        Park { reason: None, expires_after_ms }
    }

    /// Returns the time at which a run that now waits for approval is parked; `None`: never.
    pub(super) fn park_time(&self) -> Option<Instant> {
        if self.shutdown.is_cancelled() {
            return Some(Instant::now());
        }
        self.options.park_after.map(|time| Instant::now() + time)
    }

    /// Records an ending, and closes the run for its readers.
    pub(super) fn end(&self, waiting: &Waiting, ending: &Ending) {
        let evidence = self.secrets.out_of_text(&ending.evidence).into_owned();
        let ending = Ending { evidence, ..ending.clone() };
        if let Err(error) = self.store.ended(&waiting.id, &ending, wall_ms()) {
            (self.report)(&error.to_string());
        }
        self.metrics.ended(&waiting.request.agent, &ending.termination, ending.cost_usd);
    }

    /// Removes an ended run from the live ones.
    pub(super) fn forget(&self, waiting: &Waiting) {
        self.state().live.remove(&waiting.id);
        waiting.live.feed.close();
    }

    /// Returns the events of a run as its journal tells them. Readers of the same run share them.
    /// May block.
    pub(super) fn story(&self, id: &str) -> Result<Arc<EventFrames>, JournalError> {
        let mut stories = self.stories.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = stories.get(id).and_then(Weak::upgrade)
            && known.ended
        {
            return Ok(known);
        }
        // Under the lock, so that many readers of one run do not read its journal at the same time.
        let recorded = self.journal.load(id)?;
        let story = Arc::new(EventFrames::of(&recorded, self.secrets.clone())?);
        stories.retain(|_, story| story.strong_count() > 0);
        stories.insert(id.to_owned(), Arc::downgrade(&story));
        Ok(story)
    }
}
