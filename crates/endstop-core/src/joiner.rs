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

impl Joiner {
    /// Takes a delta that nothing was decided on. What comes back is of an earlier call, or no
    /// delta, and is to be kept now.
    pub fn delta(&mut self, event: Event) -> Vec<Event> {
        let EventKind::Delta { call, delta } = event.kind else {
            let mut kept = self.take();
            kept.push(event);
            return kept;
        };
        // No content: the kernel drops it too, and no clock is reset by it.
        if delta.is_empty() {
            return Vec::new();
        }
        let earlier = if self.call == Some(call) { Vec::new() } else { self.take() };
        self.call = Some(call);
        self.at = self.at.max(event.at);
        match delta {
            TurnDelta::Text(text) => self.text.push_str(&text),
            TurnDelta::Reasoning(chars) => self.reasoning = self.reasoning.saturating_add(chars),
            TurnDelta::ToolArguments(chars) => {
                self.arguments = self.arguments.saturating_add(chars);
            }
        }
        earlier
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
