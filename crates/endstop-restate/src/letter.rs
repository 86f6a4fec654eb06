//! Letters to a run that works: messages for the model and changes of limits, with numbers in the order in
//! which the engine got them. A run decides each of them once: the step in which it does has the decision.
//!
//! ```
//! use endstop_restate::{Content, Letter};
//! let letter: Letter = serde_json::from_str(r#"{"id": "m1", "say": "Only the tests."}"#)?;
//! assert_eq!(letter.content, Content::Say("Only the tests.".to_owned()));
//! # Ok::<(), serde_json::Error>(())
//! ```

use endstop::{LimitChanges, SteerError};
use serde::{Deserialize, Serialize};

/// A letter to a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Letter {
    /// Chosen by the sender, so that a letter that is sent again counts once.
    pub id: String,
    /// The content.
    #[serde(flatten)]
    pub content: Content,
}

/// The content of a letter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// A message, which the model reads before its next call.
    Say(String),
    /// Limits by name, each of which may only lower the present one.
    Limits(LimitChanges),
}

/// The decision about a letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steered {
    /// The number of the letter, from 1.
    pub number: u64,
    /// The reason if the run did not take it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refusal>,
}

/// The reason why a run did not take a letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The kind of the reason.
    pub kind: RefusalKind,
    /// The reason and the fix, for the sender.
    pub message: String,
}

/// The kind of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RefusalKind {
    /// The run has ended.
    Ended,
    /// The message, or all messages together, are too long.
    TooLarge,
    /// The content is not valid for this run.
    Invalid,
}

impl Refusal {
    /// Returns the refusal of a letter to a run that has ended.
    pub fn ended() -> Refusal {
        Refusal { kind: RefusalKind::Ended, message: SteerError::Ended.to_string() }
    }

    /// Returns the refusal of a letter; `None` if the run may take it when it works again.
    pub(crate) fn of(error: &SteerError) -> Option<Refusal> {
        let kind = match error {
            // The process that continues the run decides. If no process does, the engine refuses the
            // letter when the run has ended.
            SteerError::Ended | SteerError::Parked => return None,
            SteerError::TooLong { .. } | SteerError::TooMuch => RefusalKind::TooLarge,
            _ => RefusalKind::Invalid,
        };
        Some(Refusal { kind, message: error.to_string() })
    }
}
