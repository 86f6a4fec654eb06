//! Workers that die.

use crate::support::{Worker, assert_replays, finish, next, outcome};
use endstop_restate::{Past, StepEnd};
use std::sync::atomic::Ordering;

/// The steps of a run with three calls: the start, four turns, three results, and the ending.
const STEPS: u64 = 9;

#[tokio::test(flavor = "multi_thread")]
async fn run_without_crash_ends_typed() {
    let worker = Worker::new(3);
    let mut past = Past::default();
    let last = finish(&mut worker.attempt(&past), &mut past).await;
    let outcome = outcome(&last);
    assert_eq!(outcome["termination"], "stop");
    assert_eq!((worker.worked().len(), worker.model.made.load(Ordering::SeqCst)), (3, 4));
    assert_eq!(past.steps(), STEPS);
    assert_replays(&past, &outcome);
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_run_is_not_attempted_again() {
    let worker = Worker::new(1);
    let mut past = Past::default();
    finish(&mut worker.attempt(&past), &mut past).await;
    let (steps, calls) = (past.steps(), worker.model.made.load(Ordering::SeqCst));
    let step = next(&mut worker.attempt(&past)).await;
    assert_eq!(step.end, Some(StepEnd::Refused { why: "the run has ended".to_owned() }));
    assert!(step.records.is_empty() && step.header.is_none(), "{step:?}");
    assert_eq!((past.steps(), worker.model.made.load(Ordering::SeqCst)), (steps, calls));
}

#[tokio::test(flavor = "multi_thread")]
async fn crash_after_any_step_repeats_none() {
    // The last step has the ending, after which nothing is left to resume.
    for steps in 1..STEPS {
        let worker = Worker::new(3);
        let mut past = Past::default();
        let mut attempt = worker.attempt(&past);
        for _ in 0..steps {
            let step = next(&mut attempt).await;
            past.take(&step);
            attempt.stored();
        }
        drop(attempt);
        let last = finish(&mut worker.attempt(&past), &mut past).await;
        let outcome = outcome(&last);
        assert_eq!(outcome["termination"], "stop", "crash after {steps} steps");
        // A call whose result the engine has is never made again. One that was in progress may have
        // run, and the tool is not repeatable, so its body has started at most once.
        let worked = worker.worked();
        let mut distinct = worked.clone();
        distinct.dedup();
        assert_eq!(worked, distinct, "crash after {steps} steps");
        assert_replays(&past, &outcome);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn crash_before_storing_repeats_the_step() {
    let worker = Worker::new(1);
    let mut past = Past::default();
    let mut attempt = worker.attempt(&past);
    let begun = next(&mut attempt).await;
    past.take(&begun);
    attempt.stored();
    // The engine never gets this step: the model's first turn.
    let lost = next(&mut attempt).await;
    assert!(lost.records.iter().any(|record| record.name == "turn_ended"), "{lost:?}");
    assert_eq!(next(&mut attempt).await, lost, "it is returned until it is stored");
    drop(attempt);
    assert_eq!(
        worker.worked().len(),
        0,
        "nothing that a step requests happens before it is stored"
    );
    let last = finish(&mut worker.attempt(&past), &mut past).await;
    assert_eq!(outcome(&last)["termination"], "stop");
    assert_eq!(worker.model.made.load(Ordering::SeqCst), 3);
    assert!(past.records().iter().any(|record| record.name == "resumed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_that_always_dies_ends_the_run() {
    let worker = Worker::new(1);
    let mut past = Past::default();
    let mut attempts = 0;
    let why = loop {
        attempts += 1;
        let mut attempt = worker.attempt(&past);
        let step = next(&mut attempt).await;
        past.take(&step);
        if let Some(StepEnd::Refused { why }) = step.end {
            break why;
        }
        assert!(attempts < 20, "{past:?}");
    };
    assert!(why.contains("died 10 times at the same step"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_agent_does_not_continue_the_run() {
    let worker = Worker::new(1);
    let mut past = Past::default();
    let mut attempt = worker.attempt(&past);
    past.take(&next(&mut attempt).await);
    drop(attempt);
    // A worker of another version, whose tool waits for approval.
    let other = Worker { asks: true, ..worker };
    let step = next(&mut other.attempt(&past)).await;
    let Some(StepEnd::Refused { why }) = step.end else { panic!("{step:?}") };
    assert!(why.contains("the agent has changed since the run started"), "{why}");
    assert!(why.contains("work"), "{why}");
}
