//! Fallback models: when a run switches, what the next model gets, and how each is priced.

use crate::hand::{Hand, calls, spec, stop};
use endstop_core::replay;
use endstop_core::*;
use serde_json::json;
use std::time::Duration;

fn model(name: &str) -> FallbackModel {
    let (provider, model) = (Some("other".to_owned()), Some(name.to_owned()));
    FallbackModel { provider, model, ..FallbackModel::default() }
}

/// A run of `own/first` with these fallbacks.
fn with(fallbacks: Vec<FallbackModel>) -> RunSpec {
    let limits = Limits { max_retries: Some(1), retry_for: None, ..Limits::default() };
    let (provider, model) = (Some("own".to_owned()), Some("first".to_owned()));
    RunSpec { limits, provider, model, fallbacks, ..spec() }
}

fn price(usd: u64) -> Price {
    let (input, output) = (NanoUsd(usd * 1_000_000_000), NanoUsd(usd * 1_000_000_000));
    Price { input, output, ..Price::default() }
}

fn used(mut turn: ModelTurn, input: u64, output: u64) -> ModelTurn {
    (turn.usage.input_tokens, turn.usage.output_tokens) = (Some(input), Some(output));
    turn
}

fn thinking() -> Part {
    let json = json!({"type": "thinking", "thinking": "hm", "signature": "s"}).to_string();
    Part::Opaque { api: "anthropic-messages".to_owned(), json }
}

/// The switch among the effects: the model, the class and the number of removed parts.
fn switch(hand: &Hand) -> Option<(u32, Option<ErrorClass>, u32)> {
    hand.effects.iter().find_map(|effect| match effect {
        Effect::Emit(RunEvent::ModelSwitched { switch, .. }) => {
            Some((switch.fallback, switch.because, switch.removed_parts))
        }
        _ => None,
    })
}

fn opaque_parts(messages: &[Message]) -> usize {
    let parts = messages.iter().flat_map(|message| &message.parts);
    parts.filter(|part| matches!(part, Part::Opaque { .. })).count()
}

#[test]
fn used_up_retries_switch_model() {
    for class in [ErrorClass::Overloaded, ErrorClass::RateLimit, ErrorClass::ServerError] {
        let mut hand = Hand::start(with(vec![model("second")]), None);
        hand.fail(class);
        assert_eq!(switch(&hand), None, "{class:?} is retried first");
        hand.at(60_000).feed(EventKind::Tick).fail(class);
        assert_eq!(switch(&hand), Some((1, Some(class), 0)));
        assert!(hand.effects.contains(&Effect::SwitchModel { fallback: 1 }));
        assert_eq!(hand.run().fallback(), 1);
        hand.answer(stop("Done."));
        assert_eq!(hand.ended(), Termination::Stop);
        let outcome = hand.outcome();
        assert_eq!(
            (outcome.provider.as_deref(), outcome.model.as_deref()),
            (Some("other"), Some("second"))
        );
        let calls: Vec<u32> = outcome.models.iter().map(|one| one.calls).collect();
        assert_eq!(calls, [2, 1]);
    }
}

#[test]
fn unknown_model_switches_at_once() {
    let mut hand = Hand::start(with(vec![model("second")]), None);
    hand.fail(ErrorClass::NotFound);
    assert_eq!(switch(&hand), Some((1, Some(ErrorClass::NotFound), 0)));
}

#[test]
fn other_errors_do_not_switch() {
    for class in ErrorClass::ALL {
        let falls_back = matches!(
            class,
            ErrorClass::Overloaded
                | ErrorClass::RateLimit
                | ErrorClass::ServerError
                | ErrorClass::NotFound
        );
        let limits = Limits { max_retries: Some(0), retry_for: None, ..Limits::default() };
        let mut hand = Hand::start(RunSpec { limits, ..with(vec![model("second")]) }, None);
        hand.fail(class);
        assert_eq!(switch(&hand).is_some(), falls_back, "{class:?}");
        assert_eq!(hand.outcome.is_none(), falls_back, "{class:?}");
    }
}

