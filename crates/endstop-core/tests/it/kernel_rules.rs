//! The rules of the kernel one by one: precedence of endings, deadlines, mistakes and repetition. Each
//! test drives a run by hand and checks its outcome.

use crate::hand::{Hand, calls, results, said, spec, stop};
use endstop_core::*;
use serde_json::{Map, json};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn each_signal_maps_to_its_termination() {
    for reason in SignalReason::ALL.iter().copied() {
        let mut hand = Hand::start(
            RunSpec { limits: Limits { max_retries: Some(0), ..Limits::default() }, ..spec() },
            None,
        );
        let mut turn = said("So.", reason);
        if reason == SignalReason::ToolUse {
            turn.parts.extend(calls(&["read"]).parts);
        }
        hand.answer(turn);
        assert_eq!(hand.outcome.as_ref().map(|o| o.termination), reason.ends_as(), "{reason}");
    }
}

#[test]
fn pre_turn_checks_follow_the_table() {
    // One turn meets every check. The first one in the table decides, and the outcome lists the
    // others.
    let price = Price { input: NanoUsd(1_000_000_000), ..Price::default() };
    for first in 0..PRE_TURN.len() {
        let on = |limit: Limit| PRE_TURN.iter().position(|c| c.limit == limit).unwrap() >= first;
        let limits = Limits {
            max_turns: on(Limit::MaxTurns).then_some(2),
            max_consecutive_mistakes: on(Limit::MaxConsecutiveMistakes).then_some(2),
            max_tool_calls: on(Limit::MaxToolCalls).then_some(2),
            max_budget_usd: on(Limit::MaxBudgetUsd).then_some(0.000_1),
            max_tokens: on(Limit::MaxTokens).then_some(100),
            max_window: on(Limit::MaxWindow).then(|| "5h=80%".parse().unwrap()),
            timeout: on(Limit::Timeout).then_some(Duration::from_millis(5)),
            max_unproductive_turns: Some(1),
            ..Limits::default()
        };
        let mut hand = Hand::start(RunSpec { limits, ..spec() }, Some(price));
        let mut turn = calls(&["write"]);
        turn.usage = Usage { input_tokens: Some(10), output_tokens: Some(1), ..Usage::default() };
        hand.answer(turn.clone()).tools_end(ToolStatus::Error, "no");
        turn.usage.input_tokens = Some(200_000);
        if on(Limit::MaxToolCalls) {
            // The second call of this turn is one too many.
            turn.parts.extend(calls(&["write", "write"]).parts.pop());
        }
        hand.answer(turn).at(5);
        let windows = Window::new("plan", 300, 0.8, None).into_iter().collect();
        let started = hand.effects.clone();
        hand.feed(EventKind::Windows { windows });
        hand.effects = started;
        hand.tools_end(ToolStatus::Error, "no");
        let mut expected: Vec<Termination> = Vec::new();
        for termination in PRE_TURN[first..].iter().map(|check| check.termination) {
            // Limits may share an ending, which the outcome lists once.
            if !expected.contains(&termination) {
                expected.push(termination);
            }
        }
        assert_eq!(hand.ended(), expected[0], "with {first} checks off");
        assert_eq!(hand.outcome().also, expected[1..], "with {first} checks off");
    }
}

#[test]
fn finished_answer_outranks_crossed_limit() {
    let limits = Limits { max_budget_usd: Some(0.01), max_turns: Some(1), ..Limits::default() };
    let mut hand = Hand::start(RunSpec { limits, ..spec() }, None);
    let mut turn = stop("42");
    turn.cost = Some(NanoUsd::from_usd(5.0));
    hand.answer(turn);
    assert_eq!(hand.ended(), Termination::Stop);
    // The last allowed turn does not exceed the limit.
    assert_eq!(hand.outcome().also, [Termination::ErrorMaxBudgetUsd]);
}

#[test]
fn turn_at_deadline_is_in_time() {
    for (ms, expected) in [(1000, Termination::Stop), (1001, Termination::ErrorTimeout)] {
        let limits = Limits { timeout: Some(Duration::from_secs(1)), ..Limits::default() };
        let mut hand = Hand::start(RunSpec { limits, ..spec() }, None);
        let call = hand.call();
        hand.at(ms).feed(EventKind::TurnEnded { call, turn: Box::new(stop("x")) });
        assert_eq!(hand.ended(), expected);
    }
}

