//! The kernel calls the model: retries, output caps, and the costs of calls.

use crate::hand::{Hand, calls, results, said, spec, stop};
use endstop_core::*;
use std::time::Duration;

#[test]
fn unaffordable_retry_is_not_awaited() {
    let limits = Limits {
        max_budget_usd: Some(1.0),
        timeout: Some(Duration::from_secs(10)),
        ..Limits::default()
    };
    let mut hand = Hand::start(RunSpec { limits, ..spec() }, None);
    let call = hand.call();
    let error = ModelError {
        retry_after_ms: Some(30_000),
        ..ModelError::new(ErrorClass::Overloaded, "busy")
    };
    let mut partial = said("", SignalReason::ErrorTermination);
    partial.cost = Some(NanoUsd::from_usd(1.0));
    hand.feed(EventKind::TurnFailed { call, error, partial: Some(Box::new(partial)) });
    assert_eq!(hand.ended(), Termination::ErrorMaxBudgetUsd);
    let waits = hand.effects.iter().any(|e| {
        matches!(e, Effect::Emit(RunEvent::AttemptFailed { retry_in_ms, .. }) if retry_in_ms.is_some())
    });
    assert!(!waits, "{:?}", hand.effects);
}

#[test]
fn cut_call_lists_reached_ceiling() {
    let limits = Limits { max_tokens: Some(900), ..Limits::default() };
    let mut hand = Hand::start(RunSpec { limits, reserve: true, ..spec() }, None);
    let mut paused = said("more", SignalReason::Paused);
    (paused.usage.input_tokens, paused.usage.output_tokens) = (Some(5), Some(5));
    hand.answer(paused);
    let call = hand.call();
    hand.feed(EventKind::Delta { call, delta: TurnDelta::Reasoning(4000) });
    hand.feed(EventKind::Cancel);
    assert_eq!(hand.ended(), Termination::Cancelled);
    assert_eq!(hand.outcome().usage.total_tokens(), 900);
    assert_eq!(hand.outcome().also, [Termination::ErrorMaxTokens]);
}

#[test]
fn only_content_resets_the_stall_clock() {
    let mut hand = Hand::start(spec(), None);
    let call = hand.call();
    hand.at(50_000).feed(EventKind::Delta { call, delta: TurnDelta::Text("word".into()) });
    for empty in
        [TurnDelta::Text(String::new()), TurnDelta::Reasoning(0), TurnDelta::ToolArguments(0)]
    {
        hand.at(100_000).feed(EventKind::Delta { call, delta: empty });
    }
    hand.at(109_999).feed(EventKind::Tick);
    assert_eq!(hand.run().phase().as_str(), "calling");
    hand.at(110_000).feed(EventKind::Tick);
    assert_eq!(hand.run().phase().as_str(), "backoff");
    let named = hand.effects.iter().any(|e| {
        matches!(e, Effect::Emit(RunEvent::AttemptFailed { error, .. }) if error.message.contains("stall_timeout"))
    });
    assert!(named, "the clock that fired is named: {:?}", hand.effects);
    assert!(hand.effects.contains(&Effect::AbortModel { id: call }));
}

#[test]
fn permanent_error_is_not_retried() {
    for class in ErrorClass::ALL {
        let mut hand = Hand::start(spec(), None);
        hand.fail(class);
        if class.is_retryable() {
            assert_eq!(hand.run().phase().as_str(), "backoff", "{class}");
        } else {
            assert_eq!(hand.ended(), class.termination());
            assert_eq!(hand.outcome().model_calls, 1);
        }
    }
}

#[test]
fn completed_turn_resets_retry_count() {
    let mut hand = Hand::start(spec(), None);
    let mut ms = 0;
    for _ in 0..2 {
        for _ in 0..2 {
            hand.fail(ErrorClass::Overloaded);
            ms += 60_000;
            hand.at(ms).feed(EventKind::Tick);
        }
        hand.answer(calls(&["read"])).tools_end(ToolStatus::Ok, "r");
    }
    hand.fail(ErrorClass::Overloaded).at(ms + 60_000).feed(EventKind::Tick);
    hand.fail(ErrorClass::Overloaded).at(ms + 120_000).feed(EventKind::Tick);
    hand.fail(ErrorClass::Overloaded);
    assert_eq!(hand.ended(), Termination::ErrorDuringExecution);
    assert_eq!((hand.outcome().turns, hand.outcome().model_calls), (2, 9));
}

