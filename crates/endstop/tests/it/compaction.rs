//! Compaction in runs: before the window is full, after the provider refused a prompt, and its
//! cost.

use crate::support::{agent, eventually};
use endstop::budget::SharedBudget;
use endstop::compaction::{CompactionRequest, InOrder, Summarise};
use endstop::core::history;
use endstop::event::AgentEventKind;
use endstop::hook::{CompactionFuture, Compactor};
use endstop::testkit::{ScriptedModel, Turn};
use endstop::tool::{ToolContext, ToolOutput, tool_fn};
use endstop::{
    Agent, AgentBuilder, BuildError, Message, MessageId, NanoUsd, Price, Role, Session,
    Termination,
    compaction::{Compaction, ProactiveCompaction},
};
use serde_json::{Map, Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Keeps the task and unanswered messages, and records if the provider had refused the prompt.
#[derive(Clone, Default)]
struct Forget(Arc<Mutex<Vec<bool>>>);

impl Compactor for Forget {
    fn compact(&self, request: CompactionRequest) -> CompactionFuture<'_> {
        self.0.lock().unwrap().push(request.forced);
        let open = history::open_from(&request.messages);
        let messages = request.messages.iter().enumerate();
        let kept = messages
            .filter(|(at, message)| *at >= open || request.task == Some(message.id))
            .map(|(_, message)| message.clone())
            .collect();
        Box::pin(async { Compaction::done("forget", kept) })
    }
}

/// Starts a conversation in which something of no importance was said.
fn after_small_talk(agent: &Agent) -> Session {
    let earlier = |id, role| Message::text(MessageId(id), role, "of no importance ".repeat(20));
    agent.session_from(vec![earlier(1, Role::User), earlier(2, Role::Assistant)]).unwrap()
}

fn looking(builder: AgentBuilder) -> AgentBuilder {
    builder.tool(tool_fn("look", "Looks.", |_: Map<String, Value>, _: ToolContext| async {
        ToolOutput::ok("nothing")
    }))
}

/// A model with a window of 1,000 tokens, of which the first turn uses this many.
fn filled(tokens: u64) -> AgentBuilder {
    let turns =
        [Turn::call("look", &json!({})).usage(tokens - 5, 5), Turn::text("Done.").usage(20, 2)];
    looking(Agent::builder(ScriptedModel::new(turns).context_window(1_000)))
}

