//! Verification of answers: rounds, their messages and limits, and the ending of an answer that is
//! never accepted.

use crate::hand::{Hand, calls, spec, stop};
use crate::kernel_laws::silence_scripted_panics;
use crate::world::{all_of, play_on, replay};
use endstop_core::replay;
use endstop_core::*;
use serde_json::json;
use std::time::Duration;

fn verified_spec(rounds: Option<u32>) -> RunSpec {
    let limits = Limits { verify_rounds: rounds, ..Limits::default() };
    RunSpec { limits, verifier: true, finish_tool: true, ..spec() }
}

fn verification(hand: &Hand) -> EffectId {
    let asked = hand.effects.iter().find_map(|effect| match effect {
        Effect::Verify { id, .. } => Some(*id),
        _ => None,
    });
    asked.unwrap_or_else(|| panic!("nothing to verify among {:?}", hand.effects))
}

fn judge(hand: &mut Hand, passed: bool, output: &str) {
    let id = verification(hand);
    hand.feed(EventKind::Verified { id, passed, output: output.to_owned() });
}

fn finish(answer: &str) -> ModelTurn {
    let mut turn = calls(&["finish"]);
    let Some(Part::ToolCall(call)) = turn.parts.last_mut() else { panic!("no call") };
    call.arguments = json!({"deliverable": answer}).to_string();
    turn
}

#[test]
fn third_round_is_accepted() {
    let mut hand = Hand::start(verified_spec(Some(3)), None);
    for round in 1..=2 {
        hand.answer(finish(&format!("try {round}")));
        judge(&mut hand, false, "test_add failed\n");
        let last = hand.run().messages().last().unwrap();
        assert_eq!(
            last.plain_text(),
            format!(
                "The result was verified and rejected (round {round} of 3). Output of the verifier:\n\ntest_add failed\n\nFix the cause, then give your answer again."
            )
        );
    }
    hand.answer(finish("try 3"));
    judge(&mut hand, true, "all passed");
    let outcome = hand.outcome();
    assert_eq!(outcome.termination, Termination::Submitted);
    assert_eq!((outcome.verified, outcome.turns), (Some(true), 3));
    assert_eq!(outcome.deliverable, Some(json!("try 3")));
    let rounds: Vec<_> = outcome.verify_rounds.iter().map(|r| (r.turn, r.passed)).collect();
    assert_eq!(rounds, [(1, false), (2, false), (3, true)]);
    assert_eq!(outcome.exit_status(), 0);
}

#[test]
fn rejected_answers_end_as_not_verified() {
    let mut hand = Hand::start(verified_spec(Some(2)), None);
    for round in 1..=2 {
        hand.answer(finish(&format!("try {round}")));
        judge(&mut hand, false, &format!("wrong {round}"));
    }
    let outcome = hand.outcome();
    assert_eq!(outcome.termination, Termination::ErrorNotVerified);
    assert_eq!(outcome.category(), Category::Capacity);
    assert_eq!((outcome.exit_status(), outcome.verified), (20, Some(false)));
    assert_eq!(outcome.deliverable, Some(json!("try 2")), "the work is not lost");
    assert_eq!(outcome.error_diagnostic.as_deref(), Some("wrong 2"));
    assert_eq!(
        outcome.decided_by.to_string(),
        "limit `verify_rounds`: the verifier rejected the answer in each of 2 rounds"
    );
}

#[test]
fn limit_between_rounds_decides() {
    let mut run = verified_spec(Some(5));
    run.limits.max_turns = Some(2);
    let mut hand = Hand::start(run, None);
    hand.answer(finish("try 1"));
    judge(&mut hand, false, "no");
    hand.answer(calls(&["read"])).tools_end(ToolStatus::Ok, "r");
    let outcome = hand.outcome();
    assert_eq!(outcome.termination, Termination::ErrorMaxTurns);
    assert_eq!((outcome.verified, outcome.verify_rounds.len()), (Some(false), 1));
    assert_eq!(outcome.deliverable, Some(json!("try 1")));
}

#[test]
fn deadline_during_verification_is_timeout() {
    let mut run = verified_spec(Some(2));
    run.limits.timeout = Some(Duration::from_secs(5));
    let mut hand = Hand::start(run, None);
    hand.answer(finish("done"));
    let id = verification(&hand);
    hand.at(5_000).feed(EventKind::Tick);
    let outcome = hand.outcome();
    assert_eq!(outcome.termination, Termination::ErrorTimeout);
    assert_eq!((outcome.verified, outcome.deliverable.clone()), (None, Some(json!("done"))));
    assert!(hand.effects.contains(&Effect::Abandon { id }), "the verifier is stopped");
}