#[test]
fn observations_at_deadline_are_in_time() {
    let limits = Limits { timeout: Some(Duration::from_secs(1)), ..Limits::default() };
    // Measurements of the turn come with it.
    let mut hand = Hand::start(RunSpec { limits: limits.clone(), ..spec() }, None);
    let call = hand.call();
    hand.at(1000).feed(EventKind::Observe { variables: Map::new(), metrics: Map::new() });
    hand.feed(EventKind::TurnEnded { call, turn: Box::new(stop("x")) });
    assert_eq!(hand.ended(), Termination::Stop);
    // An answer that arrived in time is validated to the end; a repair would be too late.
    for (result, expected) in [
        (Ok(json!({})), Termination::Stop),
        (Err("not a number".to_owned()), Termination::ErrorTimeout),
    ] {
        let spec = RunSpec { limits: limits.clone(), output_schema: true, ..spec() };
        let mut hand = Hand::start(spec, None);
        hand.at(1000).answer(stop("{}"));
        let id = hand
            .effects
            .iter()
            .find_map(|e| if let Effect::Validate { id, .. } = e { Some(*id) } else { None })
            .unwrap();
        hand.at(1001).feed(EventKind::Validated { id, result });
        assert_eq!(hand.ended(), expected);
        let crossed = hand.outcome().also.contains(&Termination::ErrorTimeout);
        assert_eq!(crossed, expected == Termination::Stop);
    }
}

#[test]
fn prompt_halt_outranks_zero_timeout() {
    for (answer, expected) in [
        (HookDecision::Halt("no".into()), Termination::ErrorHalted),
        (HookDecision::Proceed, Termination::ErrorTimeout),
    ] {
        let limits = Limits { timeout: Some(Duration::ZERO), ..Limits::default() };
        let hooks = Hooks { prompt: true, ..Hooks::default() };
        let mut hand = Hand::start(RunSpec { limits, hooks, ..spec() }, None);
        let id = hand.consulted();
        hand.feed(EventKind::Answered { id, answer });
        assert_eq!(hand.ended(), expected);
        assert_eq!(hand.outcome().model_calls, 0);
    }
}

#[test]
fn permissions_and_hooks_hold_for_finish() {
    let calls = |names: &[&str]| {
        let mut turn = calls(names);
        for part in &mut turn.parts {
            if let Part::ToolCall(call) = part {
                call.arguments = json!({"deliverable": "42"}).to_string();
            }
        }
        turn
    };
    let hooks = Hooks { pre_tool: true, ..Hooks::default() };
    let mut hand = Hand::start(RunSpec { hooks, ..spec() }, None);
    hand.answer(calls(&["finish"]));
    let id = hand.consulted();
    hand.feed(EventKind::Answered { id, answer: HookDecision::Halt("not yet".into()) });
    assert_eq!(hand.ended(), Termination::ErrorHalted);

    let mut hand = Hand::start(RunSpec { hooks, ..spec() }, None);
    hand.answer(calls(&["finish"]));
    let id = hand.consulted();
    hand.feed(EventKind::Answered { id, answer: HookDecision::Deny("not yet".into()) });
    assert_eq!(hand.run().phase().as_str(), "calling");
    hand.answer(calls(&["finish"]));
    let id = hand.consulted();
    hand.feed(EventKind::Answered { id, answer: HookDecision::Proceed });
    assert_eq!(hand.ended(), Termination::Submitted);
    assert_eq!(
        results(hand.outcome()),
        [("c0".into(), ToolStatus::Denied, false), ("c0".into(), ToolStatus::Ok, true)]
    );

    let mut tools = spec().tools;
    Arc::make_mut(&mut tools).push(ToolPolicy {
        name: "finish".into(),
        permission: Permission::Deny,
        ..ToolPolicy::default()
    });
    let mut hand = Hand::start(RunSpec { tools, ..spec() }, None);
    hand.answer(calls(&["finish"])).answer(stop("done"));
    assert_eq!(hand.ended(), Termination::Stop);
    assert_eq!(results(hand.outcome()), [("c0".into(), ToolStatus::Denied, false)]);
}

