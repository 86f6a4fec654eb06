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

use endstop::agent::AgentEvent;
use endstop::wire::redact::{KnownKeys, TextRedactor};
use endstop::{RunEvent, TurnDelta};

/// The streamed text of one run.
pub(crate) struct StreamedText {
    text: TextRedactor,
    /// The last delta, whose form the rest of the text takes.
    last: Option<AgentEvent>,
}

impl StreamedText {
    pub(crate) fn new(secrets: KnownKeys) -> StreamedText {
        StreamedText { text: TextRedactor::new(secrets), last: None }
    }

    /// Returns the events to write now, in order.
    pub(crate) fn take(&mut self, event: AgentEvent) -> [Option<AgentEvent>; 2] {
        match event {
            AgentEvent::Delta(mut delta) => match &delta.delta {
                TurnDelta::Text(text) => {
                    let clean = self.text.push(text);
                    let written = !clean.is_empty();
                    delta.delta = TurnDelta::Text(clean);
                    let event = AgentEvent::Delta(delta);
                    self.last = Some(event.clone());
                    [written.then_some(event), None]
                }
                _ => [Some(AgentEvent::Delta(delta)), None],
            },
            // These events can occur within a text, which continues after them.
            event @ (AgentEvent::Warning(_) | AgentEvent::Run(RunEvent::RuleHit(_))) => {
                [Some(event), None]
            }
            event => [self.rest(), Some(event)],
        }
    }

    /// Returns the rest of the text at its end.
    pub(crate) fn rest(&mut self) -> Option<AgentEvent> {
        let rest = self.text.finish();
        let Some(AgentEvent::Delta(mut last)) = self.last.take() else { return None };
        last.delta = TurnDelta::Text(rest);
        (!last.delta.is_empty()).then_some(AgentEvent::Delta(last))
    }
}