#[test]
fn long_wait_switches_instead() {
    let error =
        ModelError { retry_after_ms: Some(120_000), ..ModelError::new(ErrorClass::RateLimit, "x") };
    let mut hand = Hand::start(with(vec![model("second")]), None);
    let call = hand.call();
    hand.feed(EventKind::TurnFailed { call, error, partial: None });
    assert_eq!(switch(&hand), Some((1, Some(ErrorClass::RateLimit), 0)));
    // A shorter wait that the run has no time for.
    let error =
        ModelError { retry_after_ms: Some(20_000), ..ModelError::new(ErrorClass::RateLimit, "x") };
    let timeout = Some(Duration::from_secs(10));
    let limits = Limits { timeout, max_retries: Some(1), ..Limits::default() };
    let mut hand = Hand::start(RunSpec { limits, ..with(vec![model("second")]) }, None);
    let call = hand.call();
    hand.feed(EventKind::TurnFailed { call, error, partial: None });
    assert_eq!(hand.run().fallback(), 1);
}

#[test]
fn fallback_stays_and_gets_own_retries() {
    let mut hand = Hand::start(with(vec![model("second"), model("third")]), None);
    hand.fail(ErrorClass::NotFound);
    hand.answer(calls(&["read"])).tools_end(ToolStatus::Ok, "ok");
    assert_eq!((switch(&hand), hand.run().fallback()), (None, 1), "the next turn stays");
    hand.fail(ErrorClass::Overloaded);
    assert_eq!(hand.run().phase(), RunPhase::Backoff, "the fallback has all retries");
    hand.at(60_000).feed(EventKind::Tick).fail(ErrorClass::Overloaded);
    assert_eq!(hand.run().fallback(), 2);
    hand.fail(ErrorClass::NotFound);
    assert_eq!(hand.ended(), Termination::ErrorProviderRejected, "no model is left");
    let outcome = hand.outcome();
    let names: Vec<&str> = outcome.models.iter().filter_map(|one| one.model.as_deref()).collect();
    assert_eq!(names, ["first", "second", "third"]);
    assert_eq!(outcome.models.iter().map(|one| one.calls).sum::<u32>(), outcome.model_calls);
}

#[test]
fn opaque_parts_of_others_are_removed() {
    let mut hand = Hand::start(with(vec![model("second")]), None);
    let mut turn = calls(&["read"]);
    turn.parts.insert(0, thinking());
    hand.answer(turn.clone()).tools_end(ToolStatus::Ok, "ok");
    assert_eq!(opaque_parts(hand.run().messages()), 1);
    let epoch = hand.run().epoch();
    hand.fail(ErrorClass::NotFound);
    assert_eq!(switch(&hand), Some((1, Some(ErrorClass::NotFound), 1)));
    assert_eq!(opaque_parts(hand.run().messages()), 0);
    assert_eq!(hand.run().epoch(), epoch + 1);
    assert_eq!(history::problem(hand.run().messages()), None);
    // The fallback keeps its own, until the run ends: the next run begins with another model.
    hand.answer(turn).tools_end(ToolStatus::Ok, "ok");
    assert_eq!(opaque_parts(hand.run().messages()), 1);
    hand.answer(stop("Done."));
    assert_eq!(opaque_parts(&hand.outcome().messages), 0);
}

#[test]
fn message_of_only_opaque_parts_goes() {
    let mut hand = Hand::start(with(vec![model("second")]), None);
    let mut turn = stop("");
    turn.parts = vec![thinking()];
    turn.signal.reason = SignalReason::Paused;
    hand.answer(turn).fail(ErrorClass::NotFound);
    assert_eq!(switch(&hand), Some((1, Some(ErrorClass::NotFound), 1)));
    assert_eq!(hand.run().messages().len(), 1);
}

