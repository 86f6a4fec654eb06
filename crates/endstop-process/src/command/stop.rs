//! Requests that a command stop, at once or gently.
//!
//! ```
//! use endstop_process::StopTokens;
//! let stop = StopTokens { grace: std::time::Duration::from_secs(2), ..StopTokens::never() };
//! stop.ask.cancel(); // SIGTERM to the command's group; SIGKILL two seconds later
//! ```

use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Tells a command when to stop, and how.
#[derive(Clone, Debug)]
pub struct StopTokens {
    /// Asks the command to end. It is killed after the grace period.
    pub ask: CancellationToken,
    /// Kills the command at once, even during its grace period.
    pub kill: CancellationToken,
    /// Time that the command has to end after it was asked. Zero: it is killed without being asked.
    pub grace: Duration,
}

impl StopTokens {
    /// Returns tokens that are never triggered: the command runs until it ends by itself.
    pub fn never() -> StopTokens {
        StopTokens {
            ask: CancellationToken::new(),
            kill: CancellationToken::new(),
            grace: Duration::ZERO,
        }
    }
}
