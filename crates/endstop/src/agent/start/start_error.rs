//! The reason why a run could not be started, or a session not be changed.
//!
//! ```
//! use endstop::StartError;
//! assert_eq!(StartError::Terminated.to_string(), "AgentLoop has been terminated");
//! ```

use crate::journal::{Change, JournalError, PrefixError};
use crate::park::AnswerRefused;
use crate::provider::{ParamError, UnsupportedMedia};
use endstop_core::history::HistoryProblem;
use endstop_core::replay::CannotResume;
use endstop_core::{MediaError, MessageId};
use std::fmt;

/// The reason why a run could not be started, or a session not be changed. How a started run ended
/// is an [`Outcome`](endstop_core::Outcome), never an error.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The agent or the session was terminated and cannot run again.
    #[error("AgentLoop has been terminated")]
    Terminated,
    /// Another run of the session is in progress.
    #[error("the session is busy: a run is in progress")]
    Busy,
    /// There is no tokio runtime to run on.
    #[error("a run needs a tokio runtime: call it within one")]
    NoRuntime,
    /// The input has no text and no image.
    #[error("the input is blank: expected text or an image for the model")]
    BlankInput,
    /// The id of the run is not valid.
    #[error("invalid run id {0:?}: expected 1 to 64 ASCII letters, digits, `-` or `_`")]
    InvalidId(String),
    /// Providers would refuse the input.
    #[error("invalid input: {}; expected text and images", .0.what)]
    Input(#[source] HistoryProblem),
    /// The data of an image or a document is not of its media type.
    #[error("invalid input: {0}")]
    Media(#[from] MediaError),
    /// The model or its API does not take an image or a document of the input.
    #[error("invalid input: [{attachment}] cannot be sent: {source}")]
    UnsupportedMedia {
        /// A description of the image or document.
        attachment: String,
        /// The reason.
        source: UnsupportedMedia,
    },
    /// Providers would refuse the conversation.
    #[error("invalid `messages`: {0}; repair the conversation before it is given to the session")]
    Conversation(#[source] HistoryProblem),
    /// The data of an image or a document in the conversation is not of its media type.
    #[error("invalid `messages`: message {message}: {source}")]
    DamagedMedia {
        /// Position of the message, from 0.
        message: usize,
        /// The reason.
        source: MediaError,
    },
    /// The session has no message with this id.
    #[error(
        "unknown message {id} in `rollback`: expected the id of a message of the session",
        id = .0.0
    )]
    UnknownMessage(MessageId),
    /// The provider does not take a parameter, or parameters contradict each other.
    #[error(transparent)]
    Params(#[from] ParamError),
    /// The agent has no journal to resume a run from.
    #[error("the agent has no journal to resume from; set `AgentBuilder::journal`")]
    NoJournal,
    /// The journal could not provide the run to resume.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The decision about the request of a parked run was refused.
    #[error(transparent)]
    Answer(#[from] AnswerRefused),
    /// The configuration differs from the one the run started with. Pass
    /// [`Resume::accept_changes`](crate::Resume::accept_changes) to resume anyway, or
    /// [`Branch::accept_changes`](crate::Branch::accept_changes) to branch anyway.
    #[error("the configuration differs from the original run{}", list(.0))]
    Changed(Vec<Change>),
    /// Number of secrets that redaction removed from the journalled conversation. The resumed model
    /// would read `[redacted]` in their place, also in its own earlier calls. Pass
    /// [`Resume::accept_redacted`](crate::Resume::accept_redacted) to resume anyway.
    #[error(
        "{cuts} {were} cut out of the run's conversation when it was journalled, and the model would read `[redacted]` instead; accept that, or start a new run",
        cuts = .0,
        were = secrets(*.0)
    )]
    Redacted(u64),
    /// A part of the journalled run is lost.
    #[error(
        "run {run} cannot be resumed because a part of it is lost: {damage}; `SqliteJournal::load` reads the rest"
    )]
    Damaged {
        /// The run.
        run: String,
        /// A description of the lost part.
        damage: String,
    },
    /// The run to branch from has no such turn, or it cannot be restored.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// The run to branch from had its answer at this turn, and there is no message to continue with.
    #[error(
        "turn {turn} of run {run} ends with an answer of the model, which cannot continue without a message; give one, or branch at an earlier turn"
    )]
    Answered {
        /// The run.
        run: String,
        /// The turn.
        turn: u32,
    },
    /// The run has ended, and resuming it would change nothing.
    #[error("run {run}: {why}")]
    Ended {
        /// The run.
        run: String,
        /// The reason.
        #[source]
        why: CannotResume,
    },
}

/// The message, because that is what `fn main() -> Result<(), Box<dyn Error>>` prints.
impl fmt::Debug for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn secrets(cuts: u64) -> &'static str {
    if cuts == 1 { "secret was" } else { "secrets were" }
}

/// Returns the changes, each after a semicolon.
fn list(changes: &[Change]) -> String {
    changes.iter().flat_map(|change| ["; ".to_owned(), change.to_string()]).collect()
}
