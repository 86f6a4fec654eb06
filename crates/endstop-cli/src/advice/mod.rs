//! What each ending means and what to do about it: one table for the card, `explain`, `audit` and the
//! page of endings in the book, which a test compares with it.
//!
//! ```ignore
//! let facts = Facts::of(&outcome);
//! println!("why  {}\nnext {}", facts.meaning(), facts.next(again.as_ref()));
//! ```

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
    format!("(of your own run, since this is a demo) {next}")
}

/// What the advice about an ending depends on.
#[derive(Debug)]
pub(crate) struct Facts {
    termination: Termination,
    /// The layer and the name of what decided.
    layer: String,
    name: String,
    verified: Option<bool>,
    retry_after: Option<Duration>,
    provider: Option<String>,
    /// What would have let the next call be made.
    fits: Option<WouldFit>,
}

impl Facts {
    pub(crate) fn of(outcome: &Outcome) -> Facts {
        Facts {
            termination: outcome.termination,
            layer: outcome.decided_by.layer.clone(),
            name: outcome.decided_by.name.clone(),
            verified: outcome.verified,
            retry_after: outcome.retry_after,
            provider: outcome.provider.clone(),
            fits: outcome.would_fit,
        }
    }

    /// The same of an outcome as JSON. `None`: a newer version's ending, about which nothing is known.
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

    /// What the ending means, naming what decided if the ending alone does not tell.
    pub(crate) fn meaning(&self) -> String {
        // The name comes from configuration, a tool or a file.
        let name = visible(&self.name).replace('\n', " ");
        match (self.termination, self.layer.as_str()) {
            (Termination::ErrorDuringExecution, _) if self.name == "unknown_finish" => {
                "it is not known whether the answer is whole".to_owned()
            }
            (Termination::ErrorDuringExecution, "fault") => {
                format!("the code behind `{name}` failed")
            }
            (Termination::ErrorHalted, "policy") => format!("the policy `{name}` stopped the run"),
            (Termination::ErrorHalted, "tool") => format!("the tool `{name}` halted the run"),
            (Termination::ErrorHalted, "hook") if self.name == "approval" => {
                "the person who was asked halted the run".to_owned()
            }
            (Termination::ErrorHalted, "hook") => format!("the hook `{name}` halted the run"),
            (Termination::ErrorNoProgress | Termination::ErrorConsecutiveMistakes, "policy") => {
                format!("the policy `{name}` stopped the run: {}", meaning(self.termination))
            }
            (Termination::ErrorNoProgress, _) if self.name == "max_empty_turns" => {
                "the model gave blank answers".to_owned()
            }
            _ => meaning(self.termination).to_owned(),
        }
    }

    /// Whether the work is not done, or was found to be wrong.
    pub(crate) fn is_failure(&self) -> bool {
        !self.termination.is_success() || self.verified == Some(false)
    }

    /// Whether resuming the run is what to do about its ending.
    pub(crate) fn asks_for_resume(&self) -> bool {
        self.is_raised()
            || matches!(self.termination, Termination::Cancelled | Termination::Terminated)
            || self.termination == Termination::ErrorDuringExecution
                && matches!(self.layer.as_str(), "provider" | "caller")
    }

    /// The limit that a resumed run needs more of.
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
            && self.name != "shared_budget"
    }

    /// What to do now. `again` is a command that resumes the run and was found to be possible.
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
                "if this server means a whole answer by it, add --accept-unknown-finish".to_owned()
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
                "check the name of the model and the address".to_owned()
            }
            (Termination::ErrorProviderRejected, _, "quota_exhausted") => {
                "check the plan and the billing of the provider's account".to_owned()
            }
            (Termination::ErrorProviderAuth, ..) => {
                let name = self.provider.as_deref().unwrap_or("NAME");
                table().replace("NAME", &visible(name))
            }
            (Termination::ErrorHalted, "policy", name) => format!(
                "if it stopped too early, change the policy `{}`; if not, ask for less",
                visible(name)
            ),
            (Termination::ErrorConsecutiveMistakes, "policy", _) => {
                "read what the policy saw: the tools, the task or the policy may be wrong"
                    .to_owned()
            }
            (Termination::ErrorMaxBudgetUsd | Termination::ErrorMaxTokens, ..) => {
                self.fitting().unwrap_or_else(table)
            }
            _ => table(),
        }
    }

    /// Which ceiling or output cap would have let the next call be made.
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
