//! Runs of a guest: held-back calls, described responses, prices.

use endstop_core::TurnDelta;
use endstop_core::guest::Spending;
use endstop_core::{
    ErrorClass, GuestMode, Limits, Message, ModelError, NanoUsd, Price, RunSpec, SignalReason,
    Termination, ToolCall, ToolPolicy, ToolReport, ToolStatus, Usage,
};
use endstop_guest::describe::{Counts, Description, describe};
use endstop_guest::park::Terms;
use endstop_guest::pricing::{Pricing, read_price};
use endstop_guest::response::Detection;
use endstop_guest::run_state::{Ask, Declared, Handle, InvalidDeclaration, Reported, RunState};
use serde_json::Map;
use std::sync::Arc;
use std::time::Duration;

const START: Duration = Duration::ZERO;
/// The wall clock at the start of each run.
const WALL_MS: u64 = 1_785_000_000_000;

fn own() -> Handle {
    Handle::default()
}

fn run(limits: Limits, price: Option<Price>) -> RunState {
    let spec = RunSpec { limits, ..RunSpec::new(vec![Message::user("go")]) };
    RunState::new(spec, Pricing::new(price, None), Some(WALL_MS))
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
    let turn = run.turn(START, &own(), describe(said("", "tool_calls", calls)));
    let ids =
        |calls: &[Arc<ToolCall>]| calls.iter().map(|call| call.id.clone()).collect::<Vec<_>>();
    assert_eq!((ids(&turn.calls), ids(&turn.held_back)), (vec!["a".into()], vec!["b".into()]));
    assert_eq!(turn.ending, None, "the model waits for its tools");
}

#[test]
fn window_in_response_ends_all_conversations() {
    let limits = Limits { max_window: "5h=80%".parse().ok(), ..Limits::default() };
    let mut run = run(limits, None);
    let mut found = describe(said("", "tool_calls", vec![call("a", "{}")]));
    let headers = [
        ("anthropic-ratelimit-unified-5h-status", "allowed_warning"),
        ("anthropic-ratelimit-unified-5h-utilization", "0.81"),
        ("anthropic-ratelimit-unified-5h-reset", "1785003600"),
    ];
    found.decoded.windows = endstop_wire::windows::of(&headers.into_iter().collect());
    let at = Duration::from_secs(60);
    let other = run.handle("other");
    assert!(run.ask(at, &own(), Ask::default()));
    assert!(run.ask(at, &other, Ask::default()));
    assert_eq!(run.turn(at, &own(), found).calls.len(), 1);
    // The call of the other agent is on its way, and its next one is refused.
    run.turn(at, &other, describe(said("", "tool_calls", vec![call("b", "{}")])));
    assert!(!run.ask(at, &other, Ask::default()));
    let outcome = run.outcome().unwrap();
    assert_eq!(outcome.termination, Termination::ErrorMaxWindow);
    assert_eq!(outcome.retry_after, Some(Duration::from_secs(3540)));
}

#[test]
fn call_too_many_of_a_response_runs_none() {
    let limits = Limits { max_tool_calls: Some(3), ..Limits::default() };
    let mut run = run(limits, None);
    let two =
        |one, other| describe(said("", "tool_calls", vec![call(one, "{}"), call(other, "{}")]));
    assert_eq!(run.turn(START, &own(), two("a", "b")).calls.len(), 2);
    for id in ["a", "b"] {
        let reported = run.result(START, &own(), id, ToolReport::new(ToolStatus::Ok, id));
        assert_eq!(reported, Reported::Taken);
    }
    let turn = run.turn(START, &own(), two("c", "d"));
    assert_eq!((turn.calls.len(), turn.held_back.len()), (0, 2));
    let outcome = run.outcome().unwrap();
    assert_eq!(outcome.termination, Termination::ErrorMaxToolCalls);
    assert_eq!(outcome.decided_by.evidence, "3 of 3 tool calls; `read` was not started");
}

