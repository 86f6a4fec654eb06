//! Processes that left their command's group (`setsid`, a double fork) and are its children all
//! the same. Linux only: each command gets a mark in its environment that its children inherit,
//! and whoever carries the mark when the command has ended is killed.
//!
//! A process that rewrites its own environment is not found: only a container holds such a one.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// The variable that carries the mark.
const VARIABLE: &str = "ENDSTOP_COMMAND";

/// A stray may start another while it is looked for; after this many rounds it is let go.
const ROUNDS: usize = 8;

/// A command's mark; no two are the same.
#[derive(Clone, Debug)]
pub(super) struct Mark(String);

impl Mark {
    pub(super) fn new() -> Mark {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // The hasher's keys are random, so that processes in other namespaces differ too.
        let random = RandomState::new().build_hasher().finish();
        Mark(format!("{}-{number}-{random:016x}", std::process::id()))
    }

    /// Puts the mark into the environment of a command.
    pub(super) fn put(&self, command: &mut std::process::Command) {
        command.env(VARIABLE, &self.0);
    }

    /// Kills all who carry the mark.
    pub(super) fn kill_all(&self) {
        let entry = format!("{VARIABLE}={}", self.0).into_bytes();
        for _ in 0..ROUNDS {
            if !kill_round(&entry) {
                return;
            }
        }
    }
}

/// Kills those who are there now; says whether there were any.
fn kill_round(entry: &[u8]) -> bool {
    let mut found = false;
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    for process in processes.flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw)
        else {
            continue;
        };
        if !carries(pid, entry) {
            continue;
        }
        // The number may have gone to another process since it was looked at. A descriptor holds
        // on to one process: what is seen under the number while the descriptor is open and the
        // process alive is that process, and a signal through it reaches no other.
        let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        if carries(pid, entry) && pidfd_send_signal(&held, Signal::KILL).is_ok() {
            found = true;
        }
    }
    found
}

fn carries(pid: Pid, entry: &[u8]) -> bool {
    // Of a process that has ended (a zombie) the environment is empty; another user's is refused.
    fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()))
        .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|one| one == entry))
}
