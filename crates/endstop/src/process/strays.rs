//! Processes that left their command's group (`setsid`, a double fork) and are its children all
//! the same. Linux only: each command gets a mark in its environment that its children inherit,
//! and whoever carries the mark when the command has ended is killed.
//!
//! A process that rewrites its own environment is not found by its mark. A
//! [keeper](super::keeper) finds it all the same, as long as it is a child of the command's.

use super::tree::{self, Process};
use rustix::process::Pid;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The variable that carries the mark.
const VARIABLE: &str = "ENDSTOP_COMMAND";

/// A command's mark; no two are the same.
#[derive(Clone, Debug)]
pub(super) struct Mark(OsString);

impl Mark {
    pub(super) fn new() -> Mark {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // The hasher's keys are random, so that processes in other namespaces differ too.
        let random = RandomState::new().build_hasher().finish();
        Mark(format!("{}-{number}-{random:016x}", std::process::id()).into())
    }

    /// A mark that somebody else made.
    pub(super) fn of(text: OsString) -> Mark {
        Mark(text)
    }

    pub(super) fn text(&self) -> &OsStr {
        &self.0
    }

    /// Puts the mark into the environment of a command.
    pub(super) fn put(&self, command: &mut Command) {
        command.env(VARIABLE, &self.0);
    }

    /// Kills all who carry the mark, but not after `end`; gives the numbers of those who are still
    /// there then.
    pub(super) fn kill_all(&self, end: Instant) -> Vec<u32> {
        tree::kill_all(|| self.carriers(), end)
    }

    /// Those who carry the mark.
    pub(super) fn carriers(&self) -> Vec<Process> {
        let entry = [VARIABLE.as_bytes(), b"=", self.0.as_bytes()].concat();
        // Read again after the look, so that the mark is surely of the process that was seen.
        tree::numbers()
            .filter_map(|pid| carries(pid, &entry).then(|| tree::look(pid))?)
            .filter(|seen| !seen.ended && carries(seen.pid, &entry))
            .collect()
    }
}

fn carries(pid: Pid, entry: &[u8]) -> bool {
    // Of a process that has ended (a zombie) the environment is empty; another user's is refused.
    fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()))
        .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|one| one == entry))
}
