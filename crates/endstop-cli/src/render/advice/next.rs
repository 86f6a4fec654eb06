//! The next step after a run: the command that resumes it, or the advice of the table, made
//! specific by the facts.

use super::facts::{Facts, Remedy};
use super::resume::{Again, Guarded, in_journal};
use crate::render::amounts::seconds;
use crate::visible::visible;
use endstop::{
    NanoUsd, Outcome, Termination,
    core::{Decision, Layer, Limit, limits::TABLE},
    provider::ErrorClass,
};
use endstop_report::advice::advice;
use std::path::Path;

/// Advice about a replay that diverged from its recording.
pub(crate) const AFTER_DIVERGENCE: &str = "give the task, the tools and the limits of the recorded run, or record the run again; --accept-divergence exits with the status of the replayed run";

/// Advice about an account whose quota is used up.
const QUOTA: &str = "check the plan and the billing of the provider's account";

/// Advice about a run of `endstop demo`, which has no flags of its own.
pub(crate) fn of_demo(next: &str) -> String {
    format!("in a real run: {next}")
}

/// Spells the flags in advice as settings of a profile of a standing proxy.
fn in_profile(step: &str, profile: &str) -> String {
    let mut names: Vec<(String, String)> = TABLE
        .iter()
        .map(|row| (format!("--{}", row.name.replace('_', "-")), format!("`limits.{}`", row.name)))
        .collect();
    names.push(("--price in=USD,out=USD".to_owned(), "`price = \"in=USD,out=USD\"`".to_owned()));
    // A longer name first, because a shorter one may be its beginning.
    names.sort_by_key(|(flag, _)| std::cmp::Reverse(flag.len()));
    let spelled = names.iter().fold(step.to_owned(), |text, (flag, name)| text.replace(flag, name));
    if spelled == step {
        return spelled;
    }
    format!("{spelled}; under [profile.{}] in the file of the proxy", visible(profile))
}

