//! Removes secrets from streamed events, also a secret that is split over several deltas.
//!
//! ```text
//! text_delta "The key is sk-pr"  →  text_delta "The key is "
//! text_delta "oj-4fQ9…, as"      →  text_delta "[redacted], as"
//! ```
//!
//! Only the end of a text that could become a secret waits for the next delta.

use super::agent_event::{AgentEvent, RunPlace};
use super::kind::AgentEventKind;
use endstop_wire::redact::{KnownKeys, TextRedactor};
use std::mem::{Discriminant, discriminant, take};
use std::sync::Arc;

/// The texts that are being streamed.
#[derive(Debug)]
pub(super) struct Redaction {
    pub(super) secrets: KnownKeys,
    open: Vec<Open>,
}

/// A text that is being streamed.
#[derive(Debug)]
struct Open {
    run: Arc<RunPlace>,
    kind: Discriminant<AgentEventKind>,
    /// Position of the call, if the text is the arguments of one.
    call: Option<u32>,
    text: TextRedactor,
    /// The last delta, whose form the rest of the text takes.
    last: AgentEvent,
}

/// Returns the text of a delta, and the position of its call.
fn text_of(kind: &mut AgentEventKind) -> Option<(&mut String, Option<u32>)> {
    match kind {
        AgentEventKind::TextDelta { text, .. }
        | AgentEventKind::ReasoningDelta { text, .. }
        | AgentEventKind::RefusalDelta { text, .. } => Some((text, None)),
        AgentEventKind::ToolArgumentsDelta { arguments, index, .. } => {
            Some((arguments, Some(*index)))
        }
        _ => None,
    }
}

impl Open {
    /// Returns the last delta with the rest of the text, unless that is empty.
    fn rest(mut self) -> Option<AgentEvent> {
        let rest = self.text.finish();
        let (text, _) = text_of(&mut self.last.kind)?;
        *text = rest;
        let empty = text.is_empty();
        (!empty).then_some(self.last)
    }
}

impl Redaction {
    pub(super) fn new(secrets: KnownKeys) -> Redaction {
        Redaction { secrets, open: Vec::new() }
    }

    /// Passes on the events to write now, in order.
    pub(super) fn take(&mut self, mut event: AgentEvent, out: &mut impl FnMut(AgentEvent)) {
        let (run, kind) = (Arc::clone(&event.origin.run), discriminant(&event.kind));
        let Some((text, call)) = text_of(&mut event.kind) else {
            // These events can occur within a text, which continues after them.
            let within = event.kind.is_delta()
                || matches!(
                    event.kind,
                    AgentEventKind::Warning { .. } | AgentEventKind::RuleHit { .. }
                );
            if !within {
                let last = matches!(
                    event.kind,
                    AgentEventKind::Finished { .. } | AgentEventKind::Parked { .. }
                );
                self.finish(|open| last || open.run == run, out);
            }
            return out(event);
        };
        let same = |open: &Open| open.kind == kind && open.call == call && open.run == run;
        let piece = take(text);
        let at = if let Some(at) = self.open.iter().position(same) {
            at
        } else {
            let text = TextRedactor::new(self.secrets.clone());
            self.open.push(Open { run, kind, call, text, last: event.clone() });
            self.open.len() - 1
        };
        let clean = self.open[at].text.push(&piece);
        if let Some((text, _)) = text_of(&mut event.kind).filter(|_| !clean.is_empty()) {
            *text = clean;
            out(event);
        }
    }

    /// Passes on the rests of the texts that have ended.
    fn finish(&mut self, ended: impl Fn(&Open) -> bool, out: &mut impl FnMut(AgentEvent)) {
        for open in self.open.extract_if(.., |open| ended(open)) {
            open.rest().into_iter().for_each(&mut *out);
        }
    }

    /// Passes on the rests of all texts.
    pub(super) fn finish_all(&mut self, out: &mut impl FnMut(AgentEvent)) {
        self.finish(|_| true, out);
    }
}
