//! The messages and limit changes that were sent to a run, and that its driver has not taken yet.
//!
//! ```text
//! control.send(|mailbox| …)   // the caller, from any thread
//! control.take_news()         // the driver
//! ```

use endstop_core::{EventKind, Limits};
use std::collections::VecDeque;

/// The letters to a run.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    letters: VecDeque<EventKind>,
    /// The limits with all changes that were sent; `None`: those of the agent.
    pub(crate) limits: Option<Limits>,
    /// Bytes of all messages that were sent.
    pub(crate) said: usize,
}

impl Mailbox {
    pub(super) fn push(&mut self, letter: EventKind) {
        self.letters.push_back(letter);
    }

    pub(super) fn pop(&mut self) -> Option<EventKind> {
        self.letters.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    pub(super) fn take_all(&mut self) -> Vec<EventKind> {
        self.letters.drain(..).collect()
    }
}
