//! The input of a run, and the check of a conversation that the user supplied.
//!
//! ```text
//! check_history("history", &messages)?; // providers would accept it
//! ```

use super::start_error::StartError;
use endstop_core::{Message, history};

/// The input of a run: its messages and the epoch of the provider's encoded state.
#[derive(Clone)]
pub(crate) struct Conversation {
    pub(crate) messages: Vec<Message>,
    pub(crate) epoch: u64,
}

/// Returns an error if providers would refuse the conversation; `name` is the setting to report.
pub(super) fn check_history(name: &str, messages: &[Message]) -> Result<(), StartError> {
    match history::problem(messages).filter(|_| !messages.is_empty()) {
        None => Ok(()),
        Some(problem) => Err(StartError::Config(format!(
            "invalid `{name}`: {problem}; repair the conversation before it is given to the loop"
        ))),
    }
}
