//! Fallback models over real servers: the requests that each format gets, ceilings, and the end of a
//! run in the middle of a switch.

use crate::journal::{echo, price};
use crate::support::HANG;
use endstop::event::AgentEventKind;
use endstop::provider::http::HttpProvider;
use endstop::testkit::{ScriptedModel, Server, Turn, strict};
use endstop::{Agent, BuildError, Limits, Outcome, Part, Termination};
use serde_json::json;
use std::time::Duration;

const FORMATS: [&str; 4] = ["openai-chat", "openai-responses", "anthropic-messages", "gemini"];

/// A model of a scripted server, whose calls of Gemini need signatures.
fn model(server: &Server, api: &str) -> HttpProvider {
    let name = if api == "gemini" { "gemini-3-script" } else { "script" };
    let options = HttpProvider::builder(name).api(api).base_url(server.base_url());
    options.env(|_| None).build().unwrap()
}

/// A turn with reasoning, text and two calls.
fn works(at: &str) -> Turn {
    Turn::text(format!("I look at {at}."))
        .reasoning("Let me think.")
        .and_call("echo", &json!({"text": at}))
        .and_call("echo", &json!({"text": "and more"}))
}

fn gone() -> Turn {
    Turn::error(404, json!({"error": {"message": "no such model"}}).to_string())
}

#[tokio::test]
async fn each_format_accepts_history_of_others() {
    for first in FORMATS {
        for second in FORMATS {
            for third in FORMATS {
                if first == second || second == third || first == third {
                    continue;
                }
                let servers = [
                    Server::script([works("a"), works("b"), gone()]).unwrap(),
                    Server::script([works("c"), gone()]).unwrap(),
                    Server::script([works("d"), Turn::text("Done.")]).unwrap(),
                ];
                let [one, two, three] = &servers;
                let agent = Agent::builder(model(one, first))
                    .fallback(model(two, second))
                    .fallback(model(three, third))
                    .tool(echo())
                    .build()
                    .unwrap();
                let mut run = agent.run("go").unwrap();
                let mut removed = Vec::new();
                while let Some(event) = run.next().await {
                    if let AgentEventKind::ModelSwitched { switch, .. } = event.kind {
                        removed.push(switch.removed_parts);
                    }
                }
                let outcome = run.try_outcome().unwrap();
                let names = format!("{first}, {second}, {third}");
                assert_eq!(outcome.termination, Termination::Stop, "{names}: {}", outcome);
                assert_eq!((outcome.turns, outcome.tool_calls), (5, 8), "{names}");
                let calls: Vec<u32> = outcome.models.iter().map(|one| one.calls).collect();
                assert_eq!(calls, [3, 2, 2], "{names}");
                for (server, api) in servers.iter().zip([first, second, third]) {
                    for request in server.requests() {
                        assert_eq!(strict::problem(api, &request.body), None, "{names}: {api}");
                    }
                }
                // Chat has no parts that only it can read in this script; the others have.
                for (removed, api) in removed.into_iter().zip([first, second]) {
                    assert_eq!(removed > 0, api != "openai-chat", "{names}: {api}");
                }
                let opaque = |part: &Part| matches!(part, Part::Opaque { .. });
                assert!(!outcome.messages.iter().any(|message| message.parts.iter().any(opaque)));
            }
        }
    }
}

#[tokio::test]
async fn overloaded_server_is_left_after_retries() {
    let busy = || Turn::error(529, json!({"error": {"type": "overloaded_error"}}).to_string());
    let first = Server::script([busy(), busy(), busy()]).unwrap();
    let second = Server::script([Turn::text("Done.")]).unwrap();
    let limits = Limits { max_retries: Some(1), ..Limits::default() };
    let agent = Agent::builder(model(&first, "anthropic-messages"))
        .fallback(model(&second, "openai-chat"))
        .limits(limits)
        .build()
        .unwrap();
    let outcome = agent.run("go").unwrap().outcome().await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome}");
    assert_eq!((first.requests().len(), second.requests().len()), (2, 1));
    // The next run begins with the agent's own model.
    let limits = Limits { max_retries: Some(0), ..Limits::default() };
    let agent = Agent::builder(model(&first, "anthropic-messages")).limits(limits).build().unwrap();
    assert!(!agent.run("go").unwrap().outcome().await.is_success());
    assert_eq!(first.requests().len(), 3);
}

