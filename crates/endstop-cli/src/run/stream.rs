//! Removes secrets from the streamed text of a run before it is written, also those that are split
//! over several deltas.
//!
//! ```text
//! {"type":"delta","text":"The key is sk-pr"}   →  {"type":"delta","text":"The key is "}
//! {"type":"delta","text":"oj-4fQ9…, as"}       →  {"type":"delta","text":"[redacted], as"}
//! ```
//!
//! Only the end of a text that could become a secret waits for the next delta. A delta whose whole
//! text waits is left out.

use super::line::{Line, Lines};
use endstop::core::{RunEvent, TurnDelta, closed};
use endstop::event::{AgentEvent, AgentEventKind};
use endstop::wire::redact::{KnownKeys, TextRedactor};

/// The streamed text of one run.
pub(crate) struct StreamedText {
    text: TextRedactor,
    lines: Lines,
    /// Characters of the name of a call that has just started. Its first arguments are added if
    /// they have arrived together with it.
    started: Option<u64>,
}

impl StreamedText {
    pub(crate) fn new(secrets: KnownKeys) -> StreamedText {
        StreamedText { text: TextRedactor::new(secrets), lines: Lines::default(), started: None }
    }

    /// Returns the lines to write now, in order.
    pub(crate) fn take(&mut self, event: AgentEvent) -> Vec<Line> {
        let starts = matches!(event.kind, AgentEventKind::ToolCallStarted { .. });
        let Some(mut line) = self.lines.of(event) else { return Vec::new() };
        let mut out = Vec::with_capacity(1);
        match &mut line {
            Line::Delta(line) => match &mut line.delta {
                TurnDelta::ToolArguments(chars) if !starts => {
                    *chars += self.started.take().unwrap_or_default();
                }
                delta => {
                    out.extend(self.started());
                    match delta.closed() {
                        closed::TurnDelta::Text(text) => {
                            let text = self.text.push(text);
                            if text.is_empty() {
                                return out;
                            }
                            *delta = TurnDelta::Text(text);
                        }
                        closed::TurnDelta::ToolArguments(chars) => {
                            self.started = Some(chars);
                            return out;
                        }
                        closed::TurnDelta::Reasoning(_) => {}
                    }
                }
            },
            // These events can occur within a text, which continues after them.
            Line::Warning(_) | Line::Run(RunEvent::RuleHit(_)) => out.extend(self.started()),
            Line::Run(_) => out.extend(self.rest()),
        }
        out.push(line);
        out
    }

    /// `true` if a line waits for the next event, which has not arrived.
    pub(crate) fn is_waiting(&self) -> bool {
        self.started.is_some()
    }

    /// Returns the line of a call that has started.
    pub(crate) fn started(&mut self) -> Option<Line> {
        self.started.take().map(|chars| Line::delta(TurnDelta::ToolArguments(chars)))
    }

    /// Returns the lines that wait, at the end of the text.
    pub(crate) fn rest(&mut self) -> Vec<Line> {
        let rest = self.text.finish();
        let text = (!rest.is_empty()).then(|| Line::delta(TurnDelta::Text(rest)));
        self.started().into_iter().chain(text).collect()
    }
}
