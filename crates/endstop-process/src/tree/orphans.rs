//! Finds processes that left their command's group (`setsid`, a double fork) but descend from the
//! command. Linux only: each command gets a mark in its environment that its children inherit, and
//! every process that carries the mark when the command has ended is killed.
//!
//! A process that clears its environment is not found by its mark. A [keeper](crate::keeper) still
//! finds it as long as it descends from the command.

use super::processes::{self, Process};
use rustix::process::Pid;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Name of the variable that carries the mark of a command.
const COMMAND: &str = "ENDSTOP_COMMAND";

/// Name of the variable that carries the mark of an agent program: the id of its run.
const RUN: &str = "ENDSTOP_RUN";

/// The mark of a command or of an agent program, which is unique.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    variable: &'static str,
    text: OsString,
}

impl Mark {
    pub(crate) fn new() -> Mark {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // The hasher's keys are random, so that marks of hosts with the same process id in
        // different PID namespaces differ.
        let random = RandomState::new().build_hasher().finish();
        let text = format!("{}-{number}-{random:016x}", std::process::id());
        Mark::of(text.into())
    }

    /// Returns the mark that the host has made for a command.
    pub(crate) fn of(text: OsString) -> Mark {
        Mark { variable: COMMAND, text }
    }

    /// Returns the mark of an agent program. Its environment names the run, so that the user can
    /// find the run's processes too.
    pub(crate) fn of_run(id: OsString) -> Mark {
        Mark { variable: RUN, text: id }
    }

    pub(crate) fn text(&self) -> &OsStr {
        &self.text
    }

    /// Puts the mark into the environment of a command.
    pub(crate) fn put(&self, command: &mut Command) {
        command.env(self.variable, &self.text);
    }

    /// Kills all processes that carry the mark, until `end` at the latest. Returns the process ids
    /// of those that are still alive then.
    pub(crate) fn kill_all(&self, end: Instant) -> Vec<u32> {
        processes::kill_all(|| self.carriers(), end)
    }

    /// Returns the processes that carry the mark.
    pub(crate) fn carriers(&self) -> Vec<Process> {
        let entry = [self.variable.as_bytes(), b"=", self.text.as_bytes()].concat();
        carriers_of(&entry)
    }
}

/// Returns the processes whose environment has this entry: `NAME=VALUE`.
pub(crate) fn carriers_of(entry: &[u8]) -> Vec<Process> {
    // The environment is read again after `look`, because the id may have passed to another
    // process in between.
    processes::numbers()
        .filter_map(|pid| carries(pid, entry).then(|| processes::look(pid))?)
        .filter(|seen| !seen.ended && carries(seen.pid, entry))
        .collect()
}

fn carries(pid: Pid, entry: &[u8]) -> bool {
    // The environment of a zombie is empty; reading that of another user's process is refused.
    fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()))
        .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|one| one == entry))
}