#[test]
fn truncation_and_filter_outrank_unparseable_calls() {
    for (reason, expected) in [
        (SignalReason::TokenLimitReached, Termination::ErrorOutputTruncated),
        (SignalReason::ContentFiltered, Termination::ErrorContentFiltered),
        (SignalReason::ToolUse, Termination::ErrorSchemaValidation),
    ] {
        let mut turn = said("half a call", reason);
        turn.unparseable = Some("no JSON".into());
        let mut hand = Hand::start(spec(), None);
        hand.answer(turn);
        assert_eq!(hand.ended(), expected);
    }
}

#[test]
fn zero_ceiling_makes_no_call() {
    for limits in [
        Limits { max_turns: Some(0), ..Limits::default() },
        Limits { max_budget_usd: Some(0.0), ..Limits::default() },
        Limits { max_tokens: Some(0), ..Limits::default() },
        Limits { timeout: Some(Duration::ZERO), ..Limits::default() },
    ] {
        let hand = Hand::start(RunSpec { limits, ..spec() }, Some(Price::default()));
        assert_eq!(hand.outcome().model_calls, 0);
        assert_eq!(hand.outcome().category(), Category::Capacity);
    }
}

#[test]
fn declared_answer_ends_run_with_calls() {
    for (config, text, answered) in [
        (json!({}), "FINAL('42')", true),
        (json!({}), "The answer is FINAL(42)", true),
        (json!({"pick": "last"}), "FINAL('1') FINAL('42')", true),
        (json!({"extract_answer": false}), "FINAL('42')", true),
        (json!({"matching": "regex"}), "FINAL(42)", true),
        // The tool may set the name.
        (json!({}), "FINAL_VAR(x)", false),
        (json!({"pick": "last"}), "FINAL('1') FINAL_VAR('x')", false),
        (json!({}), "I will call FINAL(42) then", false),
    ] {
        let policy = Registry::new().build(&json!({"any": [{"final_pattern": config}]})).unwrap();
        let spec = RunSpec { policy: Some(policy.into_inner()), ..spec() };
        let mut hand = Hand::start(spec, None);
        let mut turn = calls(&["read"]);
        turn.parts.insert(0, Part::Text { text: text.into() });
        hand.answer(turn);
        assert_eq!(hand.outcome.is_some(), answered, "{config} {text}");
        if answered {
            assert_eq!(hand.ended(), Termination::Submitted);
            assert_eq!(hand.outcome().tool_calls, 0);
        }
    }
}

#[test]
fn declared_answer_outranks_halt_and_policy() {
    #[derive(Clone)]
    struct Always;
    impl TerminationPolicy for Always {
        fn name(&self) -> &str {
            "always"
        }
        fn should_terminate(&mut self, _: &StepResult, _: &StepContext) -> Verdict {
            Verdict::Stop(Stop::submitted("always", "").answer("by policy"))
        }
        fn reset(&mut self) {}
    }
    let with_finish = || {
        let mut turn = calls(&["read"]);
        turn.parts.push(Part::ToolCall(ToolCall {
            id: "f".into(),
            name: "finish".into(),
            arguments: json!({"deliverable": "by finish"}).to_string(),
        }));
        turn
    };
    let policy = || Some(Box::new(Always) as Box<dyn TerminationPolicy>);
    let mut hand = Hand::start(RunSpec { policy: policy(), ..spec() }, None);
    hand.answer(with_finish()).tools_end(ToolStatus::Ok, "r");
    assert_eq!(hand.outcome().deliverable, Some(json!("by finish")));

    let mut hand = Hand::start(RunSpec { policy: policy(), ..spec() }, None);
    hand.answer(with_finish());
    let (tool, _) = hand.started()[0].clone();
    let mut report = ToolReport::new(ToolStatus::Ok, "r");
    report.halt = Some("enough".into());
    hand.feed(EventKind::ToolEnded { tool, report });
    assert_eq!(hand.ended(), Termination::Submitted);
    assert_eq!(hand.outcome().deliverable, Some(json!("by finish")));
    assert_eq!(hand.outcome().also, [Termination::ErrorHalted]);

    let mut hand = Hand::start(RunSpec { policy: policy(), ..spec() }, None);
    hand.answer(stop("text"));
    assert_eq!(hand.ended(), Termination::Submitted);
    assert_eq!(hand.outcome().deliverable, Some(json!("by policy")));
}

