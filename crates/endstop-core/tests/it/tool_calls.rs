//! The kernel starts tool calls: their order, time limits, approvals and refusals.

use crate::hand::{Hand, calls, results, spec};
use endstop_core::*;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn exempt_tools_are_not_repetition() {
    let mut spec = spec();
    Arc::make_mut(&mut spec.tools)[0].exempt_from_no_progress = true;
    let mut hand = Hand::start(spec, None);
    for _ in 0..10 {
        hand.answer(calls(&["read"])).tools_end(ToolStatus::Ok, "same");
    }
    assert!(hand.outcome.is_none());
}

#[test]
fn unsafe_tools_run_alone_in_order() {
    let mut hand = Hand::start(spec(), None);
    hand.answer(calls(&["read", "read", "write", "read"]));
    let first = hand.started();
    assert_eq!(first.iter().map(|(_, id)| id.as_str()).collect::<Vec<_>>(), ["c0", "c1"]);
    let end = |hand: &mut Hand, tool: EffectId| {
        hand.feed(EventKind::ToolEnded { tool, report: ToolReport::new(ToolStatus::Ok, "r") });
    };
    end(&mut hand, first[1].0);
    assert!(hand.started().is_empty());
    end(&mut hand, first[0].0);
    let second = hand.started();
    assert_eq!(second[0].1, "c2");
    end(&mut hand, second[0].0);
    let third = hand.started();
    assert_eq!(third[0].1, "c3");
    end(&mut hand, third[0].0);
    let answered = hand.run().messages().last().unwrap();
    let ids: Vec<&str> = answered
        .parts
        .iter()
        .filter_map(|p| if let Part::ToolResult(r) = p { Some(r.call_id.as_str()) } else { None })
        .collect();
    assert_eq!(ids, ["c0", "c1", "c2", "c3"]);
}

#[test]
fn overdue_tool_is_answered_as_timeout() {
    let limits = Limits { tool_timeout: Some(Duration::from_secs(1)), ..Limits::default() };
    let mut hand = Hand::start(RunSpec { limits, ..spec() }, None);
    hand.answer(calls(&["read"]));
    let tool = hand.started()[0].0;
    hand.at(1000).feed(EventKind::Tick);
    assert!(
        hand.effects.iter().any(|e| matches!(e, Effect::AbortTools { ids, .. } if *ids == [tool]))
    );
    let report = ToolReport::new(ToolStatus::Aborted, "killed");
    hand.at(1010).feed(EventKind::ToolEnded { tool, report });
    assert_eq!(hand.run().phase().as_str(), "calling");
    assert_eq!(hand.run().state().completed_calls[0].status, ToolStatus::Timeout);
}

#[test]
fn model_may_request_longer_tool_call() {
    let second = |n| Some(Duration::from_secs(n));
    let deadline = |arguments: Value, tool_timeout, max_tool_timeout| {
        let mut spec = spec();
        spec.limits = Limits {
            tool_timeout,
            max_tool_timeout,
            turn_timeout: None,
            first_content_timeout: None,
            ..Limits::default()
        };
        Arc::make_mut(&mut spec.tools)[0].timeout_argument = Some("timeout_seconds".to_owned());
        let mut hand = Hand::start(spec, None);
        let mut turn = calls(&["read"]);
        let Some(Part::ToolCall(call)) = turn.parts.last_mut() else { panic!("no call") };
        call.arguments = arguments.to_string();
        hand.at(1000).answer(turn);
        assert_eq!(hand.started().len(), 1, "{arguments}");
        hand.effects.iter().find_map(|effect| match effect {
            Effect::WakeAt { at } => Some(at.as_secs_f64() - 1.0),
            _ => None,
        })
    };
    let wish = |wish: Value| json!({ "timeout_seconds": wish });
    // Without a request, or with one that is not a positive number, the limit stays.
    for none in [json!({}), wish(json!(null)), wish(json!("90")), wish(json!(0)), wish(json!(-5))] {
        assert_eq!(deadline(none, second(60), second(600)), Some(60.0));
    }
    assert_eq!(deadline(wish(json!(300)), second(60), second(600)), Some(300.0));
    assert_eq!(deadline(wish(json!(2.5)), second(60), second(600)), Some(2.5), "and for less");
    for much in [json!(601), json!(1e300), json!(u64::MAX)] {
        assert_eq!(deadline(wish(much), second(60), second(600)), Some(600.0));
    }
    // A maximum below the limit does not shorten it.
    assert_eq!(deadline(wish(json!(90)), second(60), second(10)), Some(60.0));
    assert_eq!(deadline(wish(json!(900)), second(60), None), Some(900.0), "no cap");
    assert_eq!(deadline(wish(json!(900)), None, second(600)), Some(900.0), "no limit, no cap");
}

