//! The warning of the model: at two shares of each limit, once each, in a run of the loop and in guests.

use crate::hand::{Hand, calls, spec, stop};
use endstop_core::guest::{Admission, Guest, GuestStart};
use endstop_core::*;
use std::time::Duration;

const PLAN: &str = "Plan the rest so that you finish before the limit ends the run.";
const FINISH: &str = "The limit will end the run: finish now, and state what is not done.";

/// The warnings among effects.
fn warnings(effects: &[Effect]) -> Vec<String> {
    let warning = |effect: &Effect| match effect {
        Effect::Emit(RunEvent::MessageInjected { why: InjectionReason::Warning, text }) => {
            Some(text.clone())
        }
        _ => None,
    };
    effects.iter().filter_map(warning).collect()
}

/// Makes turns with a tool, and returns the warnings with the turn before which they came.
fn warned(limits: Limits, tokens: u64, turns: u64) -> Vec<(u64, String)> {
    let limits = Limits { max_unproductive_turns: None, ..limits };
    let price = Price { input: NanoUsd(1_000_000_000), ..Price::default() };
    let mut hand = Hand::start(RunSpec { limits, ..spec() }, Some(price));
    let mut all = Vec::new();
    for number in 1..=turns {
        let mut turn = calls(&["read"]);
        let (input_tokens, output_tokens) = (Some(tokens), Some(0));
        turn.usage = Usage { input_tokens, output_tokens, ..Usage::default() };
        hand.at(number * 1_000).answer(turn);
        hand.tools_end(ToolStatus::Ok, "done");
        all.extend(warnings(&hand.effects).into_iter().map(|text| (number + 1, text)));
        if hand.outcome.is_some() {
            break;
        }
        let last = hand.run().messages().last().map(Message::plain_text).unwrap_or_default();
        assert_eq!(
            warnings(&hand.effects).pop().unwrap_or_default(),
            if last.starts_with("This run") { last } else { String::new() }
        );
    }
    all
}

#[test]
fn each_share_is_told_once() {
    let on = Limits { warn_model: true, ..Limits::none() };
    let text =
        |left: &str, advice: &str| format!("This run is near a limit. Left: {left}. {advice}");
    for (limits, expected) in [
        (
            Limits { max_turns: Some(40), ..on.clone() },
            vec![(33, text("8 of 40 turns", PLAN)), (39, text("2 of 40 turns", FINISH))],
        ),
        (
            Limits { max_tool_calls: Some(20), ..on.clone() },
            vec![(17, text("4 of 20 tool calls", PLAN)), (20, text("1 of 20 tool calls", FINISH))],
        ),
        (
            Limits { max_tokens: Some(2_000), ..on.clone() },
            vec![(17, text("400 of 2000 tokens", PLAN)), (20, text("100 of 2000 tokens", FINISH))],
        ),
        (Limits { max_budget_usd: Some(0.02), ..on.clone() }, vec![]),
        (
            Limits { timeout: Some(Duration::from_secs(10)), ..on.clone() },
            vec![(9, text("2 s of 10 s", PLAN))],
        ),
        (
            // No share of a small number is passed before its last turn.
            Limits { max_turns: Some(3), ..on.clone() },
            vec![(3, text("1 of 3 turns", FINISH))],
        ),
        (Limits { max_turns: Some(1), ..on.clone() }, vec![]),
        (
            // Several at once are one line, and the nearest decides the advice.
            Limits { max_turns: Some(5), max_tokens: Some(420), ..on },
            vec![(5, text("1 of 5 turns, 20 of 420 tokens", FINISH))],
        ),
        (Limits { max_turns: Some(10), ..Limits::none() }, vec![]),
    ] {
        assert_eq!(warned(limits.clone(), 100, 40), expected, "{limits:?}");
    }
    let dollars = Limits { max_budget_usd: Some(0.02), warn_model: true, ..Limits::none() };
    let told = warned(dollars, 900, 30);
    let turns: Vec<u64> = told.iter().map(|one| one.0).collect();
    assert_eq!(turns, [19, 23], "{told:?}");
    assert!(told[0].1.contains(" of $0.02"), "{told:?}");
}

#[test]
fn answer_needs_no_warning() {
    let limits = Limits { max_turns: Some(1), warn_model: true, ..Limits::none() };
    let mut hand = Hand::start(RunSpec { limits, ..spec() }, None);
    assert!(warnings(&hand.effects).is_empty());
    hand.answer(stop("42"));
    assert_eq!(hand.ended(), Termination::Stop);
}

#[test]
fn guest_has_the_line_for_its_next_request() {
    let limits = Limits { max_turns: Some(5), warn_model: true, ..Limits::none() };
    for (mode, is_warned) in [
        (GuestMode { warns: true, ..GuestMode::default() }, true),
        (
            GuestMode { warns: true, forgets: true, forgets_input: true, ..GuestMode::default() },
            true,
        ),
        (GuestMode { inject: true, ..GuestMode::default() }, true),
        (GuestMode::default(), false),
    ] {
        assert_eq!(mode.check(&limits).is_ok(), is_warned);
        let spec = RunSpec { limits: limits.clone(), guest: Some(mode), ..RunSpec::default() };
        let mut guest = Guest::new(spec, GuestStart::default());
        let mut told = Vec::new();
        for number in 1..=5 {
            let at = Duration::from_secs(number);
            let input = vec![Message::user("on")];
            let call = GuestCall { input: input.clone(), prompt_bytes: 10, ..GuestCall::default() };
            let Admission::Go { call, .. } = guest.ask(at, call) else { panic!("no call") };
            let first = warnings(guest.effects());
            // A retry of the client is the same request, which has the same line.
            let error = ModelError::new(ErrorClass::ServerError, "x");
            let _ = guest.failed(at, call, error, None);
            let again = GuestCall { input, attempt_of_previous: true, ..GuestCall::default() };
            let Admission::Go { call, .. } = guest.ask(at, again) else { panic!("no call") };
            assert_eq!(warnings(guest.effects()), first);
            told.extend(first.into_iter().map(|_| number));
            let _ = guest.turn(at, call, stop("more"));
        }
        assert_eq!(told, if is_warned { vec![5] } else { vec![] }, "{mode:?}");
    }
}
