//! A process group that is only signalled while its id certainly belongs to it.
//!
//! ```text
//! let (group, exit) = group::spawn(command, Some(Mark::new()))?;
//! group.ask(); // SIGTERM to all of them
//! let ended = exit.await?; // the rest was killed, the leader reaped
//! ```
//!
//! The id of a group is the process id of its leader, and the system reuses the id of a process
//! that is gone. A zombie still holds its id. Therefore the leader is *watched* without reaping it
//! (`waitid` with `WNOWAIT`), the rest of the group is killed while the zombie holds the id, and
//! only then is the leader reaped. Every signal takes a lock that protects the flag `reaped`.
//!
//! A separate thread watches, not a task, because it must reap the leader even if the future was
//! dropped, the runtime was shut down, or the loop was terminated.

use super::orphans::Mark;
use crate::ended::{Ended, Exit, PATIENCE};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Instant;
use tokio::sync::oneshot;

/// The process group of a command. Dropping it kills the group at once.
#[derive(Debug)]
pub(crate) struct Group(Arc<Members>);

/// The members of a group. They are signalled only as long as the id is theirs.
#[derive(Debug)]
pub(crate) struct Members {
    pub(crate) leader: Pid,
    /// `true` once the leader was reaped. From then on the id may belong to another process.
    reaped: Mutex<bool>,
}

struct Watched {
    child: Child,
    members: Arc<Members>,
    exit: oneshot::Sender<Ended>,
    mark: Option<Mark>,
}

/// Starts the command as the leader of a new group. Processes that carry the mark when the command
/// has ended are killed too.
pub(crate) fn spawn(mut command: Command, mark: Option<Mark>) -> io::Result<(Group, Exit)> {
    if let Some(mark) = &mark {
        mark.put(&mut command);
    }
    // Start the watcher first, because without it a started child would never be reaped.
    let (give, take) = mpsc::channel::<Watched>();
    std::thread::Builder::new()
        .name("endstop-reaper".to_owned())
        .stack_size(256 * 1024)
        .spawn(move || take.recv().map(watch))?;
    let child = command.process_group(0).spawn()?;
    let members = Arc::new(Members::led_by(Pid::from_child(&child)));
    let group = Group(Arc::clone(&members));
    let (tell, exit) = oneshot::channel();
    // The thread waits for this message. If the thread is gone, dropping `group` kills the command.
    give.send(Watched { child, members, exit: tell, mark })
        .map_err(|_| io::Error::other("the reaper thread has ended"))?;
    Ok((group, exit))
}

/// Waits for the leader to end, kills the rest of the group, reaps the leader, and reports.
fn watch(watched: Watched) {
    let Watched { mut child, members, exit, mark } = watched;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let looked = loop {
        match waitid(WaitId::Pid(members.leader), options) {
            Err(Errno::INTR) => {}
            looked => break looked,
        }
    };
    let status = {
        let mut reaped = members.reaped();
        // The leader is a zombie, so the id still belongs to the group, and its background
        // processes can be killed. (If the host ignores SIGCHLD, the system has reaped the leader
        // by itself; `waitid` then fails, and nothing is signalled.)
        if looked.is_ok() {
            let _ = kill_process_group(members.leader, Signal::KILL);
        }
        let status = child.wait();
        *reaped = true;
        status
    };
    let left = mark.map(|mark| mark.kill_all(Instant::now() + PATIENCE)).unwrap_or_default();
    // The receiver is gone if the future was dropped.
    let _ = exit.send(Ended { status: status.map(Some), left, orphans: None });
}

impl Members {
    /// Returns the group of a process that leads one and that has not been reaped.
    pub(crate) fn led_by(leader: Pid) -> Members {
        Members { leader, reaped: Mutex::new(false) }
    }

    /// Signals all members, unless the leader was reaped.
    pub(crate) fn signal(&self, signal: Signal) {
        if !*self.reaped() {
            // Fails if no process is left, which is the desired state, or if this process may not
            // signal any of them. In the second case they are reported as alive when the wait for
            // them is over.
            let _ = kill_process_group(self.leader, signal);
        }
    }

    /// Locks the flag that the leader was reaped. No thread can signal while the lock is held.
    pub(crate) fn reaped(&self) -> MutexGuard<'_, bool> {
        self.reaped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Group {
    /// Asks every process of the group to end.
    pub(crate) fn ask(&self) {
        self.0.signal(Signal::TERM);
    }

    /// Kills every process of the group.
    pub(crate) fn kill(&self) {
        self.0.signal(Signal::KILL);
    }

    /// Returns the process id of the leader.
    pub(crate) fn leader(&self) -> Option<u32> {
        u32::try_from(self.0.leader.as_raw_nonzero().get()).ok()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