#[test]
fn tool_without_timeout_argument_keeps_limit() {
    let mut hand = Hand::start(spec(), None);
    let mut turn = calls(&["read"]);
    let Some(Part::ToolCall(call)) = turn.parts.last_mut() else { panic!("no call") };
    call.arguments = json!({"timeout_seconds": 300}).to_string();
    hand.answer(turn);
    let tool = hand.started()[0].0;
    hand.at(60_000).feed(EventKind::Tick);
    let stops = |e: &Effect| matches!(e, Effect::AbortTools { ids, .. } if *ids == [tool]);
    assert!(hand.effects.iter().any(stops));
}

#[test]
fn invalid_calls_are_answered_not_started() {
    let mut spec = spec();
    Arc::make_mut(&mut spec.tools)[1].permission = Permission::Deny;
    let mut hand = Hand::start(spec, None);
    let mut turn = calls(&["write", "nope"]);
    turn.parts.push(Part::ToolCall(ToolCall {
        id: "bad".into(),
        name: "read".into(),
        arguments: "{\"path\": \"half".into(),
    }));
    hand.answer(turn);
    assert!(hand.started().is_empty());
    let answered = hand.run().messages().last().unwrap();
    let contents: Vec<&str> = answered
        .parts
        .iter()
        .filter_map(|p| if let Part::ToolResult(r) = p { Some(r.content.as_str()) } else { None })
        .collect();
    assert!(contents[0].contains("permission denied"));
    assert!(contents[1].contains("unknown tool `nope`; there are: read, write, finish"));
    assert!(contents[2].contains("not valid JSON"));
}

#[test]
fn approval_pauses_tool_timeout() {
    let mut spec = spec();
    Arc::make_mut(&mut spec.tools)[0].permission = Permission::Ask;
    let mut hand = Hand::start(spec, None);
    hand.answer(calls(&["read"]));
    let asked = hand.consulted();
    hand.at(3_600_000).feed(EventKind::Tick);
    assert_eq!(hand.run().phase().as_str(), "tools");
    hand.feed(EventKind::Cancel);
    assert_eq!(hand.ended(), Termination::Cancelled);
    assert!(hand.effects.contains(&Effect::Abandon { id: asked }));
    assert_eq!(results(hand.outcome()), [("c0".into(), ToolStatus::Aborted, false)]);
}

#[test]
fn approval_holds_no_parallel_safe_call() {
    let mut spec = spec();
    Arc::make_mut(&mut spec.tools).push(ToolPolicy {
        name: "fetch".to_owned(),
        parallel_safe: true,
        permission: Permission::Ask,
        ..ToolPolicy::default()
    });
    let mut hand = Hand::start(spec, None);
    hand.answer(calls(&["fetch", "read", "fetch", "read", "write", "read"]));
    let first = hand.consulted();
    let names = |started: &[(EffectId, String)]| {
        started.iter().map(|(_, id)| id.clone()).collect::<Vec<_>>()
    };
    // `write` runs alone, so that it and what follows it keep their places.
    let begun = hand.started();
    assert_eq!(names(&begun), ["c1", "c3"]);
    for (tool, _) in begun {
        hand.feed(EventKind::ToolEnded { tool, report: ToolReport::new(ToolStatus::Ok, "r") });
        assert!(hand.started().is_empty());
    }
    // One question at a time: the second is asked when the first is answered.
    hand.feed(EventKind::Answered { id: first, answer: HookDecision::Proceed });
    let (begun, second) = (hand.started(), hand.consulted());
    assert_eq!(names(&begun), ["c0"]);
    assert_ne!(first, second);
    hand.feed(EventKind::Answered { id: second, answer: HookDecision::Deny("no".into()) });
    assert!(hand.started().is_empty());
    let ended =
        EventKind::ToolEnded { tool: begun[0].0, report: ToolReport::new(ToolStatus::Ok, "r") };
    hand.feed(ended);
    assert_eq!(names(&hand.started()), ["c4"]);
}

