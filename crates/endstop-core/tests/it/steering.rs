//! Messages and changes of limits while a run works.

use crate::hand::{Hand, calls, spec, stop};
use endstop_core::replay;
use endstop_core::*;
use serde_json::{Value, json};
use std::time::Duration;

fn said(text: &str) -> EventKind {
    EventKind::Said { text: text.to_owned() }
}

fn changed(name: &str, value: Value) -> EventKind {
    EventKind::LimitsChanged { limits: LimitChanges::new().set(name, value).unwrap() }
}

/// The conversation as roles and texts; results are shown as `result`.
fn shown(messages: &[Message]) -> Vec<String> {
    let part = |part: &Part| match part {
        Part::Text { text } => text.clone(),
        Part::ToolCall(call) => call.name.clone(),
        Part::ToolResult(_) => "result".to_owned(),
        other => format!("{other:?}"),
    };
    let text = |message: &Message| message.parts.iter().map(part).collect::<Vec<_>>().join(" ");
    messages.iter().map(|message| format!("{:?} {}", message.role, text(message))).collect()
}

fn last(hand: &Hand) -> String {
    shown(hand.run().messages()).pop().unwrap()
}

#[test]
fn message_follows_results_of_tools() {
    let mut hand = Hand::start(spec(), None);
    let call = hand.call();
    hand.feed(said("while it streams"));
    assert_eq!(hand.run().messages().len(), 1, "not before the call has ended");
    hand.feed(EventKind::TurnEnded { call, turn: Box::new(calls(&["read", "write"])) });
    let started = hand.started();
    hand.feed(said("while tools run"));
    for (tool, _) in started {
        let report = ToolReport::new(ToolStatus::Ok, "ok");
        hand.feed(EventKind::ToolEnded { tool, report });
        for (tool, _) in hand.started() {
            let report = ToolReport::new(ToolStatus::Ok, "ok");
            hand.feed(EventKind::ToolEnded { tool, report });
        }
    }
    let texts = shown(hand.run().messages());
    let tail: Vec<&str> = texts.iter().rev().take(2).map(String::as_str).collect();
    assert_eq!(tail, ["User while tools run", "User while it streams"], "{texts:?}");
    assert_eq!(hand.run().phase(), RunPhase::Calling);
    let injected = hand.effects.iter().filter(|effect| {
        matches!(effect, Effect::Emit(RunEvent::MessageInjected { why, .. })
            if *why == InjectionReason::Said)
    });
    assert_eq!(injected.count(), 2);
    assert!(history::problem(hand.run().messages()).is_none());
}

#[test]
fn text_answer_does_not_drop_message() {
    let mut hand = Hand::start(spec(), None);
    let call = hand.call();
    hand.feed(said("And Rome?"));
    hand.feed(EventKind::TurnEnded { call, turn: Box::new(stop("Paris.")) });
    assert_eq!(last(&hand), "User And Rome?");
    hand.answer(stop("Italy."));
    assert_eq!(hand.ended(), Termination::Stop);
    assert_eq!((hand.outcome().turns, hand.outcome().last_text.as_deref()), (2, Some("Italy.")));
}

#[test]
fn answer_stands_in_last_turn() {
    let limits = Limits { max_turns: Some(1), ..Limits::default() };
    let mut hand = Hand::start(RunSpec { limits, ..spec() }, None);
    let call = hand.call();
    hand.feed(said("And Rome?"));
    hand.feed(EventKind::TurnEnded { call, turn: Box::new(stop("Paris.")) });
    assert_eq!(hand.ended(), Termination::Stop);
    let texts = shown(&hand.outcome().messages);
    assert_eq!(texts.last().unwrap(), "User And Rome?", "a later run reads it: {texts:?}");
}

#[test]
fn declared_answer_outranks_message() {
    let mut hand = Hand::start(RunSpec { finish_tool: true, ..spec() }, None);
    let call = hand.call();
    hand.feed(said("Wait."));
    let mut turn = calls(&["finish"]);
    if let Some(Part::ToolCall(call)) = turn.parts.last_mut() {
        call.arguments = "{\"deliverable\":\"42\"}".to_owned();
    }
    hand.feed(EventKind::TurnEnded { call, turn: Box::new(turn) });
    assert_eq!(hand.ended(), Termination::Submitted);
    assert_eq!(shown(&hand.outcome().messages).last().unwrap(), "User Wait.");
    assert!(history::problem(&hand.outcome().messages).is_none());
}

