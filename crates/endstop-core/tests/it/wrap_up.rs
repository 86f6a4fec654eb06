//! The hand-over: one extra call when a ceiling ends the run, within all ceilings.

use crate::hand::{Hand, calls, said, spec, stop};
use crate::kernel_laws::silence_scripted_panics;
use crate::world::{all_of, play, replay};
use endstop_core::replay::{self, CannotResume, close};
use endstop_core::*;
use std::time::Duration;

fn wraps_up(limits: Limits) -> RunSpec {
    RunSpec { limits: Limits { wrap_up: true, ..limits }, ..spec() }
}

fn one_turn() -> RunSpec {
    wraps_up(Limits { max_turns: Some(1), ..Limits::default() })
}

fn hand_over(hand: &Hand) -> EffectId {
    let asked = hand.effects.iter().find_map(|effect| match effect {
        Effect::CallHandOver { id, .. } => Some(*id),
        _ => None,
    });
    asked.unwrap_or_else(|| panic!("no hand-over among {:?}", hand.effects))
}

fn hands_over(hand: &mut Hand, turn: ModelTurn) {
    let call = hand_over(hand);
    hand.feed(EventKind::TurnEnded { call, turn: Box::new(turn) });
}

/// Plays the only turn, in which the model calls a tool.
fn at_the_limit() -> Hand {
    let mut hand = Hand::start(one_turn(), None);
    hand.answer(calls(&["read"])).tools_end(ToolStatus::Ok, "r");
    hand
}

#[test]
fn last_turn_without_answer_hands_over() {
    let mut hand = at_the_limit();
    assert_eq!(
        hand.run().messages().last().unwrap().plain_text(),
        "This run ends now, because its limit on the number of turns is reached. Do not call tools. Write a short hand-over, from which another person or program can continue: what is done, what is open, and what to do next. Do not claim more than the results above show."
    );
    assert_eq!(hand.run().phase().as_str(), "wrapping_up");
    hands_over(&mut hand, stop(" Read it. Open: the rest. "));
    let outcome = hand.outcome();
    assert_eq!(outcome.termination, Termination::ErrorMaxTurns);
    assert_eq!(outcome.hand_over.as_deref(), Some("Read it. Open: the rest."));
    assert_eq!((outcome.deliverable.clone(), outcome.last_text.clone()), (None, None));
    assert_eq!((outcome.turns, outcome.model_calls), (1, 2), "the hand-over is not a turn");
    assert_eq!(outcome.signal.as_ref().unwrap().reason, SignalReason::ToolUse);
    assert_eq!(outcome.exit_status(), 20);
}

#[test]
fn answer_in_last_turn_needs_none() {
    let mut hand = Hand::start(one_turn(), None);
    hand.answer(stop("42"));
    assert_eq!((hand.ended(), hand.outcome().hand_over.clone()), (Termination::Stop, None));
}

#[test]
fn calls_in_hand_over_are_not_run() {
    let mut hand = at_the_limit();
    let mut turn = calls(&["write"]);
    turn.parts.insert(0, Part::Text { text: "One more thing.".into() });
    hands_over(&mut hand, turn);
    assert!(hand.started().is_empty());
    let outcome = hand.outcome();
    assert_eq!(outcome.hand_over.as_deref(), Some("One more thing."));
    assert_eq!((outcome.tool_calls, outcome.messages.last().unwrap().parts.len()), (1, 1));

    // Only calls, and no text: there is no hand-over.
    let mut hand = at_the_limit();
    hands_over(&mut hand, calls(&["write"]));
    assert_eq!((hand.ended(), &hand.outcome().hand_over), (Termination::ErrorMaxTurns, &None));
}

#[test]
fn failed_hand_over_keeps_ending() {
    for class in ErrorClass::ALL {
        let mut hand = at_the_limit();
        let call = hand_over(&hand);
        let error = ModelError::new(class, "x");
        hand.feed(EventKind::TurnFailed { call, error, partial: None });
        assert_eq!((hand.ended(), &hand.outcome().hand_over), (Termination::ErrorMaxTurns, &None));
    }
}

