//! The lines of `--events` and `--json`. Their names are older than those of [`AgentEvent`], and programs
//! read them.
//!
//! ```text
//! TextDelta { text: "It" }          → {"type":"delta","text":"It"}
//! ReasoningDelta { text: "Hm." }    → {"type":"delta","reasoning":3}
//! Usage { … }, TurnFinished { … }   → {"type":"turn_ended", …}
//! ```

use endstop::core::{NanoUsd, RunEvent, TurnDelta, Usage};
use endstop::event::AgentEvent;
use serde::Serialize;

/// A line of JSON.
#[derive(Serialize)]
#[serde(untagged)]
#[expect(clippy::large_enum_variant, reason = "it is written at once")]
pub(crate) enum Line {
    /// A step in the life of the run.
    Run(RunEvent),
    /// An increment of the current turn.
    Delta(DeltaLine),
    /// A problem that does not affect the run.
    Warning(WarningLine),
}

#[derive(Serialize)]
pub(crate) struct DeltaLine {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    pub(crate) delta: TurnDelta,
}

#[derive(Serialize)]
pub(crate) struct WarningLine {
    #[serde(rename = "type")]
    kind: &'static str,
    message: String,
}

impl Line {
    pub(crate) fn delta(delta: TurnDelta) -> Line {
        Line::Delta(DeltaLine { kind: "delta", delta })
    }
}

fn chars(text: &str) -> u64 {
    text.chars().count() as u64
}

/// Converts events into lines.
#[derive(Default)]
pub(crate) struct Lines {
    /// The usage and the cost of the turn that ends next.
    usage: Option<(Usage, Option<NanoUsd>)>,
}

impl Lines {
    /// Returns the line of an event; `None` if it has none.
    pub(crate) fn of(&mut self, event: AgentEvent) -> Option<Line> {
        // The lines are those of the run itself.
        if !event.path().is_empty() {
            return None;
        }
        let turn = event.turn().unwrap_or_default();
        Some(Line::Run(match event {
            AgentEvent::TurnStarted { attempt, .. } => RunEvent::TurnStarted { turn, attempt },
            AgentEvent::Usage { usage, cost, .. } => {
                self.usage = Some((*usage, cost));
                return None;
            }
            AgentEvent::TurnFinished { text, signal, tool_calls, .. } => {
                let (usage, cost) = self.usage.take().unwrap_or_default();
                RunEvent::TurnEnded { turn, text, signal: *signal, usage, cost, tool_calls }
            }
            AgentEvent::AttemptFailed { attempt, error, retry_in_ms, .. } => {
                RunEvent::AttemptFailed { turn, attempt, error: *error, retry_in_ms }
            }
            AgentEvent::ToolCallChanged { call_id, name, before, after, by, .. } => {
                let (before, after, by) = (before.into(), after.into(), by.into());
                RunEvent::CallChanged { call_id: call_id.to_string(), name, before, after, by }
            }
            AgentEvent::ToolResultChanged { call_id, name, status, .. } => {
                RunEvent::ResultChanged { call_id: call_id.to_string(), name, status }
            }
            AgentEvent::ToolStarted { call_id, name, arguments, .. } => {
                RunEvent::ToolStarted { call_id: call_id.to_string(), name, arguments }
            }
            AgentEvent::ToolFinished { call_id, name, status, duration_ms, content, .. } => {
                let call_id = call_id.to_string();
                RunEvent::ToolEnded { call_id, name, status, duration_ms, content }
            }
            AgentEvent::MessageInjected { why, text, .. } => {
                RunEvent::MessageInjected { why, text }
            }
            AgentEvent::RuleHit { hit, .. } => RunEvent::RuleHit(*hit),
            AgentEvent::Verified { round, rounds, passed, output, .. } => {
                RunEvent::Verified { round, rounds, passed, output }
            }
            AgentEvent::ModelSwitched { switch, .. } => RunEvent::ModelSwitched { turn, switch },
            AgentEvent::HandOver { text, .. } => RunEvent::HandOver { text },
            AgentEvent::LimitsChanged { limits, .. } => RunEvent::LimitsChanged { limits },
            AgentEvent::Suspended { duration_ms, .. } => RunEvent::Suspended { duration_ms },
            AgentEvent::Parked { request, .. } => RunEvent::Parked(request),
            AgentEvent::Decided { id, decision, wall_ms, .. } => {
                RunEvent::Decided { id, decision, wall_ms }
            }
            AgentEvent::Stopping { reason, running, .. } => RunEvent::Stopping { reason, running },
            AgentEvent::Warning { message, .. } => {
                return Some(Line::Warning(WarningLine { kind: "warning", message }));
            }
            AgentEvent::Compacted { .. } | AgentEvent::CompactionFailed { .. } => {
                return compaction(event);
            }
            event => return delta(event).map(Line::delta),
        }))
    }
}

fn compaction(event: AgentEvent) -> Option<Line> {
    Some(Line::Run(match event {
        AgentEvent::Compacted {
            before,
            after,
            bytes_before,
            bytes_after,
            tokens_before,
            tokens_after,
            strategy,
            forced,
            ..
        } => RunEvent::Compacted {
            before,
            after,
            bytes_before,
            bytes_after,
            tokens_before,
            tokens_after,
            strategy,
            forced,
        },
        AgentEvent::CompactionFailed { why, forced, in_a_row, .. } => {
            RunEvent::CompactionFailed { why, forced, in_a_row }
        }
        _ => return None,
    }))
}

/// Returns an increment of the turn. Of reasoning and arguments the lines have only the length.
fn delta(event: AgentEvent) -> Option<TurnDelta> {
    Some(match event {
        AgentEvent::TextDelta { text, .. } => TurnDelta::Text(text),
        AgentEvent::ReasoningDelta { text, .. } | AgentEvent::RefusalDelta { text, .. } => {
            TurnDelta::Reasoning(chars(&text))
        }
        AgentEvent::ToolCallStarted { name, .. } => TurnDelta::ToolArguments(chars(&name)),
        AgentEvent::ToolArgumentsDelta { arguments, .. } => {
            TurnDelta::ToolArguments(chars(&arguments))
        }
        AgentEvent::HiddenDelta { reasoning: 0, arguments, .. } => {
            TurnDelta::ToolArguments(arguments)
        }
        AgentEvent::HiddenDelta { reasoning, .. } => TurnDelta::Reasoning(reasoning),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::Lines;
    use endstop::event::AgentEvent;
    use serde_json::{Value, json};

    /// The line of an event that is given as JSON.
    fn line(event: Value) -> Value {
        let event: AgentEvent = serde_json::from_value(event).unwrap();
        serde_json::to_value(Lines::default().of(event).unwrap()).unwrap()
    }

    #[test]
    fn changes_of_hooks_have_lines() {
        let changed = line(json!({
            "type": "tool_call_changed", "run_id": "k3v9", "turn": 1, "call_id": "c1", "name": "act",
            "before": "{}", "after": "{\"n\":1}", "by": "pre_tool",
        }));
        assert_eq!(changed["type"], "call_changed");
        assert_eq!(changed["after"], "{\"n\":1}");
        let result = line(json!({
            "type": "tool_result_changed", "run_id": "k3v9", "turn": 1, "call_id": "c1",
            "name": "act", "status": "ok",
        }));
        assert_eq!(result["type"], "result_changed");
        assert_eq!(result["status"], "ok");
    }
}