#[tokio::test]
async fn compaction_starts_at_default_share() {
    for (tokens, due) in [(560, false), (600, true)] {
        let compactor = Forget::default();
        let agent = filled(tokens).compactor(compactor.clone()).build().unwrap();
        let mut handle = after_small_talk(&agent).run("look").unwrap();
        let mut told = Vec::new();
        while let Some(event) = handle.next().await {
            if let AgentEventKind::Compacted { before, after, strategy, forced, .. } = event.kind {
                told.push((before, after, strategy, forced));
            }
        }
        assert_eq!(handle.await.termination, Termination::Stop);
        let once = due.then_some(false);
        assert_eq!(*compactor.0.lock().unwrap(), once.into_iter().collect::<Vec<_>>());
        let event = due.then(|| (5, 3, "forget".to_owned(), false));
        assert_eq!(told, event.into_iter().collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn off_or_unknown_window_skips_compaction() {
    let compactor = Forget::default();
    let full = filled(850)
        .compactor(compactor.clone())
        .proactive_compaction(ProactiveCompaction::Never)
        .build()
        .unwrap();
    assert_eq!(after_small_talk(&full).run("look").unwrap().await.termination, Termination::Stop);
    let turns = [Turn::call("look", &json!({})).usage(845, 5), Turn::text("Done.")];
    let plain = looking(agent(turns)).compactor(compactor.clone()).build().unwrap();
    assert_eq!(after_small_talk(&plain).run("look").unwrap().await.termination, Termination::Stop);
    assert!(compactor.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn second_refused_prompt_ends_run() {
    let compactor = Forget::default();
    let model = ScriptedModel::new([Turn::error(413, "too large")]).repeat_last();
    let agent = looking(Agent::builder(model)).compactor(compactor.clone()).build().unwrap();
    let outcome = after_small_talk(&agent).run("a long story").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorPromptTooLong, "{outcome:?}");
    assert_eq!((&*compactor.0.lock().unwrap(), outcome.model_calls), (&vec![true], 2));
}

#[test]
fn invalid_share_is_refused() {
    for builder in [
        filled(600).least_compaction(0.0),
        filled(600).least_compaction(f64::NAN),
        filled(600).proactive_compaction(ProactiveCompaction::AtShare(1.5)),
    ] {
        let refused = builder.build().unwrap_err();
        assert!(matches!(&refused, BuildError::Share { .. }));
    }
}

fn price() -> Price {
    Price { input: NanoUsd::from_usd(1.0), output: NanoUsd::from_usd(10.0), ..Price::default() }
}

/// Starts a conversation in which much was said.
fn after_long_talk(agent: &Agent) -> Session {
    let said = |id: u64| {
        let role = if id % 2 == 1 { Role::User } else { Role::Assistant };
        Message::text(MessageId(id), role, "much was said ".repeat(100))
    };
    agent.session_from((1..=8).map(said).collect::<Vec<Message>>()).unwrap()
}

/// A loop that needs a summary before its first call, written by a separate model.
fn summarised(summary: Turn) -> AgentBuilder {
    let model = ScriptedModel::new([Turn::text("Done.").usage(100, 10)]).price(price());
    let summariser = ScriptedModel::new([summary]).price(price());
    Agent::builder(model)
        .compactor(InOrder::new().then(Summarise::by(summariser)))
        .context_window(3_000)
}

#[tokio::test]
async fn summary_cost_counts_for_run() {
    let budget = SharedBudget::new(NanoUsd::from_usd(1.0));
    let agent = summarised(Turn::text("Much was said.").usage(2_000, 20))
        .shared_budget(budget.clone())
        .build()
        .unwrap();
    let outcome = after_long_talk(&agent).run("Go on.").unwrap().await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    assert_eq!(outcome.compactions[0].strategy, "summarise");
    assert_eq!((outcome.turns, outcome.model_calls), (1, 1), "the summary is not a turn");
    assert_eq!(outcome.usage.total_tokens(), 2_130);
    assert_eq!(outcome.cost, NanoUsd::from_usd(0.0022 + 0.0002));
    assert_eq!((budget.spent(), budget.reserved()), (outcome.cost, NanoUsd::ZERO));
    let said = outcome.messages[0].plain_text();
    assert!(said.ends_with("Much was said."), "{said}");
}

#[tokio::test]
async fn full_ceiling_prevents_summary() {
    let limits = endstop::Limits { max_budget_usd: Some(0.02), ..Default::default() };
    let agent =
        summarised(Turn::text("never")).limits(limits).max_output_tokens(256).build().unwrap();
    let outcome = after_long_talk(&agent).run("Go on.").unwrap().await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    let failed = outcome.compactions[0].failed.as_deref().unwrap_or_default();
    assert!(failed.contains("ceiling on cost"), "{failed}");
    assert_eq!(outcome.cost, NanoUsd::from_usd(0.0002));
}

#[tokio::test]
async fn cancelled_summary_is_charged() {
    for terminate in [false, true] {
        let slow = Turn::pieces(&["It ", "was ", "all "]).pace(Duration::from_secs(3_600));
        let budget = SharedBudget::new(NanoUsd::from_usd(1.0));
        let agent = summarised(slow).shared_budget(budget.clone()).build().unwrap();
        let handle = after_long_talk(&agent).run("Go on.").unwrap();
        eventually("the summary is asked for", || budget.reserved() > NanoUsd::ZERO).await;
        if terminate {
            agent.terminate();
        } else {
            agent.cancel();
        }
        let outcome = handle.await;
        let stopped = if terminate { Termination::Terminated } else { Termination::Cancelled };
        assert_eq!(outcome.termination, stopped);
        assert!(outcome.cost > NanoUsd::ZERO && outcome.usage.estimated, "{outcome:?}");
        let upper = outcome.cost_upper.unwrap();
        assert!(upper > outcome.cost, "the rest of the summary may have been billed");
        assert_eq!((budget.spent(), budget.reserved()), (upper, NanoUsd::ZERO));
        assert_eq!(outcome.epoch, 0, "the conversation is as it was");
        agent.settled().await;
    }
}

/// Drops messages and reports a cost.
struct Costs(NanoUsd);

impl Compactor for Costs {
    fn compact(&self, request: CompactionRequest) -> CompactionFuture<'_> {
        Box::pin(async move {
            match Forget::default().compact(request).await {
                Compaction::Done { messages, strategy, .. } => {
                    Compaction::Done { messages, strategy, cost: self.0 }
                }
                other => other,
            }
        })
    }
}

#[tokio::test]
async fn compaction_cost_uses_shared_budget() {
    let budget = SharedBudget::new(NanoUsd::from_usd(1.0));
    let price = Price { input: NanoUsd::from_usd(1.0), ..Price::default() };
    let model = ScriptedModel::new([Turn::text("Done.").usage(20, 2)]).price(price);
    let agent = looking(Agent::builder(model))
        .compactor(Costs(NanoUsd(700)))
        .proactive_compaction(ProactiveCompaction::Ask)
        .shared_budget(budget.clone())
        .build()
        .unwrap();
    let outcome = after_small_talk(&agent).run("a long story").unwrap().await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    assert_eq!(outcome.cost, NanoUsd(700 + 20_000));
    assert_eq!((budget.spent(), budget.reserved()), (outcome.cost, NanoUsd::ZERO));
}
