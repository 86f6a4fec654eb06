//! Merges the streamed deltas of a turn before they are journalled, or omits them if the complete
//! turn contains their content.
//!
//! ```
//! use endstop_core::{EffectId, Event, EventKind, DeltaBuffer, TurnDelta};
//! use std::time::Duration;
//! let mut joiner = DeltaBuffer::default();
//! let piece = |ms, text: &str| {
//!     let delta = TurnDelta::Text(text.to_owned());
//!     Event::new(Duration::from_millis(ms), EventKind::Delta { call: EffectId(1), delta })
//! };
//! assert!(joiner.delta(piece(5, "Par")).is_empty());
//! assert!(joiner.delta(piece(9, "is.")).is_empty());
//! assert_eq!(joiner.take(), [piece(9, "Paris.")]);
//! ```
//!
//! A completed turn contains everything that was streamed, so its deltas are not journalled
//! ([`DeltaBuffer::forget`]). Deltas are journalled only if the turn was aborted, failed, or is still
//! running after one second.
//!
//! Replaying a turn in larger deltas leads to the same decisions, only at other times. So that the
//! order of events stays correct, the waiting deltas must be taken before any other event is
//! journalled, and before a delta that led to a decision; that delta is journalled separately.

use crate::kernel::{EffectId, Event, EventKind, TurnDelta};
use std::time::Duration;

/// Merges the deltas of one model call.
#[derive(Debug, Default)]
pub struct DeltaBuffer {
    call: Option<EffectId>,
    at: Duration,
    text: String,
    reasoning: u64,
    arguments: u64,
}

/// A position in the waiting content, to take back the last delta.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    at: Duration,
    text: usize,
    reasoning: u64,
    arguments: u64,
}

impl DeltaBuffer {
    /// Accepts a delta that led to no decision. The returned events must be journalled now: they
    /// belong to an earlier call, or the event is not a delta.
    pub fn delta(&mut self, event: Event) -> Vec<Event> {
        let EventKind::Delta { call, delta } = &event.kind else {
            let mut kept = self.take();
            kept.push(event);
            return kept;
        };
        let earlier = self.earlier(*call);
        self.push(*call, delta, event.at);
        earlier
    }

    /// Returns the waiting content if it belongs to another call, to be journalled before this
    /// call's.
    pub fn earlier(&mut self, call: EffectId) -> Vec<Event> {
        if self.call.is_none_or(|own| own == call) { Vec::new() } else { self.take() }
    }

    /// Appends a delta. The waiting content must be empty or belong to the same call.
    pub fn push(&mut self, call: EffectId, delta: &TurnDelta, at: Duration) -> Mark {
        let mark = Mark {
            at: self.at,
            text: self.text.len(),
            reasoning: self.reasoning,
            arguments: self.arguments,
        };
        // No content: the kernel ignores such a delta too, and it resets no timeout.
        if delta.is_empty() {
            return mark;
        }
        self.call = Some(call);
        self.at = self.at.max(at);
        match delta {
            TurnDelta::Text(text) => self.text.push_str(text),
            TurnDelta::Reasoning(chars) => self.reasoning = self.reasoning.saturating_add(*chars),
            TurnDelta::ToolArguments(chars) => {
                self.arguments = self.arguments.saturating_add(*chars);
            }
        }
        mark
    }

    /// Takes back the last delta, because a decision was made on it after all. The content before
    /// it stays.
    pub fn take_back(&mut self, mark: Mark) -> Option<TurnDelta> {
        let text = self.text.split_off(mark.text.min(self.text.len()));
        let reasoning = self.reasoning.saturating_sub(mark.reasoning);
        let arguments = self.arguments.saturating_sub(mark.arguments);
        (self.reasoning, self.arguments, self.at) = (mark.reasoning, mark.arguments, mark.at);
        if self.waiting() == 0 {
            self.call = None;
        }
        let pieces = [
            TurnDelta::Text(text),
            TurnDelta::Reasoning(reasoning),
            TurnDelta::ToolArguments(arguments),
        ];
        pieces.into_iter().find(|delta| !delta.is_empty())
    }

    /// Takes the waiting content, merged: at most one event of each kind, at the time of the last
    /// delta.
    pub fn take(&mut self) -> Vec<Event> {
        let Some(call) = self.call.take() else { return Vec::new() };
        // A fixed order, so that equal runs give equal journals.
        let at = std::mem::take(&mut self.at);
        [
            TurnDelta::Reasoning(std::mem::take(&mut self.reasoning)),
            TurnDelta::ToolArguments(std::mem::take(&mut self.arguments)),
            TurnDelta::Text(std::mem::take(&mut self.text)),
        ]
        .into_iter()
        .filter(|delta| !delta.is_empty())
        .map(|delta| Event::new(at, EventKind::Delta { call, delta }))
        .collect()
    }

    /// Like [`take`](DeltaBuffer::take), but leaves this many bytes at the end of the text waiting.
    /// A character is not split.
    pub fn take_but(&mut self, bytes: usize) -> Vec<Event> {
        let mut from = self.text.len().saturating_sub(bytes);
        while !self.text.is_char_boundary(from) {
            from -= 1;
        }
        let rest = self.text.split_off(from);
        let (call, at) = (self.call, self.at);
        let taken = self.take();
        if !rest.is_empty() {
            (self.call, self.at, self.text) = (call, at, rest);
        }
        taken
    }

    /// The waiting text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Drops the waiting content of a call whose response is complete, because the response
    /// contains it.
    pub fn forget(&mut self, whole: EffectId) {
        if self.call == Some(whole) {
            *self = DeltaBuffer::default();
        }
    }

    /// Size of the waiting content: bytes of text plus characters of the other kinds.
    pub fn waiting(&self) -> u64 {
        (self.text.len() as u64).saturating_add(self.reasoning).saturating_add(self.arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_back_delta_leaves_others_waiting() {
        let (call, ms) = (EffectId(3), Duration::from_millis);
        let text = |text: &str| TurnDelta::Text(text.to_owned());
        let mut joiner = DeltaBuffer::default();
        joiner.push(call, &text("one "), ms(1));
        joiner.push(call, &TurnDelta::Reasoning(7), ms(2));
        let mark = joiner.push(call, &text("two"), ms(3));
        assert_eq!(joiner.take_back(mark), Some(text("two")));
        let mark = joiner.push(call, &TurnDelta::Reasoning(5), ms(4));
        assert_eq!(joiner.take_back(mark), Some(TurnDelta::Reasoning(5)));
        let kept = joiner.take();
        let delta = |delta| Event::new(ms(2), EventKind::Delta { call, delta });
        assert_eq!(kept, [delta(TurnDelta::Reasoning(7)), delta(text("one "))]);
        // The end of the text stays.
        joiner.push(call, &text("one tw"), ms(5));
        joiner.push(call, &TurnDelta::Reasoning(7), ms(6));
        let kept = joiner.take_but(2);
        assert_eq!((kept.len(), joiner.text(), joiner.waiting()), (2, "tw", 2));
        assert_eq!(joiner.take_but(9), []);
        let kept = [Event::new(ms(6), EventKind::Delta { call, delta: text("tw") })];
        assert_eq!(joiner.take(), kept);
        // The only waiting delta.
        let mark = joiner.push(call, &text("x"), ms(5));
        assert_eq!(joiner.take_back(mark), Some(text("x")));
        assert!(joiner.take().is_empty());
        let mark = joiner.push(call, &text(""), ms(6));
        assert_eq!(joiner.take_back(mark), None);
    }
}
