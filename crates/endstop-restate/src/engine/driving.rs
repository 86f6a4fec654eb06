//! A run as its workflow drives it: what the engine has of it, and the attempt of this process.

use super::shared::Shared;
use super::{letters, stops};
use crate::agents::{AgentSource, BuiltAgent, RunPlan};
use crate::attempt::{Attempt, Task};
use crate::catalog::{Head, HeadState, Summary};
use crate::fork::Fork;
use crate::letter::Steered;
use crate::request::{RunRequest, Stop};
use crate::step::{Past, Step, StepEnd};
use crate::store::{Kept, MOST_INLINE, StoreError, Tip};
use crate::{Cause, clock, end_run};
use endstop::Limits;
use endstop::park::Answer;
use endstop::telemetry::TraceParent;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::task::JoinSet;

/// A step as the engine stores it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Journalled {
    /// The step itself.
    Step(Step),
    /// The hash of a large step, which the store of the workers has.
    Kept(Kept),
}

/// A run that its workflow drives.
pub(super) struct Driving {
    shared: Arc<Shared>,
    id: String,
    request: RunRequest,
    limits: Limits,
    past: Past,
    attempt: Option<Attempt>,
    /// Waits for stops and letters, as long as there is an attempt.
    waiting: JoinSet<()>,
    answer: Option<Answer>,
    stop: Option<Stop>,
    steered: Vec<Steered>,
}

impl Driving {
    pub(super) fn new(
        shared: Arc<Shared>,
        id: String,
        request: RunRequest,
        limits: Limits,
    ) -> Driving {
        Driving {
            shared,
            id,
            request,
            limits,
            past: Past::default(),
            attempt: None,
            waiting: JoinSet::new(),
            answer: None,
            stop: None,
            steered: Vec::new(),
        }
    }

    /// Returns the number of letters that the run has decided.
    pub(super) fn letters(&self) -> u64 {
        self.past.steered()
    }

    /// Takes the decisions about letters of the steps that were taken.
    pub(super) fn take_steered(&mut self) -> Vec<Steered> {
        std::mem::take(&mut self.steered)
    }

    /// Returns the number of the next step.
    pub(super) fn number(&self) -> u64 {
        self.past.steps()
    }

    /// Stops the run, also if no attempt is in progress.
    pub(super) fn stop(&mut self, stop: Stop) {
        // The engine may cancel a run that a client has terminated, and a terminate is final.
        if self.stop != Some(Stop::Terminate) {
            self.stop = Some(stop);
        }
        if let Some(attempt) = &self.attempt {
            attempt.stopper().stop(stop);
        }
    }

    /// Sets the decision with which the parked run continues.
    pub(super) fn answer(&mut self, answer: Option<Answer>) {
        self.answer = answer;
    }

    /// Performs the run up to its next step, and stores the step with the other workers.
    ///
    /// # Errors
    /// The store cannot be read or written.
    pub(super) async fn next(&mut self) -> Result<Journalled, StoreError> {
        let number = self.number();
        let mut attempt = if let Some(attempt) = self.attempt.take() {
            attempt
        } else {
            let fork = self.fork().await?;
            begin(self, fork)
        };
        // Dropping this future drops the attempt, which then terminates its work: the engine has gone.
        let step = attempt.next().await;
        self.attempt = Some(attempt);
        let kept = self.shared.put(&self.id, number, &step).await?;
        // The store has small steps as well, because a run that the engine loses is ended from
        // there.
        let inline = usize::try_from(kept.bytes).is_ok_and(|bytes| bytes <= MOST_INLINE);
        Ok(if inline { Journalled::Step(step) } else { Journalled::Kept(kept) })
    }

    /// Reads the run that this one branches from, if it has not begun yet.
    ///
    /// # Errors
    /// The store cannot be read.
    async fn fork(&self) -> Result<Option<Fork>, StoreError> {
        let origin = self.request.origin.as_ref().filter(|_| !self.past.has_begun());
        let Some(origin) = origin.cloned() else { return Ok(None) };
        let (catalog, run) = (self.shared.catalog.clone(), origin.run.clone());
        let read = tokio::task::spawn_blocking(move || catalog.past_of(&run)).await;
        let past = read.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        Ok(Some(Fork { origin, past: Arc::new(past) }))
    }

