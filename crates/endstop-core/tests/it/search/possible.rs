//! The endings that an event may lead to: the outcome must agree with what happened.
//!
//! ```text
//! before.leads_to(&outcome, &limits)?;
//! ```

use crate::laws::working_time;
use endstop_core::*;

/// The state before the event that ended a run, and the event.
pub(super) struct Before {
    pub(super) phase: &'static str,
    /// The ending that was decided, if the run was being stopped.
    pub(super) stopping: Option<String>,
    pub(super) cancelled: bool,
    /// The printed run, if the event must not change it.
    pub(super) printed: Option<String>,
    pub(super) event: EventKind,
}

impl Before {
    /// Checks that the event can have led to this ending, and that `also` is complete.
    pub(super) fn leads_to(&self, outcome: &Outcome, limits: &Limits) -> Result<(), String> {
        let Outcome { termination, also, decided_by, .. } = outcome;
        let wrong = |what: &str| {
            Err(format!(
                "{what}: {termination} by {decided_by:?}, also {also:?}; {} before, and then {:?}",
                self.phase, self.event
            ))
        };
        let ceilings = [
            Termination::ErrorMaxTurns,
            Termination::ErrorMaxToolCalls,
            Termination::ErrorMaxBudgetUsd,
            Termination::ErrorMaxTokens,
            Termination::ErrorTimeout,
        ];
        let possible = match (&self.event, &self.stopping) {
            (EventKind::Terminate, _) => *termination == Termination::Terminated,
            // The ending was decided before the hand-over.
            _ if self.phase == "wrapping_up" => ceilings.contains(termination),
            // A run that is being stopped ends with the cause that was reported when the stop
            // began.
            (_, Some(reason)) => termination.as_str() == reason,
            (EventKind::Cancel, None) => *termination == Termination::Cancelled,
            (EventKind::Fault { .. }, None) => {
                *termination == Termination::ErrorDuringExecution || self.declared(outcome)
            }
            _ if self.declared(outcome) => true,
            _ => self.reached(outcome, limits),
        };
        if !possible {
            return wrong("an ending that did not happen");
        }
        if self.cancelled
            && !matches!(termination, Termination::Cancelled | Termination::Terminated)
        {
            return wrong("a cancel was forgotten");
        }
        for (at, other) in also.iter().enumerate() {
            if also[..at].contains(other) {
                return wrong("reported twice");
            }
        }
        // Other terminations that also applied.
        let limits_met = [
            (Termination::ErrorMaxTurns, limits.max_turns.is_some_and(|max| outcome.turns >= max)),
            (
                Termination::ErrorMaxBudgetUsd,
                limits.max_budget_usd.is_some_and(|max| {
                    outcome.cost_upper.unwrap_or(outcome.cost) >= NanoUsd::from_usd(max)
                }),
            ),
            (
                Termination::ErrorMaxTokens,
                limits.max_tokens.is_some_and(|max| {
                    outcome.tokens_upper.unwrap_or(outcome.usage.total_tokens()) >= max
                }),
            ),
            (Termination::ErrorTimeout, limits.timeout.is_some_and(|max| outcome.duration >= max)),
        ];
        // A terminate outranks the ending that was decided before the hand-over. A ceiling can decide
        // it by refusing a call, and then is not reached.
        let mut decided = self.phase == "wrapping_up" && matches!(self.event, EventKind::Terminate);
        for (other, met) in limits_met {
            // A success in the last allowed turn has not exceeded the limit.
            let crossed = other != Termination::ErrorMaxTurns || !outcome.is_success();
            if met && crossed && *termination != other && !also.contains(&other) {
                return wrong(&format!("{other} was also true"));
            }
            // The time that is kept for the hand-over is not lost if none is possible.
            let early = other == Termination::ErrorTimeout
                && working_time(limits).is_some_and(|time| outcome.duration >= time);
            if !met && !early && also.contains(&other) && !std::mem::take(&mut decided) {
                return wrong(&format!("{other} was not true"));
            }
        }
        let outranked = match (&self.event, &self.stopping) {
            (EventKind::Terminate, Some(reason)) => Some(reason.as_str()),
            (EventKind::Fault { .. }, Some(_)) => Some("error_during_execution"),
            _ => None,
        };
        if outranked.is_some_and(|reason| !also.iter().any(|other| other.as_str() == reason)) {
            return wrong("an outranked termination is missing in `also`");
        }
        Ok(())
    }

    /// `true` if an answer was declared before the event, which the event cannot withdraw.
    fn declared(&self, outcome: &Outcome) -> bool {
        let waits = matches!(self.phase, "consulting_stop" | "verifying" | "waiting");
        let by_finish = self.phase == "tools" && outcome.decided_by.decision == Decision::Finish;
        outcome.is_success() && (waits || by_finish)
    }

