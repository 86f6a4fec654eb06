//! The kernel stops a run: what is aborted, and what is answered.

use crate::hand::{Hand, calls, results, spec};
use endstop_core::*;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn cancel_answers_each_open_call() {
    let limits = Limits { tool_concurrency: 2, ..Limits::default() };
    let mut hand = Hand::start(RunSpec { limits, ..spec() }, None);
    hand.answer(calls(&["read", "read", "read", "write"]));
    let started = hand.started();
    assert_eq!(started.len(), 2);
    let report = ToolReport::new(ToolStatus::Ok, "done");
    hand.feed(EventKind::ToolEnded { tool: started[0].0, report });
    let third = hand.started()[0].0;
    hand.feed(EventKind::Cancel);
    assert_eq!(hand.run().phase().as_str(), "stopping");
    assert!(
        hand.effects.iter().any(|e| matches!(e, Effect::AbortTools { ids, .. } if ids.len() == 2))
    );
    // One tool finishes after all, so its result is kept. The other one was stopped.
    let report = ToolReport::new(ToolStatus::Ok, "finished after all");
    hand.feed(EventKind::ToolEnded { tool: third, report });
    let report = ToolReport::new(ToolStatus::Aborted, "killed");
    hand.feed(EventKind::ToolEnded { tool: started[1].0, report });
    assert_eq!(hand.ended(), Termination::Cancelled);
    assert_eq!(
        results(hand.outcome()),
        [
            ("c0".into(), ToolStatus::Ok, true),
            ("c1".into(), ToolStatus::Aborted, true),
            ("c2".into(), ToolStatus::Ok, true),
            ("c3".into(), ToolStatus::Aborted, false),
        ]
    );
    assert_eq!(hand.outcome().tool_calls, 3);
}

#[test]
fn cancel_abandons_silent_tools_after_grace() {
    let mut hand = Hand::start(spec(), None);
    hand.answer(calls(&["read"])).at(10).feed(EventKind::Cancel);
    let wake = hand.effects.iter().find_map(|e| match e {
        Effect::WakeAt { at } => Some(*at),
        _ => None,
    });
    assert_eq!(wake, Some(Duration::from_millis(10 + 2000 + 1000)));
    hand.at(3009).feed(EventKind::Tick);
    assert!(hand.outcome.is_none());
    hand.at(3010).feed(EventKind::Tick);
    assert_eq!(hand.ended(), Termination::Cancelled);
    assert_eq!(results(hand.outcome()), [("c0".into(), ToolStatus::Aborted, true)]);
}

#[test]
fn terminate_ends_during_cancel() {
    let mut hand = Hand::start(spec(), None);
    hand.answer(calls(&["read"])).feed(EventKind::Cancel).feed(EventKind::Terminate);
    assert_eq!(hand.ended(), Termination::Terminated);
    assert_eq!(hand.outcome().also, [Termination::Cancelled]);
    let kill = hand
        .effects
        .iter()
        .any(|e| matches!(e, Effect::AbortTools { grace, .. } if grace.is_zero()));
    assert!(kill, "{:?}", hand.effects);
}

#[test]
fn failing_user_code_ends_as_fault() {
    let mut hand = Hand::start(spec(), None);
    let (name, message) = ("observer".to_owned(), "the observer panicked: oh".to_owned());
    hand.feed(EventKind::Fault { name: name.clone(), message: message.clone() });
    assert_eq!(hand.ended(), Termination::ErrorDuringExecution);
    let decision = Decision::Custom(name);
    let decided = DecidedBy { layer: endstop_core::Layer::Fault, decision, evidence: message };
    assert_eq!(hand.outcome().decided_by, decided);
}

#[test]
fn fault_while_stopping_keeps_the_ending() {
    let mut hand = Hand::start(spec(), None);
    hand.answer(calls(&["read"])).feed(EventKind::Cancel);
    let message = "the observer panicked".to_owned();
    hand.feed(EventKind::Fault { name: "observer".to_owned(), message: message.clone() });
    assert_eq!(hand.ended(), Termination::Cancelled);
    assert_eq!(hand.outcome().also, [Termination::ErrorDuringExecution]);
    assert_eq!(hand.outcome().error_diagnostic, Some(message));
    assert_eq!(results(hand.outcome()), [("c0".into(), ToolStatus::Aborted, true)]);
}

#[test]
fn cancel_dismisses_prompt_before_tools_end() {
    let mut spec = spec();
    Arc::make_mut(&mut spec.tools)[1].permission = Permission::Ask;
    let mut hand = Hand::start(spec, None);
    hand.answer(calls(&["read", "write"]));
    let (asked, running) = (hand.consulted(), hand.started()[0].0);
    hand.feed(EventKind::Cancel);
    assert_eq!(hand.run().phase().as_str(), "stopping");
    assert!(hand.effects.contains(&Effect::Abandon { id: asked }), "{:?}", hand.effects);
    let report = ToolReport::new(ToolStatus::Ok, "read");
    hand.feed(EventKind::ToolEnded { tool: running, report });
    assert!(!hand.effects.contains(&Effect::Abandon { id: asked }), "{:?}", hand.effects);
    assert_eq!(
        results(hand.outcome()),
        [("c0".into(), ToolStatus::Ok, true), ("c1".into(), ToolStatus::Aborted, false)]
    );
}

#[test]
fn started_calls_are_reported_as_ended() {
    let mut hand = Hand::start(spec(), None);
    hand.answer(calls(&["read", "write"]));
    let running = hand.started().len();
    hand.at(40).feed(EventKind::Terminate);
    let told: Vec<(&str, ToolStatus, u64)> = hand
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Emit(RunEvent::ToolFinished { call_id, status, duration_ms, .. }) => {
                Some((call_id.as_str(), *status, *duration_ms))
            }
            _ => None,
        })
        .collect();
    // The call that never began was not reported.
    assert_eq!((running, told), (1, vec![("c0", ToolStatus::Aborted, 40)]));
}

#[test]
fn second_cancel_changes_nothing() {
    let mut hand = Hand::start(spec(), None);
    hand.answer(calls(&["read"])).feed(EventKind::Cancel).feed(EventKind::Cancel);
    assert!(hand.effects.is_empty());
}

#[test]
fn cancelled_stream_keeps_partial_text() {
    let mut hand = Hand::start(spec(), None);
    let call = hand.call();
    hand.feed(EventKind::Delta { call, delta: TurnDelta::Text("half an ".into()) });
    hand.feed(EventKind::Delta { call, delta: TurnDelta::Text("answer".into()) });
    hand.feed(EventKind::Cancel);
    assert_eq!(hand.outcome().last_text.as_deref(), Some("half an answer"));
    assert_eq!(hand.outcome().messages[1].plain_text(), "half an answer");
    assert!(hand.outcome().usage.estimated);
    assert_eq!(hand.effects, [Effect::AbortModel { id: call }]);
}
