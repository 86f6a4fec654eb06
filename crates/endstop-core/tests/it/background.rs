//! Background calls: their answers, their results, and how a run ends while they are open.

use crate::hand::{Hand, calls, results, spec, stop};
use endstop_core::replay;
use endstop_core::*;
use std::sync::Arc;
use std::time::Duration;

fn background() -> RunSpec {
    let mut spec = RunSpec { finish_tool: true, ..spec() };
    Arc::make_mut(&mut spec.tools).push(ToolPolicy {
        name: "build".to_owned(),
        background: true,
        ..ToolPolicy::default()
    });
    spec
}

/// A run whose first turn has started `build`. Returns the id of the call.
fn building(spec: RunSpec) -> (Hand, EffectId) {
    let mut hand = Hand::start(spec, None);
    hand.answer(calls(&["build"]));
    let (id, _) = hand.started()[0];
    (hand, id)
}

fn ended(tool: EffectId, content: &str) -> EventKind {
    EventKind::ToolEnded { tool, report: ToolReport::new(ToolStatus::Ok, content) }
}

fn last(messages: &[Message]) -> String {
    messages.last().unwrap().plain_text()
}

/// The ids that the kernel asked to stop.
fn stopped(hand: &Hand) -> Vec<EffectId> {
    let of = |effect: &Effect| match effect {
        Effect::AbortTools { ids, .. } => ids.clone(),
        _ => Vec::new(),
    };
    hand.effects.iter().flat_map(of).collect()
}

#[test]
fn call_is_answered_with_its_handle() {
    let (mut hand, id) = building(background());
    // The run does not wait for the call.
    assert_eq!(hand.run().phase(), RunPhase::Calling);
    let Part::ToolResult(result) = &hand.run().messages().last().unwrap().parts[0] else {
        panic!("no result")
    };
    assert_eq!((result.status, result.started), (ToolStatus::Ok, true));
    assert!(result.content.starts_with("started in the background, handle h1"));
    let call = hand.call();
    hand.at(1_500).feed(ended(id, "it works"));
    assert_eq!(hand.run().phase(), RunPhase::Calling, "a call in progress does not see it");
    let at_end = hand.effects.iter().any(|effect| {
        matches!(effect, Effect::Emit(RunEvent::ToolFinished { duration_ms: 1_500, content, .. })
            if content == "it works")
    });
    assert!(at_end);
    hand.feed(EventKind::TurnEnded { call, turn: Box::new(calls(&["read"])) });
    hand.tools_end(ToolStatus::Ok, "same");
    let text = last(hand.run().messages());
    assert!(
        text.starts_with("Background call h1 (`build`) has ended: ok, after 1.5s.")
            && text.ends_with("not a message of the user:\n\nit works"),
        "{text}"
    );
    hand.answer(stop("Done."));
    assert_eq!(hand.ended(), Termination::Stop);
    assert_eq!(hand.outcome().background, []);
    assert!(history::problem(&hand.outcome().messages).is_none());
}

#[test]
fn text_answer_waits_for_open_work() {
    let (mut hand, id) = building(background());
    hand.answer(stop("It builds."));
    assert_eq!(hand.run().phase(), RunPhase::Waiting);
    hand.feed(EventKind::Tick);
    assert_eq!(hand.run().phase(), RunPhase::Waiting);
    hand.feed(ended(id, "it failed"));
    assert!(last(hand.run().messages()).ends_with("it failed"));
    hand.answer(stop("It does not build."));
    assert_eq!(hand.ended(), Termination::Stop);
    assert_eq!(hand.outcome().last_text.as_deref(), Some("It does not build."));
}

#[test]
fn last_turn_waits_and_stands() {
    let limits = Limits { max_turns: Some(2), ..Limits::default() };
    let (mut hand, id) = building(RunSpec { limits, ..background() });
    hand.answer(stop("It builds."));
    assert_eq!(hand.run().phase(), RunPhase::Waiting);
    hand.feed(ended(id, "it works"));
    assert_eq!(hand.ended(), Termination::Stop);
    let outcome = hand.outcome();
    assert_eq!((outcome.turns, outcome.last_text.as_deref()), (2, Some("It builds.")));
    // A run that continues the conversation reads the result.
    assert!(last(&outcome.messages).ends_with("it works"));
}

