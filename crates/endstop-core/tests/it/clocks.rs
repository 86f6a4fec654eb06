//! The timeouts of a run: first content, retries, and tool calls that wait.

use crate::hand::{Hand, calls, spec, stop};
use endstop_core::*;
use std::sync::Arc;
use std::time::Duration;

fn retry_in(hand: &Hand) -> Option<u64> {
    hand.effects.iter().find_map(|effect| match effect {
        Effect::Emit(RunEvent::AttemptFailed { retry_in_ms, .. }) => Some(*retry_in_ms),
        _ => None,
    })?
}

#[test]
fn silent_thinking_is_not_a_stall() {
    let mut hand = Hand::start(spec(), None);
    let call = hand.call();
    hand.at(180_000).feed(EventKind::Tick);
    assert_eq!(hand.run().phase().as_str(), "calling");
    hand.feed(EventKind::Delta { call, delta: TurnDelta::Text("Par".into()) });
    hand.at(239_999).feed(EventKind::Tick);
    assert_eq!(hand.run().phase().as_str(), "calling");
    hand.at(240_000).feed(EventKind::Tick);
    assert_eq!(hand.run().phase().as_str(), "backoff", "60 s after the last content is a stall");

    let limits =
        Limits { first_content_timeout: Some(Duration::from_secs(5)), ..Limits::default() };
    let mut hand = Hand::start(RunSpec { limits, ..spec() }, None);
    hand.at(5_000).feed(EventKind::Tick);
    assert_eq!(hand.run().phase().as_str(), "backoff");
}

#[test]
fn retries_outlast_a_short_outage() {
    // A server that is back at any time within the window is reached.
    for back_ms in [0, 3_000, 45_000, 59_000] {
        let mut hand = Hand::start(spec(), None);
        let mut now = 0;
        for attempts in 1.. {
            assert!(attempts < 60, "retried without an end");
            if now >= back_ms {
                hand.answer(stop("Paris."));
                break;
            }
            hand.fail(ErrorClass::Overloaded);
            now += retry_in(&hand).expect("gave up before the server was back");
            hand.at(now).feed(EventKind::Tick);
        }
        assert_eq!(hand.ended(), Termination::Stop, "back after {back_ms} ms");
    }
}

#[test]
fn retries_end_with_their_window() {
    let mut hand = Hand::start(spec(), None);
    let mut now = 0;
    while hand.outcome.is_none() {
        hand.fail(ErrorClass::ServerError);
        if let Some(wait) = retry_in(&hand) {
            now += wait;
            hand.at(now).feed(EventKind::Tick);
        }
    }
    assert_eq!(hand.ended(), Termination::ErrorDuringExecution);
    assert_eq!(now, 60_000, "the last attempt comes at the end of the window");
}

#[test]
fn short_suggested_waits_do_not_loop() {
    let mut hand = Hand::start(spec(), None);
    let mut now = 0;
    while hand.outcome.is_none() {
        let call = hand.call();
        let mut error = ModelError::new(ErrorClass::RateLimit, "try again in 0 s");
        error.retry_after_ms = Some(0);
        hand.feed(EventKind::TurnFailed { call, error, partial: None });
        if let Some(wait) = retry_in(&hand) {
            now += wait;
            hand.at(now).feed(EventKind::Tick);
        }
    }
    assert!(hand.outcome().model_calls < 60, "{}", hand.outcome().model_calls);
}

#[test]
fn slow_failures_are_retried_twice() {
    let mut hand = Hand::start(spec(), None);
    let mut now = 0;
    let mut attempts = 0;
    while hand.outcome.is_none() {
        attempts += 1;
        now += 120_000;
        hand.at(now).fail(ErrorClass::Timeout);
        if let Some(wait) = retry_in(&hand) {
            now += wait;
            hand.at(now).feed(EventKind::Tick);
        }
    }
    assert_eq!(attempts, 3);
}

