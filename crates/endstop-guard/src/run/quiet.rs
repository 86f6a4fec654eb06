//! Notices a program that does not use the proxy.
//!
//! ```no_run
//! # async fn guarded(run: endstop_guard::run::RunHandle) {
//! use endstop_guard::run::{QUIET, warn_if_quiet};
//! if let Some(warning) = warn_if_quiet(&run, QUIET).await {
//!     eprintln!("{warning}");
//! }
//! # }
//! ```

use super::runs::RunHandle;
use std::fmt;
use std::time::Duration;

/// Time without a model call after which a program is reported. Clients send their first call within
/// seconds, unless they wait for the user.
pub const QUIET: Duration = Duration::from_secs(20);

/// A program has lived for some time, and no model call has come through guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuietWarning {
    /// Time since its start.
    pub after: Duration,
}

/// Waits for the first model call of a run, and returns a warning if none comes within this time. Requests of another
/// kind do not count: a program may test the connection, and make its calls elsewhere. Cancel-safe.
pub async fn warn_if_quiet(run: &RunHandle, within: Duration) -> Option<QuietWarning> {
    let called = run.until(|run| run.counts().has_model_calls());
    let is_quiet = tokio::time::timeout(within, called).await.is_err();
    is_quiet.then_some(QuietWarning { after: within })
}

impl fmt::Display for QuietWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no call after {} s: the program waits for you, or it does not use the proxy, and no limit holds for it",
            self.after.as_secs()
        )
    }
}