#[test]
fn interrupted_hand_over_keeps_its_text() {
    let events: [(EventKind, Termination, &[Termination]); 3] = [
        (EventKind::Cancel, Termination::ErrorMaxTurns, &[Termination::Cancelled]),
        (EventKind::Terminate, Termination::Terminated, &[Termination::ErrorMaxTurns]),
        (
            EventKind::Fault { name: "driver".into(), message: "x".into() },
            Termination::ErrorMaxTurns,
            &[Termination::ErrorDuringExecution],
        ),
    ];
    for (event, ends_as, also) in events {
        let mut hand = at_the_limit();
        let call = hand_over(&hand);
        hand.feed(EventKind::Delta { call, delta: TurnDelta::Text("Read it.".into()) });
        hand.feed(event);
        assert!(hand.effects.contains(&Effect::AbortModel { id: call }));
        let outcome = hand.outcome();
        assert_eq!((outcome.termination, outcome.also.as_slice()), (ends_as, also));
        assert_eq!(outcome.hand_over.as_deref(), Some("Read it."));
    }
}

#[test]
fn time_is_kept_for_hand_over() {
    let limits = Limits { timeout: Some(Duration::from_secs(100)), ..Limits::default() };
    let mut hand = Hand::start(wraps_up(limits), None);
    assert!(hand.effects.contains(&Effect::WakeAt { at: Duration::from_secs(90) }));
    let call = hand.call();
    hand.feed(EventKind::Delta { call, delta: TurnDelta::Text("half an ans".into()) });
    hand.at(90_000).feed(EventKind::Tick);
    assert!(hand.effects.contains(&Effect::AbortModel { id: call }));
    assert!(hand.effects.contains(&Effect::WakeAt { at: Duration::from_secs(100) }));
    let hands = hand_over(&hand);
    hand.at(95_000)
        .feed(EventKind::Delta { call: hands, delta: TurnDelta::Text("Done: 1".into()) });
    hand.at(100_000).feed(EventKind::Tick);
    let outcome = hand.outcome();
    assert_eq!(outcome.termination, Termination::ErrorTimeout);
    assert_eq!(outcome.duration, Duration::from_secs(100));
    assert_eq!(outcome.hand_over.as_deref(), Some("Done: 1"));
    assert_eq!(outcome.last_text.as_deref(), Some("half an ans"));
    assert_eq!(
        outcome.decided_by.evidence,
        "the run took 90s of 90s; 10s are kept for the hand-over"
    );
}

#[test]
fn ceilings_leave_room_for_hand_over() {
    let price =
        Price { input: NanoUsd::from_usd(1.0), output: NanoUsd::from_usd(4.0), ..Price::default() };
    for (max_tokens, max_budget_usd) in [(Some(6_000), None), (None, Some(0.012))] {
        let limits = Limits { max_tokens, max_budget_usd, max_turns: None, ..Limits::default() };
        let mut run = wraps_up(limits);
        (run.reserve, run.output_cap) = (true, Some(800));
        let mut hand = Hand::start(run, Some(price));
        let mut turns = 0;
        while hand.run().phase().as_str() == "calling" {
            let mut turn = calls(&["read"]);
            turn.usage = Usage {
                input_tokens: Some(100 + 300 * turns),
                // Below the smallest cap, so that no turn is cut.
                output_tokens: Some(200),
                ..Usage::default()
            };
            hand.answer(turn).tools_end(ToolStatus::Ok, &format!("r{turns}"));
            turns += 1;
        }
        let call = hand_over(&hand);
        let mut turn = stop("Read some. Open: the rest.");
        (turn.usage.input_tokens, turn.usage.output_tokens) = (Some(100 + 300 * turns), Some(256));
        hand.feed(EventKind::TurnEnded { call, turn: Box::new(turn) });
        let outcome = hand.outcome();
        assert_eq!(outcome.category(), Category::Capacity);
        assert!(outcome.hand_over.is_some() && turns > 2, "after {turns} turns");
        assert!(max_tokens.is_none_or(|max| outcome.usage.total_tokens() <= max));
        assert!(max_budget_usd.is_none_or(|max| outcome.cost.to_usd() <= max));
        assert!(outcome.decided_by.evidence.contains("for the hand-over"), "{outcome}");
        // The ceiling that the outcome names is enough for the call and the hand-over.
        let fits = outcome.would_fit.unwrap();
        assert!(fits.max_tokens.is_none_or(|tokens| tokens > 6_000));
        assert!(fits.max_budget.is_none_or(|usd| usd.to_usd() > 0.012));
    }
}