#[test]
fn retry_contains_message_and_asks_hook() {
    let hooks = Hooks { pre_call: true, ..Hooks::default() };
    let mut hand = Hand::start(RunSpec { hooks, ..spec() }, None);
    let id = hand.consulted();
    hand.feed(EventKind::Answered { id, answer: HookDecision::Proceed });
    hand.fail(ErrorClass::Overloaded).feed(said("Use the mirror."));
    hand.at(60_000).feed(EventKind::Tick);
    // The hook has not seen this request.
    let id = hand.consulted();
    assert_eq!(last(&hand), "User Use the mirror.");
    hand.feed(said("And hurry."));
    // Nor this one.
    hand.feed(EventKind::Answered { id, answer: HookDecision::Proceed });
    let id = hand.consulted();
    assert_eq!(last(&hand), "User And hurry.");
    hand.feed(EventKind::Answered { id, answer: HookDecision::Proceed });
    assert_eq!(hand.run().phase(), RunPhase::Calling);
}

#[test]
fn message_survives_compaction() {
    let compaction =
        CompactionSpec { proactive: ProactiveCompaction::Ask, ..CompactionSpec::default() };
    let mut messages = vec![Message::text(MessageId(1), Role::User, "who are you? ".repeat(50))];
    messages.push(Message::text(MessageId(2), Role::Assistant, "a robot ".repeat(50)));
    messages.push(Message::text(MessageId(3), Role::User, "do it"));
    let mut hand = Hand::start(RunSpec { compaction, messages, ..spec() }, None);
    let id = hand.effects.iter().find_map(|effect| match effect {
        Effect::Compact { id, .. } => Some(*id),
        _ => None,
    });
    hand.feed(said("while it is shortened"));
    let short = vec![Message::text(MessageId(3), Role::User, "do it")];
    hand.feed(EventKind::Compacted { id: id.unwrap(), result: Compaction::done("drop", short) });
    assert_eq!(shown(hand.run().messages()), ["User do it", "User while it is shortened"]);
    assert_eq!(hand.run().phase(), RunPhase::Calling);
}

#[test]
fn blank_message_is_ignored() {
    let mut hand = Hand::start(spec(), None);
    let call = hand.call();
    hand.feed(said(" \n"));
    hand.feed(EventKind::TurnEnded { call, turn: Box::new(stop("Paris.")) });
    assert_eq!((hand.ended(), hand.outcome().turns), (Termination::Stop, 1));
}

#[test]
fn raised_limit_lets_run_continue() {
    let limits = Limits { max_turns: Some(1), ..Limits::default() };
    let mut hand = Hand::start(RunSpec { limits, ..spec() }, None);
    hand.answer(calls(&["read"]));
    let (tool, _) = hand.started()[0];
    hand.feed(changed("max_turns", json!(2)));
    let told = hand.effects.iter().find_map(|effect| match effect {
        Effect::Emit(RunEvent::LimitsChanged { limits }) => Some(limits.values().clone()),
        _ => None,
    });
    assert_eq!(Value::Object(told.unwrap()), json!({"max_turns": 2}));
    hand.feed(EventKind::ToolEnded { tool, report: ToolReport::new(ToolStatus::Ok, "ok") });
    hand.answer(stop("Paris."));
    assert_eq!((hand.ended(), hand.outcome().turns), (Termination::Stop, 2));
}

#[test]
fn lowered_limit_ends_before_next_turn() {
    let mut hand = Hand::start(spec(), None);
    for _ in 0..2 {
        hand.answer(calls(&["read"])).tools_end(ToolStatus::Ok, "ok");
    }
    let call = hand.call();
    hand.feed(changed("max_turns", json!(2)));
    assert_eq!(hand.run().phase(), RunPhase::Calling, "the call in progress is paid for");
    hand.feed(EventKind::TurnEnded { call, turn: Box::new(calls(&["write"])) });
    hand.tools_end(ToolStatus::Ok, "ok");
    assert_eq!((hand.ended(), hand.outcome().turns), (Termination::ErrorMaxTurns, 3));
    assert_eq!(hand.outcome().decided_by.decision, Decision::Limit(Limit::MaxTurns));
}

#[test]
fn changed_timeout_applies_at_once() {
    let mut hand = Hand::start(spec(), None);
    hand.at(5_000).feed(changed("timeout", json!("4s")));
    assert_eq!(hand.ended(), Termination::ErrorTimeout);
    // In time by the new limit, although the old one has passed.
    let limits = Limits { timeout: Some(Duration::from_secs(4)), ..Limits::default() };
    let mut hand = Hand::start(RunSpec { limits, ..spec() }, None);
    let call = hand.call();
    hand.at(4_000).feed(changed("timeout", json!("9s")));
    let wakes = hand
        .effects
        .iter()
        .any(|effect| matches!(effect, Effect::WakeAt { at } if *at == Duration::from_secs(9)));
    assert!(wakes, "{:?}", hand.effects);
    hand.at(8_000).feed(EventKind::TurnEnded { call, turn: Box::new(stop("Paris.")) });
    assert_eq!(hand.ended(), Termination::Stop);
}

