//! Endings that no worker gives: the run was killed, or cannot continue.

use crate::support::{Worker, assert_replays, next};
use endstop::Termination;
use endstop_restate::{
    AgentSource, Attempt, BuiltAgent, Cause, Past, RunPlan, StepEnd, Task, end_run,
};
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread")]
async fn killed_run_ends_typed_with_its_cost() {
    // After each step of the run.
    for steps in 1..=8 {
        let worker = Worker::new(3);
        let mut past = Past::default();
        let mut attempt = worker.attempt(&past);
        for _ in 0..steps {
            let step = next(&mut attempt).await;
            past.take(&step);
            attempt.stored();
        }
        drop(attempt);
        let turns = past.records().iter().filter(|record| record.name == "turn_ended").count();
        let (step, outcome) = end_run(&past, "r1", "Work.", &Cause::Killed, 7);
        // If the answer was complete, the ending was already decided.
        let expected = if turns == 4 { Termination::Stop } else { Termination::Terminated };
        assert_eq!(outcome.termination, expected, "after {steps} steps");
        let used = outcome.usage.input_tokens.unwrap_or_default();
        assert!(used >= 10 * turns as u64, "{used} after {turns} turns");
        past.take(&step);
        assert_replays(&past, &serde_json::to_value(&*outcome).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_run_names_its_cause() {
    let worker = Worker::new(3);
    let mut past = Past::default();
    let mut attempt = worker.attempt(&past);
    past.take(&next(&mut attempt).await);
    drop(attempt);
    let cause = Cause::Failed("the store is gone".to_owned());
    let (_, outcome) = end_run(&past, "r1", "Work.", &cause, 7);
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
    assert!(outcome.decided_by.evidence.contains("the store is gone"), "{outcome:?}");
}

/// An agent that cannot be built.
struct Broken;

impl AgentSource for Broken {
    fn limits(&self) -> endstop::Limits {
        endstop::Limits::default()
    }
    fn build(&self, _: &RunPlan) -> Result<BuiltAgent, String> {
        Err("its key is missing".to_owned())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_that_cannot_be_built_is_refused() {
    let task = Task { source: Arc::new(Broken), ..Worker::new(1).task() };
    let mut attempt = Attempt::begin(task, Arc::new(Past::default()), None, None);
    let step = next(&mut attempt).await;
    assert_eq!(step.end, Some(StepEnd::Refused { why: "its key is missing".to_owned() }));
    assert!(step.records.is_empty() && step.header.is_none(), "{step:?}");
}
