//! The rates of a run: the pause, the deadline, the time at which the spending is below a rate, and guests.

use crate::hand::{Hand, calls, spec, stop};
use endstop_core::guest::{Admission, Guest, GuestStart, Spending};
use endstop_core::*;
use proptest::prelude::*;
use std::time::Duration;

fn limited(rates: &str, timeout: Option<u64>) -> Hand {
    let limits = Limits {
        max_rate: Some(rates.parse().unwrap()),
        timeout: timeout.map(Duration::from_secs),
        ..Limits::default()
    };
    let price = Price { input: NanoUsd(1_000_000_000), output: NanoUsd(0), ..Price::default() };
    Hand::start(RunSpec { limits, ..spec() }, Some(price))
}

/// Ends the call with a prompt of this size in tokens, which cost a micro-dollar each, and a tool call that ends.
fn turn(hand: &mut Hand, tokens: u64) {
    let mut turn = calls(&["read"]);
    turn.usage = used(tokens);
    hand.answer(turn);
    let said = format!("at {:?}", hand.run().elapsed());
    hand.tools_end(ToolStatus::Ok, &said);
}

fn used(tokens: u64) -> Usage {
    Usage { input_tokens: Some(tokens), output_tokens: Some(0), ..Usage::default() }
}

#[test]
fn reached_rate_pauses_until_it_is_free() {
    let mut hand = limited("1k tokens/m", None);
    turn(hand.at(1_000), 600);
    assert_eq!(hand.run().phase(), RunPhase::Calling, "600 of 1000");
    turn(hand.at(21_000), 500);
    assert_eq!(hand.run().phase(), RunPhase::Backoff);
    let evidence = "1100 tokens of 1000 tokens per minute spent in the last minute".to_owned();
    assert!(hand.effects.contains(&Effect::Emit(RunEvent::Paused { wait_ms: 40_000, evidence })));
    hand.at(60_999).feed(EventKind::Tick);
    assert_eq!(hand.run().phase(), RunPhase::Backoff, "a millisecond too early");
    hand.at(61_000).feed(EventKind::Tick);
    assert_eq!(hand.run().phase(), RunPhase::Calling);
    hand.answer(stop("42"));
    assert_eq!(hand.ended(), Termination::Stop);
}

#[test]
fn longest_of_several_rates_counts() {
    let mut hand = limited("10k tokens/m,$0.002/h", None);
    turn(hand.at(5_000), 2_000);
    let evidence = "$0.002 of $0.002 per hour spent in the last hour".to_owned();
    assert!(
        hand.effects.contains(&Effect::Emit(RunEvent::Paused { wait_ms: 3_600_000, evidence }))
    );
}

#[test]
fn deadline_before_the_rate_ends_run_at_once() {
    let mut hand = limited("1k tokens/h", Some(1_800));
    turn(hand.at(60_000), 1_000);
    let outcome = hand.outcome();
    assert_eq!(outcome.termination, Termination::ErrorTimeout);
    assert_eq!(outcome.decided_by.decision, Decision::Limit(Limit::Timeout));
    assert_eq!(outcome.retry_after, Some(Duration::from_secs(3_600)));
    assert_eq!(
        outcome.decided_by.evidence,
        "the next call must wait 3600s (1000 tokens of 1000 tokens per hour spent in the last hour), and 1740s of 1800s \
         are left"
    );
}

#[test]
fn lower_timeout_or_rate_decides_a_pause() {
    for (name, value, phase) in [
        ("max_rate", "off", Some(RunPhase::Calling)),
        ("max_rate", "5k tokens/m", Some(RunPhase::Calling)),
        ("max_rate", "500 tokens/m", Some(RunPhase::Backoff)),
        ("timeout", "30s", None),
        ("max_turns", "1", None),
    ] {
        let mut hand = limited("1k tokens/m", None);
        turn(hand.at(1_000), 1_000);
        let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
        let limits = LimitChanges::new().set(name, value).unwrap();
        hand.at(10_000).feed(EventKind::LimitsChanged { limits });
        assert_eq!(hand.outcome.is_none().then(|| hand.run().phase()), phase, "{name}");
    }
}

#[test]
fn retry_waits_for_the_rate() {
    let mut hand = limited("100 tokens/m", None);
    let call = hand.call();
    let mut partial = stop("half");
    partial.usage = used(100);
    let error = ModelError::new(ErrorClass::ServerError, "x");
    hand.at(1_000).feed(EventKind::TurnFailed { call, error, partial: Some(Box::new(partial)) });
    hand.at(40_000).feed(EventKind::Tick);
    assert_eq!(hand.run().phase(), RunPhase::Backoff, "the failed attempt was paid for");
    hand.at(61_000).feed(EventKind::Tick);
    assert_eq!(hand.run().phase(), RunPhase::Calling);
}

