//! The windows of a subscription: the ending, the time of the reset, the pause, and reports that cannot be right.

use crate::hand::{Hand, WALL_MS, calls, spec, stop};
use endstop_core::guest::{Admission, Guest, GuestStart};
use endstop_core::*;
use std::time::Duration;

const WALL: u64 = WALL_MS / 1000;
const HOUR: u64 = 3600;

fn limited(windows: &str, waits: bool, timeout: Option<u64>) -> Hand {
    let limits = Limits {
        max_window: Some(windows.parse().unwrap()),
        wait_for_window: waits,
        timeout: timeout.map(Duration::from_secs),
        ..Limits::default()
    };
    Hand::start(RunSpec { limits, ..spec() }, None)
}

fn window(minutes: u32, used: f64, resets_at: Option<u64>) -> Vec<Window> {
    Window::new("plan", minutes, used, resets_at).into_iter().collect()
}

/// Reports windows during a call, and then the response, which calls a tool that ends.
fn turn(hand: &mut Hand, reports: &[Vec<Window>]) {
    let effects = hand.effects.clone();
    for windows in reports {
        hand.feed(EventKind::Windows { windows: windows.clone() });
    }
    hand.effects = effects;
    hand.answer(calls(&["read"]));
    let said = format!("at {:?}", hand.run().elapsed());
    hand.tools_end(ToolStatus::Ok, &said);
}

#[test]
fn used_window_ends_run_with_its_reset() {
    let mut hand = limited("5h=80%,7d=90%", false, None);
    turn(hand.at(1_000), &[window(300, 0.799, Some(WALL + HOUR))]);
    assert!(hand.outcome.is_none());
    turn(hand.at(61_000), &[window(300, 0.83, Some(WALL + HOUR)), window(10_080, 0.2, None)]);
    let outcome = hand.outcome();
    assert_eq!(outcome.termination, Termination::ErrorMaxWindow);
    assert_eq!(outcome.category(), Category::Capacity);
    assert_eq!(outcome.decided_by.decision, Decision::Limit(Limit::MaxWindow));
    assert_eq!(
        outcome.decided_by.evidence,
        "83% of the 5h window of plan used, of 80%; it resets in 3539s"
    );
    assert_eq!(outcome.retry_after, Some(Duration::from_secs(HOUR - 61)));
}

#[test]
fn answer_in_used_window_is_a_success() {
    let mut hand = limited("5h=80%", false, None);
    let effects = hand.effects.clone();
    hand.feed(EventKind::Windows { windows: window(300, 1.0, Some(WALL + HOUR)) });
    hand.effects = effects;
    hand.answer(stop("42"));
    assert_eq!(hand.ended(), Termination::Stop);
    assert_eq!(hand.outcome().also, [Termination::ErrorMaxWindow]);
}

#[test]
fn last_reset_of_used_windows_counts() {
    let mut hand = limited("5h=80%,7d=90%", false, None);
    let (short, long) =
        (window(300, 0.9, Some(WALL + HOUR)), window(10_080, 0.95, Some(WALL + 50 * HOUR)));
    turn(&mut hand, &[short, long]);
    assert_eq!(hand.outcome().retry_after, Some(Duration::from_secs(50 * HOUR)));
    assert!(hand.outcome().decided_by.evidence.contains("95% of the 7d window"));
}

#[test]
fn waiting_run_calls_again_after_reset() {
    let mut hand = limited("5h=80%", true, Some(6 * HOUR));
    turn(hand.at(2_000), &[window(300, 0.85, Some(WALL + HOUR))]);
    assert_eq!(hand.run().phase(), RunPhase::Backoff);
    assert!(hand.effects.contains(&Effect::Emit(RunEvent::Paused {
        wait_ms: 3_598_000,
        evidence: "85% of the 5h window of plan used, of 80%; it resets in 3598s".to_owned(),
    })));
    hand.at(3_599_999).feed(EventKind::Tick);
    assert_eq!(hand.run().phase(), RunPhase::Backoff, "a millisecond too early");
    hand.at(3_600_000).feed(EventKind::Tick);
    assert_eq!(hand.run().phase(), RunPhase::Calling);
    // The last report of the window that is over counts no more, also if it comes again.
    turn(&mut hand, &[window(300, 0.85, Some(WALL + HOUR))]);
    assert_eq!(hand.run().phase(), RunPhase::Calling);
    hand.answer(stop("42"));
    assert_eq!(hand.ended(), Termination::Stop);
}

