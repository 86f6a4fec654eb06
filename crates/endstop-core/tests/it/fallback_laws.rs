//! The laws of runs with fallback models.
//!
//! ```text
//! let switched = law.heard(&effects, &run)?;
//! law.ended(has_fallbacks, &outcome)?;
//! ```

use endstop_core::*;

/// The model in use changes only by a switch that is reported, and to the next model, or back to the
/// run's own one after a resumption.
pub struct ModelLaw {
    current: u32,
}

impl ModelLaw {
    /// The law of a run in this state.
    pub fn of(run: &Run) -> ModelLaw {
        ModelLaw { current: run.fallback() }
    }

    /// Checks the effects of one event. Returns `true` if the model was switched.
    pub fn heard(&mut self, effects: &[Effect], run: &Run) -> Result<bool, String> {
        let switches = effects.iter().enumerate().filter_map(|(at, effect)| match effect {
            Effect::SwitchModel { fallback } => Some((at, *fallback)),
            _ => None,
        });
        let mut switched = false;
        for (at, to) in switches {
            let told = effects.get(at + 1);
            let Some(Effect::Emit(RunEvent::ModelSwitched { switch, .. })) = told else {
                return Err(format!("a switch to {to} that was not reported: {told:?}"));
            };
            let ModelSwitch { fallback, because, .. } = &**switch;
            let next = match because {
                Some(_) => self.current + 1,
                None => 0,
            };
            if (to, *fallback) != (next, next) {
                return Err(format!("a switch from {} to {to}, for {because:?}", self.current));
            }
            let failed = matches!(
                effects[..at].last(),
                Some(Effect::Emit(RunEvent::AttemptFailed { retry_in_ms: Some(0), .. }))
            );
            if because.is_some() && !failed {
                return Err(format!("a switch to {to} without a failed attempt"));
            }
            (self.current, switched) = (to, true);
        }
        if self.current != run.fallback() {
            return Err(format!("{} is in use instead of {}", run.fallback(), self.current));
        }
        Ok(switched)
    }

    /// Checks the models of an outcome: each call and each amount belongs to one of them.
    /// `others`: something else than the run's own calls has spent.
    pub fn ended(
        &self,
        has_fallbacks: bool,
        others: bool,
        outcome: &Outcome,
    ) -> Result<(), String> {
        let Outcome { models, model_calls, .. } = outcome;
        if !has_fallbacks {
            return if models.is_empty() { Ok(()) } else { Err(format!("{models:?}")) };
        }
        let wrong = |what: &str| Err(format!("{what}: {models:?} of {model_calls} calls"));
        if models.iter().map(|one| one.calls).sum::<u32>() != *model_calls {
            return wrong("a call of no model");
        }
        let cost = models.iter().map(|one| one.cost).fold(NanoUsd::ZERO, |all, one| all + one);
        let tokens: u64 = models.iter().map(|one| one.usage.total_tokens()).sum();
        let all = (outcome.cost, outcome.usage.total_tokens());
        if (cost, tokens) != all && !(others && cost <= all.0 && tokens <= all.1) {
            return wrong("the amounts differ from those of the run");
        }
        let opaque = |part: &Part| matches!(part, Part::Opaque { .. });
        let left = outcome.messages.iter().flat_map(|message| &message.parts).any(opaque);
        if left && self.current > 0 {
            return wrong("a part that only the fallback can read");
        }
        Ok(())
    }
}

/// A conversation without the parts that only one model can read.
pub fn without_opaque(messages: &[Message]) -> Vec<Message> {
    let opaque = |part: &Part| matches!(part, Part::Opaque { .. });
    let says = |part: &Part| match part {
        Part::Text { text } | Part::Refusal { text } => !text.trim().is_empty(),
        part => !part.is_reasoning(),
    };
    let mut left = Vec::new();
    for message in messages {
        let mut other = message.clone();
        other.parts.retain(|part| !opaque(part));
        if other.parts.len() == message.parts.len() || other.parts.iter().any(says) {
            left.push(other);
        }
    }
    left
}
