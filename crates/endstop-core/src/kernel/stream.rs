//! A response that is still streamed: its content, and the timeouts that wait for content.

use super::call::{Call, CallClock};
use super::context::RunContext;
use super::effect::Effect;
use super::event::TurnDelta;
use super::guard::Flow;
use super::judge::Facts;
use crate::error_class::{ErrorClass, ModelError};
use std::ops::ControlFlow::{Break, Continue};

/// Handles streamed content. A policy or watch rule may end the run mid-stream.
pub(super) fn delta(
    call: &mut Call,
    delta: TurnDelta,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow {
    if delta.is_empty() {
        return Continue(());
    }
    call.last_content = Some(context.now);
    let used_up = call.meter.as_mut().and_then(|meter| meter.add(delta.size()));
    let piece = match delta {
        TurnDelta::Text(text) => text,
        // Reasoning and tool arguments reset the stall timeout and count for the usage estimate,
        // but no policy reads them.
        TurnDelta::Reasoning(chars) | TurnDelta::ToolArguments(chars) => {
            call.hidden = call.hidden.saturating_add(chars);
            return used_up.map_or(Continue(()), Break);
        }
    };
    call.text.push_str(&piece);
    let facts = Facts::Delta {
        piece: &piece,
        text: &call.text,
        turn: context.counts.turns + 1,
        has_text: context.said.last_text.is_some(),
        // With a schema, a stop hook or a verifier the answer can still be rejected, and they need
        // the whole turn.
        may_stop: !context.settings.output_schema
            && !context.settings.hooks.stop
            && !context.settings.verifier,
    };
    let judgement = context.judge.step(facts, effects);
    call.deferred_stop |= judgement.deferred;
    // The text streamed so far becomes the last text, unless a policy panicked on it.
    if judgement.ending.is_some() && !call.text.trim().is_empty() {
        context.said.last_text = Some(call.text.clone());
    }
    // A policy's decision comes first: an answer that is complete stands.
    match judgement.any_ending().or(used_up) {
        Some(ending) => Break(ending),
        None => Continue(()),
    }
}

/// Aborts a call whose timeout has passed. Returns the error of the attempt; `None` if there is
/// time left.
pub(super) fn timed_out(
    call: &Call,
    context: &RunContext,
    effects: &mut Vec<Effect>,
) -> Option<ModelError> {
    let settings = &context.settings;
    let clocks = call.clocks(&settings.limits, settings.streaming);
    let clock = clocks.into_iter().flatten().find(|clock| clock.deadline() <= context.now)?;
    let CallClock { name, limit, .. } = clock;
    effects.push(Effect::AbortModel { id: call.id });
    // `turn_timeout` bounds the whole call; the others wait for content.
    let problem = if name == "turn_timeout" { "did not end" } else { "sent no content" };
    let message = format!("{name}: the model call {problem} within {limit:?}");
    Some(ModelError::new(ErrorClass::Timeout, message))
}
