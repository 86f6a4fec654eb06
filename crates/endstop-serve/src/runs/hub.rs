//! The runs of a server: accepts, lists, stops and answers them.
//!
//! ```text
//! let runs = Runs::open(journal, agents, options, report)?;
//! match runs.create(owner, key, request)? { Started::New(id) | Started::Known(id) => … }
//! ```

use super::drive::{Place, begin, dispatch, end_waiting, idle};
use super::live::Live;
use super::parked::watch_parked;
use super::recover::recover;
use super::row::{NewRun, RunRow};
use super::shared::{Shared, Waiting};
use super::store::{Store, StoreError};
use crate::agents::Agents;
use crate::backend::{BackendError, ErrorKind};
use crate::backend::{EventFrames, Filter, RunRequest, RunState, Started, Stop, Totals};
use crate::clock::wall_ms;
use crate::options::ServeOptions;
use endstop::journal::{JournalError, SqliteJournal};
use serde_json::Value;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time that cancelled runs have at a shutdown, before they are terminated.
const CANCEL_TIME: Duration = Duration::from_secs(10);

/// The runs of a server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Runs {
    pub(super) shared: Arc<Shared>,
    /// Held while a run is accepted, so that two requests with one key start one run.
    admission: Arc<Mutex<()>>,
}

