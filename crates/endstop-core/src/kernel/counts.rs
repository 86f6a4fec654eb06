//! The counters of a run, which the limits are checked against.
//!
//! A counter that several places change is a field. The results of a turn's tool calls are counted
//! here.

use crate::message::{ToolCall, ToolResult, ToolStatus};

/// The counters of a run since its start. Those "in a row" return to zero.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) turns: u32,
    pub(super) tool_turns: u32,
    pub(super) model_calls: u32,
    pub(super) tool_calls: u32,
    /// Turns in a row whose every tool call failed.
    pub(super) mistakes: u32,
    /// Blank answers in a row.
    pub(super) empty_turns: u32,
    /// Paused turns in a row.
    pub(super) pauses: u32,
    /// Turns in a row whose tool call was lost in transit.
    pub(super) lost_calls: u32,
    pub(super) continuations: u32,
    pub(super) repairs: u32,
    pub(super) vetoes: u32,
    /// `finish` was refused because another call of the same turn had failed; the next one is
    /// accepted.
    pub(super) finish_refused: bool,
    /// `finish` was refused because it had an answer and a reason why there is none; the answer of the
    /// next one counts.
    pub(super) contradiction_refused: bool,
}

impl Counts {
    /// Counts a turn with tools, and the results of its calls.
    pub(super) fn count_results(&mut self, calls: &[(&ToolCall, &ToolResult)]) {
        self.tool_turns += 1;
        // An aborted call is neither a mistake nor a success, because the model did not cause it.
        let mut ended = calls.iter().filter(|(_, result)| result.status != ToolStatus::Aborted);
        if let Some((_, first)) = ended.next() {
            let all_failed = first.status.is_error() && ended.all(|(_, r)| r.status.is_error());
            self.mistakes = if all_failed { self.mistakes + 1 } else { 0 };
        }
    }
}