impl Facts<'_> {
    /// Returns the next step. `again` is a command that resumes the run; it was checked to work.
    /// `journal` is its journal, if commands need `--journal` to find it.
    pub(crate) fn next(self, again: Option<&Again>, journal: Option<&Path>) -> String {
        let Outcome { termination, decided_by, verified, retry_after, .. } = self.0;
        let (termination, layer) = (*termination, decided_by.layer);
        let table = || self.in_table();
        if let (Some(again), Some(remedy)) = (again, self.remedy()) {
            return self.with_command(remedy, again);
        }
        match (termination, layer, &decided_by.decision) {
            (Termination::Stop | Termination::Submitted, ..) if *verified == Some(false) => {
                "read what the verifier printed; --verify-rounds 3 gives it to the model, which tries again".to_owned()
            }
            (
                Termination::ErrorMaxBudgetUsd | Termination::ErrorMaxTokens,
                _,
                Decision::SharedBudget,
            ) => format!(
                "raise the shared budget or run fewer agents at once; `{}` shows the ceilings of the day",
                in_journal("endstop spend", journal)
            ),
            (_, _, Decision::UnknownPrice) => {
                "give the price of the model with --price in=USD,out=USD for a million tokens".to_owned()
            }
            (_, _, Decision::Refused) => {
                "change what \"decided\" names: the program's request, or the option that forbids it"
                    .to_owned()
            }
            (_, _, Decision::NoCall) => {
                "let the program use the address in OPENAI_BASE_URL, ANTHROPIC_BASE_URL or GOOGLE_GEMINI_BASE_URL, \
                 which guard sets for it; --allow-no-calls accepts a program that need not call a model"
                    .to_owned()
            }
            (Termination::ErrorNoProgress, _, Decision::Limit(Limit::MaxEmptyTurns)) => {
                "try another model; or raise --max-empty-turns".to_owned()
            }
            (Termination::ErrorDuringExecution, _, Decision::UnknownFinish) => {
                "if the answer is complete, add --accept-unknown-finish".to_owned()
            }
            (Termination::ErrorDuringExecution, Layer::Fault, _) => {
                "run again; if it fails again, fix the code that \"decided\" names, or report it"
                    .to_owned()
            }
            (Termination::ErrorMaxWindow, ..) if retry_after.is_some() => {
                let wait = seconds(retry_after.unwrap_or_default());
                format!("run again in {wait}, let it wait with --wait-for-window, or raise --max-window")
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
                QUOTA.to_owned()
            }
            // No cap was reached.
            (Termination::ErrorThinkingStarved, _, Decision::Limit(_)) => {
                "raise --thinking-timeout, or lower the model's thinking effort".to_owned()
            }
            // A schema is not the cause: the call was lost before it.
            (Termination::ErrorSchemaValidation, _, Decision::ToolCalls) => {
                "configure the server's tool parser and reasoning parser for the model, and run again"
                    .to_owned()
            }
            (Termination::ErrorDuringExecution, _, Decision::Paused) => {
                "run again; if the provider pauses again, give its own tools less work".to_owned()
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

    /// Returns the next step after a run of a guarded program that was not a success. The settings of requests are the
    /// program's own. A standing proxy has its settings in the `profile` of its file, and refuses them as flags.
    pub(crate) fn next_of_guarded(self, program: Guarded<'_>) -> Option<String> {
        let Outcome { termination, decided_by, verified, .. } = self.0;
        let step = match (termination, &decided_by.decision) {
            _ if termination.is_success() && *verified == Some(false) => {
                "read what the verifier printed, and give it to the program".to_owned()
            }
            (Termination::Cancelled | Termination::Terminated, _) | (_, Decision::Closed) => {
                return None;
            }
            _ if termination.is_success() => return None,
            (Termination::ErrorDuringExecution, Decision::NoCall) => return None,
            (Termination::ErrorMaxBudgetUsd | Termination::ErrorMaxTokens, Decision::Limit(_)) => {
                self.in_table()
            }
            (Termination::ErrorOutputTruncated, _) | (_, Decision::ThinkingStarved) => {
                "raise the output limit of the program".to_owned()
            }
            (_, Decision::UnknownFinish) => {
                "check the answer: its finish value is not known".to_owned()
            }
            _ => self.next(None, None),
        };
        if let Some(profile) = program.profile {
            return Some(in_profile(&step, profile));
        }
        let (flag, again) = match self.remedy() {
            // A higher limit alone does not remove the cause.
            Some(Remedy::Limit(
                limit @ (Limit::MaxConsecutiveMistakes | Limit::MaxUnproductiveTurns),
            )) => (None, program.again(Some(limit))),
            Some(Remedy::Limit(limit)) => (program.raised(limit), program.again(Some(limit))),
            Some(Remedy::Nothing) => (None, program.again(None)),
            Some(Remedy::OutputCap) => (None, None),
            None => (None, program.again(None).filter(|_| termination.is_success())),
        };
        Some(match (flag, again) {
            (Some(_), Some(command)) => format!("continue with a higher limit: {command}"),
            (None, Some(command)) => format!("{step}; to continue: {command}"),
            (Some(flag), None) => match flag.split_once(' ') {
                Some((name, value)) => step.replace(name, &format!("{name} to {value}")),
                None => step,
            },
            (None, None) => step,
        })
    }

    /// Returns the advice of the table, with the name of the provider.
    fn in_table(self) -> String {
        let advice = advice(self.0.termination);
        match self.0.provider.as_deref() {
            Some(name) => advice.replace("NAME", &visible(name)),
            None => advice,
        }
    }

    /// Returns the advice with a command that was checked to work.
    fn with_command(self, remedy: Remedy, again: &Again) -> String {
        let Outcome { termination, retry_after, .. } = self.0;
        let command = again.command();
        match remedy {
            Remedy::OutputCap => format!("repeat the turn with a higher output cap: {command}"),
            Remedy::Limit(Limit::AcceptUnknownFinish) => {
                format!("if the answer is complete, accept it: {command}")
            }
            Remedy::Limit(Limit::MaxContinuations) => {
                format!("let the model continue its answer: {command}")
            }
            Remedy::Limit(Limit::MaxEmptyTurns) => {
                format!("try another model; to continue nevertheless: {command}")
            }
            // A higher limit alone does not remove the cause.
            Remedy::Limit(Limit::MaxConsecutiveMistakes | Limit::MaxUnproductiveTurns) => {
                format!("{}; to continue nevertheless: {command}", self.in_table())
            }
            Remedy::Limit(_) if again.repeats_turn() => {
                format!("repeat the turn with a higher limit: {command}")
            }
            Remedy::Limit(_) => format!("resume with a higher limit: {command}"),
            Remedy::Nothing => match (termination, retry_after) {
                (Termination::Cancelled | Termination::Terminated, _) => {
                    format!("nothing is left running; to resume: {command}")
                }
                (_, Some(wait)) => {
                    format!("wait {} as the provider asks, then resume: {command}", seconds(*wait))
                }
                (Termination::ErrorDuringExecution, None) => format!(
                    "resume: {command}; if it fails again, check the address and the provider's status"
                ),
                (Termination::ErrorCompactionFailed, None) => {
                    format!("{}; to try the compaction again: {command}", self.in_table())
                }
                (Termination::ErrorProviderRejected, None) => {
                    format!("{QUOTA}, and resume: {command}")
                }
                _ => format!("{}, and resume: {command}", self.in_table()),
            },
        }
    }

    /// Names the limit to raise if the table, which has one row per ending, names another limit.
    fn other_limit(self) -> Option<String> {
        let flag = format!("--{}", self.limit()?.name().replace('_', "-"));
        let table = self.in_table();
        let is_named = table.contains(&flag);
        (!is_named).then(|| format!("{table}; or raise {flag}"))
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
