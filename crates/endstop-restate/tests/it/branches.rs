//! Runs that begin with the conversation of another one.

use crate::support::{Worker, assert_replays, finish, next, outcome};
use endstop::journal::SqliteJournal;
use endstop_restate::{Attempt, Fork, Origin, Past, Step, StepEnd, Stop, Store, Task, export_run};
use serde_json::{Value, json};
use std::sync::Arc;

/// The run that others branch from: three calls, and an answer.
async fn first(worker: &Worker) -> Arc<Past> {
    let mut past = Past::default();
    finish(&mut worker.attempt(&past), &mut past).await;
    Arc::new(past)
}

fn origin(turn: u32) -> Origin {
    Origin {
        run: "r1".to_owned(),
        turn,
        message: Some("Mind the tests.".to_owned()),
        accept_redacted: false,
    }
}

/// Begins or continues a branch, as a worker does.
fn attempt(
    worker: &Worker,
    of: &Arc<Past>,
    origin: Origin,
    past: &Past,
    stop: Option<Stop>,
) -> Attempt {
    // A worker reads the other run only for a branch that has not started.
    let fork = (!past.has_begun()).then(|| Fork { origin, past: Arc::clone(of) });
    let task = Task { id: "r2".to_owned(), fork, ..worker.task() };
    Attempt::begin(task, Arc::new(past.clone()), None, stop)
}

fn refusal(step: &Step) -> &str {
    match &step.end {
        Some(StepEnd::Refused { why }) => why,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn branch_begins_with_the_prefix() {
    let worker = Worker::new(3);
    let of = first(&worker).await;
    let mut past = Past::default();
    let last = finish(&mut attempt(&worker, &of, origin(2), &past, None), &mut past).await;
    let outcome = outcome(&last);
    assert_eq!(outcome["termination"], "stop");
    assert_eq!(
        (&outcome["branched_from"]["run_id"], &outcome["branched_from"]["turn"]),
        (&json!("r1"), &json!(2))
    );
    // The first two calls are read, and only the third is made, with the cost and the turns of its own.
    let numbers: Vec<Value> = worker.worked().iter().map(|call| call["number"].clone()).collect();
    assert_eq!(numbers, [0, 1, 2, 2]);
    assert_eq!((&outcome["turns"], &outcome["usage"]["input_tokens"]), (&json!(2), &json!(20)));
    let prefix = of.recorded().unwrap().prefix(2, None).unwrap().messages;
    let messages = outcome["messages"].as_array().unwrap();
    assert_eq!(
        messages[..prefix.len()],
        *serde_json::to_value(&prefix).unwrap().as_array().unwrap()
    );
    assert!(messages[prefix.len()].to_string().contains("Mind the tests."), "{messages:?}");
    assert_replays(&past, &outcome);
}

#[tokio::test(flavor = "multi_thread")]
async fn branch_survives_death_after_any_step() {
    let calm = Worker::new(3);
    let (of, mut past) = (first(&calm).await, Past::default());
    let calm = outcome(&finish(&mut attempt(&calm, &of, origin(1), &past, None), &mut past).await);
    // 0: the worker dies before the engine has the first step.
    for steps in 0..past.steps() {
        let worker = Worker::new(3);
        let (of, mut past) = (first(&worker).await, Past::default());
        let before = worker.worked().len();
        let mut dies = attempt(&worker, &of, origin(1), &past, None);
        for number in 0..=steps {
            let step = next(&mut dies).await;
            if number < steps {
                past.take(&step);
                dies.stored();
            }
        }
        drop(dies);
        // The other run is gone from the store once the branch has started.
        let of = if past.has_begun() { Arc::default() } else { of };
        let last = finish(&mut attempt(&worker, &of, origin(1), &past, None), &mut past).await;
        let outcome = outcome(&last);
        assert_eq!(
            (&outcome["termination"], &outcome["branched_from"]),
            (&calm["termination"], &calm["branched_from"])
        );
        let worked = &worker.worked()[before..];
        let mut distinct = worked.to_vec();
        distinct.dedup();
        assert_eq!(worked, distinct, "death after {steps} steps");
        assert_replays(&past, &outcome);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn branch_of_a_branch_includes_both() {
    let worker = Worker::new(3);
    let of = first(&worker).await;
    let mut second = Past::default();
    finish(&mut attempt(&worker, &of, origin(1), &second, None), &mut second).await;
    let place = Origin { run: "r2".to_owned(), turn: 1, message: None, accept_redacted: false };
    let fork = Some(Fork { origin: place, past: Arc::new(second) });
    let task = Task { id: "r3".to_owned(), fork, ..worker.task() };
    let mut past = Past::default();
    let mut third = Attempt::begin(task, Arc::default(), None, None);
    let outcome = outcome(&finish(&mut third, &mut past).await);
    let from = &outcome["branched_from"];
    assert_eq!(
        (&from["run_id"], &from["turn"], &from["tokens"]),
        (&json!("r2"), &json!(1), &json!(30))
    );
    assert_replays(&past, &outcome);
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_branch_performs_nothing() {
    let worker = Worker::new(3);
    let (of, mut past) = (first(&worker).await, Past::default());
    let before = worker.worked().len();
    let mut stopped = attempt(&worker, &of, origin(2), &past, Some(Stop::Cancel));
    let outcome = outcome(&finish(&mut stopped, &mut past).await);
    assert_eq!((&outcome["termination"], worker.worked().len()), (&json!("cancelled"), before));
    assert_eq!(outcome["branched_from"]["run_id"], "r1");
    assert_replays(&past, &outcome);
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_branch_is_refused() {
    let worker = Worker::new(3);
    let of = first(&worker).await;
    let nothing = Past::default();
    let missing = next(&mut attempt(&worker, &Arc::default(), origin(1), &nothing, None)).await;
    assert!(refusal(&missing).contains("r1, from which this run branches"), "{missing:?}");
    let late = next(&mut attempt(&worker, &of, origin(9), &nothing, None)).await;
    assert!(refusal(&late).contains("no complete turn 9"), "{late:?}");
    let silent = Origin { message: None, ..origin(4) };
    let silent = next(&mut attempt(&worker, &of, silent, &nothing, None)).await;
    assert!(refusal(&silent).contains("message"), "{silent:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn exported_branch_is_linked() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("store")).unwrap();
    let journal = SqliteJournal::open(folder.path().join("journal.db")).unwrap();
    let worker = Worker::new(3);
    let mut of = Past::default();
    let mut parts = worker.attempt(&of);
    while of.outcome().is_none() {
        let step = next(&mut parts).await;
        store.put("r1", of.steps(), &step).unwrap();
        of.take(&step);
        parts.stored();
    }
    let (of, mut past) = (Arc::new(of), Past::default());
    let mut parts = attempt(&worker, &of, origin(2), &past, None);
    while past.outcome().is_none() {
        let step = next(&mut parts).await;
        store.put("r2", past.steps(), &step).unwrap();
        past.take(&step);
        parts.stored();
    }
    for run in ["r1", "r2"] {
        export_run(&store, run, &journal).unwrap();
    }
    let branches = journal.branches("r1").unwrap();
    assert_eq!((branches.len(), branches[0].id.as_str(), branches[0].turn), (1, "r2", 2));
    let recorded = journal.load("r2").unwrap();
    assert!(recorded.replay(None).unwrap().outcome().is_some());
    // The exported branch can be branched again, locally.
    assert_eq!(recorded.prefix(1, None).unwrap().point.run_id, "r2");
}
