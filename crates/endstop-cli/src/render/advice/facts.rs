//! The parts of an outcome that the advice depends on, and the meaning of its ending.

use super::table::meaning;
use crate::visible::visible;
use endstop::{Outcome, Termination, WouldFit};
use serde_json::Value;
use std::time::Duration;

/// The parts of an outcome that the advice depends on.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(super) termination: Termination,
    /// The layer and the name of the component that decided.
    pub(super) layer: String,
    pub(super) name: String,
    pub(super) verified: Option<bool>,
    pub(super) retry_after: Option<Duration>,
    pub(super) provider: Option<String>,
    /// The limits under which the next call would have been allowed.
    pub(super) fits: Option<WouldFit>,
}

impl Facts {
    pub(crate) fn of(outcome: &Outcome) -> Facts {
        Facts {
            termination: outcome.termination,
            layer: outcome.decided_by.layer.to_string(),
            name: outcome.decided_by.decision.to_string(),
            verified: outcome.verified,
            retry_after: outcome.retry_after,
            provider: outcome.provider.clone(),
            fits: outcome.would_fit,
        }
    }

    /// Reads the same facts from an outcome as JSON. Returns `None` for the ending of a newer
    /// version, for which the table has no row.
    pub(crate) fn of_json(outcome: &Value) -> Option<Facts> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let by = &outcome["decided_by"];
        Some(Facts {
            termination: outcome["termination"].as_str()?.parse().ok()?,
            layer: text(&by["layer"]).unwrap_or_default(),
            name: text(&by["name"]).unwrap_or_default(),
            verified: outcome["verified"].as_bool(),
            retry_after: outcome["retry_after_ms"].as_u64().map(Duration::from_millis),
            provider: text(&outcome["provider"]),
            fits: serde_json::from_value(outcome["would_fit"].clone()).ok(),
        })
    }

    /// Describes the ending, and names the component that decided if the ending alone does not
    /// identify it.
    pub(crate) fn meaning(&self) -> String {
        // The name comes from configuration, a tool or a file, so it may hold control characters.
        let name = visible(&self.name).replace('\n', " ");
        match (self.termination, self.layer.as_str()) {
            (Termination::ErrorDuringExecution, _) if self.name == "unknown_finish" => {
                "the provider sent an unknown finish value, so the answer may be incomplete"
                    .to_owned()
            }
            (Termination::ErrorDuringExecution, "fault") => {
                format!("the code of `{name}` failed")
            }
            // The policy may have taken the result of a tool as the answer.
            (Termination::Submitted, "policy") => {
                format!("the policy `{name}` accepted the answer")
            }
            (Termination::ErrorHalted, "policy") => format!("the policy `{name}` stopped the run"),
            (Termination::ErrorHalted, "tool") => format!("the tool `{name}` halted the run"),
            (Termination::ErrorHalted, "hook") if self.name == "approval" => {
                "the user halted the run at an approval prompt".to_owned()
            }
            (Termination::ErrorHalted, "hook") => format!("the hook `{name}` halted the run"),
            // These endings usually come from a limit, so the policy must be named.
            (Termination::ErrorNoProgress | Termination::ErrorConsecutiveMistakes, "policy") => {
                format!("the policy `{name}` stopped the run: {}", meaning(self.termination))
            }
            (Termination::ErrorNoProgress, _) if self.name == "max_empty_turns" => {
                "the model gave blank answers".to_owned()
            }
            _ => meaning(self.termination).to_owned(),
        }
    }

    /// `true` if the work is not done, or if the verifier rejected it.
    pub(crate) fn is_failure(&self) -> bool {
        !self.termination.is_success() || self.verified == Some(false)
    }

    /// `true` if resuming the run is the right response to its ending.
    pub(crate) fn asks_for_resume(&self) -> bool {
        self.is_raised()
            || matches!(self.termination, Termination::Cancelled | Termination::Terminated)
            // A resume repeats the failed call. A fault in the code would only happen again.
            || self.termination == Termination::ErrorDuringExecution
                && matches!(self.layer.as_str(), "provider" | "caller")
    }

    /// The limit that must be raised before the run can be resumed.
    pub(crate) fn limit(&self) -> Option<&str> {
        self.is_raised().then_some(self.name.as_str())
    }

    fn is_raised(&self) -> bool {
        self.layer == "limit"
            && matches!(
                self.termination,
                Termination::ErrorMaxTurns
                    | Termination::ErrorMaxBudgetUsd
                    | Termination::ErrorMaxTokens
                    | Termination::ErrorTimeout
                    | Termination::ErrorMaxStructuredOutputRetries
            )
            // A shared budget is not a flag of this run, so the resume command could not raise it.
            && self.name != "shared_budget"
    }
}
