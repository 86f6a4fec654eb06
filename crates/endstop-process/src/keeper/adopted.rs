//! Finds, kills and reaps the orphans of killed keepers, if this process has agreed to adopt them.
//! Linux only.
//!
//! ```text
//! adopted::agree();                            // called by main
//! let keeper = adopted::spawn(&mut command)?;  // known from here on
//! let left = adopted::living();                // processes that dead keepers have left
//! adopted::reap();
//! ```
//!
//! A keeper is a subreaper, so its command's processes cannot leave it. If it is killed, they
//! become children of the next subreaper above it. That is this process if it has agreed, and
//! otherwise `init`, where they cannot be distinguished from unrelated processes.
//!
//! A child of this process is an orphan if it is in another session and is not a keeper. This holds
//! because each keeper starts a session, and no process can return to a session that it has left.

use crate::tree::processes::{self, Process};
use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, waitpid};
use std::collections::HashSet;
use std::io;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `true` if orphans become children of this process. Global because it is a property of the
/// process.
static AGREED: AtomicBool = AtomicBool::new(false);

/// `true` if a command was started that may leave daemons. They become children of this process too
/// and must not be killed.
static LEAVES_DAEMONS: AtomicBool = AtomicBool::new(false);

/// Process ids of the keepers that were not reaped yet.
static KEEPERS: Mutex<Option<HashSet<i32>>> = Mutex::new(None);

/// Makes this process adopt orphans. Returns `true` if the system did so.
pub(super) fn agree() -> bool {
    let agreed = set_child_subreaper(Some(getpid())).is_ok();
    AGREED.fetch_or(agreed, Ordering::Relaxed);
    agreed
}

/// Records that a command may leave daemons.
pub(super) fn daemons_may_live() {
    LEAVES_DAEMONS.store(true, Ordering::Relaxed);
}

/// Returns `true` if every orphan of a dead keeper is found.
pub(super) fn finds_all() -> bool {
    AGREED.load(Ordering::Relaxed) && !LEAVES_DAEMONS.load(Ordering::Relaxed)
}

/// Starts a keeper. Holds the lock, so that no other thread mistakes the keeper for an orphan
/// before it is registered.
pub(super) fn spawn(keeper: &mut Command) -> io::Result<Child> {
    let mut keepers = keepers();
    let child = keeper.spawn()?;
    keepers.get_or_insert_default().insert(Pid::from_child(&child).as_raw_nonzero().get());
    Ok(child)
}

/// Reaps a keeper that has ended.
pub(super) fn forget(keeper: &mut Child) {
    let pid = Pid::from_child(keeper).as_raw_nonzero().get();
    let mut keepers = keepers();
    // Under the lock, because the id could otherwise pass to a new keeper before it is removed
    // here.
    let _ = keeper.wait();
    keepers.get_or_insert_default().remove(&pid);
}

/// Returns the living orphans of dead keepers with their descendants. Returns none if orphans
/// cannot be distinguished from daemons that may keep running.
pub(super) fn living() -> Vec<Process> {
    if !finds_all() {
        return Vec::new();
    }
    let orphans = orphans().into_iter().filter(|orphan| !orphan.ended);
    orphans.flat_map(|orphan| std::iter::once(orphan).chain(processes::below(orphan.pid))).collect()
}

/// Returns a process with its descendants if it has become a child of this process.
pub(super) fn living_child(pid: Option<u32>) -> Vec<Process> {
    // The id of a child belongs to it until it is reaped, which only `reap_child` does.
    let Some(child) = own_child(pid) else { return Vec::new() };
    std::iter::once(child).filter(|child| !child.ended).chain(processes::below(child.pid)).collect()
}

/// Reaps a process if it has become a child of this process and has ended.
pub(super) fn reap_child(pid: Option<u32>) {
    if let Some(child) = own_child(pid) {
        let _ = waitpid(Some(child.pid), WaitOptions::NOHANG);
    }
}

fn own_child(pid: Option<u32>) -> Option<Process> {
    let pid = Pid::from_raw(i32::try_from(pid?).ok()?)?;
    processes::look(pid).filter(|seen| seen.parent == getpid().as_raw_nonzero().get())
}

/// Reaps the orphans that have ended.
pub(super) fn reap() {
    if AGREED.load(Ordering::Relaxed) {
        for orphan in orphans().iter().filter(|orphan| orphan.ended) {
            // No other thread waits for this child, so its id cannot have been reused.
            let _ = waitpid(Some(orphan.pid), WaitOptions::NOHANG);
        }
    }
}

/// Returns the children of this process that are orphans of keepers.
fn orphans() -> Vec<Process> {
    let keepers = keepers();
    let Some(own) = processes::look(getpid()) else { return Vec::new() };
    let known = |pid: Pid| {
        keepers.as_ref().is_some_and(|known| known.contains(&pid.as_raw_nonzero().get()))
    };
    processes::children_of(own.pid)
        .into_iter()
        .filter(|child| child.session != own.session && !known(child.pid))
        .collect()
}

fn keepers() -> MutexGuard<'static, Option<HashSet<i32>>> {
    KEEPERS.lock().unwrap_or_else(PoisonError::into_inner)
}
