//! The runs of a server: accepts, lists, stops and answers them.
//!
//! ```text
//! let runs = Runs::open(journal, agents, options, report)?;
//! match runs.create(&client, key, request)? { Created::New(id) | Created::Known(id) => … }
//! ```

use super::drive::{dispatch, end_waiting, idle};
use super::frame::Story;
use super::live::Live;
use super::parked::{Undecided, watch_parked};
use super::recover::recover;
use super::request::RunRequest;
use super::shared::{Shared, Waiting};
use super::store::{Filter, NewRun, RunRow, RunState, Stop, Store, StoreError};
use crate::access::Client;
use crate::agents::Agents;
use crate::clock::wall_ms;
use crate::metrics::{Gauges, Metrics};
use crate::options::ServeOptions;
use endstop::Approval;
use endstop::event::RequestId;
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

/// An accepted request.
#[derive(Debug)]
pub(crate) enum Created {
    /// A new run.
    New(String),
    /// The run that the same request has started before.
    Known(String),
}

/// The reason why a request was not accepted.
#[derive(Debug)]
pub(crate) enum Refused {
    UnknownAgent,
    /// There is no such run for this client to branch from.
    UnknownRun,
    /// The request is not valid; the message names the part.
    Invalid(String),
    /// The key was used for another request.
    KeyReused,
    /// The queue is full.
    Full,
    Draining,
    Store(StoreError),
}

/// The reason why a run was not stopped.
#[derive(Debug)]
pub(crate) enum StopError {
    Unknown,
    Store(StoreError),
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

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    pub(crate) fn agents(&self) -> &Agents {
        &self.shared.agents
    }

    pub(crate) fn options(&self) -> &ServeOptions {
        &self.shared.options
    }

    /// Returns the gauges, without the number of readers.
    pub(crate) fn gauges(&self) -> Gauges {
        let state = self.shared.state();
        let (running, queued, parked) = (state.running, state.queue.len(), state.parked.len());
        Gauges { running, queued, parked, readers: 0, draining: state.draining }
    }

    /// Accepts a request for a run. May block.
    pub(crate) fn create(
        &self,
        client: &Client,
        key: Option<&str>,
        request: RunRequest,
    ) -> Result<Created, Refused> {
        let shared = &self.shared;
        let source = Some(&request.agent)
            .filter(|agent| client.may_use(agent))
            .and_then(|agent| shared.agents.get(agent))
            .ok_or(Refused::UnknownAgent)?;
        // The task of a branch is only shown.
        if request.origin.is_none() && request.task.trim().is_empty() {
            return Err(Refused::Invalid(
                "`task` is blank: expected text for the agent".to_owned(),
            ));
        }
        let limits = request.limits_over(&source.limits()).map_err(Refused::Invalid)?;
        source.check(&limits).map_err(Refused::Invalid)?;
        // Keys belong to a token, so that one client cannot read the run of another by its key.
        let owner = client.name.as_deref().unwrap_or_default();
        let digest = request.digest();
        let _admission = self.admission.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = key
            && let Some(known) = shared.store.by_key(owner, key).map_err(Refused::Store)?
        {
            let same = known.digest == digest;
            return if same { Ok(Created::Known(known.id)) } else { Err(Refused::KeyReused) };
        }
        {
            let state = shared.state();
            if state.draining {
                return Err(Refused::Draining);
            }
            let most = shared.options.max_running + shared.options.max_queued;
            if state.running + state.queue.len() >= most {
                return Err(Refused::Full);
            }
        }
        // Chosen here, because the store needs it before the run starts.
        let id = endstop::agent::new_run_id();
        let (stored, redacted) = self.without_secrets(&request);
        let new = NewRun {
            id: &id,
            client: owner,
            key,
            digest,
            request: &stored,
            redacted,
            now_ms: wall_ms(),
        };
        // Stored before the client is answered, so that no accepted run is lost by a crash.
        shared.store.insert(&new).map_err(Refused::Store)?;
        let live = Arc::new(Live::default());
        shared.enqueue(Waiting { id: id.clone(), request, live, resume: false });
        dispatch(shared);
        Ok(Created::New(id))
    }

