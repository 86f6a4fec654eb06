//! Runs that wait for a decision.

use crate::support::{Worker, assert_replays, finish, outcome};
use endstop::park::{Answer, ParkRequest};
use endstop_restate::{Attempt, Past, Step, StepEnd, Stop};
use std::sync::Arc;
use std::time::Duration;

fn parked(step: &Step) -> ParkRequest {
    match &step.end {
        Some(StepEnd::Parked { request }) => ParkRequest::clone(request),
        other => panic!("the run is not parked: {other:?}"),
    }
}

fn asking() -> Worker {
    Worker { asks: true, ..Worker::new(1) }
}

#[tokio::test(flavor = "multi_thread")]
async fn approved_call_runs_in_another_attempt() {
    let worker = asking();
    let mut past = Past::default();
    let last = finish(&mut worker.attempt(&past), &mut past).await;
    let request = parked(&last);
    assert_eq!((request.tool.as_deref(), worker.worked().len()), (Some("work"), 0));
    let answer = Answer::approve().digest(&request.digest);
    let mut attempt = Attempt::begin(worker.task(), Arc::new(past.clone()), Some(answer), None);
    let last = finish(&mut attempt, &mut past).await;
    let outcome = outcome(&last);
    assert_eq!((outcome["termination"].as_str(), worker.worked().len()), (Some("stop"), 1));
    assert_replays(&past, &outcome);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_decision_leaves_the_run_parked() {
    let worker = asking();
    let mut past = Past::default();
    let request = parked(&finish(&mut worker.attempt(&past), &mut past).await);
    let answer = Answer::approve().digest("0000000000000000");
    let mut attempt = Attempt::begin(worker.task(), Arc::new(past.clone()), Some(answer), None);
    let again = parked(&finish(&mut attempt, &mut past).await);
    assert_eq!((again.digest, worker.worked().len()), (request.digest, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_request_counts_as_denied() {
    let worker = Worker { expires: Some(Duration::from_millis(1)), ..asking() };
    let mut past = Past::default();
    parked(&finish(&mut worker.attempt(&past), &mut past).await);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let last = finish(&mut worker.attempt(&past), &mut past).await;
    let outcome = outcome(&last);
    assert_eq!(worker.worked().len(), 0, "{outcome}");
    assert!(past.records().iter().any(|record| record.name == "decided"), "{past:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn parked_run_can_be_stopped() {
    let worker = asking();
    let mut past = Past::default();
    parked(&finish(&mut worker.attempt(&past), &mut past).await);
    let mut attempt =
        Attempt::begin(worker.task(), Arc::new(past.clone()), None, Some(Stop::Cancel));
    let last = finish(&mut attempt, &mut past).await;
    let outcome = outcome(&last);
    assert_eq!((outcome["termination"].as_str(), worker.worked().len()), (Some("cancelled"), 0));
    assert_replays(&past, &outcome);
}