#[test]
fn new_ceiling_lowers_output_cap() {
    let price = Price { output: NanoUsd::from_usd(10.0), ..Price::default() };
    let spec = RunSpec { output_cap: Some(100_000), ..spec() };
    let mut hand = Hand::start(spec, Some(price));
    assert_eq!(hand.cap(), Some(100_000));
    let call = hand.call();
    // A cent buys 1,000 tokens.
    hand.feed(changed("max_budget_usd", json!(0.01)));
    let mut turn = calls(&["read"]);
    turn.usage = Usage { input_tokens: Some(9), output_tokens: Some(9), ..Usage::default() };
    hand.feed(EventKind::TurnEnded { call, turn: Box::new(turn) });
    hand.tools_end(ToolStatus::Ok, "ok");
    assert_eq!(hand.cap(), Some(991));
}

#[test]
fn changed_limits_ask_shared_budget_again() {
    let mut spec =
        RunSpec { output_cap: Some(100_000), shared_budget: true, reserve: true, ..spec() };
    spec.limits.max_tokens = Some(2_000);
    let mut hand = Hand::start(spec, None);
    let asked = |hand: &Hand| match hand.effects.last() {
        Some(Effect::Reserve { id, want_tokens, .. }) => (*id, *want_tokens),
        other => panic!("{other:?}"),
    };
    let (first, want) = asked(&hand);
    assert_eq!(want, 2_000);
    hand.feed(changed("max_tokens", json!(50_000)));
    let grant = |id, tokens| EventKind::Reserved {
        id,
        granted: NanoUsd::ZERO,
        granted_tokens: Some(tokens),
        refused_by: None,
    };
    hand.feed(grant(first, want));
    // The grant under the old limit goes back, and the call is not bounded by it.
    let settled =
        |effect: &Effect| matches!(effect, Effect::Settle { id, tokens: 0, .. } if *id == first);
    assert!(hand.effects.iter().any(settled), "{:?}", hand.effects);
    let (second, want) = asked(&hand);
    assert_eq!((want, second != first), (50_000, true));
    hand.feed(grant(second, want));
    assert_eq!(hand.run().phase(), RunPhase::Calling);
    assert!(hand.cap() > Some(40_000), "{:?}", hand.cap());
}

#[test]
fn equal_limits_report_nothing() {
    let mut hand = Hand::start(spec(), None);
    hand.feed(changed("max_turns", json!(25)));
    let told = |effect: &Effect| matches!(effect, Effect::Emit(RunEvent::LimitsChanged { .. }));
    assert!(!hand.effects.iter().any(told), "{:?}", hand.effects);
}

#[test]
fn resumed_run_keeps_message_and_limits() {
    let ms = Duration::from_millis;
    let call = EffectId(1);
    let recorded = vec![
        Event::new(ms(0), EventKind::Start { seed: 1, price: None, wall_ms: None }),
        Event::new(ms(1), changed("max_turns", json!(80))),
        Event::new(ms(2), said("Use the mirror.")),
    ];
    // The process died during the call: the repeated one contains the message.
    let on = replay::resume(spec, recorded.clone(), Resumption::default()).unwrap();
    let Step::Continue(run) = on.step else { panic!("it ended") };
    assert_eq!(shown(run.messages()).last().unwrap(), "User Use the mirror.");
    assert_eq!(run.limits().max_turns, Some(80));
    // The run was cancelled: what was said afterwards is not lost either.
    let mut ended = recorded;
    ended.push(Event::new(ms(3), EventKind::Cancel));
    ended.push(Event::new(ms(4), said("Too late?")));
    let mut replay = Replay::new(spec());
    for event in &ended {
        replay.feed(event.clone());
    }
    let texts = shown(&replay.into_outcome().unwrap().messages);
    assert_eq!(texts.last().unwrap(), "User Too late?");
    let on = replay::resume(spec, ended, Resumption { lost: vec![call], ..Resumption::default() })
        .unwrap();
    let Step::Continue(run) = on.step else { panic!("it ended") };
    let texts = shown(run.messages());
    assert!(texts.contains(&"User Use the mirror.".to_owned()), "{texts:?}");
}

#[test]
fn resumption_outranks_limit_that_ended() {
    let ms = Duration::from_millis;
    let mut recorded =
        vec![Event::new(ms(0), EventKind::Start { seed: 1, price: None, wall_ms: None })];
    recorded.push(Event::new(ms(900), changed("timeout", json!("500ms"))));
    let again = replay::resume(spec, recorded.clone(), Resumption::default());
    assert!(again.is_err(), "the limit still applies");
    let limits = Some(Limits::default());
    let on =
        replay::resume(spec, recorded, Resumption { limits, ..Resumption::default() }).unwrap();
    assert!(matches!(on.step, Step::Continue(_)));
}

#[test]
fn stored_changes_skip_unknown_limits() {
    let text = r#"{"max_turns": 80, "max_moons": 3, "timeout": "soon"}"#;
    let changes: LimitChanges = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_value(&changes).unwrap(), json!({"max_turns": 80}));
    let read = LimitChanges::read(json!({"max_moons": 3}).as_object().unwrap());
    assert!(read.unwrap_err().to_string().contains("max_moons"));
}
