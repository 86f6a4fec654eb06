//! A response that is still streamed: its content, and the timeouts that wait for content.

use super::attempt::FailedBy;
use crate::error_class::{ErrorClass, ModelError};
use crate::kernel::context::RunContext;
use crate::kernel::effect::{Effect, RunEvent};
use crate::kernel::event::TurnDelta;
use crate::kernel::judge::Facts;
use crate::kernel::model_call::{Call, CallClock, THINKING};
use crate::kernel::outcome::guard::Flow;
use crate::kernel::phase::Phase;
use crate::visible::{is_blank, visible_text};
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

/// Handles streamed content. A policy or watch rule may end the run mid-stream.
pub(crate) fn delta(
    call: &mut Call,
    delta: TurnDelta,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow {
    if delta.is_empty() {
        return Continue(());
    }
    call.note_content(&delta, context.now);
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
    let new = call.add_text(&piece);
    if new == call.text.len() {
        return used_up.map_or(Continue(()), Break);
    }
    let said = &context.said;
    let facts = Facts::Delta {
        piece: &call.text[new..],
        turn: context.counts.turns + 1,
        answer: &|| said.at(visible_text(&said.with(&call.text))).answer(),
        // With a schema, a stop hook or a verifier the answer can still be rejected, and they need
        // the whole turn.
        may_stop: !context.settings.output_schema
            && !context.settings.hooks.stop
            && !context.settings.verifier,
    };
    let judgement = context.judge.step(facts, effects);
    call.deferred_stop |= judgement.deferred;
    // The text streamed so far becomes the last text, unless a policy panicked on it.
    if judgement.ending.is_some() && !is_blank(&call.text) {
        context.said.last_text = Some(context.said.with(&call.text));
    }
    // A policy's decision comes first: an answer that is complete stands.
    match judgement.any_ending().or(used_up) {
        Some(ending) => Break(ending),
        None => Continue(()),
    }
}

/// Excludes a time in which the process was suspended from the timeouts of the model call. Returns
/// `true` if there is such a call: no other wait ends when content arrives.
pub(crate) fn skip_suspension(
    phase: &mut Phase,
    time: Duration,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> bool {
    let Some(call) = phase.call_mut() else { return false };
    // At most the time of the call, whatever the driver has measured.
    let time = time.min(context.now.saturating_sub(call.started));
    if time.is_zero() {
        return false;
    }
    call.skip_suspension(time, context.now);
    context.suspended = context.suspended.saturating_add(time);
    let duration_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    effects.push(Effect::Emit(RunEvent::Suspended { duration_ms }));
    true
}

/// Aborts a call whose timeout has passed. Returns the error of the attempt and its cause; `None` if
/// there is time left.
pub(crate) fn timed_out(
    call: &Call,
    context: &RunContext,
    effects: &mut Vec<Effect>,
) -> Option<(ModelError, FailedBy)> {
    let settings = &context.settings;
    let clocks = call.clocks(&settings.limits, settings.streaming);
    let clock = clocks.into_iter().flatten().find(|clock| clock.deadline() <= context.now)?;
    let CallClock { name, limit, .. } = clock;
    effects.push(Effect::AbortModel { id: call.id });
    let (problem, by) = match name {
        "turn_timeout" => ("did not end", FailedBy::Provider),
        THINKING => ("sent only reasoning and no text or tool call", FailedBy::Thinking),
        _ => ("sent no content", FailedBy::Provider),
    };
    let message = format!("{name}: the model call {problem} within {limit:?}");
    Some((ModelError::new(ErrorClass::Timeout, message), by))
}