#[test]
fn ceiling_of_zero_makes_no_call() {
    for limits in [
        Limits { max_turns: Some(0), ..Limits::default() },
        Limits { max_tokens: Some(0), ..Limits::default() },
        Limits { max_budget_usd: Some(0.0), ..Limits::default() },
    ] {
        let mut run = wraps_up(limits);
        run.reserve = true;
        let hand = Hand::start(run, Some(Price::default()));
        assert_eq!((hand.outcome().model_calls, &hand.outcome().hand_over), (0, &None));
    }
}

#[test]
fn other_endings_hand_nothing_over() {
    let mut hand = Hand::start(one_turn(), None);
    hand.answer(said("cut", SignalReason::TokenLimitReached));
    assert_eq!(hand.ended(), Termination::ErrorOutputTruncated);
    let mut hand = Hand::start(one_turn(), None);
    hand.feed(EventKind::Cancel);
    assert_eq!((hand.ended(), &hand.outcome().hand_over), (Termination::Cancelled, &None));
}

#[test]
fn resumed_run_remembers_hand_over_cost() {
    let price = Price { output: NanoUsd::from_usd(1.0), ..Price::default() };
    let start = EventKind::Start { seed: 7, price: Some(price), wall_ms: None };
    let mut events = vec![Event::new(Duration::ZERO, start)];
    let mut hand = Hand::start(one_turn(), Some(price));
    let mut feed = |hand: &mut Hand, kind: EventKind| {
        events.push(Event::new(Duration::ZERO, kind.clone()));
        hand.feed(kind);
    };
    let counted = |mut turn: ModelTurn| {
        (turn.usage.input_tokens, turn.usage.output_tokens) = (Some(50), Some(1_000));
        Box::new(turn)
    };
    let call = hand.call();
    feed(&mut hand, EventKind::TurnEnded { call, turn: counted(calls(&["read"])) });
    let (tool, _) = hand.started().remove(0);
    let report = ToolReport::new(ToolStatus::Ok, "r");
    feed(&mut hand, EventKind::ToolEnded { tool, report });
    let before = events.len();
    let call = hand_over(&hand);
    let ended = EventKind::TurnEnded { call, turn: counted(stop("Read it.")) };
    let (mut dead, mut whole) = (events.clone(), events.clone());
    whole.push(Event::new(Duration::ZERO, ended));

    let more = || Limits { max_turns: Some(3), ..one_turn().limits };
    let with = || Resumption { limits: Some(more()), ..Resumption::default() };
    let on = replay::resume(one_turn, whole.clone(), with()).unwrap();
    let Step::Continue(run) = on.step else { panic!("it ended again") };
    assert_eq!((run.phase().as_str(), run.turns()), ("calling", 1));
    assert_eq!(run.spent(), NanoUsd(2_000_000), "both calls");
    assert!(run.messages().iter().all(|message| !message.plain_text().contains("hand-over")));
    assert_eq!(on.kept, before - 1);
    // Under the same limit only another hand-over would follow.
    let again = replay::resume(one_turn, whole, Resumption::default());
    assert!(matches!(again, Err(CannotResume::EndsAgain(_))));

    // The process died during the hand-over: the run is closed as it was decided.
    let (added, outcome) = close(one_turn(), &dead).unwrap();
    assert_eq!((outcome.termination, &outcome.hand_over), (Termination::ErrorMaxTurns, &None));
    assert!(outcome.usage.estimated);
    let spent = outcome.usage.clone();
    let on = replay::resume(one_turn, dead.clone(), with()).unwrap();
    let Step::Continue(run) = on.step else { panic!("it ended again") };
    assert_eq!(*run.usage(), spent, "the lost call is charged");
    dead.extend(added);
    assert!(replay::resume(one_turn, dead, with()).is_ok());
}

