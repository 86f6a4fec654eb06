//! The meaning of an outcome's ending, and whether its run can be resumed.

use crate::visible::visible;
use endstop::{
    Outcome, Termination,
    core::{Decision, Layer, Limit},
};
use endstop_report::advice::meaning;

/// An outcome, as the advice sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a>(pub(super) &'a Outcome);

impl<'a> Facts<'a> {
    pub(crate) const fn of(outcome: &'a Outcome) -> Facts<'a> {
        Facts(outcome)
    }

    /// Describes the ending, and names the component that decided if the ending alone does not
    /// identify it.
    pub(crate) fn meaning(self) -> String {
        // The name comes from configuration, a tool or a file, so it may hold control characters.
        let Outcome { termination, decided_by, .. } = self.0;
        let decision = &decided_by.decision;
        let name = visible(decision.as_str()).replace('\n', " ");
        match (*termination, decided_by.layer) {
            (Termination::ErrorDuringExecution, _) if *decision == Decision::UnknownFinish => {
                "the provider sent an unknown finish value, so the answer may be incomplete"
                    .to_owned()
            }
            (Termination::ErrorDuringExecution, Layer::Fault) => {
                format!("the code of `{name}` failed")
            }
            // The policy may have taken the result of a tool as the answer.
            (Termination::Submitted, Layer::Policy) => {
                format!("the policy `{name}` accepted the answer")
            }
            (Termination::ErrorHalted, Layer::Policy) => {
                format!("the policy `{name}` stopped the run")
            }
            (Termination::ErrorHalted, Layer::Tool) => format!("the tool `{name}` halted the run"),
            (Termination::ErrorHalted, Layer::Hook) if *decision == Decision::Approval => {
                "the user halted the run at an approval prompt".to_owned()
            }
            (Termination::ErrorHalted, Layer::Hook) => format!("the hook `{name}` halted the run"),
            // These endings usually come from a limit, so the policy must be named.
            (
                Termination::ErrorNoProgress | Termination::ErrorConsecutiveMistakes,
                Layer::Policy,
            ) => {
                format!("the policy `{name}` stopped the run: {}", meaning(*termination))
            }
            (Termination::ErrorNoProgress, _)
                if *decision == Decision::Limit(Limit::MaxEmptyTurns) =>
            {
                "the model gave blank answers".to_owned()
            }
            _ => meaning(*termination).to_owned(),
        }
    }

    /// `true` if the work is not done, or if the verifier rejected it.
    pub(crate) fn is_failure(self) -> bool {
        !self.0.is_success() || self.0.verified == Some(false)
    }

    /// `true` if resuming the run is the right response to its ending.
    pub(crate) fn asks_for_resume(self) -> bool {
        self.is_raised()
            || matches!(self.0.termination, Termination::Cancelled | Termination::Terminated)
            // A resume repeats the failed call. A fault in the code would only happen again.
            || self.0.termination == Termination::ErrorDuringExecution
                && matches!(self.0.decided_by.layer, Layer::Provider | Layer::Caller)
    }

    /// The limit that must be raised before the run can be resumed.
    pub(crate) fn limit(self) -> Option<&'a str> {
        self.is_raised().then(|| self.0.decided_by.decision.as_str())
    }

    fn is_raised(self) -> bool {
        let by = &self.0.decided_by;
        by.layer == Layer::Limit
            && matches!(
                self.0.termination,
                Termination::ErrorMaxTurns
                    | Termination::ErrorMaxBudgetUsd
                    | Termination::ErrorMaxTokens
                    | Termination::ErrorTimeout
                    | Termination::ErrorMaxStructuredOutputRetries
                    | Termination::ErrorNotVerified
            )
            // A shared budget is not a flag of this run, so the resume command could not raise it.
            && by.decision != Decision::SharedBudget
    }
}
