//! The end of a run, ready to be stored.

use endstop_core::{Message, Outcome};

pub(super) struct Ending {
    /// Without its messages.
    pub(super) outcome: Outcome,
    /// The same as JSON, without secrets.
    pub(super) text: String,
    pub(super) messages: Vec<Message>,
}
