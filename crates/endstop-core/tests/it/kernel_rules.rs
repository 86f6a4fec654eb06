//! The rules of the kernel one by one: precedence, deadlines, retries, budgets, and results of open
//! calls. Each test drives a run by hand and checks its outcome.

use endstop_core::*;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// A run driven by hand: it answers no effect by itself.
pub struct Hand {
    run: Option<Run>,
    now: Duration,
    pub effects: Vec<Effect>,
    pub outcome: Option<Outcome>,
}

impl Hand {
    pub fn start(spec: RunSpec, price: Option<Price>) -> Hand {
        let mut hand = Hand {
            run: Some(Run::new(spec)),
            now: Duration::ZERO,
            effects: Vec::new(),
            outcome: None,
        };
        hand.feed(EventKind::Start { seed: 7, price, wall_ms: None });
        hand
    }

    pub fn feed(&mut self, kind: EventKind) -> &mut Hand {
        let run = self.run.take().expect("the run has ended");
        self.effects.clear();
        match run.handle(Event::new(self.now, kind), &mut self.effects) {
            Step::Continue(run) => self.run = Some(run),
            Step::Ended(outcome) => self.outcome = Some(*outcome),
        }
        self
    }

    pub fn at(&mut self, ms: u64) -> &mut Hand {
        self.now = Duration::from_millis(ms);
        self
    }

    pub fn run(&self) -> &Run {
        self.run.as_ref().expect("the run has ended")
    }

    pub fn call(&self) -> EffectId {
        self.effects
            .iter()
            .find_map(|e| if let Effect::CallModel { id, .. } = e { Some(*id) } else { None })
            .unwrap_or_else(|| panic!("no call among {:?}", self.effects))
    }

    pub fn cap(&self) -> Option<u64> {
        self.effects
            .iter()
            .find_map(|e| {
                if let Effect::CallModel { output_cap, .. } = e { Some(*output_cap) } else { None }
            })
            .expect("no call")
    }

    pub fn started(&self) -> Vec<(EffectId, String)> {
        self.effects
            .iter()
            .filter_map(|e| if let Effect::StartTools { calls } = e { Some(calls) } else { None })
            .flatten()
            .map(|start| (start.id, start.call.id.clone()))
            .collect()
    }

    pub fn consulted(&self) -> EffectId {
        self.effects
            .iter()
            .find_map(|e| if let Effect::Consult { id, .. } = e { Some(*id) } else { None })
            .unwrap_or_else(|| panic!("nothing asked among {:?}", self.effects))
    }

    pub fn answer(&mut self, turn: ModelTurn) -> &mut Hand {
        let call = self.call();
        self.feed(EventKind::TurnEnded { call, turn: Box::new(turn) })
    }

    pub fn fail(&mut self, class: ErrorClass) -> &mut Hand {
        let call = self.call();
        self.feed(EventKind::TurnFailed { call, error: ModelError::new(class, "x"), partial: None })
    }

    pub fn tools_end(&mut self, status: ToolStatus, content: &str) -> &mut Hand {
        for (tool, _) in self.started() {
            let report = ToolReport::new(status, content);
            self.feed(EventKind::ToolEnded { tool, report });
        }
        self
    }

    pub fn outcome(&self) -> &Outcome {
        self.outcome.as_ref().unwrap_or_else(|| {
            panic!(
                "the run did not end: phase {}, effects {:?}",
                self.run().phase().as_str(),
                self.effects
            )
        })
    }

    pub fn ended(&self) -> Termination {
        self.outcome().termination
    }
}

pub fn spec() -> RunSpec {
    RunSpec {
        tools: ["read", "write"]
            .map(|name| ToolPolicy {
                name: name.to_owned(),
                parallel_safe: name == "read",
                ..ToolPolicy::default()
            })
            .into(),
        reserve: false,
        ..RunSpec::new(vec![Message::text(MessageId(1), Role::User, "do it")])
    }
}

pub fn said(text: &str, reason: SignalReason) -> ModelTurn {
    let signal =
        TerminationSignal::new(reason, Confidence::High).from_field("finish", reason.as_str());
    let parts = if text.is_empty() { vec![] } else { vec![Part::Text { text: text.into() }] };
    ModelTurn::new(parts, signal)
}

