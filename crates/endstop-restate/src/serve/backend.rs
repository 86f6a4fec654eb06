//! Runs of workers as a backend of a server.

use super::accept::{Acceptor, New, Repeated};
use super::engine::Engine;
use super::list::{List, state_of};
use super::tail::{TailReader, Tails};
use crate::catalog::{Catalog, Entry};
use crate::engine::{ClientError, EngineClient};
use crate::letter::{Content, Letter};
use crate::request::{Origin as RunOrigin, RunRequest, Stop as RunStop, check_run_id};
use crate::store::Store;
use endstop::agent::check_text;
use endstop::event::RequestId;
use endstop::wire::redact::KnownKeys;
use endstop::{Approval, LimitChanges, SteerError};
use endstop_serve::backend::{
    After, AgentInfo, Answering, Backend, BackendError, BranchRequest, ErrorKind, EventSource,
    Filter, Origin, RunInfo, RunRequest as Asked, RunState, Started, Stop, Totals, Waiting,
};
use serde_json::{Value, json};
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The settings of a server of durable runs.
#[derive(Clone)]
#[non_exhaustive]
pub struct RunsOptions {
    /// The address of the engine's ingress, for example `http://127.0.0.1:8080`.
    pub ingress: String,
    /// The bearer token for it.
    pub token: Option<String>,
    /// Number of runs that wait for a worker, above which further ones are refused. 256.
    pub max_queued: usize,
    /// The longest time for an answer of the engine. 10 s.
    pub engine_time: Duration,
}

impl RunsOptions {
    /// Creates options for an engine with its ingress at this address.
    pub fn new(ingress: impl Into<String>) -> RunsOptions {
        RunsOptions {
            ingress: ingress.into(),
            token: None,
            max_queued: 256,
            engine_time: Duration::from_secs(10),
        }
    }
}

impl fmt::Debug for RunsOptions {
    // Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunsOptions").field("ingress", &self.ingress).finish_non_exhaustive()
    }
}

/// The runs of the workers of an engine. Any number of servers can serve them at once.
pub struct DurableRuns {
    shared: Arc<Acceptor>,
    tails: Arc<Tails>,
    agents: Vec<AgentInfo>,
    max_queued: usize,
    secrets: KnownKeys,
    draining: AtomicBool,
}

impl fmt::Debug for DurableRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableRuns").field("agents", &self.agents).finish_non_exhaustive()
    }
}