#[test]
fn wait_over_a_minute_ends_run() {
    let mut hand = Hand::start(spec(), None);
    let call = hand.call();
    let error = ModelError {
        retry_after_ms: Some(60_001),
        ..ModelError::new(ErrorClass::RateLimit, "later")
    };
    hand.feed(EventKind::TurnFailed { call, error, partial: None });
    assert_eq!(hand.ended(), Termination::ErrorDuringExecution);
    assert_eq!(hand.outcome().retry_after, Some(Duration::from_millis(60_001)));
}

#[test]
fn calls_of_truncated_turn_never_run() {
    for (reason, expected) in [
        (SignalReason::TokenLimitReached, Termination::ErrorOutputTruncated),
        (SignalReason::ContentFiltered, Termination::ErrorContentFiltered),
        (SignalReason::Unknown, Termination::ErrorDuringExecution),
    ] {
        let mut hand = Hand::start(spec(), None);
        let mut turn = calls(&["write"]);
        turn.signal = TerminationSignal::new(reason, Confidence::High);
        hand.answer(turn);
        assert_eq!(hand.ended(), expected);
        assert!(hand.started().is_empty());
        assert_eq!(results(hand.outcome()), [("c0".into(), ToolStatus::Skipped, false)]);
        assert_eq!(hand.outcome().tool_calls, 0);
    }
}

#[test]
fn lowered_cap_truncation_ends_as_budget() {
    let price = Price { output: NanoUsd::from_usd(1000.0), ..Price::default() };
    let limits = Limits { max_budget_usd: Some(1.0), ..Limits::default() };
    let spec = RunSpec { limits, reserve: true, output_cap: Some(4000), ..spec() };
    let mut hand = Hand::start(spec, Some(price));
    let cap = hand.cap().unwrap();
    assert!((256..=1000).contains(&cap), "{cap}");
    assert!(hand.run().reserved() <= NanoUsd::from_usd(1.0));
    let mut turn = said("half", SignalReason::TokenLimitReached);
    turn.usage = Usage { input_tokens: Some(5), output_tokens: Some(cap), ..Usage::default() };
    hand.answer(turn);
    assert_eq!(hand.ended(), Termination::ErrorMaxBudgetUsd);
    assert!(hand.outcome().cost <= NanoUsd::from_usd(1.0));
}

#[test]
fn unaffordable_call_is_not_made() {
    let price = Price { output: NanoUsd::from_usd(1000.0), ..Price::default() };
    // 255 tokens of output fit: one fewer than the smallest useful cap.
    let limits = Limits { max_budget_usd: Some(0.255), ..Limits::default() };
    let hand = Hand::start(RunSpec { limits, reserve: true, ..spec() }, Some(price));
    assert_eq!(hand.ended(), Termination::ErrorMaxBudgetUsd);
    assert_eq!(hand.outcome().model_calls, 0);
    // A thinking budget raises the smallest useful cap.
    let limits = Limits { max_tokens: Some(2000), ..Limits::default() };
    let hand =
        Hand::start(RunSpec { limits, reserve: true, thinking_budget: 4000, ..spec() }, None);
    assert_eq!(hand.ended(), Termination::ErrorMaxTokens);
}

#[test]
fn token_ceiling_counts_all_attempts() {
    let limits = Limits { max_tokens: Some(100), ..Limits::default() };
    let mut hand = Hand::start(RunSpec { limits, ..spec() }, None);
    let call = hand.call();
    let mut partial = said("half", SignalReason::ErrorTermination);
    partial.usage = Usage { input_tokens: Some(60), output_tokens: Some(40), ..Usage::default() };
    let error = ModelError::new(ErrorClass::IncompleteStream, "cut");
    hand.feed(EventKind::TurnFailed { call, error, partial: Some(Box::new(partial)) });
    assert_eq!(hand.ended(), Termination::ErrorMaxTokens);
    assert_eq!(hand.outcome().model_calls, 1);
}

#[test]
fn bill_above_quote_is_reported() {
    let price = Price { output: NanoUsd::from_usd(10.0), ..Price::default() };
    let spec = RunSpec { reserve: true, output_cap: Some(1000), ..spec() };
    let mut hand = Hand::start(spec, Some(price));
    let mut turn = stop("x");
    turn.usage = Usage { input_tokens: Some(1), output_tokens: Some(1500), ..Usage::default() };
    hand.answer(turn);
    assert_eq!(hand.outcome().overrun, NanoUsd::from_usd(0.005));
}

fn starving(cap: u64) -> ModelTurn {
    let mut turn = said("", SignalReason::TokenLimitReached);
    turn.output_cap = Some(cap);
    turn.usage = Usage { input_tokens: Some(10), output_tokens: Some(cap), ..Usage::default() };
    turn
}

