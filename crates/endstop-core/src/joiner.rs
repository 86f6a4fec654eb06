//! What a journal keeps of a run's events: all of them, with the deltas of a turn joined, or left out
//! where the turn has them.
//!
//! ```
//! use endstop_core::{EffectId, Event, EventKind, Joiner, TurnDelta};
//! use std::time::Duration;
//! let mut joiner = Joiner::default();
//! let piece = |ms, text: &str| {
//!     let delta = TurnDelta::Text(text.to_owned());
//!     Event::new(Duration::from_millis(ms), EventKind::Delta { call: EffectId(1), delta })
//! };
//! assert!(joiner.delta(piece(5, "Par")).is_empty());
//! assert!(joiner.delta(piece(9, "is.")).is_empty());
//! assert_eq!(joiner.take(), [piece(9, "Paris.")]);
//! ```
//!
//! A turn that ended says itself all that was streamed of it ([`Joiner::forget`]); the deltas are kept
//! of one that was cut, that failed, or that takes long. Feeding a turn in other pieces changes nothing but when something is decided. So what waits here
//! must be taken before any other event is kept, and before a delta that something was decided on,
//! which is kept by itself.

use crate::kernel::{EffectId, Event, EventKind, TurnDelta};
use std::time::Duration;

/// Joins the deltas of one model call.
#[derive(Debug, Default)]
pub struct Joiner {
    call: Option<EffectId>,
    at: Duration,
    text: String,
    reasoning: u64,
    arguments: u64,
}

/// Where a delta begins in what waits.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    at: Duration,
    text: usize,
    reasoning: u64,
    arguments: u64,
}

impl Joiner {
    /// Takes a delta that nothing was decided on. What comes back is of an earlier call, or no
    /// delta, and is to be kept now.
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

    /// What waits of another call than this one: to be kept before anything of this one is.
    pub fn earlier(&mut self, call: EffectId) -> Vec<Event> {
        if self.call.is_none_or(|own| own == call) { Vec::new() } else { self.take() }
    }

    /// Takes a delta of the call that waits, or of any where none does.
    pub fn push(&mut self, call: EffectId, delta: &TurnDelta, at: Duration) -> Mark {
        let mark = Mark {
            at: self.at,
            text: self.text.len(),
            reasoning: self.reasoning,
            arguments: self.arguments,
        };
        // No content: the kernel drops it too, and no clock is reset by it.
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

    /// Gives back the delta that was taken last, on which something was decided after all; what was
    /// before it waits on.
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

    /// What waits, joined: at most an event of each kind, at the time of the last.
    pub fn take(&mut self) -> Vec<Event> {
        let Some(call) = self.call.take() else { return Vec::new() };
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

    /// A response is whole, and says itself what was streamed of it: what waits of that call is not
    /// kept.
    pub fn forget(&mut self, whole: EffectId) {
        if self.call == Some(whole) {
            *self = Joiner::default();
        }
    }

    /// How much waits: bytes of text, and characters of the rest.
    pub fn waiting(&self) -> u64 {
        (self.text.len() as u64).saturating_add(self.reasoning).saturating_add(self.arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_that_was_decided_on_is_given_back_and_the_others_wait_on() {
        let (call, ms) = (EffectId(3), Duration::from_millis);
        let text = |text: &str| TurnDelta::Text(text.to_owned());
        let mut joiner = Joiner::default();
        joiner.push(call, &text("one "), ms(1));
        joiner.push(call, &TurnDelta::Reasoning(7), ms(2));
        let mark = joiner.push(call, &text("two"), ms(3));
        assert_eq!(joiner.take_back(mark), Some(text("two")));
        let mark = joiner.push(call, &TurnDelta::Reasoning(5), ms(4));
        assert_eq!(joiner.take_back(mark), Some(TurnDelta::Reasoning(5)));
        let kept = joiner.take();
        let delta = |delta| Event::new(ms(2), EventKind::Delta { call, delta });
        assert_eq!(kept, [delta(TurnDelta::Reasoning(7)), delta(text("one "))]);
        // The only one.
        let mark = joiner.push(call, &text("x"), ms(5));
        assert_eq!(joiner.take_back(mark), Some(text("x")));
        assert!(joiner.take().is_empty());
        let mark = joiner.push(call, &text(""), ms(6));
        assert_eq!(joiner.take_back(mark), None);
    }
}