#[test]
fn message_ends_the_wait() {
    let (mut hand, _) = building(background());
    hand.answer(stop("It builds."));
    hand.feed(EventKind::Said { text: "Stop it.".to_owned() });
    assert_eq!(hand.run().phase(), RunPhase::Calling);
    assert_eq!(last(hand.run().messages()), "Stop it.");
}

#[test]
fn finish_stops_and_reports_open_work() {
    let (mut hand, id) = building(background());
    let mut turn = calls(&["finish"]);
    if let Some(Part::ToolCall(call)) = turn.parts.last_mut() {
        call.arguments = "{\"deliverable\":\"42\"}".to_owned();
    }
    hand.answer(turn);
    assert_eq!(hand.ended(), Termination::Submitted);
    assert_eq!(stopped(&hand), [id]);
    let outcome = hand.outcome();
    let work = StoppedWork { handle: "h1".into(), call_id: "c0".into(), name: "build".into() };
    assert_eq!(outcome.background, [work]);
    assert!(last(&outcome.messages).contains("h1 (`build`) has ended: aborted"));
    assert!(history::problem(&outcome.messages).is_none());
    let text = serde_json::to_string(outcome).unwrap();
    let again: Outcome = serde_json::from_str(&text).unwrap();
    assert_eq!(again.background, outcome.background);
}

#[test]
fn waiting_run_ends_at_its_timeout() {
    let limits = Limits { timeout: Some(Duration::from_secs(5)), ..Limits::default() };
    let (mut hand, id) = building(RunSpec { limits, ..background() });
    hand.answer(stop("It builds."));
    hand.at(5_000).feed(EventKind::Tick);
    assert_eq!((hand.ended(), stopped(&hand)), (Termination::ErrorTimeout, vec![id]));
    assert_eq!(hand.outcome().last_text.as_deref(), Some("It builds."));
    assert_eq!(hand.outcome().background.len(), 1);
}

#[test]
fn cancel_reaches_background_work() {
    for (event, termination) in [
        (EventKind::Cancel, Termination::Cancelled),
        (EventKind::Terminate, Termination::Terminated),
    ] {
        let (mut hand, id) = building(background());
        hand.feed(event.clone());
        assert_eq!((hand.ended(), stopped(&hand)), (termination, vec![id]));
        // Also while other calls run, which get their grace period.
        let (mut hand, id) = building(background());
        hand.answer(calls(&["read"]));
        let (read, _) = hand.started()[0];
        hand.feed(event);
        assert!(stopped(&hand).contains(&id) && stopped(&hand).contains(&read));
        if termination == Termination::Cancelled {
            hand.feed(ended(id, "too late?"));
            hand.feed(ended(read, "r"));
        }
        assert_eq!(hand.ended(), termination);
    }
}

#[test]
fn longest_tool_timeout_stops_work() {
    let limits = Limits {
        tool_timeout: Some(Duration::from_secs(1)),
        max_tool_timeout: Some(Duration::from_secs(20)),
        cancel_grace: Duration::from_secs(2),
        ..Limits::default()
    };
    let (mut hand, id) = building(RunSpec { limits, ..background() });
    hand.answer(stop("It builds."));
    hand.at(1_000).feed(EventKind::Tick);
    assert_eq!(stopped(&hand), []);
    hand.at(20_000).feed(EventKind::Tick);
    assert_eq!((stopped(&hand), hand.run().phase()), (vec![id], RunPhase::Waiting));
    // A tool that ignores the stop is abandoned.
    hand.at(23_000).feed(EventKind::Tick);
    assert_eq!(hand.run().phase(), RunPhase::Calling);
    let text = last(hand.run().messages());
    assert!(text.contains("timeout") && text.contains("timed out after 20s"), "{text}");
}