    /// `true` if an answer, a report or time can have ended the run this way.
    fn reached(&self, outcome: &Outcome, limits: &Limits) -> bool {
        let layer = outcome.decided_by.layer.as_str();
        let event = &self.event;
        let turn = |of: &[SignalReason]| match event {
            EventKind::TurnEnded { turn, .. } => of.contains(&turn.signal.reason),
            _ => false,
        };
        let failed = match event {
            EventKind::TurnFailed { error, .. } => Some(error.class.termination()),
            _ => None,
        };
        let asked_for = |name: &str| {
            let mut calls = outcome.messages.iter().flat_map(|message| message.tool_calls());
            calls.any(|call| call.name == name)
        };
        let boundary = layer == "limit"
            && matches!(
                event,
                EventKind::TurnEnded { .. }
                    | EventKind::TurnFailed { .. }
                    | EventKind::ToolEnded { .. }
                    | EventKind::Answered { .. }
                    | EventKind::Validated { .. }
                    | EventKind::Verified { .. }
                    | EventKind::Reserved { .. }
                    | EventKind::Compacted { .. }
                    | EventKind::Start { .. }
                    | EventKind::Resumed(_)
                    | EventKind::LimitsChanged { .. }
                    | EventKind::Windows { .. }
                    | EventKind::Tick
            );
        let shared = outcome.decided_by.decision == Decision::SharedBudget;
        match outcome.termination {
            Termination::Cancelled | Termination::Terminated => false,
            Termination::Stop => {
                let whole = outcome.signal.as_ref().is_some_and(|signal| {
                    matches!(
                        signal.reason,
                        SignalReason::NaturalCompletion
                            | SignalReason::StopSequence
                            | SignalReason::ToolUse
                    )
                });
                whole
                    && layer == "turn"
                    && matches!(
                        event,
                        EventKind::TurnEnded { .. }
                            | EventKind::Validated { result: Ok(_), .. }
                            | EventKind::Answered { .. }
                    )
            }
            Termination::Submitted => match layer {
                "policy" => true,
                "tool" => asked_for("finish"),
                _ => false,
            },
            Termination::GaveUp => asked_for("finish") && layer == "tool",
            // The requested wait may be longer than the remaining time.
            Termination::ErrorTimeout => limits
                .timeout
                .and(working_time(limits))
                .is_some_and(|max| outcome.duration >= max || outcome.retry_after.is_some()),
            Termination::ErrorMaxTurns => {
                boundary && limits.max_turns.is_some_and(|max| outcome.turns >= max)
            }
            Termination::ErrorMaxBudgetUsd => {
                boundary && (limits.max_budget_usd.is_some() || shared)
            }
            Termination::ErrorMaxToolCalls => boundary,
            Termination::ErrorMaxWindow => boundary && limits.max_window.is_some(),
            Termination::ErrorMaxTokens => boundary && (limits.max_tokens.is_some() || shared),
            Termination::ErrorConsecutiveMistakes => boundary,
            Termination::ErrorNoProgress => boundary || layer == "policy",
            Termination::ErrorHalted => match event {
                EventKind::Answered { answer, .. } => {
                    // A tool's halt, and the step, wait for the hook's answer about the result.
                    let held = layer == "tool" || layer == "policy";
                    held || matches!(answer, HookDecision::Halt(_) | HookDecision::Deny(_))
                }
                EventKind::ToolEnded { report, .. } => report.halt.is_some() || layer == "policy",
                // The verifier rejected an answer that had outranked the halt.
                EventKind::Verified { passed, .. } => !passed,
                EventKind::Tick if self.phase == "verifying" => true,
                _ => layer == "policy",
            },
            Termination::ErrorMaxStructuredOutputRetries | Termination::ErrorSchemaValidation => {
                // A blank answer needs no validation.
                matches!(event, EventKind::Validated { result: Err(_), .. })
                    || matches!(event, EventKind::TurnEnded { turn, .. }
                        if turn.text().trim().is_empty())
            }
            Termination::ErrorNotVerified => match event {
                EventKind::Verified { passed, .. } => !passed,
                // The verifier took too long.
                EventKind::Tick => self.phase == "verifying",
                _ => false,
            },
            Termination::ErrorCompactionFailed => {
                matches!(event, EventKind::Compacted { .. })
            }
            Termination::ErrorPromptTooLong => {
                failed == Some(outcome.termination) || matches!(event, EventKind::Compacted { .. })
            }
            Termination::ErrorThinkingStarved => match event {
                EventKind::Tick => limits.thinking_timeout.is_some() && layer == "limit",
                _ => turn(&[
                    SignalReason::TokenLimitReached,
                    SignalReason::NaturalCompletion,
                    SignalReason::ToolUse,
                ]),
            },
            Termination::ErrorOutputTruncated => match event {
                // With another finish value only a call can be truncated: if the output fills its
                // cap.
                EventKind::TurnEnded { turn, .. } => {
                    turn.signal.reason == SignalReason::TokenLimitReached
                        // The rest of an answer that was cut before.
                        || limits.max_continuations > 0 && turn.text().trim().is_empty()
                        || turn.tool_calls().next().is_some()
                            && turn.usage.generated_tokens().is_some_and(|out| out > 5)
                }
                _ => false,
            },
            Termination::ErrorContentFiltered => {
                failed == Some(outcome.termination) || turn(&[SignalReason::ContentFiltered])
            }
            Termination::ErrorProviderAuth | Termination::ErrorProviderRejected => {
                failed == Some(outcome.termination)
            }
            Termination::ErrorDuringExecution => {
                layer == "fault"
                    || failed == Some(outcome.termination)
                    || matches!(event, EventKind::Tick)
                    || turn(&[
                        SignalReason::Unknown,
                        SignalReason::Paused,
                        SignalReason::ErrorTermination,
                        SignalReason::InProgress,
                    ])
            }
            _ => false,
        }
    }
}
