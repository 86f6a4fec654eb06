//! The notices: lines of JSON for a command, sentences for a webhook.
//!
//! ```text
//! sentence(&ended(&outcome)) // run 7kq2m9xe0p has ended: stop (success), 31 turns, $4.40
//! ```

use endstop::park::ParkRequest;
use endstop::{NanoUsd, Outcome};
use serde_json::{Value, json};

/// Returns the notice of a parked run, which is also its line of events.
pub(crate) fn parked(run_id: &str, request: &ParkRequest) -> Value {
    json!({"type": "run_parked", "run_id": run_id, "request": request})
}

/// Returns the notice of an ended run. The answer is not part of it, because it may be long.
pub(super) fn ended(outcome: &Outcome) -> Value {
    json!({
        "type": "run_ended",
        "run_id": outcome.run_id,
        "termination": outcome.termination,
        "category": outcome.category(),
        "verified": outcome.verified,
        "turns": outcome.turns,
        "cost_usd": outcome.known_cost().map(NanoUsd::to_usd),
        "cost_unknown": outcome.cost_unknown,
    })
}

/// Returns a notice as a sentence.
pub(super) fn sentence(notice: &Value) -> String {
    let text = |name: &str| notice[name].as_str().unwrap_or("?").to_owned();
    let run = text("run_id");
    match notice["type"].as_str() {
        Some("limit_near") => {
            let amount = |name: &str| match notice["limit"].as_str() {
                Some("max_budget_usd") => {
                    NanoUsd::from_usd(notice[name].as_f64().unwrap_or(0.0)).to_string()
                }
                Some("timeout") => format!("{} s", notice[name]),
                _ => notice[name].to_string(),
            };
            let (limit, percent) = (text("limit"), &notice["percent"]);
            format!(
                "run {run} has used {percent} % of {limit}: {} of {}",
                amount("used"),
                amount("of")
            )
        }
        Some("run_parked") => {
            let request = &notice["request"];
            let tool = request["tool"].as_str().map(|tool| format!(" for `{tool}`"));
            let kind = request["kind"].as_str().unwrap_or("a decision");
            format!("run {run} is parked: it waits for {kind}{}", tool.unwrap_or_default())
        }
        _ => {
            let cost = notice["cost_usd"].as_f64().map(|usd| NanoUsd::from_usd(usd).to_string());
            let cost = cost.unwrap_or_else(|| "cost unknown".to_owned());
            let verified = match notice["verified"].as_bool() {
                Some(true) => ", verified",
                Some(false) => ", rejected by its verifier",
                None => "",
            };
            let (ending, category) = (text("termination"), text("category"));
            let turns = &notice["turns"];
            format!("run {run} has ended: {ending} ({category}{verified}), {turns} turns, {cost}")
        }
    }
}
