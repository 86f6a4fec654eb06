//! Watches: detector rules over a live run, the effect of each mode, and replies of the user.

use crate::hand::{Hand, calls, spec, stop};
use endstop_core::detector::Rule;
use endstop_core::*;
use serde_json::json;

fn watched(mode: WatchMode, rule: serde_json::Value) -> RunSpec {
    let rule = Rule::from_spec(&rule).unwrap();
    let limits = Limits { max_unproductive_turns: None, ..Limits::default() };
    RunSpec { watches: vec![Watch { mode, rule }], limits, ..spec() }
}

/// Makes the same call twice; returns the messages and rule events that the run emitted.
fn twice(hand: &mut Hand) -> Vec<String> {
    let mut told = Vec::new();
    for _ in 0..2 {
        hand.answer(calls(&["read"])).tools_end(ToolStatus::Ok, "same");
        told.extend(hand.effects.iter().filter_map(|effect| match effect {
            Effect::Emit(RunEvent::MessageInjected { why, text }) => Some(format!("{why}: {text}")),
            Effect::Emit(RunEvent::RuleHit(fired)) => Some(format!("fired {}", fired.rule)),
            _ => None,
        }));
    }
    told
}

#[test]
fn every_mode_is_in_the_outcome() {
    for mode in WatchMode::ALL {
        let mut hand = Hand::start(watched(mode, json!({"repeat_call_res": {"times": 2}})), None);
        let told = twice(&mut hand);
        assert_eq!(told[0], "fired repeat_call_res(2)", "{mode}");
        if mode == WatchMode::Nudge {
            assert!(
                told[1].starts_with("watch: You seem to be stuck (the same calls gave the same results 2 times in a row: read(")
            );
            let messages = hand.run().messages();
            // After the results, because providers require an answer to every call first.
            assert_eq!(messages.last().unwrap().role, Role::User);
            assert_eq!(messages[messages.len() - 2].role, Role::Tool);
        } else {
            assert_eq!(told.len(), 1, "{mode}: {told:?}");
        }
        if mode == WatchMode::Stop {
            assert_eq!(hand.ended(), Termination::ErrorNoProgress);
            assert_eq!(hand.outcome().decided_by.layer.as_str(), "policy");
            assert_eq!(hand.outcome().decided_by.decision.as_str(), "repeat_call_res");
        } else {
            hand.answer(stop("done"));
            assert_eq!(hand.ended(), Termination::Stop, "{mode}");
        }
        let fired = &hand.outcome().fired;
        assert_eq!(fired.len(), 1);
        assert_eq!((fired[0].turn, fired[0].mode), (2, mode));
        let seen = r#"the same calls gave the same results 2 times in a row: read({"n":0})"#;
        assert_eq!(fired[0].evidence, seen);
    }
}

#[test]
fn rule_fires_once() {
    let mut hand =
        Hand::start(watched(WatchMode::Nudge, json!({"repeat_call": {"times": 2}})), None);
    let told = twice(&mut hand).len() + twice(&mut hand).len();
    assert_eq!(told, 2, "one event and one message");
    hand.answer(stop("done"));
    assert_eq!(hand.outcome().fired.len(), 1);
}

#[test]
fn mentioned_answer_is_submitted() {
    let rule = json!({"text_mention": {"text": "TERMINATE"}});
    let mut hand = Hand::start(watched(WatchMode::Stop, rule), None);
    let mut turn = calls(&["read"]);
    turn.parts.insert(0, Part::Text { text: "It is 42. TERMINATE".into() });
    hand.answer(turn).tools_end(ToolStatus::Ok, "x");
    assert_eq!(hand.ended(), Termination::Submitted);
    assert_eq!(hand.outcome().deliverable, Some(json!("It is 42. TERMINATE")));
}

#[test]
fn chanting_stops_mid_stream_or_after() {
    let chant = "I will now fix the test. ".repeat(40);
    let start = |schema: bool| {
        let spec = RunSpec { output_schema: schema, ..watched(WatchMode::Stop, json!("chanting")) };
        Hand::start(spec, None)
    };
    let mut hand = start(false);
    let call = hand.call();
    let mut cut_at = None;
    for (nth, piece) in chant.as_bytes().chunks(10).enumerate() {
        let delta = TurnDelta::Text(String::from_utf8(piece.to_vec()).unwrap());
        hand.feed(EventKind::Delta { call, delta });
        if hand.outcome.is_some() {
            cut_at = Some(nth * 10);
            break;
        }
    }
    assert!(cut_at.is_some_and(|at| (390..420).contains(&at)), "{cut_at:?}");
    assert_eq!(hand.ended(), Termination::ErrorNoProgress);
    assert!(hand.outcome().decided_by.evidence.ends_with("in mid-stream"));
    assert!(hand.effects.contains(&Effect::AbortModel { id: call }));

    // An answer with a schema is judged when it is complete, and so is the rule.
    let mut hand = start(true);
    let call = hand.call();
    hand.feed(EventKind::Delta { call, delta: TurnDelta::Text(chant.clone()) });
    assert!(hand.outcome.is_none());
    hand.feed(EventKind::TurnEnded { call, turn: Box::new(stop(&chant)) });
    assert_eq!(hand.ended(), Termination::ErrorNoProgress);
    assert_eq!(hand.outcome().fired.len(), 1);
}

