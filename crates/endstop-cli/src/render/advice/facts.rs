//! The meaning of an outcome's ending, and the change with which its run can continue.

use crate::visible::visible;
use endstop::{
    Outcome, Termination,
    core::{Decision, Layer, Limit},
    provider::ErrorClass,
};
use endstop_report::advice::meaning;

/// An outcome, as the advice sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a>(pub(super) &'a Outcome);

impl<'a> Facts<'a> {
    pub(crate) const fn of(outcome: &'a Outcome) -> Facts<'a> {
        Facts(outcome)
    }

    pub(crate) const fn outcome(self) -> &'a Outcome {
        self.0
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
            (Termination::ErrorNoProgress | Termination::ErrorDuringExecution, _)
                if *decision == Decision::NoCall =>
            {
                "guard saw no call of the program, which may have made its calls elsewhere"
                    .to_owned()
            }
            (_, Layer::Limit) if *decision == Decision::UnknownPrice => {
                "a ceiling on cost holds, and the price of a call is not known".to_owned()
            }
            (_, Layer::Caller) if *decision == Decision::Refused => {
                "guard refused a call; repeating it will not help".to_owned()
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

    /// Returns the change with which the run can continue, by the decision that ended it. `None` if
    /// no change of the settings helps.
    pub(crate) fn remedy(self) -> Option<Remedy> {
        let Outcome { termination, decided_by, .. } = self.0;
        if termination.is_success() {
            return None;
        }
        match &decided_by.decision {
            Decision::Limit(limit) => Some(Remedy::Limit(*limit)),
            Decision::UnknownFinish => Some(Remedy::Limit(Limit::AcceptUnknownFinish)),
            Decision::TokenLimitReached => Some(Remedy::Limit(Limit::MaxContinuations)),
            Decision::ThinkingStarved => Some(Remedy::OutputCap),
            // These calls are repeated, and a compaction is tried again. The other errors of a
            // provider, and faults of the code, would recur.
            Decision::CallFailed(ErrorClass::QuotaExhausted)
            | Decision::Compaction
            | Decision::Cancel
            | Decision::Terminate => Some(Remedy::Nothing),
            Decision::CallFailed(_) => matches!(
                termination,
                Termination::ErrorDuringExecution | Termination::ErrorProviderAuth
            )
            .then_some(Remedy::Nothing),
            _ => None,
        }
    }

    /// The limit that ended the run.
    pub(crate) fn limit(self) -> Option<Limit> {
        match self.0.decided_by.decision {
            Decision::Limit(limit) => Some(limit),
            _ => None,
        }
    }
}

/// A change with which a run can continue after its ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// The run continues under the same settings, because its cause may have passed.
    Nothing,
    /// The run continues under a higher limit, or with a switch that is off.
    Limit(Limit),
    /// The last turn is repeated in a branch, with a higher output cap.
    OutputCap,
}