#[test]
fn tool_with_used_up_calls_runs_none() {
    let tools = ToolPolicy::of_max_calls(&[("read".to_owned(), 1)].into()).into();
    let spec = RunSpec { tools, ..RunSpec::default() };
    let mut run = RunState::new(spec, Pricing::new(None, None), None);
    let two = vec![call("a", "{}"), call("b", "{}")];
    let turn = run.turn(START, &own(), describe(said("", "tool_calls", two)));
    assert_eq!((turn.calls.len(), turn.held_back.len()), (0, 2));
    let outcome = run.outcome().unwrap();
    assert_eq!(outcome.termination, Termination::ErrorMaxToolCalls);
    assert_eq!(outcome.decided_by.evidence, "1 of 1 calls of `read`; another one was not started");
}

/// A run that has spent its rate of 100 tokens per minute at second 10, in a conversation next to another one.
fn at_its_rate(limits: Limits) -> (RunState, Handle) {
    let limits = Limits { max_rate: "100 tokens/m".parse().ok(), ..limits };
    let guest = Some(GuestMode { waits: true, ..GuestMode::default() });
    let spec = RunSpec { limits, guest, ..RunSpec::default() };
    let mut run = RunState::new(spec, Pricing::new(None, None), Some(WALL_MS));
    let other = run.handle("other");
    assert!(run.ask(at(0), &own(), Ask::default()) && run.ask(at(0), &other, Ask::default()));
    assert_eq!(run.pause(at(1)), None);
    run.turn(at(10), &other, describe(used(said("x", "stop", vec![]), 100)));
    (run, other)
}

#[test]
fn rate_pauses_every_conversation() {
    let (mut run, other) = at_its_rate(Limits::default());
    assert_eq!(run.pause(at(20)), Some(Duration::from_secs(50)));
    let text = {
        run.failed(at(20), &own(), ModelError::new(ErrorClass::Overloaded, "busy"));
        run.park(at(30)).unwrap()
    };
    let mut run = RunState::resume(&text, Terms::default()).unwrap();
    assert_eq!(run.pause(at(40)), Some(Duration::from_secs(30)));
    assert_eq!(run.pause(at(70)), None);
    assert!(run.ask(at(70), &other, Ask::default()));
}

#[test]
fn pause_past_the_deadline_ends_at_once() {
    let limits = Limits { timeout: Some(at(60)), ..Limits::default() };
    let (mut run, other) = at_its_rate(limits);
    assert_eq!(run.pause(at(20)), None, "the pause would end after the run");
    assert!(!run.ask(at(20), &other, Ask::default()));
    let outcome = run.outcome().unwrap();
    assert_eq!(outcome.termination, Termination::ErrorTimeout);
    assert_eq!(outcome.retry_after, Some(Duration::from_secs(50)));
}

#[test]
fn deadline_ends_a_pause() {
    let limits = Limits { timeout: Some(at(71)), ..Limits::default() };
    let (mut run, _) = at_its_rate(limits);
    assert!(run.pause(at(20)).is_some());
    assert_eq!(run.pause(at(71)), None);
    assert_eq!(run.outcome().unwrap().termination, Termination::ErrorTimeout);
}

#[test]
fn truncated_response_runs_no_call() {
    let mut run = run(Limits::default(), None);
    let turn = run.turn(START, &own(), describe(said("", "length", vec![call("a", "{}")])));
    assert!(turn.calls.is_empty());
    assert_eq!(turn.held_back.len(), 1);
}

#[test]
fn unasked_response_counts_as_turn() {
    let limits = Limits { max_turns: Some(1), ..Limits::default() };
    let mut run = run(limits, None);
    let turn = run.turn(START, &own(), describe(said("first", "stop", Vec::new())));
    assert_eq!((turn.ending_or_end(), run.turns()), (Some(Termination::Stop), 1));
    assert!(!run.ask(START, &own(), Ask::default()), "the only turn is used");
    assert_eq!(run.outcome().unwrap().termination, Termination::ErrorMaxTurns);
    // After the end, another response changes nothing.
    let late = run.turn(START, &own(), describe(said("late", "stop", vec![call("a", "{}")])));
    assert!(late.calls.is_empty() && late.text.is_empty());
    assert_eq!(late.ending_or_end(), Some(Termination::ErrorMaxTurns));
}

#[test]
fn missing_finish_is_not_success() {
    for finish in [None, Some(String::new())] {
        let text = "all done".to_owned();
        let found = describe(Description { text, finish, ..Description::default() });
        assert!(found.decoded.value_missing && found.decoded.error.is_some());
    }
    let found = describe(said("", "refusal", Vec::new()));
    assert_eq!(found.decoded.signal.reason, SignalReason::ContentFiltered, "Anthropic's value");
}

