//! The run that another one branches from.
//!
//! ```
//! use endstop_restate::{Fork, Origin};
//! let origin = Origin { run: "r1".to_owned(), turn: 3, ..Origin::default() };
//! let fork = Fork { origin, past: Default::default() };
//! assert!(fork.recorded().unwrap_err().to_string().contains("r1"), "the store has no step of it");
//! ```

use crate::request::Origin;
use crate::step::Past;
use endstop::journal::{JournalError, JournalErrorKind, RecordedRun};
use std::sync::Arc;

/// The run that another one branches from, with its steps. The steps up to a complete turn never
/// change, so each worker that begins the branch reads the same conversation.
#[derive(Clone, Debug)]
pub struct Fork {
    /// The place in the run.
    pub origin: Origin,
    /// The steps of the run; none if the store does not have it any more.
    pub past: Arc<Past>,
}

impl Fork {
    /// Returns the run as a journal would load it.
    ///
    /// # Errors
    /// The run has no step, or cannot be read.
    pub fn recorded(&self) -> Result<RecordedRun, JournalError> {
        if self.past.has_begun() {
            return self.past.recorded();
        }
        let problem = format!(
            "run {}, from which this run branches, has not started, or was removed from the store",
            self.origin.run
        );
        Err(JournalError::new("store", problem, JournalErrorKind::NotFound))
    }
}
