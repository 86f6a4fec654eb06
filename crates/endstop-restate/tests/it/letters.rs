//! Letters to a run: messages and changes of limits, over several attempts.

use crate::support::{Worker, assert_replays, finish, next, outcome};
use endstop::{LimitChanges, Limits};
use endstop_restate::{Attempt, Content, Past, RefusalKind, Step};
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

fn say(text: &str) -> Content {
    Content::Say(text.to_owned())
}

fn limit(name: &str, value: Value) -> Content {
    Content::Limits(LimitChanges::new().set(name, value).unwrap())
}

/// A worker whose tool does not return, and an attempt at its run that waits for the tool.
async fn working(calls: usize, past: &mut Past) -> (Worker, Attempt) {
    let worker = Worker::new(calls);
    worker.blocked.store(true, Ordering::SeqCst);
    let mut attempt = worker.attempt(past);
    loop {
        let step = next(&mut attempt).await;
        past.take(&step);
        attempt.stored();
        if step.records.iter().any(|record| record.name == "turn_ended") {
            return (worker, attempt);
        }
    }
}

/// Returns the next step with a decision, which is not stored yet.
async fn decision(attempt: &mut Attempt, past: &mut Past) -> Step {
    loop {
        let step = next(attempt).await;
        if !step.steered.is_empty() {
            return step;
        }
        past.take(&step);
        attempt.stored();
    }
}

fn said(past: &Past) -> usize {
    past.records().iter().filter(|record| record.name == "said").count()
}

fn read(outcome: &Value, text: &str) -> usize {
    outcome["messages"].to_string().matches(text).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn message_is_taken_within_a_step() {
    let mut past = Past::default();
    let (worker, mut attempt) = working(2, &mut past).await;
    attempt.steerer().send(1, say("Only the tests."));
    let step = decision(&mut attempt, &mut past).await;
    assert_eq!((step.steered[0].number, &step.steered[0].refused), (1, &None));
    worker.blocked.store(false, Ordering::SeqCst);
    let outcome = outcome(&finish(&mut attempt, &mut past).await);
    assert_eq!((outcome["termination"].as_str(), past.steered()), (Some("stop"), 1));
    assert_eq!((said(&past), read(&outcome, "Only the tests.")), (1, 1));
    assert_replays(&past, &outcome);
}

/// A worker that dies before the engine has the step leaves the letter to the next one; a worker that dies after
/// it does not.
#[tokio::test(flavor = "multi_thread")]
async fn message_counts_once_after_a_crash() {
    for stored in [false, true] {
        let mut past = Past::default();
        let (worker, mut attempt) = working(2, &mut past).await;
        attempt.steerer().send(1, say("Only the tests."));
        let step = decision(&mut attempt, &mut past).await;
        if stored {
            past.take(&step);
            attempt.stored();
        }
        drop(attempt);
        assert_eq!(past.steered(), u64::from(stored));
        let mut again = worker.attempt(&past);
        for number in past.steered() + 1..=1 {
            // While the second call works, because a run that ends before it takes a letter refuses it.
            again.steerer().send(number, say("Only the tests."));
            let step = decision(&mut again, &mut past).await;
            past.take(&step);
            again.stored();
        }
        worker.blocked.store(false, Ordering::SeqCst);
        let outcome = outcome(&finish(&mut again, &mut past).await);
        assert_eq!((said(&past), past.steered()), (1, 1), "stored: {stored}");
        assert_eq!(read(&outcome, "Only the tests."), 1, "stored: {stored}");
        assert_replays(&past, &outcome);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_letter_has_its_reason() {
    let mut past = Past::default();
    let (_worker, mut attempt) = working(1, &mut past).await;
    let long = "x".repeat((64 << 10) + 1);
    let letters = [
        (limit("max_turns", json!("off")), Some(RefusalKind::Invalid)),
        (say(" "), Some(RefusalKind::Invalid)),
        (say(&long), Some(RefusalKind::TooLarge)),
        (say("Only the tests."), None),
        (limit("max_turns", json!(4)), None),
        (limit("max_turns", json!(5)), Some(RefusalKind::Invalid)),
    ];
    let expected: Vec<_> = letters.iter().map(|(_, refused)| *refused).collect();
    for (number, (content, _)) in (1..).zip(letters) {
        attempt.steerer().send(number, content);
    }
    let mut decided = Vec::new();
    while decided.len() < expected.len() {
        let step = decision(&mut attempt, &mut past).await;
        decided.extend(step.steered.clone());
        past.take(&step);
        attempt.stored();
    }
    let numbers: Vec<u64> = decided.iter().map(|steered| steered.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    let refused: Vec<_> = decided
        .iter()
        .map(|steered| steered.refused.as_ref().map(|refusal| refusal.kind))
        .collect();
    assert_eq!(refused, expected);
    assert!(decided[5].refused.as_ref().unwrap().message.contains("max_turns"), "{decided:?}");
}

/// The plan of a run has the limits of its request, which permit more than those that a client has lowered.
#[tokio::test(flavor = "multi_thread")]
async fn lowered_limit_outlives_its_attempt() {
    let mut past = Past::default();
    let (worker, mut attempt) = working(20, &mut past).await;
    assert!(Limits::default().max_turns.is_none_or(|turns| turns > 3));
    attempt.steerer().send(1, limit("max_turns", json!(3)));
    let step = decision(&mut attempt, &mut past).await;
    past.take(&step);
    attempt.stored();
    drop(attempt);
    worker.blocked.store(false, Ordering::SeqCst);
    let outcome = outcome(&finish(&mut worker.attempt(&past), &mut past).await);
    assert_eq!(
        (outcome["termination"].as_str(), &outcome["turns"]),
        (Some("error_max_turns"), &json!(3))
    );
    assert_replays(&past, &outcome);
}