#[test]
fn chanting_warns_and_nudges_mid_stream() {
    for mode in [WatchMode::Warn, WatchMode::Nudge] {
        let chant = "I will now fix the test. ".repeat(40);
        let mut hand = Hand::start(watched(mode, json!("chanting")), None);
        let call = hand.call();
        hand.feed(EventKind::Delta { call, delta: TurnDelta::Text(chant.clone()) });
        let heard = |effect: &Effect| matches!(effect, Effect::Emit(RunEvent::RuleHit(_)));
        assert!(hand.effects.iter().any(heard), "{mode}: observers are notified");
        let mut turn = calls(&["read"]);
        turn.parts.insert(0, Part::Text { text: chant });
        hand.feed(EventKind::TurnEnded { call, turn: Box::new(turn) });
        hand.tools_end(ToolStatus::Ok, "r");
        let told = hand.run().messages().last().unwrap().plain_text();
        assert_eq!(
            told.contains("You seem to be stuck"),
            mode == WatchMode::Nudge,
            "{mode}: {told}"
        );
    }
}

#[test]
fn failed_attempt_is_not_chanting() {
    let chant = "I will now fix the test. ".repeat(10);
    let mut hand = Hand::start(watched(WatchMode::Stop, json!("chanting")), None);
    for _ in 0..3 {
        let call = hand.call();
        hand.feed(EventKind::Delta { call, delta: TurnDelta::Text(chant.clone()) });
        let error = ModelError::new(ErrorClass::ServerError, "x");
        hand.feed(EventKind::TurnFailed { call, error, partial: None });
        if hand.outcome.is_some() {
            break;
        }
        hand.at(hand.run().elapsed().as_millis() as u64 + 120_000).feed(EventKind::Tick);
    }
    assert!(hand.outcome().fired.is_empty());
}

#[test]
fn cost_rule_needs_a_price() {
    let price = Price { input: NanoUsd::from_usd(1000.0), ..Price::default() };
    for (price, ends) in [(Some(price), true), (None, false)] {
        let mut hand = Hand::start(watched(WatchMode::Stop, json!({"cost": {"usd": 0.5}})), price);
        let mut turn = calls(&["read"]);
        turn.usage.input_tokens = Some(1_000);
        turn.usage.output_tokens = Some(1);
        hand.answer(turn).tools_end(ToolStatus::Ok, "x");
        assert_eq!(hand.outcome.is_some(), ends);
    }
}

#[test]
fn replies_continue_the_run() {
    let mut spec = watched(WatchMode::Observe, json!({"monologue": {"times": 2}}));
    spec.hooks.reply = true;
    let mut hand = Hand::start(spec, None);
    for nth in 0..9 {
        hand.answer(stop(&format!("Which one? {nth}")));
        let id = hand.consulted();
        hand.feed(EventKind::Answered {
            id,
            answer: HookDecision::ProceedWith("The second.".into()),
        });
        let last = hand.run().messages().last().unwrap();
        assert_eq!((last.role, last.plain_text().as_str()), (Role::User, "The second."));
    }
    hand.answer(stop("Done."));
    let id = hand.consulted();
    hand.feed(EventKind::Answered { id, answer: HookDecision::Proceed });
    assert_eq!((hand.ended(), hand.outcome().turns), (Termination::Stop, 10));
    assert!(hand.outcome().fired.is_empty(), "every turn had a reply");
}

#[test]
fn rule_as_policy_sees_calls() {
    let policy =
        Registry::new().build(&json!({"any": ["final_pattern", {"total_repeat": {"times": 2}}]}));
    let limits = Limits { max_unproductive_turns: None, ..Limits::default() };
    let spec = RunSpec { policy: Some(policy.unwrap().into_inner()), limits, ..spec() };
    let mut hand = Hand::start(spec, None);
    hand.answer(calls(&["read"])).tools_end(ToolStatus::Ok, "one");
    hand.answer(calls(&["write"])).tools_end(ToolStatus::Ok, "two");
    assert!(hand.outcome.is_none());
    hand.answer(calls(&["read"])).tools_end(ToolStatus::Ok, "three");
    assert_eq!(hand.ended(), Termination::ErrorNoProgress);
    assert_eq!(hand.outcome().decided_by.decision.as_str(), "total_repeat");
    assert_eq!(hand.outcome().decided_by.evidence, "total_repeat(2) at step 3");
}

#[test]
fn misplaced_watch_names_valid_form() {
    for (spec, problem) in [
        (json!({"stop": ["cycle"]}), "write the rule first: cycle = \"stop\""),
        (json!({"warn": "stuck"}), "write the rule first: stuck = \"warn\""),
        (json!({"halt": "stuck"}), "write the rule first: stuck = \"stop\""),
        (json!({"cycl": "stop"}), "did you mean `cycle`?"),
        (json!("stop:cycle"), "expected a table such as { cycle = \"stop\" }"),
        (json!(["stop:cycle"]), "for example { mode = \"stop\", rule = \"cycle\" }"),
    ] {
        let error = Watch::read(&spec).unwrap_err().to_string();
        assert!(error.contains(problem), "{spec}: {error}");
    }
    let error = Watch::parse("cycle:stop").unwrap_err();
    assert_eq!(error.to_string(), "the mode comes first: stop:cycle");
}

/// A list of watches keeps the default rule, as a table does.
#[test]
fn list_of_watches_keeps_default() {
    for (spec, want) in [
        (json!([]), &["observe:stuck(2,4,3,7)"][..]),
        (json!([{"mode": "stop", "rule": "cycle"}]), &["observe:stuck(2,4,3,7)", "stop:cycle"]),
        (json!([{"mode": "stop", "rule": "stuck"}]), &["stop:stuck(2,4,3,7)"]),
        (json!("off"), &[]),
    ] {
        let watches = Watch::read(&spec).unwrap();
        let short: Vec<String> = watches.iter().map(Watch::to_string).collect();
        assert_eq!(short.len(), want.len(), "{spec}: {short:?}");
        for (short, want) in short.iter().zip(want) {
            assert!(short.starts_with(want), "{spec}: {short}");
        }
    }
}
