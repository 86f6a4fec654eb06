//! The next step after a run: the command that resumes it, or the advice of the table, made
//! specific by the facts.

use super::facts::Facts;
use super::resume::Again;
use crate::render::amounts::seconds;
use crate::visible::visible;
use endstop::core::limits::LimitRow;
use endstop::{
    NanoUsd, Outcome, Termination,
    core::{Decision, Layer},
    provider::ErrorClass,
};
use endstop_report::advice::advice;

/// Advice about a replay that diverged from its recording.
pub(crate) const AFTER_DIVERGENCE: &str = "give the task, the tools and the limits of the recorded run, or record the run again; --accept-divergence exits with the status of the replayed run";

/// Advice about a run of `endstop demo`, which has no flags of its own.
pub(crate) fn of_demo(next: &str) -> String {
    format!("(for a run of your own, because this is a demo) {next}")
}

impl Facts<'_> {
    /// Returns the next step. `again` is a command that resumes the run; it was checked to work.
    pub(crate) fn next(self, again: Option<&Again>) -> String {
        let Outcome { termination, decided_by, verified, retry_after, provider, .. } = self.0;
        let (termination, layer) = (*termination, decided_by.layer);
        let table = || advice(termination);
        if let Some(again) = again.filter(|_| self.asks_for_resume()) {
            let command = again.command();
            return match (termination, *retry_after) {
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
        match (termination, layer, &decided_by.decision) {
            (Termination::Stop | Termination::Submitted, ..) if *verified == Some(false) => {
                "read what the verifier printed, and run again with that in the task".to_owned()
            }
            (
                Termination::ErrorMaxBudgetUsd | Termination::ErrorMaxTokens,
                _,
                Decision::SharedBudget,
            ) => "raise the shared budget or run fewer agents at once; `endstop spend` shows the ceilings of the day".to_owned(),
            (Termination::ErrorDuringExecution, _, Decision::UnknownFinish) => {
                "if the answer is complete, add --accept-unknown-finish".to_owned()
            }
            (Termination::ErrorDuringExecution, Layer::Fault, _) => {
                "run again; if it fails again, fix the code that \"decided\" names, or report it"
                    .to_owned()
            }
            (Termination::ErrorDuringExecution, ..) if retry_after.is_some() => {
                let wait = seconds(retry_after.unwrap_or_default());
                format!("wait {wait} as the provider asks, and run again")
            }
            (
                Termination::ErrorDuringExecution,
                _,
                Decision::CallFailed(ErrorClass::Timeout),
            ) => {
                "run again; if it repeats, raise --stall-timeout or --turn-timeout, or check the provider's status".to_owned()
            }
            (
                Termination::ErrorProviderRejected,
                _,
                Decision::CallFailed(ErrorClass::NotFound),
            ) => {
                "check the model name and the address".to_owned()
            }
            (
                Termination::ErrorProviderRejected,
                _,
                Decision::CallFailed(ErrorClass::QuotaExhausted),
            ) => {
                "check the plan and the billing of the provider's account".to_owned()
            }
            (Termination::ErrorProviderAuth, ..) => {
                let name = provider.as_deref().unwrap_or("NAME");
                table().replace("NAME", &visible(name))
            }
            (Termination::ErrorHalted, Layer::Policy, policy) => format!(
                "if it stopped too early, change the policy `{}`; otherwise reduce the task",
                visible(policy.as_str())
            ),
            (Termination::ErrorConsecutiveMistakes, Layer::Policy, _) => {
                "read the policy's evidence: the tools, the task or the policy may be wrong"
                    .to_owned()
            }
            (Termination::ErrorMaxBudgetUsd | Termination::ErrorMaxTokens, ..) => {
                self.fitting().unwrap_or_else(table)
            }
            _ => self.other_limit().unwrap_or_else(table),
        }
    }

    /// Names the limit to raise if the table, which has one row per ending, names another limit.
    fn other_limit(self) -> Option<String> {
        let row = LimitRow::of(self.limit()?)?;
        let flag = format!("--{}", row.name.replace('_', "-"));
        let is_named = advice(self.0.termination).contains(&flag);
        (!is_named).then(|| format!("raise {flag}, or reduce the task"))
    }

    /// Names the ceiling or the output cap under which the next call would have been allowed.
    fn fitting(self) -> Option<String> {
        let fits = self.0.would_fit?;
        let ceiling = match self.0.termination {
            Termination::ErrorMaxBudgetUsd => {
                let usd = fits.max_budget.map(NanoUsd::to_usd);
                usd.map(|usd| format!("raise --max-budget-usd to {usd} or more"))
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
