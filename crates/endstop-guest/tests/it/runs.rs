//! Runs of a guest: held-back calls, described responses, prices.

use endstop_core::{
    ErrorClass, Limits, Message, ModelError, NanoUsd, Price, RunSpec, SignalReason, Termination,
    ToolCall, ToolReport, ToolStatus, Usage,
};
use endstop_guest::describe::{Description, describe};
use endstop_guest::pricing::{Pricing, read_price};
use endstop_guest::run_state::{Ask, Declared, Handle, InvalidDeclaration, RunState};
use std::sync::Arc;
use std::time::Duration;

const START: Duration = Duration::ZERO;

fn own() -> Handle {
    Handle::default()
}

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
    assert!(run.ask(START, &own(), Ask::default()));
    let calls = vec![call("a", r#"{"path": "x"}"#), call("b", r#"{"path": "#)];
    let turn = run.turn(START, &own(), describe(said("", "tool_calls", calls)), "");
    let ids =
        |calls: &[Arc<ToolCall>]| calls.iter().map(|call| call.id.clone()).collect::<Vec<_>>();
    assert_eq!((ids(&turn.calls), ids(&turn.held_back)), (vec!["a".into()], vec!["b".into()]));
    assert_eq!(turn.ending, None, "the model waits for its tools");
}

#[test]
fn truncated_response_runs_no_call() {
    let mut run = run(Limits::default(), None);
    let turn = run.turn(START, &own(), describe(said("", "length", vec![call("a", "{}")])), "");
    assert!(turn.calls.is_empty());
    assert_eq!(turn.held_back.len(), 1);
}

#[test]
fn unasked_response_counts_as_turn() {
    let limits = Limits { max_turns: Some(1), ..Limits::default() };
    let mut run = run(limits, None);
    let turn = run.turn(START, &own(), describe(said("first", "stop", Vec::new())), "");
    assert_eq!((turn.ending_or_end(), run.turns()), (Some(Termination::Stop), 1));
    assert!(!run.ask(START, &own(), Ask::default()), "the only turn is used");
    assert_eq!(run.outcome().unwrap().termination, Termination::ErrorMaxTurns);
    // After the end, another response changes nothing.
    let late = run.turn(START, &own(), describe(said("late", "stop", vec![call("a", "{}")])), "");
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
    run.turn(START, &own(), describe(Description { usage, ..said("x", "stop", Vec::new()) }), "");
    assert_eq!(run.cost().to_usd(), 2.0);
    for wrong in [f64::NAN, f64::INFINITY, -1.0] {
        assert!(read_price(wrong, 1.0, None, None).is_err());
        assert!(read_price(1.0, 1.0, Some(wrong), None).is_err());
    }
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn priced() -> Option<Price> {
    Some(read_price(1.0, 1.0, None, None).unwrap())
}

fn used(description: Description, tokens: u64) -> Description {
    let usage = Usage { input_tokens: Some(tokens), output_tokens: Some(0), ..Usage::default() };
    Description { usage, ..description }
}

#[test]
fn parallel_calls_are_counted_once_each() {
    let mut run = run(Limits::default(), priced());
    let handles: Vec<Handle> = (0..4).map(|n| run.handle(format!("agent {n}"))).collect();
    for round in 0..2 {
        for handle in &handles {
            assert!(run.ask(at(round), handle, Ask::default()));
        }
        for (n, handle) in handles.iter().enumerate() {
            let calls = vec![call(&format!("{round}-{n}"), &format!("{{\"n\":{n}}}"))];
            let said = if round == 0 {
                said("", "tool_calls", calls)
            } else {
                said("done", "stop", vec![])
            };
            let turn = run.turn(at(round), handle, describe(used(said, 100)), "");
            assert_eq!(turn.calls.len(), usize::from(round == 0), "{n}");
        }
        for n in 0..4 {
            let report = ToolReport::new(ToolStatus::Ok, format!("file {n}"));
            assert_eq!(run.result(at(round), &format!("{round}-{n}"), report), round == 0);
        }
    }
    let outcome = run.close(at(9), true, "", None);
    assert_eq!(outcome.termination, Termination::Stop, "{}", outcome.decided_by.evidence);
    assert_eq!((outcome.model_calls, outcome.turns), (8, 8));
    assert_eq!(outcome.usage.total_tokens(), 800);
    assert_eq!((outcome.cost, outcome.cost_upper), (NanoUsd(800_000), Some(NanoUsd(800_000))));
    assert!(!outcome.cost_unknown);
}

#[test]
fn limits_hold_for_parallel_calls_together() {
    // Of turns: those in flight count.
    let mut few = run(Limits { max_turns: Some(3), ..Limits::default() }, None);
    let handles: Vec<Handle> = (0..5).map(|_| few.handle("same")).collect();
    let admitted = handles.iter().filter(|handle| few.ask(START, handle, Ask::default())).count();
    assert_eq!(admitted, 3);
    assert_eq!(few.outcome().unwrap().termination, Termination::ErrorMaxTurns);
    // Of money: a conversation knows what the others have spent.
    let limits = Limits { max_budget_usd: Some(0.00015), ..Limits::default() };
    let mut poor = run(limits, priced());
    for n in 0..2 {
        let handle = poor.handle(format!("{n}"));
        assert!(poor.ask(START, &handle, Ask::default()), "{n}");
        poor.turn(START, &handle, describe(used(said("x", "stop", vec![]), 100)), "");
    }
    let third = poor.handle("2");
    assert!(!poor.ask(START, &third, Ask::default()));
    let outcome = poor.outcome().unwrap();
    assert_eq!(outcome.termination, Termination::ErrorMaxBudgetUsd);
    assert_eq!(outcome.cost, NanoUsd(200_000));
    // Of time, although the first conversation makes no call.
    let mut slow = run(Limits { timeout: Some(at(5)), ..Limits::default() }, None);
    let (first, second) = (slow.handle("a"), slow.handle("b"));
    assert!(slow.ask(START, &first, Ask::default()));
    assert!(!slow.ask(at(6), &second, Ask::default()));
    assert_eq!(slow.outcome().unwrap().termination, Termination::ErrorTimeout);
}

#[test]
fn agent_that_repeats_itself_ends_run() {
    let mut run = run(Limits::default(), None);
    let (busy, stuck) = (run.handle("busy"), run.handle("stuck"));
    for round in 0..40_u64 {
        for (name, handle) in [("busy", &busy), ("stuck", &stuck)] {
            if !run.ask(at(round), handle, Ask::default()) {
                let outcome = run.outcome().unwrap();
                assert_eq!(outcome.termination, Termination::ErrorNoProgress);
                assert!(round > 2);
                return;
            }
            let id = format!("{name}{round}");
            let n = if name == "busy" { round } else { 0 };
            let calls = vec![call(&id, &format!("{{\"n\":{n}}}"))];
            run.turn(at(round), handle, describe(said("", "tool_calls", calls)), "");
            run.result(at(round), &id, ToolReport::new(ToolStatus::Ok, format!("{n}")));
        }
    }
    panic!("the loop of one agent was not seen");
}

#[test]
fn calls_without_response_end_run() {
    // A loop that catches every exception, and one that reports each.
    for reports in [false, true] {
        let mut run = run(Limits { max_turns: Some(3), ..Limits::default() }, None);
        let mut admitted = 0;
        while run.ask(at(admitted), &own(), Ask { retry: reports, ..Ask::default() }) {
            admitted += 1;
            assert!(admitted <= 10, "reports: {reports}");
            if reports {
                let error = ModelError::new(ErrorClass::ServerError, "down");
                run.failed(at(admitted), &own(), error);
            }
        }
        assert_eq!(admitted, 10);
        let outcome = run.outcome().unwrap();
        assert_eq!(outcome.termination, Termination::ErrorDuringExecution, "reports: {reports}");
        assert_eq!(outcome.model_calls, 10);
    }
    // A response in between starts the count again.
    let mut run = run(Limits { max_turns: None, ..Limits::default() }, None);
    for round in 0..30 {
        assert!(run.ask(at(round), &own(), Ask::default()), "{round}");
        if round % 10 == 9 {
            let calls = vec![call(&format!("{round}"), &format!("{{\"n\":{round}}}"))];
            run.turn(at(round), &own(), describe(said("", "tool_calls", calls)), "");
        } else {
            run.failed(at(round), &own(), ModelError::new(ErrorClass::Overloaded, "busy"));
        }
    }
    assert!(run.is_running());
}

#[test]
fn loop_declares_endings_that_only_it_knows() {
    let answer = serde_json::json!({"city": "Paris"});
    let submitted = || Some(Declared::read("submitted", Some(answer.clone()), "").unwrap());
    let asked = |finish: &str| {
        let mut run = run(Limits::default(), None);
        let calls = vec![call("a", "{}")];
        run.turn(START, &own(), describe(said("", finish, calls)), "");
        run
    };
    // An answer in a call, which no tool answers.
    let outcome = asked("tool_calls").close(START, true, "", submitted());
    assert_eq!(outcome.termination, Termination::Submitted);
    assert_eq!(outcome.deliverable, Some(answer.clone()));
    // A response that was cut or filtered has no answer.
    for (finish, ending) in [
        ("length", Termination::ErrorOutputTruncated),
        ("content_filter", Termination::ErrorContentFiltered),
    ] {
        let outcome = asked(finish).close(START, true, "", submitted());
        assert_eq!(outcome.termination, ending, "{finish}");
    }
    // A blank one is not an answer.
    for blank in [serde_json::Value::Null, " ".into()] {
        let declared = Some(Declared::read("submitted", Some(blank), "").unwrap());
        let outcome = asked("tool_calls").close(START, true, "", declared);
        assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
    }
    for ending in ["error_max_turns", "error_max_budget_usd", "error_max_tokens"] {
        let declared = Declared::read(ending, None, "").unwrap();
        let outcome = asked("tool_calls").close(START, false, "recursion limit 25", Some(declared));
        assert_eq!(outcome.termination.as_str(), ending);
        assert_eq!(outcome.decided_by.evidence, "recursion limit 25");
    }
    let declared = Declared::read("error_halted", None, "pii: a name").unwrap();
    let outcome = asked("tool_calls").close(START, false, "pii: a name", Some(declared));
    assert_eq!(outcome.termination, Termination::ErrorHalted);
    assert_eq!(outcome.halted_reason.as_deref(), Some("pii: a name"));
    assert_eq!(outcome.decided_by.decision.as_str(), "pii");
    for (name, value, detail, problem) in [
        ("stop", None, "", InvalidDeclaration::Name("stop".into())),
        ("submitted", None, "", InvalidDeclaration::Deliverable),
        ("error_halted", Some(answer.clone()), "x", InvalidDeclaration::Deliverable),
        ("error_halted", None, " ", InvalidDeclaration::Reason),
    ] {
        assert_eq!(Declared::read(name, value, detail), Err(problem));
    }
}

#[test]
fn responses_of_other_agents_cost_and_are_no_turns() {
    let mut run = run(Limits::default(), priced());
    run.turn(START, &own(), describe(used(said("hi", "stop", vec![]), 100)), "");
    for finish in ["stop", "length"] {
        run.spent_on(START, describe(used(said("inner", finish, vec![]), 50)), "");
    }
    assert_eq!((run.turns(), run.spending().calls, run.cost()), (1, 3, NanoUsd(200_000)));
    assert!(!run.spending().cost_unknown);
    // Without usage nothing bounds the cost, and the outcome reports that.
    run.spent_on(START, describe(said("inner", "stop", vec![])), "");
    let outcome = run.close(START, true, "", None);
    assert_eq!((outcome.termination, outcome.cost_upper), (Termination::Stop, None));
    assert!(outcome.cost_unknown);
}
