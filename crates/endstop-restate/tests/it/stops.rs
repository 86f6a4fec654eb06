//! Stops from outside, and attempts that are dropped.

use crate::support::{Worker, assert_replays, finish, next, outcome};
use endstop_restate::{Attempt, Past, Stop};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Drives the attempt until the tool has started.
async fn until_working(worker: &Worker, attempt: &mut Attempt, past: &mut Past) {
    while worker.worked().is_empty() {
        tokio::select! {
            step = next(attempt) => {
                past.take(&step);
                attempt.stored();
            }
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_takes_effect_within_a_step() {
    for (stop, termination) in [(Stop::Cancel, "cancelled"), (Stop::Terminate, "terminated")] {
        let worker = Worker::new(3);
        worker.blocked.store(true, Ordering::SeqCst);
        let mut past = Past::default();
        let mut attempt = worker.attempt(&past);
        until_working(&worker, &mut attempt, &mut past).await;
        attempt.stopper().stop(stop);
        let last = finish(&mut attempt, &mut past).await;
        let outcome = outcome(&last);
        assert_eq!(outcome["termination"], termination);
        assert_eq!(outcome["usage"]["input_tokens"], 10, "what was used counts");
        assert_replays(&past, &outcome);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn run_stopped_before_start_performs_nothing() {
    for (stop, termination) in [(Stop::Cancel, "cancelled"), (Stop::Terminate, "terminated")] {
        let worker = Worker::new(1);
        let mut past = Past::default();
        let mut attempt = Attempt::begin(worker.task(), Arc::new(past.clone()), None, Some(stop));
        let last = finish(&mut attempt, &mut past).await;
        assert_eq!(outcome(&last)["termination"], termination);
        assert_eq!(worker.model.made.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn terminate_outranks_a_cancel() {
    let worker = Worker::new(1);
    worker.blocked.store(true, Ordering::SeqCst);
    let mut past = Past::default();
    let mut attempt = worker.attempt(&past);
    until_working(&worker, &mut attempt, &mut past).await;
    let stopper = attempt.stopper();
    stopper.stop(Stop::Terminate);
    stopper.stop(Stop::Cancel);
    let last = finish(&mut attempt, &mut past).await;
    assert_eq!(outcome(&last)["termination"], "terminated");
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_attempt_starts_nothing_more() {
    let worker = Worker::new(2);
    let past = Past::default();
    let mut attempt = worker.attempt(&past);
    let mut turn = next(&mut attempt).await;
    while !turn.records.iter().any(|record| record.name == "turn_ended") {
        attempt.stored();
        turn = next(&mut attempt).await;
    }
    // The tool call is requested, and waits for the engine. The worker is cut off.
    drop(attempt);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(worker.worked().len(), 0);
}