pub fn stop(text: &str) -> ModelTurn {
    said(text, SignalReason::NaturalCompletion)
}

pub fn calls(names: &[&str]) -> ModelTurn {
    let mut turn = said("", SignalReason::ToolUse);
    for (n, name) in names.iter().enumerate() {
        turn.parts.push(Part::ToolCall(ToolCall {
            id: format!("c{n}"),
            name: (*name).to_owned(),
            arguments: json!({"n": n}).to_string(),
        }));
    }
    turn
}

fn results(outcome: &Outcome) -> Vec<(String, ToolStatus, bool)> {
    outcome
        .messages
        .iter()
        .flat_map(|m| &m.parts)
        .filter_map(|part| match part {
            Part::ToolResult(r) => Some((r.call_id.clone(), r.status, r.started)),
            _ => None,
        })
        .collect()
}

#[test]
fn each_signal_maps_to_its_termination() {
    for reason in SignalReason::ALL {
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
        let on = |check: PreTurnCheck| PRE_TURN.iter().position(|c| *c == check).unwrap() >= first;
        let limits = Limits {
            max_turns: on(PreTurnCheck::MaxTurns).then_some(2),
            max_consecutive_mistakes: on(PreTurnCheck::Mistakes).then_some(2),
            max_budget_usd: on(PreTurnCheck::BudgetUsd).then_some(0.000_1),
            max_tokens: on(PreTurnCheck::BudgetTokens).then_some(100),
            timeout: on(PreTurnCheck::BudgetTime).then_some(Duration::from_millis(5)),
            max_unproductive_turns: Some(1),
            ..Limits::default()
        };
        let mut hand = Hand::start(RunSpec { limits, ..spec() }, Some(price));
        let mut turn = calls(&["write"]);
        turn.usage = Usage { input_tokens: Some(10), output_tokens: Some(1), ..Usage::default() };
        hand.answer(turn.clone()).tools_end(ToolStatus::Error, "no");
        turn.usage.input_tokens = Some(200_000);
        hand.answer(turn).at(5).tools_end(ToolStatus::Error, "no");
        let mut expected: Vec<Termination> = Vec::new();
        for termination in PRE_TURN[first..].iter().map(|check| check.termination()) {
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
fn check_table_matches_documentation() {
    let page = include_str!("../../../../docs/src/model.md");
    let (_, list) = page.split_once("Before the next turn, in this order:").unwrap();
    // The list continues with compaction and the hook, whose lines do not begin with a name.
    let documented: Vec<&str> = list
        .trim_start()
        .lines()
        .map_while(|line| line.split_once(". `")?.1.strip_suffix('`'))
        .collect();
    let checks = Run::new(spec()).checks();
    let checked: Vec<&str> = checks.iter().map(|check| check.limit).collect();
    assert_eq!(checked, documented, "docs/src/model.md lists the limits in another order");
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
    tools.push(ToolPolicy {
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
fn unaffordable_retry_is_not_awaited() {
    let limits = Limits {
        max_budget_usd: Some(1.0),
        timeout: Some(Duration::from_secs(10)),
        ..Limits::default()
    };
    let mut hand = Hand::start(RunSpec { limits, ..spec() }, None);
    let call = hand.call();
    let error = ModelError {
        retry_after_ms: Some(30_000),
        ..ModelError::new(ErrorClass::Overloaded, "busy")
    };
    let mut partial = said("", SignalReason::ErrorTermination);
    partial.cost = Some(NanoUsd::from_usd(1.0));
    hand.feed(EventKind::TurnFailed { call, error, partial: Some(Box::new(partial)) });
    assert_eq!(hand.ended(), Termination::ErrorMaxBudgetUsd);
    let waits = hand.effects.iter().any(|e| {
        matches!(e, Effect::Emit(RunEvent::AttemptFailed { retry_in_ms, .. }) if retry_in_ms.is_some())
    });
    assert!(!waits, "{:?}", hand.effects);
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
    spec.tools[1].permission = Permission::Ask;
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
            Effect::Emit(RunEvent::ToolEnded { call_id, status, duration_ms, .. }) => {
                Some((call_id.as_str(), *status, *duration_ms))
            }
            _ => None,
        })
        .collect();
    // The call that never began was not reported.
    assert_eq!((running, told), (1, vec![("c0", ToolStatus::Aborted, 40)]));
}

#[test]
fn cut_call_lists_reached_ceiling() {
    let limits = Limits { max_tokens: Some(900), ..Limits::default() };
    let mut hand = Hand::start(RunSpec { limits, reserve: true, ..spec() }, None);
    let mut paused = said("more", SignalReason::Paused);
    (paused.usage.input_tokens, paused.usage.output_tokens) = (Some(5), Some(5));
    hand.answer(paused);
    let call = hand.call();
    hand.feed(EventKind::Delta { call, delta: TurnDelta::Reasoning(4000) });
    hand.feed(EventKind::Cancel);
    assert_eq!(hand.ended(), Termination::Cancelled);
    assert_eq!(hand.outcome().usage.total_tokens(), 900);
    assert_eq!(hand.outcome().also, [Termination::ErrorMaxTokens]);
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

#[test]
fn only_content_resets_the_stall_clock() {
    let mut hand = Hand::start(spec(), None);
    let call = hand.call();
    hand.at(50_000).feed(EventKind::Delta { call, delta: TurnDelta::Text("word".into()) });
    for empty in
        [TurnDelta::Text(String::new()), TurnDelta::Reasoning(0), TurnDelta::ToolArguments(0)]
    {
        hand.at(100_000).feed(EventKind::Delta { call, delta: empty });
    }
    hand.at(109_999).feed(EventKind::Tick);
    assert_eq!(hand.run().phase().as_str(), "calling");
    hand.at(110_000).feed(EventKind::Tick);
    assert_eq!(hand.run().phase().as_str(), "backoff");
    let named = hand.effects.iter().any(|e| {
        matches!(e, Effect::Emit(RunEvent::AttemptFailed { error, .. }) if error.message.contains("stall_timeout"))
    });
    assert!(named, "the clock that fired is named: {:?}", hand.effects);
    assert!(hand.effects.contains(&Effect::AbortModel { id: call }));
}

#[test]
fn permanent_error_is_not_retried() {
    for class in ErrorClass::ALL {
        let mut hand = Hand::start(spec(), None);
        hand.fail(class);
        if class.is_retryable() {
            assert_eq!(hand.run().phase().as_str(), "backoff", "{class}");
        } else {
            assert_eq!(hand.ended(), class.termination());
            assert_eq!(hand.outcome().model_calls, 1);
        }
    }
}

#[test]
fn completed_turn_resets_retry_count() {
    let mut hand = Hand::start(spec(), None);
    let mut ms = 0;
    for _ in 0..2 {
        for _ in 0..2 {
            hand.fail(ErrorClass::Overloaded);
            ms += 60_000;
            hand.at(ms).feed(EventKind::Tick);
        }
        hand.answer(calls(&["read"])).tools_end(ToolStatus::Ok, "r");
    }
    hand.fail(ErrorClass::Overloaded).at(ms + 60_000).feed(EventKind::Tick);
    hand.fail(ErrorClass::Overloaded).at(ms + 120_000).feed(EventKind::Tick);
    hand.fail(ErrorClass::Overloaded);
    assert_eq!(hand.ended(), Termination::ErrorDuringExecution);
    assert_eq!((hand.outcome().turns, hand.outcome().model_calls), (2, 9));
}

#[test]
fn wait_over_a_minute_ends_run() {
    let mut hand = Hand::start(spec(), None);
    let call = hand.call();
    let error = ModelError {
        retry_after_ms: Some(60_001),
        ..ModelError::new(ErrorClass::RateLimit, "later")
    };
    hand.feed(EventKind::TurnFailed { call, error, partial: None });
    assert_eq!(hand.ended(), Termination::ErrorDuringExecution);
    assert_eq!(hand.outcome().retry_after, Some(Duration::from_millis(60_001)));
}

#[test]
fn calls_of_truncated_turn_never_run() {
    for (reason, expected) in [
        (SignalReason::TokenLimitReached, Termination::ErrorOutputTruncated),
        (SignalReason::ContentFiltered, Termination::ErrorContentFiltered),
        (SignalReason::Unknown, Termination::ErrorDuringExecution),
    ] {
        let mut hand = Hand::start(spec(), None);
        let mut turn = calls(&["write"]);
        turn.signal = TerminationSignal::new(reason, Confidence::High);
        hand.answer(turn);
        assert_eq!(hand.ended(), expected);
        assert!(hand.started().is_empty());
        assert_eq!(results(hand.outcome()), [("c0".into(), ToolStatus::Skipped, false)]);
        assert_eq!(hand.outcome().tool_calls, 0);
    }
}

#[test]
fn lowered_cap_truncation_ends_as_budget() {
    let price = Price { output: NanoUsd::from_usd(1000.0), ..Price::default() };
    let limits = Limits { max_budget_usd: Some(1.0), ..Limits::default() };
    let spec = RunSpec { limits, reserve: true, output_cap: Some(4000), ..spec() };
    let mut hand = Hand::start(spec, Some(price));
    let cap = hand.cap().unwrap();
    assert!((256..=1000).contains(&cap), "{cap}");
    assert!(hand.run().reserved() <= NanoUsd::from_usd(1.0));
    let mut turn = said("half", SignalReason::TokenLimitReached);
    turn.usage = Usage { input_tokens: Some(5), output_tokens: Some(cap), ..Usage::default() };
    hand.answer(turn);
    assert_eq!(hand.ended(), Termination::ErrorMaxBudgetUsd);
    assert!(hand.outcome().cost <= NanoUsd::from_usd(1.0));
}

#[test]
fn unaffordable_call_is_not_made() {
    let price = Price { output: NanoUsd::from_usd(1000.0), ..Price::default() };
    // 255 tokens of output fit: one fewer than the smallest useful cap.
    let limits = Limits { max_budget_usd: Some(0.255), ..Limits::default() };
    let hand = Hand::start(RunSpec { limits, reserve: true, ..spec() }, Some(price));
    assert_eq!(hand.ended(), Termination::ErrorMaxBudgetUsd);
    assert_eq!(hand.outcome().model_calls, 0);
    // A thinking budget raises the smallest useful cap.
    let limits = Limits { max_tokens: Some(2000), ..Limits::default() };
    let hand =
        Hand::start(RunSpec { limits, reserve: true, thinking_budget: 4000, ..spec() }, None);
    assert_eq!(hand.ended(), Termination::ErrorMaxTokens);
}

#[test]
fn token_ceiling_counts_all_attempts() {
    let limits = Limits { max_tokens: Some(100), ..Limits::default() };
    let mut hand = Hand::start(RunSpec { limits, ..spec() }, None);
    let call = hand.call();
    let mut partial = said("half", SignalReason::ErrorTermination);
    partial.usage = Usage { input_tokens: Some(60), output_tokens: Some(40), ..Usage::default() };
    let error = ModelError::new(ErrorClass::IncompleteStream, "cut");
    hand.feed(EventKind::TurnFailed { call, error, partial: Some(Box::new(partial)) });
    assert_eq!(hand.ended(), Termination::ErrorMaxTokens);
    assert_eq!(hand.outcome().model_calls, 1);
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
fn exempt_tools_are_not_repetition() {
    let mut spec = spec();
    spec.tools[0].exempt_from_no_progress = true;
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
        spec.tools[0].timeout_argument = Some("timeout_seconds".to_owned());
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
    spec.tools[1].permission = Permission::Deny;
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
    spec.tools[0].permission = Permission::Ask;
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
    spec.tools.push(ToolPolicy {
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

#[test]
fn panicking_policy_is_reported_once() {
    #[derive(Clone)]
    struct Panics;
    impl TerminationPolicy for Panics {
        fn name(&self) -> &str {
            "panics"
        }
        fn should_terminate(&mut self, _: &StepResult, _: &StepContext) -> Verdict {
            panic!("asked to panic")
        }
        fn reset(&mut self) {}
    }
    let mut hand = Hand::start(RunSpec { policy: Some(Box::new(Panics)), ..spec() }, None);
    let mut turn = calls(&["read"]);
    turn.parts.push(Part::Text { text: "kept".into() });
    hand.answer(turn).tools_end(ToolStatus::Ok, "r");
    assert_eq!(hand.ended(), Termination::ErrorDuringExecution);
    assert!(hand.outcome().error_diagnostic.as_ref().unwrap().contains("asked to panic"));
    assert_eq!(hand.outcome().last_text.as_deref(), Some("kept"));
}

#[test]
fn panicking_policy_leaves_no_open_call() {
    #[derive(Clone)]
    struct Panics(u32);
    impl TerminationPolicy for Panics {
        fn name(&self) -> &str {
            "panics"
        }
        fn should_terminate(&mut self, _: &StepResult, _: &StepContext) -> Verdict {
            Verdict::Continue
        }
        fn begin_turn(&mut self) {
            self.0 += 1;
            assert!(self.0 < 2, "asked to panic");
        }
        fn on_delta(&mut self, text: &str, _: &StepContext) -> Option<Stop> {
            assert!(text.is_empty(), "asked to panic");
            None
        }
        fn reset(&mut self) {}
    }
    let with = || RunSpec { policy: Some(Box::new(Panics(0))), ..spec() };
    let mut hand = Hand::start(with(), None);
    let mut turn = calls(&["read"]);
    turn.parts.push(Part::Text { text: "and so".into() });
    hand.answer(turn);
    assert_eq!(hand.ended(), Termination::ErrorDuringExecution);
    assert_eq!(results(hand.outcome()), [("c0".into(), ToolStatus::Skipped, false)]);

    let mut hand = Hand::start(with(), None);
    hand.answer(calls(&["read"])).tools_end(ToolStatus::Ok, "read");
    assert_eq!(hand.ended(), Termination::ErrorDuringExecution);
    assert_eq!(hand.outcome().model_calls, 1);
}

#[test]
fn policy_sees_each_turn_once() {
    use std::sync::{Arc, Mutex};
    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<(i64, StepResult, Map<String, Value>)>>>);
    impl TerminationPolicy for Seen {
        fn name(&self) -> &str {
            "seen"
        }
        fn should_terminate(&mut self, step: &StepResult, context: &StepContext) -> Verdict {
            self.0.lock().unwrap().push((context.step, step.clone(), context.metrics.clone()));
            Verdict::Continue
        }
        fn reset(&mut self) {}
    }
    let seen = Seen::default();
    let mut hand = Hand::start(RunSpec { policy: Some(Box::new(seen.clone())), ..spec() }, None);
    let mut metrics = Map::new();
    metrics.insert("last_reward".into(), json!(0.5));
    hand.answer(calls(&["read"]));
    let (tool, _) = hand.started()[0].clone();
    let mut report = ToolReport::new(ToolStatus::Ok, "printed");
    report.metrics = metrics.clone();
    hand.feed(EventKind::ToolEnded { tool, report });
    hand.answer(stop("text"));
    let steps = seen.0.lock().unwrap();
    assert_eq!(steps.len(), 2);
    assert_eq!((steps[0].0, steps[0].1.outputs[0].output.as_str()), (0, "printed"));
    assert_eq!(steps[0].2, metrics);
    assert_eq!((steps[1].0, steps[1].1.output.as_deref()), (1, Some("text")));
    assert!(steps[1].2.is_empty(), "measurements are those of their own turn");
}

#[test]
fn run_is_one_pointer_wide() {
    assert_eq!(size_of::<Run>(), size_of::<usize>());
}

#[test]
fn bill_above_quote_is_reported() {
    let price = Price { output: NanoUsd::from_usd(10.0), ..Price::default() };
    let spec = RunSpec { reserve: true, output_cap: Some(1000), ..spec() };
    let mut hand = Hand::start(spec, Some(price));
    let mut turn = stop("x");
    turn.usage = Usage { input_tokens: Some(1), output_tokens: Some(1500), ..Usage::default() };
    hand.answer(turn);
    assert_eq!(hand.outcome().overrun, NanoUsd::from_usd(0.005));
}

fn starving(cap: u64) -> ModelTurn {
    let mut turn = said("", SignalReason::TokenLimitReached);
    turn.output_cap = Some(cap);
    turn.usage = Usage { input_tokens: Some(10), output_tokens: Some(cap), ..Usage::default() };
    turn
}

#[test]
fn starved_turn_gets_one_larger_cap() {
    let mut hand = Hand::start(spec(), None);
    hand.answer(starving(100));
    assert_eq!(hand.cap(), Some(400));
    hand.answer(starving(400));
    assert_eq!(hand.ended(), Termination::ErrorThinkingStarved);
    assert_eq!((hand.outcome().model_calls, hand.outcome().turns), (2, 0));
    assert_eq!(hand.outcome().usage.output_tokens, Some(500), "both attempts are charged");
}

#[test]
fn default_cap_stays_below_model_maximum() {
    // A ceiling that would allow more than any model generates.
    let limits = Limits { max_tokens: Some(10_000_000), ..Limits::default() };
    let capped =
        || RunSpec { limits: limits.clone(), reserve: true, max_output: Some(300), ..spec() };
    assert_eq!(Hand::start(capped(), None).cap(), Some(300));
    // The caller's cap stands.
    let mut hand = Hand::start(RunSpec { output_cap: Some(200), ..capped() }, None);
    assert_eq!(hand.cap(), Some(200));
    hand.answer(starving(200));
    assert_eq!(hand.cap(), Some(300), "four times as much is more than it gives");
    // Without a ceiling the provider's default stands.
    assert_eq!(Hand::start(RunSpec { max_output: Some(300), ..spec() }, None).cap(), None);
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
fn answer_of_older_attempt_is_dropped() {
    let mut hand = Hand::start(spec(), None);
    let old = hand.call();
    hand.fail(ErrorClass::ServerError).at(60_000).feed(EventKind::Tick);
    let new = hand.call();
    assert_ne!(old, new);
    hand.feed(EventKind::TurnEnded { call: old, turn: Box::new(stop("late")) });
    assert_eq!(hand.run().phase().as_str(), "calling");
    hand.feed(EventKind::TurnEnded { call: new, turn: Box::new(stop("in time")) });
    assert_eq!(hand.outcome().last_text.as_deref(), Some("in time"));
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

#[test]
fn least_shared_grant_is_enough() {
    for (input, output, thinking_budget) in [(1, 1, 0), (3_000_000, 999_999_999, 300), (7, 0, 0)] {
        let price = Price { input: NanoUsd(input), output: NanoUsd(output), ..Price::default() };
        let spec = RunSpec { reserve: true, shared_budget: true, thinking_budget, ..spec() };
        let mut hand = Hand::start(spec, Some(price));
        let reserve = hand.effects.iter().find_map(|effect| match effect {
            Effect::Reserve { id, least, .. } => Some((*id, *least)),
            _ => None,
        });
        let (id, least) = reserve.unwrap();
        hand.feed(EventKind::Reserved {
            id,
            granted: least,
            granted_tokens: None,
            refused_by: None,
        });
        assert!(hand.outcome.is_none(), "{least} of {price:?}: {:?}", hand.outcome());
        assert!(hand.cap().is_none_or(|cap| cap >= 256), "{:?}", hand.cap());
    }
}

#[test]
fn late_compaction_cost_is_booked() {
    for (at, termination) in [(0, None), (50, Some(Termination::ErrorTimeout))] {
        let mut spec = spec();
        let earlier = |id, role| Message::text(MessageId(id), role, "of no importance any more");
        spec.messages = vec![
            earlier(1, Role::User),
            earlier(2, Role::Assistant),
            Message::text(MessageId(3), Role::User, "do it"),
        ];
        spec.compaction.proactive = ProactiveCompaction::Ask;
        spec.limits.timeout = Some(Duration::from_millis(50));
        spec.shared_budget = true;
        let mut hand = Hand::start(spec, None);
        let compact = hand.effects.iter().find_map(|effect| match effect {
            Effect::Compact { id, .. } => Some(*id),
            _ => None,
        });
        let (id, cost) = (compact.unwrap(), NanoUsd(7));
        let messages = vec![Message::text(MessageId(3), Role::User, "do it")];
        let result = Compaction::Done { messages, cost, strategy: String::new() };
        hand.at(at).feed(EventKind::Compacted { id, result });
        let told = hand.effects.contains(&Effect::Settle { id, spent: cost, tokens: 0 });
        assert!(told, "the shared budget hears of it: {:?}", hand.effects);
        assert_eq!(hand.outcome.as_ref().map(|outcome| outcome.termination), termination);
        if termination.is_none() {
            hand.feed(EventKind::Cancel);
        }
        assert_eq!(hand.outcome().cost, cost);
    }
}