#[test]
fn counted_retries_need_no_window() {
    for (retry_for, max_retries, attempts) in [
        (None, Some(2), 3),
        (None, None, 1),
        (Some(Duration::ZERO), None, 1),
        (Some(Duration::from_secs(60)), Some(0), 1),
        (Some(Duration::from_secs(60)), Some(1), 2),
    ] {
        let limits = Limits { retry_for, max_retries, ..Limits::default() };
        let mut hand = Hand::start(RunSpec { limits, ..spec() }, None);
        let mut now = 0;
        while hand.outcome.is_none() {
            hand.fail(ErrorClass::Overloaded);
            if let Some(wait) = retry_in(&hand) {
                now += wait;
                hand.at(now).feed(EventKind::Tick);
            }
        }
        assert_eq!(hand.outcome().model_calls, attempts, "{retry_for:?} {max_retries:?}");
    }
}

/// Each lost response may be billed, so the window alone does not decide.
#[test]
fn lost_responses_are_retried_five_times() {
    for (max_retries, attempts) in [(None, 6), (Some(7), 8), (Some(1), 2)] {
        let retry_for = Some(Duration::from_secs(3600));
        let limits = Limits { retry_for, max_retries, ..Limits::default() };
        let mut hand = Hand::start(RunSpec { limits, ..spec() }, None);
        let mut now = 0;
        while hand.outcome.is_none() {
            hand.fail(ErrorClass::IncompleteStream);
            if let Some(wait) = retry_in(&hand) {
                now += wait;
                hand.at(now).feed(EventKind::Tick);
            }
        }
        assert_eq!(hand.outcome().model_calls, attempts, "{max_retries:?}");
    }
}

#[test]
fn wait_past_deadline_ends_now() {
    let limits = Limits { timeout: Some(Duration::from_secs(5)), ..Limits::default() };
    let mut hand = Hand::start(RunSpec { limits, ..spec() }, None);
    let call = hand.call();
    let mut error = ModelError::new(ErrorClass::RateLimit, "slow down");
    error.retry_after_ms = Some(50_000);
    hand.at(10).feed(EventKind::TurnFailed { call, error, partial: None });
    assert_eq!(hand.ended(), Termination::ErrorTimeout);
    assert_eq!(hand.outcome().retry_after, Some(Duration::from_secs(50)));
    assert!(hand.outcome().error_diagnostic.as_ref().unwrap().contains("slow down"));
}

#[test]
fn slow_polls_are_not_repetition() {
    // The same call with the same result. The call takes as long as its argument says.
    for (ms, expected) in [(1000, Termination::ErrorMaxTurns), (999, Termination::ErrorNoProgress)]
    {
        let mut hand = Hand::start(spec(), None);
        let mut now = 0;
        while hand.outcome.is_none() {
            hand.answer(calls(&["write"]));
            now += ms;
            hand.at(now).tools_end(ToolStatus::Ok, "status: in_progress");
        }
        assert_eq!(hand.ended(), expected, "{ms}");
    }
}

#[test]
fn polling_tools_are_not_repetition() {
    let mut tools = spec().tools;
    Arc::make_mut(&mut tools)[1].exempt_from_no_progress = true;
    let mut hand = Hand::start(RunSpec { tools, ..spec() }, None);
    while hand.outcome.is_none() {
        hand.answer(calls(&["write"])).tools_end(ToolStatus::Ok, "status: in_progress");
    }
    assert_eq!(hand.ended(), Termination::ErrorMaxTurns);
}

#[test]
fn lost_call_is_not_repeated_past_the_deadline() {
    let limits = Limits { timeout: Some(Duration::from_millis(500)), ..Limits::default() };
    for (at, repeats) in [(499, true), (500, false), (501, false)] {
        let mut hand = Hand::start(RunSpec { limits: limits.clone(), ..spec() }, None);
        let lost = vec![hand.call()];
        hand.at(at)
            .feed(EventKind::Resumed(Box::new(Resumption { lost, ..Resumption::default() })));
        if repeats {
            assert_eq!(hand.run().phase().as_str(), "calling", "resumed at {at} ms");
        } else {
            assert_eq!(hand.ended(), Termination::ErrorTimeout, "resumed at {at} ms");
        }
    }
}