#[test]
fn too_many_calls_are_refused() {
    let limits = Limits { tool_concurrency: 1, ..Limits::default() };
    let mut hand = Hand::start(RunSpec { limits, ..background() }, None);
    hand.answer(calls(&["build", "build", "read"]));
    assert_eq!(hand.started().len(), 2, "one build, and the other tool");
}

#[test]
fn halt_of_background_call_ends_run() {
    let (mut hand, tool) = building(background());
    let report = ToolReport {
        halt: Some("the disk is full".to_owned()),
        ..ToolReport::new(ToolStatus::Ok, "x")
    };
    hand.feed(EventKind::ToolEnded { tool, report });
    assert_eq!(hand.ended(), Termination::ErrorHalted);
    assert_eq!(hand.outcome().halted_reason.as_deref(), Some("the disk is full"));
}

#[test]
fn hook_sees_result_before_the_model() {
    let hooks = Hooks { post_tool: true, ..Hooks::default() };
    let (mut hand, id) = building(RunSpec { hooks, ..background() });
    hand.answer(stop("It builds."));
    hand.feed(ended(id, "sk-secret"));
    assert_eq!(hand.run().phase(), RunPhase::ConsultingBackground);
    let asked = hand.consulted();
    let answer = HookDecision::ChangeResult(ChangedResult::ok("clean"));
    hand.feed(EventKind::Answered { id: asked, answer });
    assert!(last(hand.run().messages()).ends_with("clean"));
    // Without the hook's answer nothing of the result is kept.
    let (mut hand, id) = building(RunSpec { hooks, ..background() });
    hand.feed(ended(id, "sk-secret")).feed(EventKind::Cancel);
    let outcome = hand.outcome();
    assert!(last(&outcome.messages).contains("before a hook had passed its result"));
    assert!(!serde_json::to_string(outcome).unwrap().contains("sk-secret"));
}

#[test]
fn dead_process_leaves_work_as_lost() {
    let mut events =
        vec![Event::new(Duration::ZERO, EventKind::Start { seed: 7, price: None, wall_ms: None })];
    let (call, tool) = {
        let mut hand = Hand::start(background(), None);
        let call = hand.call();
        hand.answer(calls(&["build"]));
        (call, hand.started()[0].0)
    };
    let turn = |turn: ModelTurn, call| {
        Event::new(Duration::ZERO, EventKind::TurnEnded { call, turn: Box::new(turn) })
    };
    events.push(turn(calls(&["build"]), call));
    let on = replay::resume(background, events.clone(), Resumption::default()).unwrap();
    let Some(EventKind::Resumed(with)) = on.events.last().map(|event| event.kind.clone()) else {
        panic!("no resumption")
    };
    assert!(with.lost.contains(&tool), "{:?}", with.lost);
    let Step::Continue(run) = on.step else { panic!("the run ended") };
    assert_eq!(run.phase(), RunPhase::Calling);
    let text = last(run.messages());
    assert!(text.contains("h1") && text.contains("may have done"), "{text}");
    // Also if the run waited for the work with an answer.
    let next = on.perform.iter().find_map(|effect| match effect {
        Effect::CallModel { id, .. } => Some(*id),
        _ => None,
    });
    assert!(next.is_some());
    let second = EffectId(tool.0 + 1);
    events.push(turn(stop("It builds."), second));
    let on = replay::resume(background, events, Resumption::default()).unwrap();
    let Step::Continue(run) = on.step else { panic!("the run ended") };
    assert_eq!(run.phase(), RunPhase::Calling);
    assert!(last(run.messages()).contains("may have done"));
}

#[test]
fn refused_call_counts_as_mistake() {
    let limits = Limits { tool_concurrency: 1, ..Limits::default() };
    let (mut hand, _) = building(RunSpec { limits, ..background() });
    hand.answer(calls(&["build"]));
    assert_eq!(hand.started(), []);
    hand.answer(stop("ok")).feed(EventKind::Cancel);
    let all = results(hand.outcome());
    assert_eq!(all[1], ("c0".to_owned(), ToolStatus::Error, false));
}
