//! The results of tool calls, and their way into the conversation.

use super::open_calls::{CallState, OpenCalls};
use crate::kernel::context::RunContext;
use crate::kernel::effect::{Effect, RunEvent};
use crate::message::{Part, Role, ToolStatus};
use std::fmt::Write;
use std::time::Duration;

/// Least number of bytes that a changed result may have. A longer one is cut, unless the tool's own
/// result was as long.
pub(super) const MOST_CHANGED: usize = 64 * 1024;

/// Reports to observers that a call has ended.
pub(crate) fn emit_ended(open: &OpenCalls, at: usize, ran: Duration, effects: &mut Vec<Effect>) {
    if let Some(result) = open.result(at) {
        effects.push(Effect::Emit(RunEvent::ToolFinished {
            call_id: result.call_id.clone(),
            name: result.name.clone(),
            status: result.status,
            duration_ms: ran.as_millis() as u64,
            content: result.content.clone(),
        }));
    }
}

/// Withholds the results that still wait for a hook, because the run is being stopped.
pub(crate) fn withhold_results(open: &mut OpenCalls, effects: &mut Vec<Effect>) {
    for (id, at, ran) in open.take_reviews() {
        effects.push(Effect::Abandon { id });
        emit_ended(open, at, ran, effects);
    }
}

/// Answers the open calls without running them, and appends the answers to the history.
pub(crate) fn answer_unrun(mut open: OpenCalls, why: &str, context: &mut RunContext) {
    if open.is_empty() {
        return;
    }
    open.close(ToolStatus::Skipped, why);
    record_results(open, context);
}

/// Puts the answers into the history, in call order.
pub(crate) fn record_results(open: OpenCalls, context: &mut RunContext) {
    let mut parts = Vec::with_capacity(open.calls.len());
    for call in open.calls {
        if let CallState::Done(result, _) = call.state {
            // Calls that never started because the run ended are answered but not counted.
            let unrun = match result.status {
                ToolStatus::Skipped => true,
                ToolStatus::Aborted => !result.started,
                _ => false,
            };
            if !unrun {
                context.counts.tool_calls = context.counts.tool_calls.saturating_add(1);
            }
            parts.push(Part::ToolResult(result));
        }
    }
    context.state.complete_all(parts.iter().filter_map(|part| match part {
        Part::ToolResult(result) => Some(result),
        _ => None,
    }));
    if !parts.is_empty() {
        context.state.push(Role::Tool, parts);
    }
}

/// Cuts a text at a character boundary.
pub(crate) fn bounded(mut text: String, most: usize) -> String {
    if text.len() > most {
        let end = (0..=most).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        let _ = write!(text, "\n[… cut after {most} bytes …]");
    }
    text
}