#[test]
fn each_model_has_its_price() {
    let second = FallbackModel { price: Some(price(10)), ..model("second") };
    let mut hand = Hand::start(with(vec![second]), Some(price(1)));
    hand.answer(used(calls(&["read"]), 1_000, 0)).tools_end(ToolStatus::Ok, "ok");
    hand.fail(ErrorClass::NotFound).answer(used(stop("Done."), 2_000, 0));
    let outcome = hand.outcome();
    let costs: Vec<u64> = outcome.models.iter().map(|one| one.cost.0).collect();
    assert_eq!(costs, [1_000_000, 20_000_000]);
    assert_eq!(outcome.cost, NanoUsd(21_000_000));
    assert_eq!(outcome.cache, None);
    // A fallback whose price is not known.
    let mut hand = Hand::start(with(vec![model("second")]), Some(price(1)));
    hand.fail(ErrorClass::NotFound).answer(used(stop("Done."), 2_000, 0));
    let outcome = hand.outcome();
    assert!(outcome.cost_unknown && outcome.models[1].cost_unknown);
    assert!(!outcome.models[0].cost_unknown);
}

#[test]
fn ceiling_refuses_dear_fallback() {
    let second = FallbackModel { price: Some(price(1_000)), ..model("second") };
    let limits = Limits { max_budget_usd: Some(0.01), max_retries: Some(0), ..Limits::default() };
    let spec = RunSpec { limits, reserve: true, output_cap: Some(1_000), ..with(vec![second]) };
    let mut hand = Hand::start(spec, Some(price(1)));
    hand.fail(ErrorClass::Overloaded);
    assert_eq!(hand.ended(), Termination::ErrorMaxBudgetUsd);
    assert_eq!(hand.outcome().decided_by.decision, Decision::Limit(Limit::MaxBudgetUsd));
    assert!(hand.outcome().cost_upper <= Some(NanoUsd::from_usd(0.01)));
}

#[test]
fn smaller_window_is_compacted_first() {
    let second = FallbackModel { context_window: Some(5), ..model("second") };
    let compaction = CompactionSpec { reactive: true, ..CompactionSpec::default() };
    let mut hand = Hand::start(RunSpec { compaction, ..with(vec![second.clone()]) }, None);
    hand.answer(calls(&["read"])).tools_end(ToolStatus::Ok, &"x".repeat(500));
    hand.fail(ErrorClass::NotFound);
    let id = hand.effects.iter().find_map(|effect| match effect {
        Effect::Compact { id, forced: true, .. } => Some(*id),
        _ => None,
    });
    let id = id.expect("no compaction");
    hand.feed(EventKind::Compacted { id, result: Compaction::Failed("no".to_owned()) });
    assert_eq!(hand.ended(), Termination::ErrorPromptTooLong);
    // Without a compactor the provider decides.
    let mut hand = Hand::start(with(vec![second]), None);
    hand.fail(ErrorClass::NotFound).fail(ErrorClass::ContextLengthExceeded);
    assert_eq!(hand.ended(), Termination::ErrorPromptTooLong);
}

#[test]
fn hook_sees_request_to_fallback() {
    let hooks = Hooks { pre_call: true, ..Hooks::default() };
    let mut hand = Hand::start(RunSpec { hooks, ..with(vec![model("second")]) }, None);
    let id = hand.consulted();
    hand.feed(EventKind::Answered { id, answer: HookDecision::Proceed }).fail(ErrorClass::NotFound);
    assert_eq!(hand.run().phase(), RunPhase::ConsultingPreCall);
    assert_eq!(hand.run().fallback(), 1);
}

#[test]
fn cancel_after_switch_ends_run() {
    let mut hand = Hand::start(with(vec![model("second")]), None);
    hand.fail(ErrorClass::NotFound).feed(EventKind::Cancel);
    assert_eq!(hand.ended(), Termination::Cancelled);
    assert_eq!(hand.outcome().models.len(), 2);
}