impl DurableRuns {
    /// Serves the runs of a store, which the workers share. The agents are those of the workers, with
    /// their limits. `report` receives problems for the operator's log. The engine is not asked yet: it may
    /// start later.
    ///
    /// # Errors
    /// The address of the engine is not valid, or its token would be sent to another machine without
    /// encryption.
    pub fn open(
        store: Store,
        agents: Vec<AgentInfo>,
        options: &RunsOptions,
        report: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<DurableRuns, ClientError> {
        let client = EngineClient::new(&options.ingress, options.token.as_deref())?;
        let engine = Engine::new(client, options.engine_time, Box::new(report));
        let catalog = Catalog::of(&store);
        let tails = Arc::new(Tails::new(store.clone(), catalog.clone()));
        let list = List::new(catalog.clone());
        Ok(DurableRuns {
            shared: Arc::new(Acceptor { store, catalog, engine, list }),
            tails,
            agents,
            max_queued: options.max_queued,
            secrets: endstop::process::environment_secrets(),
            draining: AtomicBool::new(false),
        })
    }

    async fn accept(
        &self,
        owner: &str,
        key: Option<&str>,
        asked: Asked,
    ) -> Result<Started, BackendError> {
        let agent = self.agents.iter().find(|agent| agent.name == asked.agent);
        asked.check(&agent.ok_or_else(BackendError::unknown_agent)?.limits)?;
        let digest = asked.digest().iter().fold(String::new(), |mut hex, byte| {
            // Writing to a string cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        // Before the checks below, because a client that repeats a request needs the run that it has
        // started, also from a server that is full or drains.
        let repeated = match key {
            Some(key) => self.shared.repeated(owner, key, &digest).await?,
            None => None,
        };
        match repeated {
            Some(Repeated::Accepted(id)) => return Ok(Started::Known(id)),
            // It had its place before.
            Some(Repeated::Undecided) => {}
            None => {
                if let Some(origin) = &asked.origin {
                    self.check_origin(origin).await?;
                }
                self.has_room().await?;
            }
        }
        let (shown, _) = asked.without(&self.secrets);
        let traceparent = asked.trace_parent.as_ref().map(|place| place.as_str().to_owned());
        let [request, shown] = [asked, shown].map(|asked| RunRequest {
            agent: asked.agent,
            task: asked.task,
            limits: asked.limits,
            origin: asked.origin.map(of_client),
            traceparent: None,
        });
        // The list does not show it: a client that repeats its request does so at another place.
        let request = RunRequest { traceparent, ..request };
        self.shared.start(New { owner, key, digest, request, shown }).await
    }

    /// Refuses a new run while this server drains, or too many runs wait.
    async fn has_room(&self) -> Result<(), BackendError> {
        if self.draining.load(Ordering::Acquire) {
            return Err(BackendError::draining());
        }
        let queued = self.shared.blocking(|own| Ok(own.list.totals()?.queued)).await?;
        if queued >= self.max_queued {
            let message = format!("{queued} runs wait for a worker; repeat the request later");
            return Err(BackendError::new(ErrorKind::Full, message));
        }
        Ok(())
    }

    async fn entry(&self, run: &str) -> Result<Option<Entry>, BackendError> {
        // Any text can be an id in an address.
        if check_run_id(run).is_err() {
            return Ok(None);
        }
        let run = run.to_owned();
        self.shared.blocking(move |own| own.list.entry(&run)).await
    }

    async fn found(&self, run: &str) -> Result<Entry, BackendError> {
        self.entry(run).await?.ok_or_else(BackendError::unknown_run)
    }

    async fn known(&self, run: &str) -> Result<super::tail::Known, BackendError> {
        let tail = self.tails.of(run);
        self.tails.read(&tail).await.map_err(|error| {
            self.shared.engine.report(&error.to_string());
            BackendError::internal()
        })
    }

    /// Returns a run of the list with its progress.
    async fn info(&self, run: String, entry: Entry) -> Result<RunInfo, BackendError> {
        let state = state_of(&entry);
        let Entry { accepted, began, ended, stop, .. } = entry;
        let mut info = RunInfo {
            number: accepted.number,
            request: Asked {
                agent: accepted.request.agent,
                task: accepted.request.task,
                limits: accepted.request.limits,
                origin: accepted.request.origin.map(for_client),
                trace_parent: None,
            },
            state,
            created_ms: accepted.created_ms,
            started_ms: began.map(|began| began.at_ms),
            ended_ms: ended.as_ref().map(|ended| ended.ended_ms),
            queue_position: None,
            approvals: (state == RunState::Parked).then_some(1),
            stopping: stop.is_some() && state != RunState::Ended,
            termination: None,
            category: None,
            evidence: None,
            turns: None,
            cost_usd: None,
            id: run,
        };
        if let Some(ended) = ended {
            info.turns = Some(ended.turns);
            info.cost_usd = ended.cost_usd;
            info.termination = Some(ended.termination);
            info.category = Some(ended.category);
            info.evidence = Some(self.secrets.out_of_text(&ended.evidence).into_owned());
        } else if matches!(state, RunState::Running | RunState::Parked) {
            let known = self.known(&info.id).await?;
            info.turns = Some(known.frames.turns());
            info.cost_usd = known.frames.cost_usd();
        }
        Ok(info)
    }

    /// Sends a letter to a run that works.
    async fn steer(&self, run: &str, content: Content) -> Result<(), BackendError> {
        let state = state_of(&self.found(run).await?);
        if let Content::Say(text) = &content {
            check_text(text).map_err(|error| BackendError::from(&error))?;
        }
        match state {
            RunState::Running => {}
            RunState::Parked => {
                let message = "the run is parked; answer its request for approval first";
                return Err(BackendError::new(ErrorKind::Parked, message));
            }
            RunState::Ended => return Err((&SteerError::Ended).into()),
            RunState::Queued => {
                let message = "the run has not started yet; repeat the request later";
                return Err(BackendError::new(ErrorKind::NotStarted, message));
            }
        }
        // Any id that no other letter to the run has.
        let letter = Letter { id: endstop::agent::new_run_id(), content };
        self.shared.engine.steer(run, &letter).await
    }

    /// Accepts a request for a branch of a run, of the agent of the run.
    async fn accept_branch(
        &self,
        owner: &str,
        key: Option<&str>,
        run: &str,
        request: BranchRequest,
    ) -> Result<Started, BackendError> {
        let first = self.found(run).await?.accepted.request;
        let BranchRequest { turn, message, limits, accept_redacted, trace_parent } = request;
        let origin = Origin { run: run.to_owned(), turn, message, accept_redacted };
        let (agent, task) = (first.agent, first.task);
        let origin = Some(origin);
        self.accept(owner, key, Asked { agent, task, limits, origin, trace_parent }).await
    }

    /// Checks that a run can be branched at this place.
    async fn check_origin(&self, origin: &Origin) -> Result<(), BackendError> {
        let origin = origin.clone();
        let checked = self.shared.blocking(move |own| {
            let past = match own.catalog.past_of(&origin.run) {
                Ok(past) => past,
                Err(error) => {
                    own.engine.report(&error.to_string());
                    return Ok(Err("the run cannot be read".to_owned()));
                }
            };
            if !past.has_begun() {
                let problem = "the run has not started, or was removed from the store";
                return Ok(Err(problem.to_owned()));
            }
            let recorded = past.recorded().map_err(|error| {
                own.engine.report(&error.to_string());
                "the run cannot be read".to_owned()
            });
            Ok(recorded.and_then(|recorded| origin.check(&recorded)))
        });
        checked.await?.map_err(|problem| BackendError::new(ErrorKind::InvalidRun, problem))
    }
}

/// Returns the place that a run branches from as the engine's request has it.
fn of_client(origin: Origin) -> RunOrigin {
    let Origin { run, turn, message, accept_redacted } = origin;
    RunOrigin { run, turn, message, accept_redacted }
}

/// Returns the place that a run branches from as the API has it.
fn for_client(origin: RunOrigin) -> Origin {
    let RunOrigin { run, turn, message, accept_redacted } = origin;
    Origin { run, turn, message, accept_redacted }
}

impl Backend for DurableRuns {
    fn agents(&self) -> Vec<AgentInfo> {
        self.agents.clone()
    }

    fn start<'a>(
        &'a self,
        owner: &'a str,
        key: Option<&'a str>,
        request: Asked,
    ) -> Answering<'a, Started> {
        Box::pin(self.accept(owner, key, request))
    }

    fn branch<'a>(
        &'a self,
        owner: &'a str,
        key: Option<&'a str>,
        run: &'a str,
        request: BranchRequest,
    ) -> Answering<'a, Started> {
        Box::pin(self.accept_branch(owner, key, run, request))
    }

    fn get<'a>(&'a self, run: &'a str) -> Answering<'a, Option<RunInfo>> {
        Box::pin(async move {
            match self.entry(run).await? {
                Some(entry) => Ok(Some(self.info(run.to_owned(), entry).await?)),
                None => Ok(None),
            }
        })
    }

    fn outcome<'a>(&'a self, run: &'a str) -> Answering<'a, Option<Value>> {
        Box::pin(async move {
            let Some(ended) = self.found(run).await?.ended else { return Ok(None) };
            let run = run.to_owned();
            let last = self.shared.blocking(move |own| {
                // The step with the outcome; those before it are not needed.
                own.store.step(&run, &ended.tip)
            });
            let last = last.await?;
            let text = last.outcome().map(|text| self.secrets.out_of_json(text));
            Ok(match text {
                Some(Some((outcome, _))) => Some(outcome),
                Some(None) => {
                    last.outcome().and_then(|text| endstop::core::bounded_json::from_str(text).ok())
                }
                None => None,
            })
        })
    }

    fn list(&self, filter: Filter) -> Answering<'_, Vec<RunInfo>> {
        Box::pin(async move {
            let found = self.shared.blocking(move |own| own.list.find(&filter)).await?;
            let mut runs = Vec::with_capacity(found.len());
            for (run, entry) in found {
                runs.push(self.info(run, entry).await?);
            }
            Ok(runs)
        })
    }

    fn follow<'a>(
        &'a self,
        run: &'a str,
        after: After,
    ) -> Answering<'a, Option<Box<dyn EventSource>>> {
        Box::pin(async move {
            self.found(run).await?;
            let tail = self.tails.of(run);
            let known = self.known(run).await?;
            let all = known.frames.numbers();
            let numbers = match after {
                // A client may name a number that no event has.
                After::Number(numbers) => numbers.min(all),
                After::Now => all,
            };
            if known.ended && numbers >= all {
                return Ok(None);
            }
            let reader = TailReader::new(Arc::clone(&self.tails), tail, numbers);
            Ok(Some(Box::new(reader) as Box<dyn EventSource>))
        })
    }

    fn open_requests<'a>(&'a self, run: &'a str) -> Answering<'a, Vec<Value>> {
        Box::pin(async move {
            let known = self.known(run).await?;
            // A run that works again waits for nothing.
            Ok(if known.request.is_some() { known.frames.open_requests() } else { Vec::new() })
        })
    }

    fn stop<'a>(&'a self, run: &'a str, stop: Stop) -> Answering<'a, ()> {
        Box::pin(async move {
            if state_of(&self.found(run).await?) == RunState::Ended {
                return Ok(());
            }
            let stop = match stop {
                Stop::Cancel => RunStop::Cancel,
                Stop::Terminate => RunStop::Terminate,
            };
            // First, because the list must not show a stop that did not reach the engine.
            self.shared.engine.stop(run, stop).await?;
            let run = run.to_owned();
            self.shared.blocking(move |own| own.catalog.stopping(&run, stop)).await
        })
    }

    fn answer<'a>(
        &'a self,
        run: &'a str,
        request: RequestId,
        approval: Approval,
    ) -> Answering<'a, ()> {
        Box::pin(async move {
            self.found(run).await?;
            let known = self.known(run).await?;
            let closed = || {
                let message = format!(
                    "the request {request} was answered before, or the run no longer waits for it"
                );
                BackendError::new(ErrorKind::NotOpen, message)
            };
            let Some(open) = known.request.filter(|_| !known.ended) else { return Err(closed()) };
            if RequestId::of_parked(run, &open) != request {
                let message = format!("the run has made no request {request} that is open");
                return Err(BackendError::new(ErrorKind::UnknownRequest, message));
            }
            let decision = match approval {
                Approval::Allow => json!({"digest": open.digest, "approve": true}),
                Approval::Deny(reason) => json!({"digest": open.digest, "deny": reason}),
                Approval::AllowChanged(arguments) => {
                    json!({"digest": open.digest, "approve": true, "arguments": arguments})
                }
            };
            self.shared.engine.decide(run, &decision).await
        })
    }

    fn say<'a>(&'a self, run: &'a str, text: String) -> Answering<'a, ()> {
        Box::pin(self.steer(run, Content::Say(text)))
    }

    fn set_limits<'a>(&'a self, run: &'a str, changes: LimitChanges) -> Answering<'a, ()> {
        Box::pin(self.steer(run, Content::Limits(changes)))
    }

    fn totals(&self) -> Answering<'_, Totals> {
        Box::pin(async move {
            let totals = self.shared.blocking(|own| own.list.totals()).await?;
            Ok(Totals { draining: self.draining.load(Ordering::Acquire), ..totals })
        })
    }

    fn ready(&self) -> Answering<'_, ()> {
        Box::pin(async move {
            if self.draining.load(Ordering::Acquire) {
                let message = "the server is shutting down";
                return Err(BackendError::new(ErrorKind::Draining, message));
            }
            self.shared.engine.ready().await
        })
    }

    fn shut_down<'a>(&'a self, _: Waiting<'a, ()>) -> Waiting<'a, ()> {
        // The runs continue with their workers, and another server can show them.
        self.draining.store(true, Ordering::Release);
        Box::pin(std::future::ready(()))
    }
}
