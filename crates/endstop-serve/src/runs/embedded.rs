//! Runs of this process as a backend of the server.

use super::blocking::blocking;
use super::hub::Runs;
use super::reader::FeedReader;
use super::row::RunRow;
use crate::backend::{
    After, AgentInfo, Answering, Backend, BackendError, BranchRequest, ErrorKind, EventFrames,
    EventSource, Filter, RunInfo, RunRequest, RunState, Started, Stop, Totals, Waiting,
};
use endstop::agent::{SteerError, Steering};
use endstop::event::RequestId;
use endstop::{Approval, LimitChanges};
use serde_json::Value;
use std::sync::Arc;

impl Runs {
    /// Returns a stored run with what is known of it now.
    fn info(&self, row: RunRow) -> RunInfo {
        // The store learns of progress at the end only; until then the live run has it. An ended run
        // stays live until its tools have ended, but its row is complete.
        let live = self.live(&row.id).filter(|_| row.state != RunState::Ended);
        let progress = live.as_ref().map(|live| live.progress());
        let stopping = row.state != RunState::Ended
            && (row.stop.is_some() || live.is_some_and(|live| live.stop_asked().is_some()));
        // The place is looked up only for a waiting run, because that takes a lock.
        let queued = row.state == RunState::Queued;
        RunInfo {
            number: row.number,
            queue_position: if queued { self.queue_position(&row.id) } else { None },
            approvals: progress.map(|progress| progress.approvals).filter(|count| *count > 0),
            stopping,
            turns: row.turns.or(progress.map(|progress| progress.turns)),
            cost_usd: row.cost_usd.or(progress.and_then(|progress| progress.cost_usd)),
            id: row.id,
            request: row.request,
            state: row.state,
            created_ms: row.created_ms,
            started_ms: row.started_ms,
            ended_ms: row.ended_ms,
            termination: row.termination,
            category: row.category,
            evidence: row.evidence,
        }
    }

    /// Returns the events of a run that does not live; `None` if its journal has none.
    async fn told(&self, id: &str) -> Result<Option<Arc<EventFrames>>, BackendError> {
        let (runs, id) = (self.clone(), id.to_owned());
        let told = blocking(move || {
            let row = runs.row(&id)?.ok_or_else(BackendError::unknown_run)?;
            let has_begun = matches!(row.state, RunState::Ended | RunState::Running);
            Ok(if has_begun { runs.story(&id).ok() } else { None })
        });
        told.await?
    }

    /// Sends something to a live run.
    async fn steer(
        &self,
        id: &str,
        send: impl FnOnce(&Steering) -> Result<(), SteerError>,
    ) -> Result<(), BackendError> {
        let (live, row) = self.found(id).await?;
        if row.state == RunState::Parked {
            let message = "the run is parked; answer its request for approval first";
            return Err(BackendError::new(ErrorKind::Parked, message));
        }
        let Some(live) = live else { return Err((&SteerError::Ended).into()) };
        // A queued run has no driver that could take the message.
        let Some(steering) = live.steering() else {
            let message = "the run has not started yet; repeat the request later";
            return Err(BackendError::new(ErrorKind::NotStarted, message));
        };
        send(&steering).map_err(|error| BackendError::from(&error))
    }
}

impl Backend for Runs {
    fn agents(&self) -> Vec<AgentInfo> {
        let agents = Runs::agents(self);
        let info = |name: &str| {
            let source = agents.get(name)?;
            let (model, limits) = (source.model(), source.limits());
            Some(AgentInfo { name: name.to_owned(), model, limits })
        };
        agents.names().filter_map(info).collect()
    }

