//! The lines of `--events` and `--json`. A line has the name that the event has as an [`AgentEvent`], but all
//! increments are a `delta`, and the usage is part of the turn.
//!
//! ```text
//! TextDelta { text: "It" }          → {"type":"delta","text":"It"}
//! ReasoningDelta { text: "Hm." }    → {"type":"delta","reasoning":3}
//! Usage { … }, TurnFinished { … }   → {"type":"turn_finished", …}
//! ```

use endstop::core::{NanoUsd, RunEvent, TurnDelta, Usage};
use endstop::event::{AgentEvent, AgentEventKind};
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
        match event.kind {
            AgentEventKind::Usage { usage, cost } => {
                self.usage = Some((*usage, cost));
                None
            }
            AgentEventKind::TurnFinished { text, signal, tool_calls } => {
                let (usage, cost) = self.usage.take().unwrap_or_default();
                let signal = *signal;
                let ended = RunEvent::TurnFinished { turn, text, signal, usage, cost, tool_calls };
                Some(Line::Run(ended))
            }
            AgentEventKind::Warning { message } => {
                Some(Line::Warning(WarningLine { kind: "warning", message }))
            }
            kind => match kind.into_run_event(turn) {
                Ok(event) => Some(Line::Run(event)),
                Err(kind) => delta(kind).map(Line::delta),
            },
        }
    }
}

/// Returns an increment of the turn. Of reasoning and arguments the lines have only the length.
fn delta(kind: AgentEventKind) -> Option<TurnDelta> {
    Some(match kind {
        AgentEventKind::TextDelta { text } => TurnDelta::Text(text),
        AgentEventKind::ReasoningDelta { text } | AgentEventKind::RefusalDelta { text } => {
            TurnDelta::Reasoning(chars(&text))
        }
        AgentEventKind::ToolCallStarted { name, .. } => TurnDelta::ToolArguments(chars(&name)),
        AgentEventKind::ToolArgumentsDelta { arguments, .. } => {
            TurnDelta::ToolArguments(chars(&arguments))
        }
        AgentEventKind::HiddenDelta { reasoning: 0, arguments } => {
            TurnDelta::ToolArguments(arguments)
        }
        AgentEventKind::HiddenDelta { reasoning, .. } => TurnDelta::Reasoning(reasoning),
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
        assert_eq!(changed["type"], "tool_call_changed");
        assert_eq!(changed["after"], "{\"n\":1}");
        let result = line(json!({
            "type": "tool_result_changed", "run_id": "k3v9", "turn": 1, "call_id": "c1",
            "name": "act", "status": "ok",
        }));
        assert_eq!(result["type"], "tool_result_changed");
        assert_eq!(result["status"], "ok");
    }
}