    /// Returns the request without known secrets, and `true` if there were any.
    fn without_secrets(&self, request: &RunRequest) -> (RunRequest, bool) {
        let clean = |text: &String| self.shared.secrets.out_of_text(text).into_owned();
        let mut stored = RunRequest { task: clean(&request.task), ..request.clone() };
        if let Some(message) = stored.origin.as_mut().and_then(|origin| origin.message.as_mut()) {
            *message = clean(message);
        }
        let redacted = stored != *request;
        (stored, redacted)
    }

    /// Returns a run that the client may see. May block.
    pub(crate) fn get(&self, client: &Client, id: &str) -> Result<Option<RunRow>, StoreError> {
        let row = self.shared.store.get(id)?;
        Ok(row.filter(|row| client.may_use(&row.request.agent)))
    }

    /// Returns the runs that the client may see and a filter fits, the newest first. May block.
    pub(crate) fn list(&self, client: &Client, filter: Filter) -> Result<Vec<RunRow>, StoreError> {
        let mut filter = filter;
        if let Some(bound) = &client.agents {
            let asked = filter.agents.take();
            let visible = bound
                .iter()
                .filter(|agent| asked.as_ref().is_none_or(|asked| asked.contains(agent)));
            filter.agents = Some(visible.cloned().collect());
        }
        self.shared.store.list(&filter)
    }

    /// Returns a run that waits or works.
    pub(crate) fn live(&self, id: &str) -> Option<Arc<Live>> {
        self.shared.state().live.get(id).cloned()
    }

    /// Returns the place of a run in the queue, from 1.
    pub(crate) fn queue_position(&self, id: &str) -> Option<usize> {
        let state = self.shared.state();
        state.queue.iter().position(|waiting| waiting.id == id).map(|at| at + 1)
    }

    /// Returns the events of a run as its journal tells them. May block.
    pub(crate) fn story(&self, id: &str) -> Result<Arc<Story>, JournalError> {
        self.shared.story(id)
    }

    /// Returns the outcome of an ended run from its journal; `None` if the journal has none. May
    /// block.
    pub(crate) fn outcome(&self, id: &str) -> Option<Value> {
        self.shared.journal.load(id).ok()?.outcome
    }

    /// Returns the runs that have not ended. May block.
    pub(crate) fn unfinished(&self) -> Result<Vec<RunRow>, StoreError> {
        self.shared.store.unfinished()
    }

    /// Asks for the stop of a run, which survives a restart. Does nothing if the run has ended. May
    /// block.
    pub(crate) fn stop(&self, client: &Client, id: &str, stop: Stop) -> Result<(), StopError> {
        let row = self.get(client, id).map_err(StopError::Store)?.ok_or(StopError::Unknown)?;
        if row.state == RunState::Ended { Ok(()) } else { self.stop_open(id, stop) }
    }

    /// Cancels a run for the user of the process. May block.
    pub(crate) fn cancel_for_operator(&self, id: &str) -> Result<(), StopError> {
        self.stop_open(id, Stop::Cancel)
    }

    /// Asks for the stop of a run that has not ended.
    fn stop_open(&self, id: &str, stop: Stop) -> Result<(), StopError> {
        let shared = &self.shared;
        // Stored first: a process that dies in between must not resume what was cancelled.
        shared.store.stop_requested(id, stop).map_err(StopError::Store)?;
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

    /// Decides a request of a parked run. May block.
    pub(crate) fn decide_parked(
        &self,
        id: &str,
        request: RequestId,
        approval: &Approval,
    ) -> Result<(), Undecided> {
        self.shared.decide_parked(id, request, approval)
    }

    /// Ends all runs: refuses new ones, parks those that wait for approval, lets the others end
    /// within the grace period, then cancels them. Runs of the queue and parked ones stay in the
    /// store, for the next process. `hurry` ends the grace period early.
    pub(crate) async fn shut_down(&self, hurry: impl Future<Output = ()>) {
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