/// Returns the statuses of the results of a run with these limits on all calls and on those of `write`, whose model
/// makes `turns` and then answers.
fn limited(
    most: Option<u32>,
    most_of: Option<u32>,
    turns: &[&[&str]],
) -> (Outcome, Vec<ToolStatus>) {
    let limits = Limits { max_tool_calls: most, ..Limits::default() };
    let mut spec = RunSpec { limits, ..spec() };
    Arc::make_mut(&mut spec.tools)[1].max_calls = most_of;
    let mut hand = Hand::start(spec, None);
    for (nth, turn) in turns.iter().enumerate() {
        if hand.outcome.is_some() {
            break;
        }
        hand.answer(calls(turn));
        // Calls that run alone are started one after the other.
        while !hand.started().is_empty() {
            hand.tools_end(ToolStatus::Ok, &format!("{} of it", ["this", "that", "more"][nth % 3]));
        }
    }
    if hand.outcome.is_none() {
        hand.answer(crate::hand::stop("done"));
    }
    let outcome = hand.outcome().clone();
    let statuses = results(&outcome).into_iter().map(|(_, status, _)| status).collect();
    (outcome, statuses)
}

#[test]
fn call_beyond_the_limit_is_not_started() {
    use Termination::{ErrorMaxToolCalls, Stop};
    use ToolStatus::{Ok, Skipped};
    type Case<'a> =
        (Option<u32>, Option<u32>, &'a [&'a [&'a str]], Termination, &'a [ToolStatus], &'a str);
    let cases: [Case<'_>; 7] = [
        (Some(2), None, &[&["read", "write"]], Stop, &[Ok, Ok], ""),
        (
            Some(2),
            None,
            &[&["read", "read", "read"]],
            ErrorMaxToolCalls,
            &[Ok, Ok, Skipped],
            "2 of 2 tool calls; `read` was not started",
        ),
        (
            Some(2),
            None,
            &[&["write", "write", "write"]],
            ErrorMaxToolCalls,
            &[Ok, Ok, Skipped],
            "2 of 2 tool calls; `write` was not started",
        ),
        (
            Some(2),
            None,
            &[&["read"], &["write"], &["read"]],
            ErrorMaxToolCalls,
            &[Ok, Ok, Skipped],
            "2 of 2 tool calls; `read` was not started",
        ),
        (
            Some(0),
            None,
            &[&["read"]],
            ErrorMaxToolCalls,
            &[Skipped],
            "0 of 0 tool calls; `read` was not started",
        ),
        (
            None,
            Some(1),
            &[&["write", "read", "write", "read"]],
            ErrorMaxToolCalls,
            &[Ok, Ok, Skipped, Ok],
            "1 of 1 calls of `write`; another one was not started",
        ),
        (None, Some(1), &[&["write", "read"], &["read"]], Stop, &[Ok, Ok, Ok], ""),
    ];
    for (most, most_of, turns, termination, statuses, evidence) in cases {
        let (outcome, found) = limited(most, most_of, turns);
        assert_eq!(
            (outcome.termination, &found[..]),
            (termination, statuses),
            "{most:?} {most_of:?} {turns:?}"
        );
        let ran = statuses.iter().filter(|status| **status == Ok).count();
        assert_eq!(outcome.tool_calls as usize, ran);
        if !evidence.is_empty() {
            assert_eq!(outcome.decided_by.evidence, evidence);
            assert_eq!(outcome.decided_by.decision.as_str(), "max_tool_calls");
        }
    }
}

#[test]
fn calls_that_do_not_run_are_not_counted() {
    // An unknown tool, and one that a person denies.
    let limits = Limits { max_tool_calls: Some(1), ..Limits::default() };
    let mut spec = RunSpec { limits, ..spec() };
    Arc::make_mut(&mut spec.tools)[1].permission = Permission::Deny;
    let mut hand = Hand::start(spec, None);
    hand.answer(calls(&["nope", "write", "read"])).tools_end(ToolStatus::Ok, "r");
    assert!(hand.outcome.is_none());
    hand.answer(calls(&["read"]));
    assert_eq!(hand.ended(), Termination::ErrorMaxToolCalls);
}
