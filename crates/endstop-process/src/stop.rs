//! When a command must stop, and how.
//!
//! ```
//! use endstop_process::Stop;
//! let stop = Stop { grace: std::time::Duration::from_secs(2), ..Stop::never() };
//! stop.ask.cancel(); // SIGTERM to the command's group; SIGKILL two seconds later
//! ```

use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Tells a command when to stop, and how.
#[derive(Clone, Debug)]
pub struct Stop {
    /// Asks the command to end. It is killed after the grace period.
    pub ask: CancellationToken,
    /// Kills the command at once, even during its grace period.
    pub kill: CancellationToken,
    /// Time that the command has to end after it was asked. Zero: it is killed without being asked.
    pub grace: Duration,
}

impl Stop {
    /// Returns a `Stop` that is never triggered: the command runs until it ends by itself.
    pub fn never() -> Stop {
        Stop {
            ask: CancellationToken::new(),
            kill: CancellationToken::new(),
            grace: Duration::ZERO,
        }
    }
}
