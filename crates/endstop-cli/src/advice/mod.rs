//! Advice about endings: the meaning of each ending and the next step. The card, `explain`, `audit`
//! and the endings page of the book share one table, and a test compares the book with it.

mod resume;
mod table;

pub(crate) use resume::{Again, in_journal, quoted};
pub(crate) use table::{advice, meaning};

use crate::card::{seconds, visible};
use endstop::{Outcome, Termination, WouldFit};
use serde_json::Value;
use std::time::Duration;

/// Advice about a run of `endstop demo`, which has no flags of its own.
pub(crate) fn of_demo(next: &str) -> String {
    format!("(for a run of your own, because this is a demo) {next}")
}

/// The parts of an outcome that the advice depends on.
#[derive(Debug)]
pub(crate) struct Facts {
    termination: Termination,
    /// The layer and the name of the component that decided.
    layer: String,
    name: String,
    verified: Option<bool>,
    retry_after: Option<Duration>,
    provider: Option<String>,
    /// The limits under which the next call would have been allowed.
    fits: Option<WouldFit>,
}

impl Facts {
    pub(crate) fn of(outcome: &Outcome) -> Facts {
        Facts {
            termination: outcome.termination,
            layer: outcome.decided_by.layer.to_string(),
            name: outcome.decided_by.name.clone(),
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

    /// Returns the next step. `again` is a command that resumes the run; it was checked to work.
    pub(crate) fn next(&self, again: Option<&Again>) -> String {
        let table = || advice(self.termination);
        if let Some(again) = again.filter(|_| self.asks_for_resume()) {
            let command = again.command();
            return match (self.termination, self.retry_after) {
                (Termination::Cancelled | Termination::Terminated, _) => {
                    format!("nothing is left running; to resume: {command}")
                }
                (Termination::ErrorDuringExecution, Some(wait)) => {
                    format!("wait {} as the provider asks, then resume: {command}", seconds(wait))
                }
                (Termination::ErrorDuringExecution, None) => format!(
                    "resume: {command}; if it fails again, check the address and the provider's status"
                ),
                _ => format!("resume with a higher limit: {command}"),
            };
        }
        match (self.termination, self.layer.as_str(), self.name.as_str()) {
            (Termination::Stop | Termination::Submitted, ..) if self.verified == Some(false) => {
                "read what the verifier printed, and run again with that in the task".to_owned()
            }
            (Termination::ErrorMaxBudgetUsd | Termination::ErrorMaxTokens, _, "shared_budget") => {
                "raise the shared budget, or run fewer agents at once".to_owned()
            }
            (Termination::ErrorDuringExecution, _, "unknown_finish") => {
                "if the answer is complete, add --accept-unknown-finish".to_owned()
            }
            (Termination::ErrorDuringExecution, "fault", _) => {
                "run again; if it fails again, fix the code that \"decided\" names, or report it"
                    .to_owned()
            }
            (Termination::ErrorDuringExecution, ..) if self.retry_after.is_some() => {
                let wait = seconds(self.retry_after.unwrap_or_default());
                format!("wait {wait} as the provider asks, and run again")
            }
            (Termination::ErrorDuringExecution, _, "timeout") => {
                "run again; if it repeats, raise --stall-timeout or --turn-timeout, or check the provider's status".to_owned()
            }
            (Termination::ErrorProviderRejected, _, "not_found") => {
                "check the model name and the address".to_owned()
            }
            (Termination::ErrorProviderRejected, _, "quota_exhausted") => {
                "check the plan and the billing of the provider's account".to_owned()
            }
            (Termination::ErrorProviderAuth, ..) => {
                let name = self.provider.as_deref().unwrap_or("NAME");
                table().replace("NAME", &visible(name))
            }
            (Termination::ErrorHalted, "policy", name) => format!(
                "if it stopped too early, change the policy `{}`; otherwise reduce the task",
                visible(name)
            ),
            (Termination::ErrorConsecutiveMistakes, "policy", _) => {
                "read the policy's evidence: the tools, the task or the policy may be wrong"
                    .to_owned()
            }
            (Termination::ErrorMaxBudgetUsd | Termination::ErrorMaxTokens, ..) => {
                self.fitting().unwrap_or_else(table)
            }
            _ => table(),
        }
    }

    /// Names the ceiling or the output cap under which the next call would have been allowed.
    fn fitting(&self) -> Option<String> {
        let fits = self.fits?;
        let ceiling = match self.termination {
            Termination::ErrorMaxBudgetUsd => {
                fits.max_budget_usd.map(|usd| format!("raise --max-budget-usd to {usd} or more"))
            }
            _ => fits.max_tokens.map(|tokens| format!("raise --max-tokens to {tokens} or more")),
        };
        let cap = fits
            .max_output_tokens
            .map(|cap| format!("ask for shorter answers: --max-output-tokens {cap} or less"));
        let either: Vec<String> = ceiling.into_iter().chain(cap).collect();
        (!either.is_empty()).then(|| either.join(", or "))
    }
}