/// The events of a run that switches to its first fallback, up to its call.
fn until_switch() -> Vec<Event> {
    let event = |ms, kind| Event::new(Duration::from_millis(ms), kind);
    let failed = |call| EventKind::TurnFailed {
        call: EffectId(call),
        error: ModelError::new(ErrorClass::NotFound, "x"),
        partial: None,
    };
    vec![
        event(0, EventKind::Start { seed: 1, price: Some(price(1)), wall_ms: None }),
        event(5, failed(1)),
    ]
}

#[test]
fn interrupted_run_stays_with_fallback() {
    let second = FallbackModel { price: Some(price(7)), ..model("second") };
    let spec = || with(vec![second.clone(), model("third")]);
    let resumption = Resumption { price: Some(price(2)), ..Resumption::default() };
    let on = replay::resume(spec, until_switch(), resumption).unwrap();
    let Step::Continue(run) = on.step else { panic!("it ended") };
    assert_eq!((run.fallback(), run.price()), (1, Some(price(7))));
    assert!(on.perform.iter().any(|effect| matches!(effect, Effect::CallModel { .. })));
    // With other fallbacks it begins with its own model again, at the new price.
    let fallbacks = Some(vec![model("fourth")]);
    let resumption = Resumption { price: Some(price(2)), fallbacks, ..Resumption::default() };
    let on = replay::resume(spec, until_switch(), resumption).unwrap();
    let Step::Continue(run) = on.step else { panic!("it ended") };
    assert_eq!((run.fallback(), run.price()), (0, Some(price(2))));
}

#[test]
fn ended_run_resumes_with_own_model() {
    let spec = || with(vec![model("second")]);
    let mut events = until_switch();
    let last = EventKind::TurnFailed {
        call: EffectId(2),
        error: ModelError::new(ErrorClass::NotFound, "x"),
        partial: None,
    };
    events.push(Event::new(Duration::from_millis(9), last));
    let mut replay = Replay::new(spec());
    for event in &events {
        replay.feed(event.clone());
    }
    let ended = replay.outcome().map(|outcome| outcome.termination);
    assert_eq!(ended, Some(Termination::ErrorProviderRejected));
    let on = replay::resume(spec, events, Resumption::default()).unwrap();
    let Step::Continue(run) = on.step else { panic!("it ended") };
    assert_eq!((run.fallback(), run.phase()), (1, RunPhase::Backoff), "until the next call");
    let mut effects = Vec::new();
    let Step::Continue(run) =
        run.handle(Event::new(Duration::from_secs(60), EventKind::Tick), &mut effects)
    else {
        panic!("it ended")
    };
    assert_eq!((run.fallback(), run.phase()), (0, RunPhase::Calling));
    assert!(effects.contains(&Effect::SwitchModel { fallback: 0 }));
    assert_eq!(run.price(), Some(price(1)));
}

#[test]
fn older_specification_has_no_fallbacks() {
    let mut json = serde_json::to_value(with(vec![])).unwrap();
    assert!(json.as_object_mut().unwrap().remove("fallbacks").is_none(), "none are written");
    let read: RunSpec = serde_json::from_value(json).unwrap();
    assert!(read.fallbacks.is_empty());
    let written = serde_json::to_value(with(vec![model("second")])).unwrap();
    let read: RunSpec = serde_json::from_value(written).unwrap();
    assert_eq!(read.fallbacks, [model("second")]);
}

#[test]
fn random_runs_switch_models() {
    crate::kernel_laws::silence_scripted_panics();
    // The numbers change with every new choice of the worlds; what counts is that both occur.
    let played = (0..600).filter_map(|seed| crate::world::play(seed).ok());
    let used: Vec<usize> = played.map(|played| played.outcome.models.len()).collect();
    let switched = used.iter().filter(|models| **models > 1).count();
    let twice = used.iter().filter(|models| **models > 2).count();
    assert!(switched > 20 && twice > 0, "{switched} runs with a switch, {twice} with two");
}
