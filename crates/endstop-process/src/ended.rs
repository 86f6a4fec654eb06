//! The report of the thread that reaps a command.
//!
//! ```text
//! let Ended { status, left, orphans } = exit.await?;
//! ```

use std::io;
use std::process::ExitStatus;
use tokio::sync::oneshot;

/// Time to wait for the deaths of a command's remaining processes. Shorter than the time that the
/// host waits for the end of a killed command, so that the survivors can still be reported.
#[cfg(unix)]
pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(1);

/// Result of a command, as the reaper reports it.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Exit status; `None` if the command has not exited or its status is unknown.
    pub(crate) status: io::Result<Option<ExitStatus>>,
    /// Process ids of processes that could not be killed.
    pub(crate) left: Vec<u32>,
    /// Outcome for its processes if its keeper was killed.
    pub(crate) orphans: Option<Orphans>,
}

/// Receives the result after all remaining processes of the command have been killed.
pub(crate) type Exit = oneshot::Receiver<Ended>;

/// Outcome for the processes of a command whose [keeper](crate::keeper) was killed or stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orphans {
    /// Number of processes that were found and killed.
    pub killed: usize,
    /// `true` if none can have been missed. `false`: processes that left the command's session and
    /// carry no mark may still run.
    pub all_found: bool,
}