#[test]
fn reset_after_deadline_ends_run_at_once() {
    let mut hand = limited("5h=80%", true, Some(HOUR / 2));
    turn(&mut hand, &[window(300, 0.85, Some(WALL + HOUR))]);
    assert_eq!(hand.ended(), Termination::ErrorMaxWindow);
    assert_eq!(hand.outcome().retry_after, Some(Duration::from_secs(HOUR)));
}

#[test]
fn deadline_in_pause_is_a_timeout() {
    let mut hand = limited("5h=80%", true, Some(2 * HOUR));
    turn(&mut hand, &[window(300, 0.85, Some(WALL + HOUR))]);
    let limits = LimitChanges::new().set("timeout", "30m".into()).unwrap();
    hand.at(10_000).feed(EventKind::LimitsChanged { limits });
    assert_eq!(hand.ended(), Termination::ErrorMaxWindow, "the pause would be in vain");
}

#[test]
fn other_limits_end_the_pause() {
    for (name, value, phase) in [
        ("max_window", "off", Some(RunPhase::Calling)),
        ("max_window", "5h=90%", Some(RunPhase::Calling)),
        ("wait_for_window", "false", None),
        ("max_turns", "1", None),
        ("max_turns", "30", Some(RunPhase::Backoff)),
    ] {
        let mut hand = limited("5h=80%", true, None);
        turn(&mut hand, &[window(300, 0.85, Some(WALL + HOUR))]);
        let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
        let limits = LimitChanges::new().set(name, value).unwrap();
        hand.at(10_000).feed(EventKind::LimitsChanged { limits });
        assert_eq!(hand.outcome.is_none().then(|| hand.run().phase()), phase, "{name}");
        if phase == Some(RunPhase::Backoff) {
            assert!(hand.effects.contains(&Effect::WakeAt { at: Duration::from_secs(HOUR) }));
        }
    }
}

#[test]
fn refusal_in_used_window_waits_once_for_each_turn() {
    let mut hand = limited("5h=80%", true, None);
    let refuse = |hand: &mut Hand, resets_at| {
        let effects = hand.effects.clone();
        hand.feed(EventKind::Windows { windows: window(300, 1.0, Some(resets_at)) });
        hand.effects = effects;
        hand.fail(ErrorClass::RateLimit);
    };
    refuse(&mut hand, WALL + 10);
    assert_eq!(hand.run().phase(), RunPhase::Backoff);
    hand.at(10_000).feed(EventKind::Tick);
    assert_eq!(hand.run().phase(), RunPhase::Calling);
    // A server that reports a near reset with each refusal is not called for ever.
    refuse(&mut hand, WALL + 100);
    assert_eq!(hand.run().phase(), RunPhase::Backoff);
    hand.at(100_000).feed(EventKind::Tick);
    let mut refused = 2;
    while hand.outcome.is_none() && refused < 20 {
        if hand.run().phase() == RunPhase::Calling {
            refuse(&mut hand, WALL + 100 * refused);
            refused += 1;
        }
        if hand.outcome.is_none() {
            let now = hand.run().elapsed().as_millis() as u64;
            hand.at(now + 100_000).feed(EventKind::Tick);
        }
    }
    assert!(refused < 10, "{refused}");
}

