//! The reason why a run could not be started.
//!
//! ```
//! use endstop::StartError;
//! assert_eq!(StartError::Terminated.to_string(), "AgentLoop has been terminated");
//! ```

use crate::journal::{Change, JournalError};
use crate::provider::ParamError;

/// The reason why a run could not be started. How a started run ended is an
/// [`Outcome`](endstop_core::Outcome), never an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The agent or the session was terminated and cannot run again.
    #[error("AgentLoop has been terminated")]
    Terminated,
    /// Another run of the session is in progress.
    #[error("the session is busy: a run is in progress")]
    Busy,
    /// The configuration or the input is invalid; the string says how to fix it.
    #[error("{0}")]
    Config(String),
    /// The provider does not take a parameter, or parameters contradict each other.
    #[error("{0}")]
    Params(ParamError),
    /// The journal could not provide the run to resume.
    #[error("{0}")]
    Journal(JournalError),
    /// The configuration differs from the one the run started with. Pass
    /// [`Resume::accept_changes`](crate::Resume::accept_changes) to resume anyway.
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
    /// The run has already ended; the string states why it cannot be resumed.
    #[error("{0}")]
    Ended(String),
}

fn secrets(cuts: u64) -> &'static str {
    if cuts == 1 { "secret was" } else { "secrets were" }
}

/// Returns the changes, each after a semicolon.
fn list(changes: &[Change]) -> String {
    changes.iter().flat_map(|change| ["; ".to_owned(), change.to_string()]).collect()
}