    fn start<'a>(
        &'a self,
        owner: &'a str,
        key: Option<&'a str>,
        request: RunRequest,
    ) -> Answering<'a, Started> {
        Box::pin(async move {
            let (runs, owner, key) = (self.clone(), owner.to_owned(), key.map(str::to_owned));
            blocking(move || runs.create(&owner, key.as_deref(), request)).await?
        })
    }

    fn branch<'a>(
        &'a self,
        owner: &'a str,
        key: Option<&'a str>,
        run: &'a str,
        request: BranchRequest,
    ) -> Answering<'a, Started> {
        Box::pin(async move {
            let (runs, owner, key) = (self.clone(), owner.to_owned(), key.map(str::to_owned));
            let run = run.to_owned();
            blocking(move || runs.branch_of(&owner, key.as_deref(), &run, request)).await?
        })
    }

    fn get<'a>(&'a self, run: &'a str) -> Answering<'a, Option<RunInfo>> {
        Box::pin(async move {
            if let Some(row) = self.row_in_memory(run) {
                return Ok(Some(self.info(row)));
            }
            let (runs, run) = (self.clone(), run.to_owned());
            blocking(move || Ok(runs.row(&run)?.map(|row| runs.info(row)))).await?
        })
    }

    fn outcome<'a>(&'a self, run: &'a str) -> Answering<'a, Option<Value>> {
        Box::pin(async move {
            let (runs, run) = (self.clone(), run.to_owned());
            blocking(move || runs.outcome(&run)).await
        })
    }

    fn list(&self, filter: Filter) -> Answering<'_, Vec<RunInfo>> {
        Box::pin(async move {
            let runs = self.clone();
            let rows = blocking(move || {
                let rows = runs.rows(&filter)?;
                Ok(rows.into_iter().map(|row| runs.info(row)).collect())
            });
            rows.await?
        })
    }

    fn follow<'a>(
        &'a self,
        run: &'a str,
        after: After,
    ) -> Answering<'a, Option<Box<dyn EventSource>>> {
        Box::pin(async move {
            // The live run first: one that ends in between is still read to its end.
            let live = self.live(run);
            let story = if live.is_some() { None } else { self.told(run).await? };
            let numbers = match (after, &live) {
                (After::Number(numbers), _) => numbers,
                (After::Now, Some(live)) => live.feed.numbers(),
                (After::Now, None) => return Ok(None),
            };
            let ended = story.as_ref().is_none_or(|story| story.numbers() <= numbers);
            if live.is_none() && ended {
                return Ok(None);
            }
            let reader = FeedReader::new(self.clone(), run.to_owned(), live, story, numbers);
            Ok(Some(Box::new(reader) as Box<dyn EventSource>))
        })
    }

    fn open_requests<'a>(&'a self, run: &'a str) -> Answering<'a, Vec<Value>> {
        Box::pin(async move {
            let (live, _) = self.found(run).await?;
            Ok(live.map(|live| live.feed.open_requests()).unwrap_or_default())
        })
    }

    fn stop<'a>(&'a self, run: &'a str, stop: Stop) -> Answering<'a, ()> {
        Box::pin(async move {
            let (runs, run) = (self.clone(), run.to_owned());
            blocking(move || runs.stop(&run, stop)).await?
        })
    }

    fn answer<'a>(
        &'a self,
        run: &'a str,
        request: RequestId,
        approval: Approval,
    ) -> Answering<'a, ()> {
        Box::pin(self.answer_run(run, request, approval))
    }

    fn say<'a>(&'a self, run: &'a str, text: String) -> Answering<'a, ()> {
        Box::pin(self.steer(run, |steering| steering.say(text)))
    }

    fn set_limits<'a>(&'a self, run: &'a str, changes: LimitChanges) -> Answering<'a, ()> {
        Box::pin(self.steer(run, |steering| steering.tighten_limits(changes)))
    }

    fn totals(&self) -> Answering<'_, Totals> {
        Box::pin(async { Ok(Runs::totals(self)) })
    }

    fn ready(&self) -> Answering<'_, ()> {
        let draining = self.is_draining();
        Box::pin(async move {
            let message = "the server is shutting down";
            if draining { Err(BackendError::new(ErrorKind::Draining, message)) } else { Ok(()) }
        })
    }

    fn shut_down<'a>(&'a self, hurry: Waiting<'a, ()>) -> Waiting<'a, ()> {
        Box::pin(Runs::shut_down(self, hurry))
    }
}