#[test]
fn guest_asks_for_the_pause_of_a_rate() {
    let limits = Limits {
        max_rate: "100 tokens/m".parse().ok(),
        timeout: Some(Duration::from_secs(600)),
        ..Limits::default()
    };
    let guest = Some(GuestMode { waits: true, ..GuestMode::default() });
    let spec = || RunSpec { limits: limits.clone(), guest, ..RunSpec::default() };
    let mut guest = Guest::new(spec(), GuestStart::default());
    let at = Duration::from_secs(10);
    // What another conversation of the run has spent.
    let _ = guest.spent(at, Spending { usage: used(100), ..Spending::default() });
    assert_eq!(guest.pause(at).map(|pause| pause.until), Some(Duration::from_secs(70)));
    let until = Duration::from_secs(70);
    assert_eq!(guest.pause(until), None);
    assert!(matches!(guest.ask(until, GuestCall::default()), Admission::Go { .. }));
    // The deadline comes first: the call is refused, whether the driver asks for the pause or not.
    let mut guest = Guest::new(spec(), GuestStart::default());
    let at = Duration::from_secs(590);
    let _ = guest.spent(at, Spending { usage: used(100), ..Spending::default() });
    assert_eq!(guest.pause(at), None);
    let Admission::Stop(outcome) = guest.ask(at, GuestCall::default()) else { panic!("a call") };
    assert_eq!(outcome.termination, Termination::ErrorTimeout);
}

#[test]
fn invalid_rates_name_the_fix() {
    for (text, says) in [
        ("$2", "add `/m` or `/h`"),
        ("$2/d", "neither `m` nor `h`"),
        ("/h", "single quotes"),
        ("100k/m", "`tokens` after it"),
        ("$0/h", "no amount above zero"),
        ("$nan/h", "no amount above zero"),
        ("-5 tokens/m", "no amount above zero"),
        ("0.5 tokens/m", "no amount above zero"),
        ("$1/h,$2/h", "second rate"),
        ("", "add `/m` or `/h`"),
    ] {
        let error = Limits::default().set("max_rate", &text.into()).unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
    assert!(Limits::default().set("max_rate", &2.into()).is_err());
    let row = Limit::MaxRate.row();
    let with = |text: &str| Limits { max_rate: text.parse().ok(), ..Limits::none() };
    assert!(row.is_looser(&with("$2/h"), &with("$3/h")));
    assert!(row.is_looser(&with("$2/h,9 tokens/m"), &with("$2/h")));
    assert!(!row.is_looser(&with("$2/h"), &with("$2/h,9 tokens/m")));
    assert!(row.is_looser(&with("$2/h"), &with("9 tokens/m")));
}

proptest! {
    /// The spending of each minute before a call is below the rate, however turns are placed.
    #[test]
    fn no_minute_has_more_than_the_rate_before_a_call(
        turns in prop::collection::vec((0_u64..30_000, 0_u64..700), 1..25),
    ) {
        let mut hand = limited("1k tokens/m", None);
        let mut spent: Vec<(u64, u64)> = Vec::new();
        let mut now = 0;
        for (time, tokens) in turns {
            now += time;
            turn(hand.at(now), tokens);
            spent.push((now, tokens));
            if hand.outcome.is_some() {
                break;
            }
            if hand.run().phase() == RunPhase::Backoff {
                let wait = hand.effects.iter().find_map(|effect| match effect {
                    Effect::Emit(RunEvent::Paused { wait_ms, .. }) => Some(*wait_ms),
                    _ => None,
                });
                let wait = wait.expect("a pause has an end");
                prop_assert!(wait > 0 && wait <= 60_000);
                now += wait;
                hand.at(now).feed(EventKind::Tick);
            }
            prop_assert_eq!(hand.run().phase(), RunPhase::Calling);
            let last: u64 = spent.iter().filter(|(at, _)| at + 60_000 > now).map(|one| one.1).sum();
            prop_assert!(last < 1_000, "{} at {}", last, now);
        }
    }

    #[test]
    fn spelled_rates_are_read_back(usd in 1_u64..u64::from(u32::MAX), tokens in 1_u64..1_000_000_000) {
        let text = format!("${}/h,{tokens} tokens/m", NanoUsd(usd).to_usd());
        let rates: Rates = text.parse().unwrap();
        prop_assert_eq!(rates.to_string().parse::<Rates>().unwrap(), rates);
    }
}
