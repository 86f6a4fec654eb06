//! The end of a command.
//!
//! ```text
//! finished.how(); // "exit status 3"
//! ```

use super::capture::Capture;
use crate::ended::Orphans;
use std::process::ExitStatus;

/// Result of a command that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Exit status. `None` if the command was killed but has not exited (it is then in `left`), or
    /// if the status is unknown because the [keeper](crate::keeper) was killed.
    pub status: Option<ExitStatus>,
    /// Standard output and standard error, in the order in which they came.
    pub output: Capture,
    /// `true` if the command was asked to end or killed, `false` if it ended by itself.
    pub stopped: bool,
    /// `true` if another process still held the pipe when reading ended, so that output may be
    /// missing.
    pub pipe_held: bool,
    /// Process ids of processes that could not be killed: a process that hangs in the kernel, or
    /// one of another user (`sudo`). Empty if all processes that were found have died.
    pub left: Vec<u32>,
    /// Outcome for the remaining processes if the [keeper](crate::keeper) was killed or stopped.
    pub orphans: Option<Orphans>,
}

impl Finished {
    /// Returns `true` if the command ended by itself with a successful exit status.
    pub fn success(&self) -> bool {
        !self.stopped && self.status.is_some_and(|status| status.success())
    }

    /// Returns `true` if the command ended by itself with any exit status.
    pub fn exited(&self) -> bool {
        !self.stopped && self.status.is_some_and(|status| status.code().is_some())
    }

    /// Describes how the command ended, for example `exit status 3` or `killed by signal 9`.
    pub fn how(&self) -> String {
        how(self.status, &self.left, self.orphans)
    }
}

/// Describes how a command ended.
pub(crate) fn how(status: Option<ExitStatus>, left: &[u32], orphans: Option<Orphans>) -> String {
    let Some(status) = status else {
        let Some(Orphans { killed, all_found }) = orphans else {
            return "it was killed but has not exited".to_owned();
        };
        let killed = match killed {
            0 => "none of its processes was found".to_owned(),
            1 => "1 of its processes was killed".to_owned(),
            n => format!("{n} of its processes were killed"),
        };
        // Processes that could not be killed are listed separately, so they are not mentioned
        // again.
        let missed = if all_found || !left.is_empty() { "" } else { ", others may still run" };
        return format!("killed with its keeper: {killed}{missed}");
    };
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return format!("killed by signal {signal}");
    }
    status.code().map_or_else(|| status.to_string(), |code| format!("exit status {code}"))
}
