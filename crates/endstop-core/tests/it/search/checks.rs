//! The laws checked after each step: of a run that continues, and of one that has ended.
//!
//! ```text
//! world.check_state(&run, &before)?;
//! world.check_ending(&outcome, &before)?;
//! ```

use super::possible::Before;
use super::world::{Open, World};
use crate::laws::{
    check_branch, check_ceilings, check_declared, check_hand_over, check_outcome, check_spent,
    check_verified,
};
use endstop_core::*;

impl World<'_> {
    /// Checks a run that continues.
    pub(super) fn check_state(&self, run: &Run, before: &Before) -> Result<(), String> {
        let phase = run.phase().as_str();
        if matches!(before.event, EventKind::Terminate | EventKind::Fault { .. }) {
            return Err(format!("the run continues after {:?}", before.event));
        }
        if self.cancelled && phase != "stopping" {
            return Err(format!("the run continues after a cancel, in {phase}"));
        }
        if before.printed.as_ref().is_some_and(|printed| *printed != format!("{run:?}")) {
            return Err(format!("a late answer was accepted: {:?}", before.event));
        }
        let (committed, tokens) = (run.committed(), run.committed_tokens());
        check_ceilings(&self.limits, committed, run.reserved(), tokens, NanoUsd::ZERO)?;
        // The effects that the run waits for are open, and no others.
        let count = |of: fn(&Open) -> bool| self.open.iter().filter(|open| of(open)).count();
        let calls = count(|open| matches!(open, Open::Call { .. }));
        let tools = count(|open| matches!(open, Open::Tool { background: false, .. }));
        let background = count(|open| matches!(open, Open::Tool { background: true, .. }));
        let asked = count(|open| matches!(open, Open::Consult { .. }));
        let reviews = count(|open| {
            matches!(open, Open::Consult { point: ConsultPoint::PostTool { .. }, .. })
        });
        let compacts = count(|open| matches!(open, Open::Compact { .. }));
        let validates = count(|open| matches!(open, Open::Validate { .. }));
        let reserves = count(|open| matches!(open, Open::Reserve { .. }));
        let verifies = count(|open| matches!(open, Open::Verify { .. }));
        let fits = match (phase, [calls, tools, asked, compacts, validates, reserves, verifies]) {
            ("new", open) => open == [0; 7],
            ("backoff", open) => open == [0; 7] && self.wake.is_some(),
            ("calling", open) => open == [1, 0, 0, 0, 0, 0, 0],
            ("waiting", open) => open == [0; 7] && background > 0,
            ("compacting", open) => open == [0, 0, 0, 1, 0, 0, 0],
            ("validating", open) => open == [0, 0, 0, 0, 1, 0, 0],
            ("reserving", open) => open == [0, 0, 0, 0, 0, 1, 0],
            ("verifying", open) => open == [0, 0, 0, 0, 0, 0, 1],
            ("wrapping_up", [calls, 0, asked, 0, 0, reserves, 0]) => calls + asked + reserves == 1,
            ("tools", [0, tools, asked, 0, 0, 0, 0]) => {
                tools + asked > 0
                    && asked - reviews < 2
                    && tools <= self.limits.tool_concurrency as usize
            }
            ("stopping", [0, tools, 0, 0, 0, 0, 0]) => tools > 0 && self.wake.is_some(),
            (_, open) => phase.starts_with("consulting") && open == [0, 0, 1, 0, 0, 0, 0],
        };
        if !fits {
            return Err(format!("phase {phase} with open effects {:?}", self.open));
        }
        if phase == "stopping"
            && count(|open| matches!(open, Open::Tool { told_to_stop: false, .. })) > 0
        {
            return Err("the run is being stopped, but a tool was not asked to stop".to_owned());
        }
        if self.held.len() > usize::from(matches!(phase, "calling" | "wrapping_up")) {
            return Err(format!("phase {phase} with reservations {:?}", self.held));
        }
        // The tick for the run's deadline has been requested.
        let deadline = self.limits.timeout.filter(|_| phase != "new" && phase != "stopping");
        if deadline.is_some_and(|deadline| self.wake.is_none_or(|wake| wake > deadline)) {
            return Err(format!("phase {phase} without a requested tick for the deadline"));
        }
        let streams = match phase {
            "calling" => run.state().streaming == StreamingState::Streaming,
            "wrapping_up" => (run.state().streaming == StreamingState::Streaming) == (calls == 1),
            "tools" | "stopping" => run.state().streaming == StreamingState::ToolExecution,
            "backoff" => {
                matches!(run.state().streaming, StreamingState::Idle | StreamingState::Resuming)
            }
            "new" | "consulting_prompt" => run.state().streaming == StreamingState::Idle,
            _ => matches!(run.state().streaming, StreamingState::Idle | StreamingState::Resuming),
        };
        if !streams {
            return Err(format!("phase {phase} with stream {}", run.state().streaming));
        }
        let pending = run.state().pending_calls.len();
        if (pending > 0) != matches!(phase, "tools" | "stopping") {
            return Err(format!("phase {phase} with {pending} pending calls"));
        }
        if run.state().ending().is_some() {
            return Err("the run continues, but has a termination".to_owned());
        }
        Ok(())
    }

    /// Checks a run that ends.
    pub(super) fn check_ending(&self, outcome: &Outcome, before: &Before) -> Result<(), String> {
        check_outcome(outcome, self.output_schema)?;
        check_spent(&self.limits, outcome)?;
        let left =
            self.open.iter().find(|open| !matches!(open, Open::Tool { told_to_stop: true, .. }));
        if let Some(left) = left {
            return Err(format!(
                "the run ended as {} with open effects {left:?}",
                outcome.termination
            ));
        }
        if !self.held.is_empty() {
            return Err(format!("the run ended with reservations {:?}", self.held));
        }
        if outcome.model_calls != self.calls {
            return Err(format!(
                "{} model calls, but the outcome reports {}",
                self.calls, outcome.model_calls
            ));
        }
        if let (
            EventKind::Reserved { granted, granted_tokens, .. },
            Some(Open::Reserve { usd: [_, usd], tokens: [_, tokens], .. }),
        ) = (&before.event, self.closed.last())
        {
            let refused = match outcome.termination {
                Termination::ErrorMaxBudgetUsd => granted.0 >= *usd,
                Termination::ErrorMaxTokens => granted_tokens.is_none_or(|got| got >= *tokens),
                _ => false,
            };
            if refused && outcome.decided_by.decision == Decision::SharedBudget {
                return Err(format!(
                    "a grant of {granted}, {granted_tokens:?} tokens was refused, but the minimum was {usd}, {tokens}"
                ));
            }
        }
        let needs_verdict = self.verifier && self.limits.verify_rounds.is_some();
        check_declared(before.phase, &before.event, outcome, needs_verdict)?;
        check_verified(self.verifier, &self.limits, outcome)?;
        check_hand_over(&self.limits, outcome)?;
        self.models.ended(self.config.falls_back(), self.config.spends > 0, outcome)?;
        check_branch(self.branched_from.as_ref(), outcome)?;
        before.leads_to(outcome, &self.limits)
    }
}

/// `Err` if the kernel makes a call or starts a tool after the run's deadline.
pub(super) fn only_begins_no_work(effects: &[Effect]) -> Result<(), String> {
    let work = effects.iter().find(|effect| {
        matches!(
            effect,
            Effect::CallModel { .. }
                | Effect::StartTools { .. }
                | Effect::Reserve { .. }
                | Effect::Verify { .. }
        )
    });
    match work {
        Some(work) => Err(format!("past the deadline the kernel asked for {work:?}")),
        None => Ok(()),
    }
}
