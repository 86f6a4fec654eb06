//! The hand-over of a live run: its request, the hook and the budget that may refuse it, and a model
//! that does not answer.

use crate::journal::{echo, price};
use endstop::budget::SharedBudget;
use endstop::event::AgentEventKind;
use endstop::hook::{ConsultPoint, Hook, HookDecision, HookFuture, Hooks};
use endstop::testkit::{ScriptedModel, Turn};
use endstop::{Agent, AgentBuilder, Limits, NanoUsd, Termination};
use serde_json::json;
use std::time::Duration;

fn limits() -> Limits {
    Limits { max_turns: Some(1), wrap_up: true, ..Limits::default() }
}

/// An agent that uses up its only turn, and then answers with this.
fn wraps_up(then: Turn) -> AgentBuilder {
    let turns = [Turn::call("echo", &json!({"text": "a"})).usage(100, 10), then.usage(140, 20)];
    let model = ScriptedModel::new(turns).price(price());
    Agent::builder(model).tool(echo()).max_output_tokens(500).limits(limits())
}

#[tokio::test]
async fn hand_over_is_last_event_before_end() {
    let agent = wraps_up(Turn::text("Said a. Open: b.")).build().unwrap();
    let mut run = agent.run("go").unwrap();
    let mut last = Vec::new();
    while let Some(event) = run.next().await {
        if !event.kind.is_delta() {
            last.push(event.kind);
        }
    }
    let outcome = run.try_outcome().unwrap();
    let [.., AgentEventKind::HandOver { text, .. }, AgentEventKind::Finished { .. }] = &last[..]
    else {
        panic!("{last:?}")
    };
    assert_eq!(text, "Said a. Open: b.");
    assert_eq!(outcome.hand_over.as_ref(), Some(text));
    assert_eq!((outcome.termination, outcome.turns), (Termination::ErrorMaxTurns, 1));
    assert_eq!(outcome.usage.total_tokens(), 270, "it is paid for");
}

/// Refuses every request after the first.
struct OneRequest;

impl Hook for OneRequest {
    fn points(&self) -> Hooks {
        Hooks { pre_call: true, ..Hooks::default() }
    }
    fn consult(&self, point: ConsultPoint) -> HookFuture<'_> {
        Box::pin(async move {
            match point {
                ConsultPoint::PreCall { turn, .. } if turn > 1 => HookDecision::Deny("no".into()),
                _ => HookDecision::Proceed,
            }
        })
    }
}

#[tokio::test]
async fn hook_may_refuse_hand_over() {
    let agent = wraps_up(Turn::text("Said a.")).hook(OneRequest).build().unwrap();
    let outcome = agent.run("go").unwrap().outcome().await;
    assert_eq!((outcome.termination, outcome.hand_over), (Termination::ErrorMaxTurns, None));
    assert_eq!(outcome.model_calls, 1);
}

#[tokio::test]
async fn shared_budget_includes_hand_over() {
    let mut handed_over = Vec::new();
    for tenths_of_cents in (1..=20).rev() {
        let usd = f64::from(tenths_of_cents) / 1_000.0;
        let budget = SharedBudget::new(NanoUsd::from_usd(usd));
        let agent = wraps_up(Turn::text("Said a.")).shared_budget(budget).build().unwrap();
        let outcome = agent.run("go").unwrap().outcome().await;
        agent.settled().await;
        assert!(outcome.cost.to_usd() <= usd && !outcome.is_success(), "{outcome}");
        handed_over.push((outcome.turns, outcome.hand_over.is_some()));
    }
    // The smaller the budget, the less it pays for.
    handed_over.dedup();
    assert_eq!((handed_over.first(), handed_over.last()), (Some(&(1, true)), Some(&(0, false))));
}

#[tokio::test(start_paused = true)]
async fn silent_model_gives_no_hand_over() {
    let late = Turn::text("Said a.").after(Duration::from_secs(3600));
    let agent = wraps_up(late).build().unwrap();
    let outcome = agent.run("go").unwrap().outcome().await;
    assert_eq!((outcome.termination, outcome.hand_over), (Termination::ErrorMaxTurns, None));
    // The clock for the first content, ten minutes.
    assert_eq!(outcome.duration.as_secs(), 600);
    assert!(outcome.usage.estimated, "the call may have been billed");
}
