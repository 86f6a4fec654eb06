//! The answer to a prompt: the stop reason of a run's ending, or an error.

use agent_client_protocol::v1::schema::{PromptResponse, StopReason};
use agent_client_protocol::{Error, ErrorCode};
use endstop::Outcome;
use endstop::wire::redact::KnownKeys;
use serde_json::{Map, Value};

/// The fields of an outcome that the editor has already received, or that are too large for it.
const LEFT_OUT: [&str; 6] =
    ["messages", "last_text", "deliverable", "structured", "summary", "type"];

/// Returns the answer to the prompt whose run ended so.
///
/// # Errors
/// The ending has no stop reason in the protocol's version 1. The error's `data` is the outcome.
pub(crate) fn answer(outcome: &Outcome, secrets: &KnownKeys) -> Result<PromptResponse, Error> {
    let facts = facts(outcome, secrets);
    let reason = match outcome.termination.as_acp().status {
        "end_turn" => StopReason::EndTurn,
        "max_tokens" => StopReason::MaxTokens,
        "max_turn_requests" => StopReason::MaxTurnRequests,
        "refusal" => StopReason::Refusal,
        "cancelled" => StopReason::Cancelled,
        // `error`, and any word that this version of the protocol does not have.
        _ => {
            let message = secrets.out_of_text(&first_line(outcome)).into_owned();
            return Err(Error::new(ErrorCode::INTERNAL_ERROR, message).data(facts));
        }
    };
    let meta = Map::from_iter([("endstop".to_owned(), facts)]);
    Ok(PromptResponse::new(reason).meta(meta))
}

/// Returns the first line of the outcome: the termination, and what decided it.
pub(crate) fn first_line(outcome: &Outcome) -> String {
    outcome.to_string().lines().next().unwrap_or_default().to_owned()
}

/// Returns the outcome without the conversation and the answer.
fn facts(outcome: &Outcome, secrets: &KnownKeys) -> Value {
    let Ok(Value::Object(mut facts)) = serde_json::to_value(outcome) else { return Value::Null };
    for name in LEFT_OUT {
        facts.remove(name);
    }
    // An editor shows these facts as they are, and most fields of a usual ending are empty.
    facts.retain(|_, value| !value.is_null());
    let mut facts = Value::Object(facts);
    secrets.cut(&mut facts);
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use endstop::Termination;
    use serde_json::json;

    fn outcome(termination: Termination) -> Outcome {
        let decided_by = json!({"layer": "limit", "decision": "max_turns", "evidence": "25 of 25"});
        let mut outcome: Outcome = serde_json::from_value(json!({
            "type": "outcome", "termination": "stop", "decided_by": decided_by, "run_id": "k3v9",
            "cost_usd": 0.5, "messages": [],
        }))
        .unwrap();
        outcome.termination = termination;
        outcome
    }

    #[test]
    fn only_successes_end_turn() {
        let keys = KnownKeys::default();
        for termination in Termination::all() {
            let outcome = outcome(*termination);
            let said = match answer(&outcome, &keys) {
                Ok(response) => {
                    let is_success = response.stop_reason == StopReason::EndTurn;
                    assert_eq!(is_success, termination.is_success(), "{termination}");
                    response.meta.unwrap().remove("endstop").unwrap()
                }
                Err(error) => error.data.unwrap(),
            };
            assert_eq!(said["termination"], termination.as_str());
            assert_eq!((&said["run_id"], &said["cost_usd"]), (&json!("k3v9"), &json!(0.5)));
            assert!(said.get("messages").is_none());
        }
    }

    #[test]
    fn secrets_do_not_reach_answer() {
        let mut outcome = outcome(Termination::ErrorProviderAuth);
        outcome.error_diagnostic = Some("401 for key sk-proj-4fQ9xYz12345678".to_owned());
        outcome.decided_by.evidence = "key sk-proj-4fQ9xYz12345678 refused".to_owned();
        let keys = KnownKeys::new(["sk-proj-4fQ9xYz12345678"]);
        let error = answer(&outcome, &keys).unwrap_err();
        let text = serde_json::to_string(&error).unwrap();
        assert!(!text.contains("4fQ9") && text.contains("[redacted]"), "{text}");
    }
}
