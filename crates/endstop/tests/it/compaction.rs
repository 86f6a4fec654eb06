//! When a conversation is shortened: before its window is full, or after the provider refused it.

use crate::support::agent;
use endstop::budget::SharedBudget;
use endstop::core::{Compaction, Message, NanoUsd, Price, ProactiveCompaction};
use endstop::hook::Compactor;
use endstop::testkit::{ScriptedModel, Turn};
use endstop::tool::{ToolContext, ToolOutput, tool_fn};
use endstop::{AgentBuilder, AgentLoop, Termination};
use serde_json::{Map, Value, json};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

/// Keeps the first message, and notes whether the provider had refused.
#[derive(Clone, Default)]
struct KeepFirst(Arc<Mutex<Vec<bool>>>);

impl Compactor for KeepFirst {
    fn compact(
        &self,
        mut messages: Vec<Message>,
        forced: bool,
    ) -> Pin<Box<dyn Future<Output = Compaction> + Send + '_>> {
        self.0.lock().unwrap().push(forced);
        messages.truncate(1);
        Box::pin(async move { Compaction::Done { messages, cost: NanoUsd::ZERO } })
    }
}

fn looking(builder: AgentBuilder) -> AgentBuilder {
    builder.tool(tool_fn("look", "Looks.", |_: Map<String, Value>, _: ToolContext| async {
        ToolOutput::ok("nothing")
    }))
}

/// A window of 1,000 tokens of which the first turn takes 850.
fn nearly_full() -> AgentBuilder {
    let turns = [Turn::call("look", &json!({})).usage(845, 5), Turn::text("Done.").usage(20, 2)];
    looking(AgentLoop::builder(ScriptedModel::new(turns).context_window(1_000)))
}

#[tokio::test]
async fn a_known_window_that_is_nearly_full_is_enough() {
    let compactor = KeepFirst::default();
    let agent = nearly_full().compactor(compactor.clone()).build().unwrap();
    let outcome = agent.run("look").unwrap().await;
    assert_eq!(outcome.termination, Termination::Stop);
    assert_eq!(*compactor.0.lock().unwrap(), [false], "once, and without a refusal");
}

#[tokio::test]
async fn it_can_be_switched_off_and_does_nothing_without_a_window() {
    let compactor = KeepFirst::default();
    let full = nearly_full()
        .compactor(compactor.clone())
        .proactive_compaction(ProactiveCompaction::Never)
        .build()
        .unwrap();
    assert_eq!(full.run("look").unwrap().await.termination, Termination::Stop);
    let turns = [Turn::call("look", &json!({})).usage(845, 5), Turn::text("Done.")];
    let plain = looking(agent(turns)).compactor(compactor.clone()).build().unwrap();
    assert_eq!(plain.run("look").unwrap().await.termination, Termination::Stop);
    assert!(compactor.0.lock().unwrap().is_empty());
}

/// Says that it did something, and did not.
struct KeepAll(Arc<Mutex<usize>>);

impl Compactor for KeepAll {
    fn compact(
        &self,
        messages: Vec<Message>,
        _: bool,
    ) -> Pin<Box<dyn Future<Output = Compaction> + Send + '_>> {
        *self.0.lock().unwrap() += 1;
        Box::pin(async move { Compaction::Done { messages, cost: NanoUsd::ZERO } })
    }
}

#[tokio::test]
async fn a_compaction_that_does_not_help_is_not_repeated() {
    let compactions = Arc::new(Mutex::new(0));
    let model = ScriptedModel::new([Turn::error(413, "too large")]).repeat_last();
    let agent =
        AgentLoop::builder(model).compactor(KeepAll(Arc::clone(&compactions))).build().unwrap();
    let outcome = agent.run("a long story").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorPromptTooLong, "{outcome:?}");
    assert_eq!((*compactions.lock().unwrap(), outcome.model_calls), (1, 2));
}

/// Has a model of its own shorten it, which costs something.
struct Summarises(NanoUsd);

impl Compactor for Summarises {
    fn compact(
        &self,
        messages: Vec<Message>,
        _: bool,
    ) -> Pin<Box<dyn Future<Output = Compaction> + Send + '_>> {
        Box::pin(async move { Compaction::Done { messages, cost: self.0 } })
    }
}

#[tokio::test]
async fn what_it_costs_is_booked_in_a_shared_budget() {
    let budget = SharedBudget::new(NanoUsd::from_usd(1.0));
    let price = Price { input: NanoUsd::from_usd(1.0), ..Price::default() };
    let model = ScriptedModel::new([Turn::text("Done.").usage(20, 2)]).price(price);
    let agent = AgentLoop::builder(model)
        .compactor(Summarises(NanoUsd(700)))
        .proactive_compaction(ProactiveCompaction::Ask)
        .shared_budget(budget.clone())
        .build()
        .unwrap();
    let outcome = agent.run("a long story").unwrap().await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    assert_eq!(outcome.cost, NanoUsd(700 + 20_000));
    assert_eq!((budget.spent(), budget.reserved()), (outcome.cost, NanoUsd::ZERO));
}