    /// Takes a step that the engine has, and lets the run continue. Returns the state of a run that
    /// does not.
    ///
    /// # Errors
    /// The store does not have the step.
    pub(super) fn take(&mut self, journalled: Journalled) -> Result<Option<StepEnd>, StoreError> {
        let step = match journalled {
            Journalled::Step(step) => step,
            Journalled::Kept(kept) => self.shared.store.get(&self.id, &kept)?,
        };
        self.past.take(&step);
        self.steered.extend(step.steered.iter().cloned());
        // Steps before a crash are noted with the last of them.
        if self.attempt.is_some() || step.end.is_some() {
            self.note(step.end.as_ref());
        }
        if let Some(attempt) = &mut self.attempt {
            attempt.stored();
        }
        if step.end.is_some() {
            self.attempt = None;
            self.waiting.abort_all();
        }
        Ok(step.end)
    }

    /// Notes the last step for the readers of the store. Blocks for the time of a small file.
    fn note(&self, end: Option<&StepEnd>) {
        let (Some(number), Some(sha256)) = (self.past.steps().checked_sub(1), self.past.last())
        else {
            return;
        };
        let tip = Tip { number, sha256: sha256.to_owned() };
        let catalog = &self.shared.catalog;
        let noted = match end {
            Some(StepEnd::Ended { outcome }) => {
                catalog.ended(&self.id, &Summary::of(outcome, tip, clock::wall_ms()))
            }
            Some(StepEnd::Parked { .. }) => {
                catalog.head(&self.id, &Head { tip, state: HeadState::Parked })
            }
            Some(StepEnd::Refused { .. }) | None => {
                catalog.head(&self.id, &Head { tip, state: HeadState::Running })
            }
        };
        // The engine has the step, so only readers are late.
        if let Err(error) = noted {
            (self.shared.report)(&error.to_string());
        }
    }

    /// Ends the run from its stored steps. Returns the outcome as JSON.
    pub(super) async fn end(&mut self, why: String) -> String {
        self.attempt = None;
        self.waiting.abort_all();
        let cause = Cause::Failed(why);
        let task = &self.request.task;
        let (step, _) = end_run(&self.past, &self.id, task, &cause, clock::wall_ms());
        let outcome = step.outcome().unwrap_or_default().to_owned();
        match self.shared.put(&self.id, self.past.steps(), &step).await {
            Ok(_) => {
                self.past.take(&step);
                self.note(step.end.as_ref());
            }
            Err(error) => (self.shared.report)(&error.to_string()),
        }
        outcome
    }

    /// Ends a run that the engine has lost, after the steps that the store has of it.
    pub(super) async fn end_lost(&mut self, why: String) -> String {
        let (store, id) = (self.shared.store.clone(), self.id.clone());
        match tokio::task::spawn_blocking(move || store.past(&id)).await {
            Ok(Ok(past)) => self.past = past,
            Ok(Err(error)) => (self.shared.report)(&error.to_string()),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
        match self.past.outcome() {
            // The run had ended, or this is the second time that it is ended here.
            Some(outcome) => {
                let outcome = outcome.to_owned();
                self.note(Some(&StepEnd::Ended { outcome: outcome.clone() }));
                outcome
            }
            None => self.end(why).await,
        }
    }
}

/// Begins the attempt of this process, and waits for stops and letters in the background.
fn begin(driving: &mut Driving, fork: Option<Fork>) -> Attempt {
    if driving.past.steps() > 0 {
        // The worker of the last step may have died before it noted the step.
        driving.note(None);
    }
    let Driving { shared, id, request, limits, past, answer, stop, .. } = driving;
    let source = shared.agents.get(&request.agent).cloned();
    // Another worker has planned the run, and may have other agents.
    let source = source.unwrap_or_else(|| Arc::new(NotConfigured(request.agent.clone())));
    let (id, limits) = (id.clone(), limits.clone());
    let trace_parent = request.traceparent.as_deref().and_then(TraceParent::read);
    let task =
        Task { id: id.clone(), task: request.task.clone(), limits, source, fork, trace_parent };
    let attempt = Attempt::begin(task, Arc::new(past.clone()), answer.take(), *stop);
    let waiting = stops::pass_on(Arc::clone(shared), id, attempt.stopper());
    driving.waiting.spawn(waiting);
    let (shared, steerer) = (Arc::clone(&driving.shared), attempt.steerer());
    let letters = letters::pass_on(shared, driving.id.clone(), driving.letters() + 1, steerer);
    driving.waiting.spawn(letters);
    attempt
}

/// An agent that this worker does not have.
struct NotConfigured(String);

impl AgentSource for NotConfigured {
    fn limits(&self) -> Limits {
        Limits::default()
    }

    fn build(&self, _: &RunPlan) -> Result<BuiltAgent, String> {
        Err(format!("the agent {:?} is not configured on this worker", self.0))
    }
}
