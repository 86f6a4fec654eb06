//! Laws of a guest's run: the effects it may have, and its ending.

use super::*;

/// Checks that `close` ends the run with the provisional ending, and as unfinished if there is none.
pub(super) fn closes_rightly(
    phase: RunPhase,
    provisional: Option<Termination>,
    ok: bool,
    outcome: &Outcome,
) -> Result<(), String> {
    let ended = outcome.termination;
    let late = ended == Termination::ErrorTimeout;
    let right = match provisional {
        Some(Termination::Stop | Termination::Submitted) if !ok => {
            ended == Termination::ErrorDuringExecution
        }
        Some(provisional) => ended == provisional,
        // A cancelled run was waiting for its tools.
        None if phase == RunPhase::Stopping => !outcome.is_success(),
        None => ended == Termination::ErrorDuringExecution || late,
    };
    if right { Ok(()) } else { Err(format!("closed in {phase} with {provisional:?}: {ended}")) }
}

impl Client {
    /// Checks that no effect needs a capability that the mode has switched off.
    pub(super) fn effects_allowed(
        &self,
        guest: &Guest,
        may_call: bool,
        cap: Option<u64>,
    ) -> Result<(), String> {
        for effect in guest.effects() {
            let wrong = match effect {
                Effect::Emit(RunEvent::MessageInjected { .. }) => !self.mode.inject,
                Effect::CallModel { output_cap, .. } => {
                    let lowered = !self.mode.capped && cap.is_some() && *output_cap != cap;
                    !may_call || lowered
                }
                Effect::Reserve { .. } => !may_call,
                Effect::AbortTools { .. } => !self.mode.clocks,
                Effect::WakeAt { at } => {
                    let thinks = self.limits.thinking_timeout.is_some_and(|limit| *at >= limit);
                    let own = self.limits.timeout == Some(*at) || thinks;
                    !own && !self.mode.clocks && !self.mode.retry
                }
                Effect::Validate { .. } | Effect::Consult { .. } | Effect::Compact { .. } => true,
                _ => false,
            };
            if wrong {
                return Err(format!("{:?} requested {effect:?}", self.mode));
            }
        }
        Ok(())
    }

    /// Checks that nothing changes an ending.
    pub(super) fn after_end(
        &mut self,
        guest: &mut Guest,
        outcome: &Arc<Outcome>,
    ) -> Result<(), String> {
        let late = ModelTurn::new(
            vec![Part::Text { text: "late".to_owned() }],
            TerminationSignal::new(SignalReason::NaturalCompletion, Confidence::High),
        );
        let id = self.old.last().copied().unwrap_or_default();
        let replies = [
            guest.turn(self.at, id, late),
            guest.tick(self.at + Duration::from_secs(9)),
            guest.cancel(self.at),
            guest.result(self.at, "c1-0", ToolReport::new(ToolStatus::Ok, "x")),
        ];
        let stop = GuestReply::Stop(Arc::clone(outcome));
        let refused = guest.ask(self.at, GuestCall::default()) == Admission::Stop(outcome.clone());
        let same = replies.iter().all(|reply| *reply == stop) && refused;
        if same && guest.terminate(self.at) == *outcome {
            return Ok(());
        }
        Err("a call after the end changed the outcome".to_owned())
    }

    /// Checks the ending against the provider's own bill.
    pub(super) fn check_end(
        &mut self,
        outcome: &Outcome,
        records: &[Recorded],
    ) -> Result<(), String> {
        if !outcome.messages.is_empty() && self.asks > 0 {
            check_outcome(outcome, false)?;
            check_history(&outcome.messages)?;
        }
        if outcome.turns > self.fresh + self.nested_turns {
            return Err(format!(
                "{} turns of {} calls and {} nested ones",
                outcome.turns, self.fresh, self.nested_turns
            ));
        }
        let position = |name: &str| records.iter().rposition(|one| one.event.kind.name() == name);
        if outcome.termination == Termination::Stop && position("asked") > position("turn_ended") {
            return Err("an answer survived a later call".to_owned());
        }
        let (Some(max), false) = (self.limits.max_budget_usd, self.unknown_price) else {
            return Ok(());
        };
        if let Some(flight) = self.flight.take() {
            self.bill(&flight, None);
        }
        let (max, own) = (NanoUsd::from_usd(max), self.billed);
        if self.mode.capped && own > max {
            return Err(format!("{own} billed of {max}"));
        }
        // Every call was admitted below the ceiling, so only the last one can cross it.
        if self.reported.saturating_sub(self.last_reported) > max {
            return Err(format!("{} reported of {max}", self.reported));
        }
        let upper = outcome.cost_upper.unwrap_or(NanoUsd(u64::MAX));
        if self.mode.capped && own + self.nested > upper + outcome.overrun {
            return Err(format!("{own} billed, at most {upper} reported"));
        }
        Ok(())
    }
}