#[test]
fn wrong_reports_decide_nothing_wrong() {
    let past = Some(WALL - 2 * HOUR);
    let far = Some(WALL + 6 * HOUR);
    // What is reported, in this order, and the wait; `None` if the run continues.
    let cases: [(&str, Vec<Vec<Window>>, Option<Option<u64>>); 9] = [
        ("no reset", vec![window(300, 0.9, None)], Some(None)),
        ("a reset long ago", vec![window(300, 0.9, past)], Some(None)),
        ("a reset beyond the window", vec![window(300, 0.9, far)], Some(None)),
        ("the largest reset", vec![window(300, 0.9, Some(u64::MAX))], Some(None)),
        ("just over", vec![window(300, 0.9, Some(WALL - 1))], None),
        (
            "backwards",
            vec![window(300, 0.9, Some(WALL + HOUR)), window(300, 0.1, Some(WALL + HOUR))],
            Some(Some(HOUR)),
        ),
        (
            "backwards in time",
            vec![window(300, 0.9, Some(WALL + HOUR)), window(300, 0.1, Some(WALL + 60))],
            Some(Some(HOUR)),
        ),
        (
            "a new window",
            vec![window(300, 0.9, Some(WALL + 60)), window(300, 0.1, Some(WALL + 5 * HOUR))],
            None,
        ),
        ("another window", vec![window(60, 1.0, Some(WALL + 60))], None),
    ];
    for (name, reports, wait) in cases {
        let mut hand = limited("5h=80%", false, None);
        turn(&mut hand, &reports);
        let found =
            hand.outcome.as_ref().map(|outcome| outcome.retry_after.map(|wait| wait.as_secs()));
        assert_eq!(found, wait, "{name}");
    }
    for used in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.1] {
        let found = Window::new("plan", 300, used, None).map(|window| window.used);
        assert_eq!(found, (used == f64::INFINITY).then_some(1_000_000), "{used}");
    }
    assert_eq!(Window::new("plan", 0, 0.5, None), None);
}

#[test]
fn resumed_run_uses_the_clock_of_its_resumption() {
    let mut hand = limited("5h=80%", true, None);
    turn(hand.at(1_000), &[window(300, 0.85, Some(WALL + HOUR))]);
    assert_eq!(hand.run().phase(), RunPhase::Backoff);
    // Half an hour later by the wall clock: half of the wait is left.
    let with = Resumption { wall_ms: Some(WALL_MS + 1_800_000), ..Resumption::default() };
    hand.feed(EventKind::Resumed(Box::new(with)));
    assert_eq!(hand.run().phase(), RunPhase::Backoff);
    assert!(hand.effects.contains(&Effect::WakeAt { at: Duration::from_secs(1_801) }));
    let with = Resumption { wall_ms: Some(WALL_MS + 3_600_000), ..Resumption::default() };
    hand.feed(EventKind::Resumed(Box::new(with)));
    assert_eq!(hand.run().phase(), RunPhase::Calling);
}

#[test]
fn guest_asks_for_the_pause() {
    let limits =
        Limits { max_window: "5h=80%".parse().ok(), wait_for_window: true, ..Limits::default() };
    let start = GuestStart { wall_ms: Some(WALL_MS), ..GuestStart::default() };
    for waits in [true, false] {
        let guest = Some(GuestMode { waits, ..GuestMode::default() });
        let mut guest =
            Guest::new(RunSpec { limits: limits.clone(), guest, ..RunSpec::default() }, start);
        let at = Duration::from_secs(10);
        let _ = guest.windows(at, window(300, 0.8, Some(WALL + 60)));
        let pause = guest.pause(at).map(|pause| pause.until);
        assert_eq!(pause, waits.then_some(Duration::from_secs(60)));
        let until = Duration::from_secs(60);
        assert_eq!(guest.pause(until), None);
        let at = if waits { until } else { at };
        let admission = guest.ask(at, GuestCall::default());
        assert_eq!(matches!(admission, Admission::Go { .. }), waits, "{admission:?}");
    }
}