#[test]
fn hanging_verifier_rejects() {
    let mut run = verified_spec(Some(2));
    run.limits.verify_timeout = Some(Duration::from_secs(30));
    let mut hand = Hand::start(run, None);
    hand.answer(stop("done"));
    let id = verification(&hand);
    assert!(hand.effects.contains(&Effect::WakeAt { at: Duration::from_secs(30) }));
    hand.at(30_000).feed(EventKind::Tick);
    assert!(hand.effects.contains(&Effect::Abandon { id }));
    let text = hand.run().messages().last().unwrap().plain_text();
    assert!(text.contains("did not end within 30s and was stopped"), "{text}");
    // A verdict that comes after the end changes nothing.
    hand.feed(EventKind::Verified { id, passed: true, output: String::new() });
    assert!(hand.outcome.is_none());
}

#[test]
fn verdict_alone_keeps_ending() {
    for passed in [true, false] {
        let mut hand = Hand::start(verified_spec(None), None);
        hand.answer(stop("done"));
        judge(&mut hand, passed, "output");
        let outcome = hand.outcome();
        assert_eq!((outcome.termination, outcome.verified), (Termination::Stop, Some(passed)));
        assert_eq!(outcome.exit_status(), u8::from(!passed));
    }
}

#[test]
fn deadline_keeps_answer_without_rounds() {
    let mut run = verified_spec(None);
    run.limits.timeout = Some(Duration::from_secs(5));
    let mut hand = Hand::start(run, None);
    hand.answer(stop("done"));
    hand.at(5_000).feed(EventKind::Tick);
    let outcome = hand.outcome();
    assert_eq!((outcome.termination, outcome.verified), (Termination::Stop, None));
    assert_eq!(outcome.also, [Termination::ErrorTimeout]);
}

#[test]
fn long_output_loses_its_middle() {
    let mut hand = Hand::start(verified_spec(Some(2)), None);
    hand.answer(stop("done"));
    let output = format!("first line\n{}\n3 tests failed", "é".repeat(1 << 20));
    judge(&mut hand, false, &output);
    let text = hand.run().messages().last().unwrap().plain_text();
    assert!(text.len() < 17 * 1024, "{} bytes", text.len());
    assert!(text.contains("first line\n") && text.contains("bytes left out"));
    assert!(text.contains("\n3 tests failed\n\n"));
}

#[test]
fn more_rounds_resume_unverified_run() {
    let mut run = verified_spec(Some(1));
    run.run_id = Some("r".to_owned());
    let again = move || run.clone_with(None);
    let mut hand = Hand::start(again(), None);
    let mut events =
        vec![Event::new(Duration::ZERO, EventKind::Start { seed: 7, price: None, wall_ms: None })];
    let mut feed = |hand: &mut Hand, kind: EventKind| {
        events.push(Event::new(Duration::ZERO, kind.clone()));
        hand.feed(kind);
    };
    let turn = EventKind::TurnEnded { call: hand.call(), turn: Box::new(stop("try 1")) };
    feed(&mut hand, turn);
    let id = verification(&hand);
    feed(&mut hand, EventKind::Verified { id, passed: false, output: "no".to_owned() });
    assert_eq!(hand.ended(), Termination::ErrorNotVerified);

    let limits = Limits { verify_rounds: Some(2), ..again().limits };
    let with = Resumption { limits: Some(limits), ..Resumption::default() };
    let on = replay::resume(&again, events.clone(), with).unwrap();
    let Step::Continue(run) = on.step else { panic!("it ended again") };
    assert_eq!(run.phase().as_str(), "calling");
    assert!(run.messages().last().unwrap().plain_text().contains("round 1 of 2"));
    // Under the same limit it would end again at once.
    assert!(replay::resume(&again, events, Resumption::default()).is_err());
}

#[test]
fn resumed_verification_runs_again() {
    silence_scripted_panics();
    let mut resumed = 0;
    for seed in 0..2_000 {
        let whole = play_on(seed, &[]).unwrap_or_else(|law| panic!("world {seed}: {law}"));
        let asks = |event: &Event| matches!(event.kind, EventKind::Verified { .. });
        let Some(at) = whole.events.iter().position(asks) else { continue };
        // The process dies between the request and the verdict.
        let played = play_on(seed, &[at]).unwrap_or_else(|law| panic!("world {seed}: {law}"));
        let again = replay(seed, &played.events).unwrap();
        assert_eq!(all_of(&again), all_of(&played.outcome), "world {seed}: replayed");
        resumed += 1;
    }
    assert!(resumed > 50, "only {resumed} runs");
}
