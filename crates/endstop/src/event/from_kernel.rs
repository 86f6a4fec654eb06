//! Converts the kernel's events into the user's.
//!
//! ```text
//! Event::of_kernel(origin, RunEvent::TurnEnded { .. }) → Usage, then TurnFinished
//! ```

use super::flat::Event;
use super::origin::Origin;
use endstop_core::RunEvent;

impl Event {
    /// Converts an event of the kernel. The first event, if there are two, precedes the second.
    /// `None` for an event that this version does not know.
    pub(crate) fn of_kernel(origin: Origin, event: RunEvent) -> Option<(Option<Event>, Event)> {
        Some((
            None,
            match event {
                RunEvent::TurnStarted { attempt, .. } => Event::TurnStarted { origin, attempt },
                RunEvent::TurnEnded { text, signal, usage, cost, tool_calls, .. } => {
                    let usage =
                        Event::Usage { origin: origin.clone(), usage: Box::new(usage), cost };
                    let signal = Box::new(signal);
                    let finished = Event::TurnFinished { origin, text, signal, tool_calls };
                    return Some((Some(usage), finished));
                }
                RunEvent::AttemptFailed { attempt, error, retry_in_ms, .. } => {
                    Event::AttemptFailed { origin, attempt, error: Box::new(error), retry_in_ms }
                }
                RunEvent::ToolStarted { call_id, name, arguments } => {
                    Event::ToolStarted { origin, call_id: call_id.into(), name, arguments }
                }
                RunEvent::ToolEnded { call_id, name, status, duration_ms, content } => {
                    let call_id = call_id.into();
                    Event::ToolFinished { origin, call_id, name, status, duration_ms, content }
                }
                RunEvent::MessageInjected { why, text } => {
                    Event::MessageInjected { origin, why, text }
                }
                RunEvent::RuleHit(hit) => Event::RuleHit { origin, hit: Box::new(hit) },
                RunEvent::Compacted {
                    before,
                    after,
                    bytes_before,
                    bytes_after,
                    tokens_before,
                    tokens_after,
                    strategy,
                    forced,
                } => Event::Compacted {
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
                    Event::CompactionFailed { origin, why, forced, in_a_row }
                }
                RunEvent::Stopping { reason, running } => {
                    Event::Stopping { origin, reason, running }
                }
                _ => return None,
            },
        ))
    }
}
