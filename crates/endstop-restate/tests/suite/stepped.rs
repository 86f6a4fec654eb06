//! The durable driver without an engine: a run that is driven one step at a time.

use crate::run::{Boxed, Build, Case, Driver, Ended, Live, TASK};
use endstop::{Limits, Outcome};
use endstop_restate::{
    AgentSource, Attempt, BuiltAgent, Cause, Past, RunPlan, StepEnd, Stop, Stopper, Task, end_run,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::task::JoinSet;

#[derive(Default)]
pub struct Stepped {
    next: AtomicU64,
}

/// Builds the agent of a case.
pub struct Source {
    pub build: Build,
    pub limits: Limits,
}

impl AgentSource for Source {
    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn build(&self, plan: &RunPlan) -> Result<BuiltAgent, String> {
        let agent = (self.build)().limits(plan.limits.clone()).journal(plan.journal.clone());
        let agent = agent.build().map_err(|error| error.to_string())?;
        let secrets = endstop::provider::KnownKeys::default();
        Ok(BuiltAgent { agent, secrets, resources: Box::new(()) })
    }
}

impl Driver for Stepped {
    fn start(&self, case: Case) -> Boxed<'_, Result<Box<dyn Live>, String>> {
        let id = format!("run{}", self.next.fetch_add(1, Ordering::SeqCst));
        let source = Source { build: case.build, limits: case.limits.clone() };
        let (limits, source) = (case.limits, Arc::new(source));
        let task =
            Task { id, task: TASK.to_owned(), limits, source, fork: None, trace_parent: None };
        let attempt = Attempt::begin(task.clone(), Arc::default(), None, case.stop_first);
        let stopper = attempt.stopper();
        let mut work = JoinSet::new();
        work.spawn(driven(attempt, task.id.clone()));
        let live = StepRun { task, stopper, work, past: Mutex::default() };
        Box::pin(async move { Ok(Box::new(live) as Box<dyn Live>) })
    }
}

/// Drives an attempt to the end of its run; returns its steps, and the number of endings among them.
async fn driven(mut attempt: Attempt, id: String) -> (Past, usize, bool) {
    let (mut past, mut endings) = (Past::default(), 0);
    loop {
        let step = attempt.next().await;
        past.take(&step);
        endings += usize::from(step.outcome().is_some());
        attempt.stored();
        match step.end {
            None => {}
            Some(StepEnd::Ended { .. }) => return (past, endings, true),
            // As the workflow does it.
            Some(StepEnd::Refused { why }) => {
                let (step, _) = end_run(&past, &id, TASK, &Cause::Failed(why), 0);
                past.take(&step);
                return (past, endings + 1, step.outcome().is_some());
            }
            Some(StepEnd::Parked { request }) => panic!("parked: {request:?}"),
        }
    }
}

struct StepRun {
    task: Task,
    stopper: Stopper,
    work: JoinSet<(Past, usize, bool)>,
    past: Mutex<Past>,
}

/// Reads the outcome of a run from its steps.
pub fn outcome_of(past: &Past) -> Outcome {
    serde_json::from_str(past.outcome().expect("an ending")).unwrap()
}

impl Live for StepRun {
    fn stop(&self, stop: Stop) -> Boxed<'_, ()> {
        self.stopper.stop(stop);
        Box::pin(std::future::ready(()))
    }

    fn end(&mut self) -> Boxed<'_, Ended> {
        Box::pin(async move {
            let (past, endings, last) = self.work.join_next().await.expect("the work").unwrap();
            let ended = Ended {
                outcome: outcome_of(&past),
                endings,
                last,
                recorded: past.recorded().unwrap(),
            };
            *self.past.lock().unwrap() = past;
            ended
        })
    }

    fn stored(&self) -> Boxed<'_, Outcome> {
        let outcome = outcome_of(&self.past.lock().unwrap());
        Box::pin(std::future::ready(outcome))
    }

    fn again(&self) -> Boxed<'_, String> {
        Box::pin(async move {
            let past = Arc::new(self.past.lock().unwrap().clone());
            let mut attempt = Attempt::begin(self.task.clone(), past, None, None);
            match attempt.next().await.end {
                Some(StepEnd::Refused { why }) => why,
                other => panic!("not refused: {other:?}"),
            }
        })
    }
}
