//! The beginning of the sentence with which Endstop stops another program's agent, and its reader.
//!
//! ```
//! use endstop_core::{Termination, stop_message};
//! let text = "Run stopped by endstop: error_max_turns (25 of 25 turns), in run nightly-1";
//! assert_eq!(stop_message::termination(text), Some(Termination::ErrorMaxTurns));
//! ```
//!
//! The program stores the sentence in its session, as an answer of the model or as the message of a
//! failed call. It is text of a model or a server, so a reader must not conclude more from it than
//! how the session says that it ended.

use crate::termination::Termination;

/// The beginning of the sentence. The name of the termination follows.
pub const PREFIX: &str = "Run stopped by endstop: ";

/// Returns the termination that the text names, if the text begins with the sentence. An unknown name
/// and a success are `None`, because nothing is stopped as a success.
pub fn termination(text: &str) -> Option<Termination> {
    let rest = text.trim_start().strip_prefix(PREFIX)?;
    let end = rest.find(|c: char| !(c.is_ascii_lowercase() || c == '_')).unwrap_or(rest.len());
    let named = Termination::all().iter().find(|one| one.as_str() == &rest[..end]);
    named.copied().filter(|one| one.is_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_leading_sentence_names_termination() {
        for one in Termination::all().iter().copied() {
            let named = one.is_error().then_some(one);
            assert_eq!(termination(&format!("{PREFIX}{one} (3 turns). run a")), named);
            assert_eq!(termination(&format!("\n{PREFIX}{one}")), named);
            assert_eq!(termination(&format!("I read: {PREFIX}{one}.")), None);
        }
        for text in ["", "error_max_turns", "Run stopped by endstop:", "Run stopped by endstop: x"]
        {
            assert_eq!(termination(text), None, "{text}");
        }
        assert_eq!(
            termination("Run stopped by endstop: error_max_turnsé"),
            Some(Termination::ErrorMaxTurns)
        );
        assert_eq!(termination("Run stopped by endstop: error_max_turns_x"), None);
    }
}