#[test]
fn starved_turn_gets_one_larger_cap() {
    let mut hand = Hand::start(spec(), None);
    hand.answer(starving(100));
    assert_eq!(hand.cap(), Some(400));
    hand.answer(starving(400));
    assert_eq!(hand.ended(), Termination::ErrorThinkingStarved);
    assert_eq!((hand.outcome().model_calls, hand.outcome().turns), (2, 0));
    assert_eq!(hand.outcome().usage.output_tokens, Some(500), "both attempts are charged");
}

#[test]
fn default_cap_stays_below_model_maximum() {
    // A ceiling that would allow more than any model generates.
    let limits = Limits { max_tokens: Some(10_000_000), ..Limits::default() };
    let capped =
        || RunSpec { limits: limits.clone(), reserve: true, max_output: Some(300), ..spec() };
    assert_eq!(Hand::start(capped(), None).cap(), Some(300));
    // The caller's cap stands.
    let mut hand = Hand::start(RunSpec { output_cap: Some(200), ..capped() }, None);
    assert_eq!(hand.cap(), Some(200));
    hand.answer(starving(200));
    assert_eq!(hand.cap(), Some(300), "four times as much is more than it gives");
    // Without a ceiling the provider's default stands.
    assert_eq!(Hand::start(RunSpec { max_output: Some(300), ..spec() }, None).cap(), None);
}

#[test]
fn answer_of_older_attempt_is_dropped() {
    let mut hand = Hand::start(spec(), None);
    let old = hand.call();
    hand.fail(ErrorClass::ServerError).at(60_000).feed(EventKind::Tick);
    let new = hand.call();
    assert_ne!(old, new);
    hand.feed(EventKind::TurnEnded { call: old, turn: Box::new(stop("late")) });
    assert_eq!(hand.run().phase().as_str(), "calling");
    hand.feed(EventKind::TurnEnded { call: new, turn: Box::new(stop("in time")) });
    assert_eq!(hand.outcome().last_text.as_deref(), Some("in time"));
}

#[test]
fn least_shared_grant_is_enough() {
    for (input, output, thinking_budget) in [(1, 1, 0), (3_000_000, 999_999_999, 300), (7, 0, 0)] {
        let price = Price { input: NanoUsd(input), output: NanoUsd(output), ..Price::default() };
        let spec = RunSpec { reserve: true, shared_budget: true, thinking_budget, ..spec() };
        let mut hand = Hand::start(spec, Some(price));
        let reserve = hand.effects.iter().find_map(|effect| match effect {
            Effect::Reserve { id, least, .. } => Some((*id, *least)),
            _ => None,
        });
        let (id, least) = reserve.unwrap();
        hand.feed(EventKind::Reserved {
            id,
            granted: least,
            granted_tokens: None,
            refused_by: None,
        });
        assert!(hand.outcome.is_none(), "{least} of {price:?}: {:?}", hand.outcome());
        assert!(hand.cap().is_none_or(|cap| cap >= 256), "{:?}", hand.cap());
    }
}

#[test]
fn late_compaction_cost_is_booked() {
    for (at, termination) in [(0, None), (50, Some(Termination::ErrorTimeout))] {
        let mut spec = spec();
        let earlier = |id, role| Message::text(MessageId(id), role, "of no importance any more");
        spec.messages = vec![
            earlier(1, Role::User),
            earlier(2, Role::Assistant),
            Message::text(MessageId(3), Role::User, "do it"),
        ];
        spec.compaction.proactive = ProactiveCompaction::Ask;
        spec.limits.timeout = Some(Duration::from_millis(50));
        spec.shared_budget = true;
        let mut hand = Hand::start(spec, None);
        let compact = hand.effects.iter().find_map(|effect| match effect {
            Effect::Compact { id, .. } => Some(*id),
            _ => None,
        });
        let (id, cost) = (compact.unwrap(), NanoUsd(7));
        let messages = vec![Message::text(MessageId(3), Role::User, "do it")];
        let result = Compaction::Done { messages, cost, strategy: String::new() };
        hand.at(at).feed(EventKind::Compacted { id, result });
        let told = hand.effects.contains(&Effect::Settle { id, spent: cost, tokens: 0 });
        assert!(told, "the shared budget hears of it: {:?}", hand.effects);
        assert_eq!(hand.outcome.as_ref().map(|outcome| outcome.termination), termination);
        if termination.is_none() {
            hand.feed(EventKind::Cancel);
        }
        assert_eq!(hand.outcome().cost, cost);
    }
}
