//! Terminations, their categories and their causes, checked with the conformance vectors.

use crate::hand::{Hand, calls, said, spec, stop};
use crate::vectors::{assert_differences, cases, id};
use endstop_core::{
    Category, Effect, ErrorClass, Limits, NanoUsd, RunEvent, SignalReason, Termination, ToolStatus,
};
use serde_json::{Value, json};

/// Cases in which Endstop differs from the original, with its result and the reason.
const DIFFERS: &[(&str, &str)] = &[
    // A name from another version is a failure that must not be retried.
    ("unk-bogus", "fatal"),
    ("unk-error_cancelled", "fatal"),
    ("unk-Stop", "fatal"),
    // Retrying a request that the provider rejects does not help.
    ("http-404", "error_provider_rejected"),
    ("http-400", "error_provider_rejected"),
    ("http-422", "error_provider_rejected"),
    // A budget of zero allows no call, even if the cost of the call is not known.
    ("budget-nil-cost", "exceeded"),
];

/// Returns the error class of a status alone. The body can make it more precise, but only
/// `endstop-wire` reads bodies.
fn class(status: u64) -> ErrorClass {
    match status {
        401 => ErrorClass::Authentication,
        403 => ErrorClass::Permission,
        404 => ErrorClass::NotFound,
        408 => ErrorClass::Timeout,
        413 => ErrorClass::RequestTooLarge,
        429 => ErrorClass::RateLimit,
        400..=499 => ErrorClass::InvalidRequest,
        500..=599 => ErrorClass::ServerError,
        _ => ErrorClass::UnknownError,
    }
}

/// Returns `true` if the kernel classifies the turn as one that spent its output on reasoning.
fn starved(input: &Value) -> bool {
    let mut spec = spec();
    spec.output_cap = input["cap"].as_u64();
    let mut hand = Hand::start(spec, None);
    let reason = match input["finish_reason"].as_str() {
        Some("length") => SignalReason::TokenLimitReached,
        Some("stop") => SignalReason::NaturalCompletion,
        None => SignalReason::Unknown,
        Some(other) => panic!("{other}"),
    };
    let mut turn = said(input["text"].as_str().unwrap_or_default(), reason);
    turn.usage.output_tokens = input["output_tokens"].as_u64();
    if input["tool_calls"] == 1 {
        turn.parts.extend(calls(&["read"]).parts);
    }
    hand.answer(turn);
    let again = hand.effects.iter().any(|effect| {
        matches!(effect, Effect::Emit(RunEvent::AttemptFailed { error, .. })
            if error.message.contains("starvation"))
    });
    again || hand.outcome.is_some_and(|o| o.termination == Termination::ErrorThinkingStarved)
}

/// Returns `true` if a run with this cost ends because of its budget.
fn exceeded(input: &Value) -> bool {
    let mut spec = spec();
    let max_budget_usd = input["cap"].as_f64();
    spec.limits = Limits { max_budget_usd, ..Limits::default() };
    let mut hand = Hand::start(spec, Some(endstop_core::Price::default()));
    if hand.outcome.is_none() {
        let mut turn = calls(&["read"]);
        turn.cost = input["cost"].as_f64().map(NanoUsd::from_usd);
        hand.answer(turn).tools_end(ToolStatus::Ok, "read");
    }
    if hand.outcome.is_none() {
        hand.answer(stop("done"));
    }
    hand.ended() == Termination::ErrorMaxBudgetUsd
}

#[test]
fn vectors() {
    let mut found = Vec::new();
    let mut run = 0;
    for case in cases("terminations.json", 60) {
        let input = &case["input"];
        let expect = &case["expect"];
        let name = input["subtype"].as_str().unwrap_or_default();
        let (ours, expect) = match input["fn"].as_str().unwrap() {
            "category" => (json!({"category": Termination::category_str(name)}), expect.clone()),
            "success" => {
                let termination: Termination = name.parse().unwrap();
                (
                    json!({"success": termination.is_success(), "error": termination.is_error()}),
                    expect.clone(),
                )
            }
            "unknown" => {
                let success = Termination::is_success_str(name);
                let category = Termination::category_str(name);
                (
                    json!({"category": category, "success": success, "error": !success}),
                    expect.clone(),
                )
            }
            "all" => {
                // Endstop has all terminations of the original, and more.
                let theirs = expect["subtypes"].as_array().unwrap().iter();
                let unknown: Vec<&Value> = theirs
                    .filter(|t| t.as_str().unwrap().parse::<Termination>().is_err())
                    .collect();
                (json!(unknown), json!([]))
            }
            "doc" => {
                let values =
                    [Category::Success, Category::Retryable, Category::Capacity, Category::Fatal];
                (json!(values), expect["actual_values"].clone())
            }
            "http_status" => {
                let ours = class(input["status"].as_u64().unwrap()).termination();
                let theirs = expect["termination"].as_str().unwrap();
                (json!(ours), json!(theirs.split(' ').next()))
            }
            "detect_starvation" => (json!({"starved": starved(input)}), expect.clone()),
            "budget_exceeded" => (json!({"exceeded": exceeded(input)}), expect.clone()),
            other => panic!("{other}"),
        };
        run += 1;
        if ours != expect {
            found.push((id(&case).to_owned(), format!("{ours} for {expect}")));
        }
    }
    assert_eq!(run, 60);
    assert_differences(&found, DIFFERS);
}