#[test]
fn stop_hook_vetoes_three_times() {
    let hooks = Hooks { stop: true, ..Hooks::default() };
    let mut hand = Hand::start(RunSpec { hooks, ..spec() }, None);
    for _ in 0..3 {
        hand.answer(stop("done"));
        let id = hand.consulted();
        hand.feed(EventKind::Answered { id, answer: HookDecision::Deny("not yet".into()) });
    }
    hand.answer(stop("done"));
    assert_eq!(hand.ended(), Termination::Stop);
    assert_eq!(hand.outcome().turns, 4);
}

#[test]
fn six_consecutive_pauses_end_run() {
    let mut hand = Hand::start(spec(), None);
    for _ in 0..5 {
        hand.answer(said("so far", SignalReason::Paused));
    }
    assert!(hand.outcome.is_none());
    hand.answer(said("so far", SignalReason::Paused));
    assert_eq!(hand.ended(), Termination::ErrorDuringExecution);
    assert_eq!(hand.outcome().turns, 6);
}

#[test]
fn repetition_is_nudged_once_before_end() {
    let mut hand = Hand::start(spec(), None);
    let mut told = 0;
    for _ in 0..4 {
        hand.answer(calls(&["read"])).tools_end(ToolStatus::Ok, "same");
        told += hand
            .effects
            .iter()
            .filter(
                |e| matches!(e, Effect::Emit(RunEvent::MessageInjected { why, .. }) if why.as_str() == "no_progress"),
            )
            .count();
    }
    assert_eq!((hand.ended(), told), (Termination::ErrorNoProgress, 1));
    let snapshot = hand.outcome().no_progress_snapshot.as_ref().unwrap();
    assert_eq!((snapshot.unproductive_turns, snapshot.calls[0].name.as_str()), (3, "read"));
}

#[test]
fn run_is_one_pointer_wide() {
    assert_eq!(size_of::<Run>(), size_of::<usize>());
}

#[test]
fn successful_call_resets_mistakes() {
    let mut hand = Hand::start(spec(), None);
    for _ in 0..6 {
        hand.answer(calls(&["read", "nope"]));
        let (tool, _) = hand.started()[0].clone();
        let content = format!("{:?}", hand.run().elapsed());
        hand.feed(EventKind::ToolEnded { tool, report: ToolReport::new(ToolStatus::Ok, content) });
        let ms = hand.run().elapsed().as_millis() as u64 + 1;
        hand.at(ms);
    }
    assert!(hand.outcome.is_none(), "{:?}", hand.outcome);
}

#[test]
fn schema_answer_counts_after_validation() {
    let finish = || {
        let mut turn = calls(&[]);
        turn.parts.push(Part::ToolCall(ToolCall {
            id: "f".into(),
            name: "finish".into(),
            arguments: json!({"deliverable": {"k": 1}}).to_string(),
        }));
        turn
    };
    for turn in [stop("{}"), finish()] {
        let mut hand = Hand::start(RunSpec { output_schema: true, ..spec() }, None);
        hand.answer(turn);
        let asked = hand.effects.iter().find_map(|e| match e {
            Effect::Validate { id, .. } => Some(*id),
            _ => None,
        });
        let id = asked.expect("the answer is validated");
        hand.feed(EventKind::Validated { id, result: Err("no k".into()) });
        hand.answer(stop("{\"k\":1}"));
        let id = hand
            .effects
            .iter()
            .find_map(|e| if let Effect::Validate { id, .. } = e { Some(*id) } else { None })
            .unwrap();
        hand.feed(EventKind::Validated { id, result: Ok(json!({"k": 1})) });
        assert_eq!(hand.outcome().structured, Some(json!({"k": 1})));
    }
}