#[test]
fn given_price_is_charged() {
    let price = read_price(1.0, 2.0, None, None).unwrap();
    let mut run = run(Limits::default(), Some(price));
    let usage =
        Usage { input_tokens: Some(1_000_000), output_tokens: Some(500_000), ..Usage::default() };
    run.turn(START, &own(), describe(Description { usage, ..said("x", "stop", Vec::new()) }));
    assert_eq!(run.cost(), Some(NanoUsd::from_usd(2.0)));
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
            let turn = run.turn(at(round), handle, describe(used(said, 100)));
            assert_eq!(turn.calls.len(), usize::from(round == 0), "{n}");
        }
        for n in 0..4 {
            let report = ToolReport::new(ToolStatus::Ok, format!("file {n}"));
            let reported = run.result(at(round), &own(), &format!("{round}-{n}"), report);
            assert_eq!(reported == Reported::Taken, round == 0);
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
        poor.turn(START, &handle, describe(used(said("x", "stop", vec![]), 100)));
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
            run.turn(at(round), handle, describe(said("", "tool_calls", calls)));
            let _ =
                run.result(at(round), &own(), &id, ToolReport::new(ToolStatus::Ok, format!("{n}")));
        }
    }
    panic!("the loop of one agent was not seen");
}

#[test]
fn calls_without_response_end_run() {
    // A loop that catches every exception, whose calls count as lost, one that reports each, and one whose SDK returns
    // the failure as a response.
    let lost: fn(&mut RunState, u64) = |_, _| {};
    let down: fn(&mut RunState, u64) = |run, now| {
        run.failed(at(now), &own(), ModelError::new(ErrorClass::ServerError, "down"));
    };
    let refused: fn(&mut RunState, u64) = |run, now| {
        run.failed(at(now), &own(), ModelError::new(ErrorClass::Authentication, "no key"));
    };
    let cut: fn(&mut RunState, u64) = |run, now| {
        let described = Description { finish: None, ..said("", "", vec![]) };
        run.turn(at(now), &own(), describe(described));
    };
    for (what, fails, most) in
        [("lost", lost, 6), ("down", down, 20), ("refused", refused, 2), ("cut", cut, 6)]
    {
        let mut run = run(Limits { max_turns: Some(3), ..Limits::default() }, None);
        let mut admitted = 0;
        let retry = what == "down" || what == "refused";
        while run.ask(at(admitted), &own(), Ask { retry, ..Ask::default() }) {
            admitted += 1;
            assert!(admitted <= most, "{what}");
            fails(&mut run, admitted);
        }
        let outcome = run.outcome().unwrap();
        assert_eq!(u64::from(outcome.model_calls), most, "{what}");
        let evidence = &outcome.decided_by.evidence;
        assert!(evidence.starts_with(&format!("{most} calls in a row failed: ")), "{evidence}");
    }
    // A response in between starts the count again.
    let mut run = run(Limits { max_turns: None, ..Limits::default() }, None);
    for round in 0..30 {
        assert!(run.ask(at(round), &own(), Ask::default()), "{round}");
        if round % 10 == 9 {
            let calls = vec![call(&format!("{round}"), &format!("{{\"n\":{round}}}"))];
            run.turn(at(round), &own(), describe(said("", "tool_calls", calls)));
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
        run.turn(START, &own(), describe(said("", finish, calls)));
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
    run.turn(START, &own(), describe(used(said("hi", "stop", vec![]), 100)));
    for finish in ["stop", "length"] {
        run.spent_on(START, describe(used(said("inner", finish, vec![]), 50)));
    }
    assert_eq!((run.turns(), run.spending().calls, run.cost()), (1, 3, Some(NanoUsd(200_000))));
    assert!(!run.spending().cost_unknown);
    // Without usage nothing bounds the cost, and the outcome reports that.
    run.spent_on(START, describe(said("inner", "stop", vec![])));
    let outcome = run.close(START, true, "", None);
    assert_eq!((outcome.termination, outcome.cost_upper), (Termination::Stop, None));
    assert!(outcome.cost_unknown);
}

#[test]
fn answer_of_another_conversation_is_not_that_of_the_run() {
    let answers = |run: &mut RunState, handle: &Handle| {
        assert!(run.ask(at(1), handle, Ask::default()));
        run.turn(at(1), handle, describe(said("sub answer", "stop", vec![])));
    };
    let asks = |run: &mut RunState, finish: &str| {
        assert!(run.ask(at(0), &own(), Ask::default()));
        run.turn(at(0), &own(), describe(said("", finish, vec![call("a", "{}")])));
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
            let report = ToolReport::new(ToolStatus::Ok, "r");
            assert_eq!(run.result(at(1), &own(), "a", report), Reported::Taken);
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
        run.turn(at(1), &second, describe(said("answer", "stop", vec![])));
        let outcome = run.close(at(2), true, "", None);
        assert_eq!(outcome.termination, unfinished, "own waits: {own_waits}");
        assert!(outcome.cost_unknown && outcome.model_calls == 2);
    }
    // Agents hand over: the last one has the answer.
    let mut run = run(Limits::default(), None);
    let (first, second) = (run.handle("triage"), run.handle("expert"));
    assert!(run.ask(at(0), &first, Ask::default()));
    run.turn(at(0), &first, describe(said("", "tool_calls", vec![call("a", "{}")])));
    let report = ToolReport::new(ToolStatus::Ok, "handed over");
    assert_eq!(run.result(at(0), &own(), "a", report), Reported::Taken);
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
    failed.turn(START, &own(), describe(said("", "tool_calls", vec![call("a", "{}")])));
    let outcome = failed.close(START, false, "exploded", submitted());
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
    assert!(outcome.decided_by.evidence.contains("exploded"));
    for finish in ["length", "content_filter"] {
        let mut retried = run(Limits::default(), None);
        retried.turn(START, &own(), describe(said("half", finish, vec![])));
        assert!(retried.ask(START, &own(), Ask { retry: true, ..Ask::default() }));
        let outcome = retried.close(START, true, "", submitted());
        assert!(!outcome.termination.is_success(), "{finish}: the retry has no response");
    }
}

#[test]
fn time_holds_for_every_conversation() {
    for step in ["delta", "failed", "turn", "result"] {
        let mut run = run(Limits { timeout: Some(at(5)), ..Limits::default() }, None);
        assert!(run.ask(at(0), &own(), Ask::default()));
        let sub = run.handle("sub");
        assert!(run.ask(at(1), &sub, Ask::default()));
        let calls = vec![call("b", "{}")];
        match step {
            "failed" => {
                run.failed(at(100), &sub, ModelError::new(ErrorClass::Overloaded, "late"));
            }
            "delta" => run.delta(at(100), &sub, TurnDelta::Text("late".into())),
            "turn" => {
                let late = run.turn(at(100), &sub, describe(said("", "tool_calls", calls)));
                assert!(late.calls.is_empty() && late.outcome.is_some());
            }
            _ => {
                run.turn(at(2), &sub, describe(said("", "tool_calls", calls)));
                let _ = run.result(at(100), &sub, "b", ToolReport::new(ToolStatus::Ok, "late"));
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
        run.turn(at(1), &first, describe(used(said("A", "stop", vec![]), 100)));
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
        None,
    );
    assert!(run.ask(START, &own(), Ask::default()));
    let text = "word ".repeat(4_000);
    let model = Some("gpt-4o".to_owned());
    let found = describe(Description { model, ..said(&text, "stop", vec![]) });
    run.turn(START, &own(), Detection { api: "openai-chat", ..found });
    let outcome = run.close(START, true, "", None);
    assert!(outcome.cost_unknown);
    assert_eq!(outcome.cost_upper, None, "the price of the estimate is that of another model");
}

fn report() -> ToolReport {
    ToolReport::new(ToolStatus::Ok, "r")
}

#[test]
fn result_belongs_to_conversation_it_is_given_to() {
    let mut run = run(Limits::default(), None);
    let (first, second) = (run.handle("first"), run.handle("second"));
    for handle in [&first, &second] {
        run.turn(START, handle, describe(said("", "tool_calls", vec![call("0", "{}")])));
    }
    assert_eq!(run.result(START, &second, "0", report()), Reported::Taken);
    assert_eq!(run.result(START, &second, "0", report()), Reported::Ignored);
    // Given to the run, it belongs to the one that still waits.
    assert_eq!(run.result(START, &own(), "0", report()), Reported::Taken);
    assert_eq!(run.result(START, &own(), "0", report()), Reported::Ignored);
    assert_eq!(run.result(START, &first, "1", report()), Reported::Unknown);
}

#[test]
fn results_of_calls_of_one_name_are_kept_apart() {
    let mut run = run(Limits::default(), None);
    let (first, second) = (run.handle("worker"), run.handle("worker"));
    for handle in [&first, &second] {
        assert!(run.ask(START, handle, Ask::default()));
    }
    for (handle, text) in [(&first, "a"), (&second, "b")] {
        run.turn(START, handle, describe(said(text, "tool_calls", vec![call("0", "{}")])));
    }
    assert_eq!(run.result(START, &second, "0", report()), Reported::Taken);
    // The first conversation still waits, so its answer ends nothing yet.
    run.turn(START, &second, describe(said("done", "stop", vec![])));
    assert_ne!(run.close(START, true, "", None).termination, Termination::Stop);
}

#[test]
fn spending_that_reaches_ceiling_ends_run() {
    let price = read_price(1.0, 1.0, None, None).unwrap();
    let spent = |usd: f64, turns: u32| Spending {
        cost: NanoUsd::from_usd(usd),
        turns,
        ..Spending::default()
    };
    let limits = || Limits { max_budget_usd: Some(1.0), max_turns: Some(5), ..Limits::default() };
    for (spending, ending) in [
        (spent(1.0, 0), Termination::ErrorMaxBudgetUsd),
        (spent(0.0, 5), Termination::ErrorMaxTurns),
    ] {
        let mut run = run(limits(), Some(price));
        run.turn(START, &own(), describe(said("", "tool_calls", vec![call("a", "{}")])));
        run.spent(START, &spent(0.5, 1));
        assert!(run.is_running(), "below the ceiling");
        run.spent(START, &spending);
        assert_eq!(run.outcome().unwrap().termination, ending);
    }
    // An answer was given before, and a response on its way is billed anyway.
    let mut answered = run(limits(), Some(price));
    answered.turn(START, &own(), describe(used(said("42", "stop", vec![]), 100)));
    answered.spent(START, &spent(2.0, 0));
    assert_eq!(answered.close(START, true, "", None).termination, Termination::Stop);
    // The turns of the run are used up, and others may still work for the last one.
    let mut last = run(Limits { max_turns: Some(1), ..limits() }, Some(price));
    last.turn(START, &own(), describe(said("", "tool_calls", vec![call("a", "{}")])));
    last.spent(START, &spent(0.5, 0));
    assert!(last.may_spend(START) && !last.may(START));
    assert_eq!(last.outcome().unwrap().termination, Termination::ErrorMaxTurns);
    let mut calling = run(limits(), Some(price));
    assert!(calling.ask(START, &own(), Ask::default()));
    calling.spent(START, &spent(2.0, 0));
    assert!(calling.is_running());
}

#[test]
fn nested_spending_is_charged_once() {
    let price = read_price(1.0, 1.0, None, None).unwrap();
    let limits = Limits { max_budget_usd: Some(250e-6), max_turns: Some(2), ..Limits::default() };
    let mut outer = run(limits, Some(price));
    outer.turn(START, &own(), describe(used(said("", "tool_calls", vec![call("a", "{}")]), 100)));
    assert!(outer.may_spend(START), "no limit is reached");
    let mut inner = run(Limits::default(), Some(price));
    let charge = |outer: &mut RunState, inner: &mut RunState| {
        if let Some(more) = inner.take_uncharged() {
            outer.spent(START, &more);
        }
    };
    for round in 1..=2_u64 {
        let id = round.to_string();
        inner.turn(
            START,
            &own(),
            describe(used(said("", "tool_calls", vec![call(&id, "{}")]), 100)),
        );
        let _ = inner.result(START, &own(), &id, ToolReport::new(ToolStatus::Ok, id.clone()));
        charge(&mut outer, &mut inner);
        charge(&mut outer, &mut inner);
        assert_eq!(outer.spending().cost, NanoUsd((round + 1) * 100_000));
        assert_eq!(outer.may_spend(START), round == 1, "the budget holds for both");
    }
    let outcome = outer.outcome().unwrap();
    assert_eq!(outcome.termination, Termination::ErrorMaxBudgetUsd);
    assert_eq!((outcome.turns, outcome.model_calls), (1, 3), "turns of the inner run are its own");
    // The part that was charged before a park is not charged again.
    let parked = inner.park(START).unwrap();
    let mut resumed = RunState::resume(&parked, Terms::default()).unwrap();
    assert_eq!(resumed.take_uncharged(), None);
    resumed.turn(START, &own(), describe(used(said("42", "stop", vec![]), 100)));
    assert_eq!(resumed.take_uncharged().unwrap().cost, NanoUsd(100_000));
}

#[test]
fn total_tells_what_is_counted_apart() {
    let price = read_price(2.0, 10.0, Some(0.2), Some(2.5)).unwrap();
    let cost = |input, output, cached, written, reasoning, total| {
        let usage = Usage::from(Counts {
            input: Some(input),
            output: Some(output),
            cached_input: Some(cached),
            cache_write: Some(written),
            reasoning: Some(reasoning),
            total,
            ..Counts::default()
        });
        price.cost(&usage).0 / 1_000
    };
    // 100 tokens of the prompt, 800 of a cache, 100 into one, 10 of the answer and 30 of thoughts.
    let right = 100 * 2 + 160 + 250 + 40 * 10;
    for (name, found) in [
        ("all included", cost(1_000, 40, 800, 100, 30, Some(1_040))),
        ("no total", cost(1_000, 40, 800, 100, 30, None)),
        ("cache apart", cost(100, 40, 800, 100, 30, Some(1_040))),
        ("more cached than the prompt has", cost(100, 40, 800, 100, 30, Some(140))),
        ("thoughts apart", cost(1_000, 10, 800, 100, 30, Some(1_040))),
        ("both apart", cost(100, 10, 800, 100, 30, Some(1_040))),
    ] {
        assert_eq!(found, right, "{name}");
    }
}

#[test]
fn changed_limits_leave_the_others() {
    let mut run = run(Limits { max_turns: Some(1), ..Limits::default() }, None);
    let changes = Map::from_iter([("max_tokens".to_owned(), 1_000_000.into())]);
    run.change_limits(START, &changes).unwrap();
    run.turn(START, &own(), describe(said("", "tool_calls", vec![call("a", "{}")])));
    assert!(!run.ask(START, &own(), Ask::default()), "max_turns is still 1");
    assert_eq!(run.outcome().unwrap().termination, Termination::ErrorMaxTurns);
}

#[test]
fn cost_without_known_prompt_has_no_bound() {
    let price = read_price(1.0, 1.0, None, None).unwrap();
    let lost = || ModelError::new(ErrorClass::IncompleteStream, "lost");
    for prompt_bytes in [None, Some(400)] {
        let ask = || Ask { prompt_bytes, output_cap: Some(100), ..Ask::default() };
        let bound = |run: &mut RunState| run.close(START, true, "", None).cost_upper.is_some();
        let mut failed = run(Limits::default(), Some(price));
        failed.ask(START, &own(), ask());
        failed.failed(START, &own(), lost());
        assert_eq!(bound(&mut failed), prompt_bytes.is_some(), "failed");
        let mut open = run(Limits::default(), Some(price));
        open.ask(START, &own(), ask());
        assert_eq!(bound(&mut open), prompt_bytes.is_some(), "open at the end");
        let mut counted = run(Limits::default(), Some(price));
        counted.ask(START, &own(), ask());
        counted.turn(START, &own(), describe(used(said("42", "stop", vec![]), 100)));
        assert!(bound(&mut counted), "the provider reported its tokens");
        let mut refused = run(Limits::default(), Some(price));
        refused.ask(START, &own(), ask());
        refused.failed(START, &own(), ModelError::new(ErrorClass::RateLimit, "429"));
        assert!(bound(&mut refused), "a refused call is not billed");
    }
}

#[test]
fn evidence_has_no_secrets() {
    let secret = format!("sk-ant-api03-{}", "a1B2".repeat(23));
    let mut run = run(Limits::default(), None);
    run.turn(START, &own(), describe(said("half", &secret, vec![])));
    let outcome = run.close(START, true, "", None);
    assert!(!outcome.decided_by.evidence.contains(&secret), "{}", outcome.decided_by.evidence);
    assert_eq!(run.outcome().unwrap().decided_by, outcome.decided_by);
}