impl Runs {
    /// Opens the store of the journal, and takes over the runs that an earlier process left. Must
    /// be called within a tokio runtime. May block.
    pub(crate) fn open(
        journal: SqliteJournal,
        agents: Agents,
        options: ServeOptions,
        report: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Result<Runs, StoreError> {
        let store = Store::open(journal.path())?;
        let shared = Arc::new(Shared::new(store, journal, agents, options, report));
        recover(&shared)?;
        shared.tasks.spawn(watch_parked(Arc::downgrade(&shared), shared.shutdown.clone()));
        Ok(Runs { shared, admission: Arc::default() })
    }

    pub(crate) fn agents(&self) -> &Agents {
        &self.shared.agents
    }

    /// Returns the counters and gauges.
    pub(super) fn totals(&self) -> Totals {
        let state = self.shared.state();
        let (running, queued, parked) = (state.running, state.queue.len(), state.parked.len());
        Totals { running, queued, parked, draining: state.draining, ..self.shared.metrics.totals() }
    }

    /// `true` after a shutdown began.
    pub(super) fn is_draining(&self) -> bool {
        self.shared.state().draining
    }

    /// Accepts a request for a run. May block.
    pub(super) fn create(
        &self,
        owner: &str,
        key: Option<&str>,
        request: RunRequest,
    ) -> Result<Started, BackendError> {
        let shared = &self.shared;
        let source = shared.agents.get(&request.agent).ok_or_else(BackendError::unknown_agent)?;
        let limits = request.check(&source.limits())?;
        source
            .check(&limits)
            .map_err(|problem| BackendError::new(ErrorKind::InvalidRun, problem))?;
        let digest = request.digest();
        let _admission = self.admission.lock().unwrap_or_else(PoisonError::into_inner);
        // Before the checks below, because a repeated request gets its run even if the queue is
        // full.
        if let Some(key) = key
            && let Some(known) = shared.store.by_key(owner, key)?
        {
            let same = known.digest == digest;
            return if same {
                Ok(Started::Known(known.id))
            } else {
                Err(BackendError::key_reused())
            };
        }
        {
            let state = shared.state();
            if state.draining {
                return Err(BackendError::draining());
            }
            let (running, queued) = (shared.options.max_running, shared.options.max_queued);
            if state.running + state.queue.len() >= running + queued {
                let message =
                    format!("{running} runs work and {queued} wait; repeat the request later");
                return Err(BackendError::new(ErrorKind::Full, message));
            }
            if let Some(share) = shared.options.max_queued_of_client
                && state.running >= running
            {
                let own = state.queue.iter().filter(|waiting| *waiting.client == *owner).count();
                if own >= share {
                    let message = format!(
                        "{own} runs of this token wait, which is its share of the queue; repeat the \
                         request later"
                    );
                    return Err(BackendError::new(ErrorKind::Full, message));
                }
            }
        }
        // Chosen here, because the store needs it before the run starts.
        let id = endstop::agent::new_run_id();
        let (stored, redacted) = request.without(&shared.secrets);
        // Before the run is stored, which then takes one write instead of two.
        let place = Place::take(shared);
        let is_started = place.is_some();
        let new = NewRun {
            id: &id,
            client: owner,
            key,
            digest,
            request: &stored,
            redacted,
            now_ms: wall_ms(),
            is_started,
        };
        let live = Arc::new(Live::default());
        let client = owner.into();
        let waiting = Waiting { id: id.clone(), client, request, live, resume: false, is_started };
        // Before it is stored, because a stored run can be found, and then stopped or followed.
        shared.add_live(&waiting);
        // Stored before the client is answered, so that no accepted run is lost by a crash.
        if let Err(error) = shared.store.insert(&new) {
            shared.forget(&waiting);
            return Err(error.into());
        }
        if let Some(place) = place {
            begin(place, waiting);
        } else {
            shared.enqueue(waiting);
            dispatch(shared);
        }
        Ok(Started::New(id))
    }

    /// Returns a run. May block.
    pub(super) fn row(&self, id: &str) -> Result<Option<RunRow>, StoreError> {
        self.shared.store.get(id)
    }

    /// Returns a run that was started a moment ago, if nothing of it has changed since.
    pub(super) fn row_in_memory(&self, id: &str) -> Option<RunRow> {
        self.shared.store.get_unchanged(id)
    }

    /// Returns the runs that a filter fits, the newest first. May block.
    pub(super) fn rows(&self, filter: &Filter) -> Result<Vec<RunRow>, StoreError> {
        self.shared.store.list(filter)
    }

    /// Returns a run that waits or works.
    pub(crate) fn live(&self, id: &str) -> Option<Arc<Live>> {
        self.shared.state().live.get(id).cloned()
    }

    /// Returns the place of a run in the queue, from 1.
    pub(super) fn queue_position(&self, id: &str) -> Option<usize> {
        let state = self.shared.state();
        state.queue.iter().position(|waiting| waiting.id == id).map(|at| at + 1)
    }

    /// Returns the events of a run as its journal tells them. May block.
    pub(super) fn story(&self, id: &str) -> Result<Arc<EventFrames>, JournalError> {
        self.shared.story(id)
    }

    /// Returns the outcome of an ended run from its journal; `None` if the journal has none. May
    /// block.
    pub(super) fn outcome(&self, id: &str) -> Option<Value> {
        self.shared.journal.load(id).ok()?.outcome
    }

    /// Returns the runs that have not ended. May block.
    pub(crate) fn unfinished(&self) -> Result<Vec<RunRow>, StoreError> {
        self.shared.store.unfinished()
    }

    /// Asks for the stop of a run, which survives a restart. Does nothing if the run has ended. May
    /// block.
    pub(super) fn stop(&self, id: &str, stop: Stop) -> Result<(), BackendError> {
        let row = self.row(id)?.ok_or_else(BackendError::unknown_run)?;
        if row.state == RunState::Ended { Ok(()) } else { Ok(self.stop_open(id, stop)?) }
    }

    /// Asks for the stop of a run that has not ended. May block.
    pub(crate) fn stop_open(&self, id: &str, stop: Stop) -> Result<(), StoreError> {
        let shared = &self.shared;
        // Stored first: a process that dies in between must not resume what was cancelled.
        shared.store.stop_requested(id, stop)?;
        let waiting = {
            let mut state = shared.state();
            if let Some(live) = state.live.get(id) {
                live.stop(stop);
            }
            let at = state.queue.iter().position(|waiting| waiting.id == id);
            let queued = at.and_then(|at| state.queue.remove(at));
            queued.or_else(|| state.parked.remove(id).map(|parked| parked.waiting))
        };
        if let Some(waiting) = waiting {
            end_waiting(shared, waiting);
        }
        Ok(())
    }

    /// Ends all runs: refuses new ones, parks those that wait for approval, lets the others end
    /// within the grace period, then cancels them. Runs of the queue and parked ones stay in the
    /// store, for the next process. `hurry` ends the grace period early.
    pub(super) async fn shut_down(&self, hurry: impl Future<Output = ()>) {
        let shared = &self.shared;
        // First, so that no run is accepted after the ones below were counted, and none starts in
        // the place of one that ends.
        shared.state().draining = true;
        shared.shutdown.cancel();
        tokio::select! {
            _ = idle(shared, shared.options.grace) => {}
            () = hurry => {}
        }
        for (stop, time) in [(Stop::Cancel, CANCEL_TIME), (Stop::Terminate, CANCEL_TIME)] {
            let running: Vec<Arc<Live>> = {
                let state = shared.state();
                // Not stopped, because the next process continues the runs that wait.
                let waits = |id: &str| {
                    state.parked.contains_key(id)
                        || state.queue.iter().any(|waiting| waiting.id == id)
                };
                let live = state.live.iter().filter(|(id, _)| !waits(id));
                live.map(|(_, live)| Arc::clone(live)).collect()
            };
            for live in &running {
                live.stop(stop);
            }
            if idle(shared, time).await {
                break;
            }
        }
        // Readers of runs that wait must not keep the process.
        let waiting: Vec<Arc<Live>> = {
            let state = shared.state();
            let parked = state.parked.values().map(|parked| &parked.waiting);
            state.queue.iter().chain(parked).map(|waiting| Arc::clone(&waiting.live)).collect()
        };
        for live in &waiting {
            live.feed.close();
        }
        let _ = tokio::time::timeout(CANCEL_TIME, shared.tasks.wait()).await;
    }
}