#[test]
fn remaining_is_told_before_each_turn() {
    let limits = Limits {
        max_turns: Some(3),
        timeout: Some(Duration::from_secs(3600)),
        tell_remaining: true,
        ..Limits::default()
    };
    let mut hand = Hand::start(RunSpec { limits, ..spec() }, None);
    let last = |hand: &Hand| hand.run().messages().last().unwrap().plain_text();
    assert_eq!(last(&hand), "Left in this run: 3 of 3 turns, 60 min of 60 min.");
    let before = hand.run().messages().to_vec();
    hand.answer(calls(&["read"])).at(3_500_000).tools_end(ToolStatus::Ok, "r");
    assert_eq!(last(&hand), "Left in this run: 2 of 3 turns, 100 s of 60 min.");
    assert!(hand.run().messages().starts_with(&before), "cached prompts stay valid");
    // A retry tells nothing new, and a paused turn is sent back unchanged.
    hand.fail(ErrorClass::ServerError);
    assert_eq!(last(&hand), "Left in this run: 2 of 3 turns, 100 s of 60 min.");
    hand.at(3_590_000).feed(EventKind::Tick);
    hand.answer(said("so", SignalReason::Paused));
    assert_eq!(last(&hand), "so");
}

/// Random runs with the hand-over on: `play` checks the ceilings, the history and the ending of each.
#[test]
fn random_hand_overs_stay_within_ceilings() {
    silence_scripted_panics();
    let (mut on, mut wrapped, mut resumed) = (0, 0, 0);
    for seed in 0..12_000 {
        let played = play(seed).unwrap_or_else(|law| panic!("world {seed}: {law}"));
        on += u32::from(crate::world::spec(&mut crate::world::Rng(seed)).0.limits.wrap_up);
        if played.outcome.hand_over.is_none() {
            continue;
        }
        wrapped += 1;
        assert!(!played.outcome.is_success(), "world {seed}");
        let again = replay(seed, &played.events).unwrap();
        assert_eq!(all_of(&again), all_of(&played.outcome), "world {seed}: replayed");
        let spec = || crate::world::spec(&mut crate::world::Rng(seed)).0;
        let limits = Limits {
            max_turns: None,
            max_tokens: None,
            max_budget_usd: None,
            timeout: None,
            ..spec().limits
        };
        let with = Resumption { limits: Some(limits), ..Resumption::default() };
        if let Ok(gone_on) = replay::resume(spec, played.events, with)
            && let Step::Continue(run) = gone_on.step
        {
            // Not the upper bound: a response that came after the old deadline was discarded and is
            // bounded in the outcome, but it is counted exactly without a deadline.
            let (spent, known) = (run.committed() + run.reserved(), played.outcome.cost);
            assert!(spent >= known, "world {seed}: {spent} of {known}");
            resumed += 1;
        }
    }
    // Most runs reach no ceiling, or nothing is left for the call.
    let counts = format!("{on} runs with it, {wrapped} hand-overs, {resumed} resumed");
    assert!(on > 3_000 && wrapped > 200 && resumed > 100, "{counts}");
}

#[test]
fn fault_during_stop_asks_for_nothing() {
    let limits =
        Limits { timeout: Some(Duration::from_secs(100)), wrap_up: true, ..Limits::default() };
    let mut hand = Hand::start(RunSpec { limits, ..spec() }, None);
    hand.answer(calls(&["read"])).at(95_000).feed(EventKind::Tick);
    assert_eq!(hand.run().phase().as_str(), "stopping");
    hand.feed(EventKind::Fault { name: "tool".to_owned(), message: "it panicked".to_owned() });
    let outcome = hand.outcome();
    assert_eq!(outcome.termination, Termination::ErrorTimeout);
    assert_eq!(outcome.also, [Termination::ErrorDuringExecution]);
    assert_eq!(outcome.hand_over, None);
}
