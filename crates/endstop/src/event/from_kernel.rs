//! Converts the kernel's events into the user's.
//!
//! ```text
//! AgentEvent::of_kernel(origin, RunEvent::TurnEnded { .. }) → Usage, then TurnFinished
//! ```

use super::flat::AgentEvent;
use super::origin::Origin;
use endstop_core::RunEvent;

/// Returns the turn of an event of the kernel, if it names one. A resumed run evaluates a response
/// again without starting its turn again.
pub(crate) fn turn_of(event: &RunEvent) -> Option<u32> {
    match event {
        RunEvent::TurnStarted { turn, .. }
        | RunEvent::TurnEnded { turn, .. }
        | RunEvent::AttemptFailed { turn, .. }
        | RunEvent::ModelSwitched { turn, .. } => Some(*turn),
        _ => None,
    }
}

impl AgentEvent {
    /// Converts an event of the kernel. The first event, if there are two, precedes the second.
    /// `None` for an event that this version does not know.
    pub(crate) fn of_kernel(
        origin: Origin,
        event: RunEvent,
    ) -> Option<(Option<AgentEvent>, AgentEvent)> {
        Some((
            None,
            match event {
                RunEvent::TurnStarted { attempt, .. } => {
                    AgentEvent::TurnStarted { origin, attempt }
                }
                RunEvent::TurnEnded { text, signal, usage, cost, tool_calls, .. } => {
                    let usage =
                        AgentEvent::Usage { origin: origin.clone(), usage: Box::new(usage), cost };
                    let signal = Box::new(signal);
                    let finished = AgentEvent::TurnFinished { origin, text, signal, tool_calls };
                    return Some((Some(usage), finished));
                }
                RunEvent::AttemptFailed { attempt, error, retry_in_ms, .. } => {
                    AgentEvent::AttemptFailed {
                        origin,
                        attempt,
                        error: Box::new(error),
                        retry_in_ms,
                    }
                }
                RunEvent::ModelSwitched { switch, .. } => {
                    AgentEvent::ModelSwitched { origin, switch }
                }
                RunEvent::ToolStarted { call_id, name, arguments } => {
                    AgentEvent::ToolStarted { origin, call_id: call_id.into(), name, arguments }
                }
                RunEvent::CallChanged { call_id, name, before, after, by } => {
                    let (call_id, by) = (call_id.into(), by.into());
                    let (before, after) = (before.into(), after.into());
                    AgentEvent::ToolCallChanged { origin, call_id, name, before, after, by }
                }
                RunEvent::ResultChanged { call_id, name, status } => {
                    let call_id = call_id.into();
                    AgentEvent::ToolResultChanged { origin, call_id, name, status }
                }
                RunEvent::ToolEnded { call_id, name, status, duration_ms, content } => {
                    let call_id = call_id.into();
                    AgentEvent::ToolFinished { origin, call_id, name, status, duration_ms, content }
                }
                RunEvent::MessageInjected { why, text } => {
                    AgentEvent::MessageInjected { origin, why, text }
                }
                RunEvent::RuleHit(hit) => AgentEvent::RuleHit { origin, hit: Box::new(hit) },
                RunEvent::Compacted {
                    before,
                    after,
                    bytes_before,
                    bytes_after,
                    tokens_before,
                    tokens_after,
                    strategy,
                    forced,
                } => AgentEvent::Compacted {
                    origin,
                    before,
                    after,
                    bytes_before,
                    bytes_after,
                    tokens_before,
                    tokens_after,
                    strategy,
                    forced,
                },
                RunEvent::CompactionFailed { why, forced, in_a_row } => {
                    AgentEvent::CompactionFailed { origin, why, forced, in_a_row }
                }
                RunEvent::Verified { round, rounds, passed, output } => {
                    AgentEvent::Verified { origin, round, rounds, passed, output }
                }
                RunEvent::HandOver { text } => AgentEvent::HandOver { origin, text },
                RunEvent::LimitsChanged { limits } => AgentEvent::LimitsChanged { origin, limits },
                RunEvent::Suspended { duration_ms } => {
                    AgentEvent::Suspended { origin, duration_ms }
                }
                RunEvent::Parked(request) => AgentEvent::Parked { origin, request },
                RunEvent::Decided { id, decision, wall_ms } => {
                    AgentEvent::Decided { origin, id, decision, wall_ms }
                }
                RunEvent::Stopping { reason, running } => {
                    AgentEvent::Stopping { origin, reason, running }
                }
                _ => return None,
            },
        ))
    }
}
