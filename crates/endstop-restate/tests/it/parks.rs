//! Runs that wait for a decision.

use crate::support::{Worker, assert_replays, finish, next, outcome};
use endstop::park::{Answer, ParkRequest};
use endstop_restate::{Attempt, Past, Step, StepEnd, Stop};
use serde_json::{Map, Value, json};
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

/// Performs the parked call with other arguments; the worker dies after this many steps.
async fn changed(dies_after: Option<u64>) -> (Worker, Past, Value) {
    let worker = asking();
    let mut past = Past::default();
    let request = parked(&finish(&mut worker.attempt(&past), &mut past).await);
    let Value::Object(arguments) = json!({"number": 70}) else { panic!() };
    let answer = Answer::approve_changed(arguments).digest(&request.digest);
    let begin = |past: &Past| {
        Attempt::begin(worker.task(), Arc::new(past.clone()), Some(answer.clone()), None)
    };
    let mut attempt = begin(&past);
    for _ in 0..dies_after.unwrap_or_default() {
        past.take(&next(&mut attempt).await);
        attempt.stored();
    }
    if dies_after.is_some() {
        // The engine still has the decision, and gives it to the next worker.
        drop(attempt);
        attempt = begin(&past);
    }
    let last = finish(&mut attempt, &mut past).await;
    let outcome = outcome(&last);
    assert_replays(&past, &outcome);
    (worker, past, outcome)
}

#[tokio::test(flavor = "multi_thread")]
async fn approved_call_runs_with_changed_arguments() {
    let (worker, past, outcome) = changed(None).await;
    assert_eq!(outcome["termination"], "stop");
    assert_eq!(worker.worked(), [json!({"number": 70})]);
    let decided = past.records().iter().find(|record| record.name == "decided").unwrap();
    assert!(decided.event.contains("approve_changed"), "{decided:?}");
    let events = past.recorded().unwrap().events_again().unwrap();
    assert!(events.iter().any(|event| event.kind.name() == "tool_call_changed"), "{events:?}");
    let (_, whole, _) = changed(None).await;
    for steps in 0..4 {
        let (worker, past, outcome) = changed(Some(steps)).await;
        assert_eq!(outcome["termination"], "stop", "death after {steps} steps");
        // A call that had started is not repeated, and never runs with the arguments of the model.
        assert!(worker.worked().iter().all(|call| *call == json!({"number": 70})), "{past:?}");
        assert!(worker.worked().len() <= 1 && past.steps() >= whole.steps(), "{past:?}");
        let decided = past.records().iter().filter(|record| record.name == "decided").count();
        assert_eq!(decided, 1, "death after {steps} steps");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_arguments_need_their_digest() {
    let worker = asking();
    let mut past = Past::default();
    parked(&finish(&mut worker.attempt(&past), &mut past).await);
    let answer = Answer::approve_changed(Map::new()).digest("0000000000000000");
    let mut attempt = Attempt::begin(worker.task(), Arc::new(past.clone()), Some(answer), None);
    parked(&finish(&mut attempt, &mut past).await);
    assert!(worker.worked().is_empty());
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