#[test]
fn cost_ceiling_needs_price_of_fallback() {
    let limits = Limits { max_budget_usd: Some(1.0), ..Limits::default() };
    let builder = || Agent::builder(ScriptedModel::new([]).price(price())).limits(limits.clone());
    let refused = builder().fallback(ScriptedModel::new([])).build().unwrap_err();
    assert!(matches!(refused, BuildError::NoFallbackPrice { .. }), "{refused}");
    let text = refused.to_string();
    assert!(text.contains("max_budget_usd") && text.contains("fallback `"), "{text}");
    assert!(builder().fallback(ScriptedModel::new([]).price(price())).build().is_ok());
}

#[tokio::test]
async fn cancel_stops_call_of_fallback() {
    let first = Server::script([gone()]).unwrap();
    let second = Server::script([Turn::text("Done.").after(HANG)]).unwrap();
    let agent = Agent::builder(model(&first, "openai-responses"))
        .fallback(model(&second, "gemini"))
        .build()
        .unwrap();
    let run = agent.run("go").unwrap();
    assert!(second.until(|server| server.requests().len() == 1).await);
    run.cancel();
    let outcome = run.outcome().await;
    assert_eq!(outcome.termination, Termination::Cancelled);
    assert_eq!(outcome.models.len(), 2);
    assert!(second.until(|server| server.open_connections() == 0).await);
}

fn hands_over(outcome: &Outcome) -> Option<&str> {
    outcome.hand_over.as_deref()
}

#[tokio::test]
async fn hand_over_and_verifier_use_fallback() {
    let first = Server::script([gone()]).unwrap();
    let second = Server::script([Turn::text("One."), works("a"), Turn::text("Left: b.")]).unwrap();
    let limits =
        Limits { max_turns: Some(2), wrap_up: true, verify_rounds: Some(3), ..Limits::default() };
    let verifier =
        |_: Option<String>| async { endstop::verifier::Verification::rejected("not yet") };
    let agent = Agent::builder(model(&first, "gemini"))
        .fallback(model(&second, "anthropic-messages"))
        .verifier(verifier)
        .tool(echo())
        .limits(limits)
        .build()
        .unwrap();
    let outcome = agent.run("go").unwrap().outcome().await;
    assert_eq!(outcome.termination, Termination::ErrorMaxTurns, "{outcome}");
    assert_eq!(hands_over(&outcome), Some("Left: b."));
    assert_eq!((first.requests().len(), second.requests().len()), (1, 3));
    for request in second.requests() {
        assert_eq!(strict::problem("anthropic-messages", &request.body), None);
    }
    assert_eq!(outcome.models.iter().map(|one| one.calls).sum::<u32>(), outcome.model_calls);
}

#[tokio::test]
async fn fallback_summarises_for_its_window() {
    // The own model has room for the result, and the fallback has not.
    let own = ScriptedModel::new([
        Turn::call("echo", &json!({"text": "x".repeat(4_000)})),
        Turn::error(404, "gone"),
    ]);
    let next = ScriptedModel::new([Turn::text("In short."), Turn::text("Done.")]);
    let agent = Agent::builder(own.context_window(200_000))
        .fallback(next.context_window(700))
        .compaction(&endstop::compaction::CompactionConfig::default())
        .tool(echo())
        .build()
        .unwrap();
    let outcome = tokio::time::timeout(HANG, agent.run("go").unwrap().outcome()).await.unwrap();
    assert!(outcome.compactions.iter().any(|one| one.forced), "{outcome}");
    assert!(outcome.duration < Duration::from_secs(60));
}
