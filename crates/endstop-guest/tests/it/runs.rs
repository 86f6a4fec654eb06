//! Runs of a guest: held-back calls, described responses, prices.

use endstop_core::TurnDelta;
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

#[test]
fn answer_of_another_conversation_is_not_that_of_the_run() {
    let answers = |run: &mut RunState, handle: &Handle| {
        assert!(run.ask(at(1), handle, Ask::default()));
        run.turn(at(1), handle, describe(said("sub answer", "stop", vec![])), "");
    };
    let asks = |run: &mut RunState, finish: &str| {
        assert!(run.ask(at(0), &own(), Ask::default()));
        run.turn(at(0), &own(), describe(said("", finish, vec![call("a", "{}")])), "");
    };
    let unfinished = Termination::ErrorDuringExecution;
    for (what, finish, answered, expected) in [
        ("an open tool", "tool_calls", false, unfinished),
        ("no call after the tool", "tool_calls", true, unfinished),
        ("a cut response", "length", false, Termination::ErrorOutputTruncated),
    ] {
        let mut run = run(Limits::default(), None);
        asks(&mut run, finish);
        let sub = run.handle("sub");
        answers(&mut run, &sub);
        if answered {
            assert!(run.result(at(1), "a", ToolReport::new(ToolStatus::Ok, "r")));
        }
        // The loop of the run asks again: its own last response decides, and that is not an answer.
        run.end_if_answered(at(2));
        let declared = Declared::read("submitted", Some("x".into()), "").unwrap();
        let declares = finish == "length";
        let outcome = run.close(at(2), true, "", declares.then_some(declared));
        assert_eq!(outcome.termination, expected, "{what}");
    }
    // In flight: of the run, or of another conversation whose agent has not answered.
    for own_waits in [true, false] {
        let mut run = run(Limits::default(), None);
        let sub = run.handle("sub");
        let (first, second) = if own_waits { (own(), sub) } else { (sub, own()) };
        assert!(run.ask(at(0), &own(), Ask::default()));
        assert!(run.ask(at(0), if own_waits { &second } else { &first }, Ask::default()));
        run.turn(at(1), &second, describe(said("answer", "stop", vec![])), "");
        let outcome = run.close(at(2), true, "", None);
        assert_eq!(outcome.termination, unfinished, "own waits: {own_waits}");
        assert!(outcome.cost_unknown && outcome.model_calls == 2);
    }
    // Agents hand over: the last one has the answer.
    let mut run = run(Limits::default(), None);
    let (first, second) = (run.handle("triage"), run.handle("expert"));
    assert!(run.ask(at(0), &first, Ask::default()));
    run.turn(at(0), &first, describe(said("", "tool_calls", vec![call("a", "{}")])), "");
    run.result(at(0), "a", ToolReport::new(ToolStatus::Ok, "handed over"));
    answers(&mut run, &second);
    assert_eq!(run.close(at(2), true, "", None).termination, Termination::Stop);
}

#[test]
fn loop_without_an_answer_has_none_to_declare() {
    let submitted = || Some(Declared::read("submitted", Some("x".into()), "").unwrap());
    let mut unused = run(Limits::default(), None);
    unused.spent(START, &endstop_core::guest::Spending { calls: 3, ..Default::default() });
    assert!(!unused.close(START, true, "", submitted()).termination.is_success(), "no call");
    let mut failed = run(Limits::default(), None);
    failed.turn(START, &own(), describe(said("", "tool_calls", vec![call("a", "{}")])), "");
    let outcome = failed.close(START, false, "exploded", submitted());
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
    assert!(outcome.decided_by.evidence.contains("exploded"));
    for finish in ["length", "content_filter"] {
        let mut retried = run(Limits::default(), None);
        retried.turn(START, &own(), describe(said("half", finish, vec![])), "");
        assert!(retried.ask(START, &own(), Ask { retry: true, ..Ask::default() }));
        let outcome = retried.close(START, true, "", submitted());
        assert!(!outcome.termination.is_success(), "{finish}: the retry has no response");
    }
}

#[test]
fn time_holds_for_every_conversation() {
    for step in ["delta", "turn", "result"] {
        let mut run = run(Limits { timeout: Some(at(5)), ..Limits::default() }, None);
        assert!(run.ask(at(0), &own(), Ask::default()));
        let sub = run.handle("sub");
        assert!(run.ask(at(1), &sub, Ask::default()));
        let calls = vec![call("b", "{}")];
        match step {
            "delta" => run.delta(at(100), &sub, TurnDelta::Text("late".into())),
            "turn" => {
                let late = run.turn(at(100), &sub, describe(said("", "tool_calls", calls)), "");
                assert!(late.calls.is_empty() && late.outcome.is_some());
            }
            _ => {
                run.turn(at(2), &sub, describe(said("", "tool_calls", calls)), "");
                run.result(at(100), "b", ToolReport::new(ToolStatus::Ok, "late"));
            }
        }
        let outcome = run.close(at(101), true, "", None);
        assert_eq!(outcome.termination, Termination::ErrorTimeout, "{step}");
        assert!(outcome.cost_unknown, "{step}: calls in flight may be billed");
    }
}

#[test]
fn calls_in_flight_are_booked_when_the_run_ends() {
    for ends in ["close", "cancel", "terminate", "limit"] {
        let limits = Limits { max_turns: Some(2), ..Limits::default() };
        let mut run = run(limits, priced());
        let (first, second) = (run.handle("a"), run.handle("b"));
        let ask = || Ask { prompt_bytes: Some(4_000), output_cap: Some(1_000), ..Ask::default() };
        assert!(run.ask(at(0), &first, ask()) && run.ask(at(0), &second, ask()));
        run.turn(at(1), &first, describe(used(said("A", "stop", vec![]), 100)), "");
        match ends {
            "close" => drop(run.close(at(2), true, "", None)),
            "cancel" => run.cancel(at(2)),
            "terminate" => drop(run.terminate(at(2))),
            _ => assert!(!run.ask(at(2), &first, ask())),
        }
        let outcome = run.outcome().unwrap();
        assert!(outcome.cost_unknown, "{ends}");
        let upper = outcome.cost_upper.expect("the cap and the prompt bound it").0;
        assert!(upper >= 100_000 + 5_000_000, "{ends}: {upper}");
    }
}

#[test]
fn usage_that_is_not_reported_has_no_cost() {
    let mut run = RunState::new(
        RunSpec::new(vec![Message::user("go")]),
        Pricing::new(None, Some("openai/gpt-4o-mini")),
    );
    assert!(run.ask(START, &own(), Ask::default()));
    let text = "word ".repeat(4_000);
    let model = Some("gpt-4o".to_owned());
    let decoded = describe(Description { model, ..said(&text, "stop", vec![]) });
    run.turn(START, &own(), decoded, "openai-chat");
    let outcome = run.close(START, true, "", None);
    assert!(outcome.cost_unknown);
    assert_eq!(outcome.cost_upper, None, "the price of the estimate is that of another model");
}
