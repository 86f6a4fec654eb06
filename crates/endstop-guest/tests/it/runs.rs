//! Runs of a guest: held-back calls, described responses, prices.

use endstop_core::{Limits, Message, Price, RunSpec, SignalReason, Termination, ToolCall, Usage};
use endstop_guest::describe::{Description, describe};
use endstop_guest::pricing::{Pricing, read_price};
use endstop_guest::run_state::{Ask, RunState};
use std::sync::Arc;
use std::time::Duration;

const START: Duration = Duration::ZERO;

fn run(limits: Limits, price: Option<Price>) -> RunState {
    let spec = RunSpec { limits, ..RunSpec::new(vec![Message::user("go")]) };
    RunState::new(spec, Pricing::new(price, None))
}

fn call(id: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.into(), name: "read".into(), arguments: arguments.into() }
}

fn said(text: &str, finish: &str, calls: Vec<ToolCall>) -> Description {
    Description { text: text.into(), finish: Some(finish.into()), calls, ..Description::default() }
}

#[test]
fn invalid_call_is_held_back() {
    let mut run = run(Limits::default(), None);
    assert!(run.ask(START, Ask::default()));
    let calls = vec![call("a", r#"{"path": "x"}"#), call("b", r#"{"path": "#)];
    let turn = run.turn(START, describe(said("", "tool_calls", calls)), "");
    let ids =
        |calls: &[Arc<ToolCall>]| calls.iter().map(|call| call.id.clone()).collect::<Vec<_>>();
    assert_eq!((ids(&turn.calls), ids(&turn.held_back)), (vec!["a".into()], vec!["b".into()]));
    assert_eq!(turn.ending, None, "the model waits for its tools");
}

#[test]
fn truncated_response_runs_no_call() {
    let mut run = run(Limits::default(), None);
    let turn = run.turn(START, describe(said("", "length", vec![call("a", "{}")])), "");
    assert!(turn.calls.is_empty());
    assert_eq!(turn.held_back.len(), 1);
}

#[test]
fn unasked_response_counts_as_turn() {
    let limits = Limits { max_turns: Some(1), ..Limits::default() };
    let mut run = run(limits, None);
    let turn = run.turn(START, describe(said("first", "stop", Vec::new())), "");
    assert_eq!((turn.ending_or_end(), run.turns()), (Some(Termination::Stop), 1));
    assert!(!run.ask(START, Ask::default()), "the only turn is used");
    assert_eq!(run.outcome().unwrap().termination, Termination::ErrorMaxTurns);
    // After the end, another response changes nothing.
    let late = run.turn(START, describe(said("late", "stop", vec![call("a", "{}")])), "");
    assert!(late.calls.is_empty() && late.text.is_empty());
    assert_eq!(late.ending_or_end(), Some(Termination::ErrorMaxTurns));
}

#[test]
fn missing_finish_is_not_success() {
    for finish in [None, Some(String::new())] {
        let text = "all done".to_owned();
        let decoded = describe(Description { text, finish, ..Description::default() });
        assert!(decoded.value_missing && decoded.error.is_some());
    }
    let decoded = describe(said("", "refusal", Vec::new()));
    assert_eq!(decoded.signal.reason, SignalReason::ContentFiltered, "Anthropic's value");
}

#[test]
fn given_price_is_charged() {
    let price = read_price(1.0, 2.0, None, None).unwrap();
    let mut run = run(Limits::default(), Some(price));
    let usage =
        Usage { input_tokens: Some(1_000_000), output_tokens: Some(500_000), ..Usage::default() };
    run.turn(START, describe(Description { usage, ..said("x", "stop", Vec::new()) }), "");
    assert_eq!(run.cost().to_usd(), 2.0);
    for wrong in [f64::NAN, f64::INFINITY, -1.0] {
        assert!(read_price(wrong, 1.0, None, None).is_err());
        assert!(read_price(1.0, 1.0, Some(wrong), None).is_err());
    }
}
