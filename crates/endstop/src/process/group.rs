//! A process group that is signalled only while its number is surely its own.
//!
//! ```text
//! let (group, exit) = group::spawn(command, Some(Mark::new()))?;
//! group.ask(); // SIGTERM to all of them
//! let ended = exit.await?; // whoever was left has been killed, and the leader reaped
//! ```
//!
//! The number of a group is that of its leader, and a number that nobody has any more goes to
//! somebody else. A zombie still has its number. So the leader is *watched* without being reaped
//! (`waitid` with `WNOWAIT`), the rest of the group is killed while the zombie holds the number,
//! and only then is the leader reaped. Every signal goes through a lock under which it is known
//! whether that has happened.
//!
//! The watching is done by a thread of its own, not by a task: it reaps also when the future was
//! dropped, the runtime has gone down or the loop was terminated.

use super::PATIENCE;
use super::running::{Ended, Exit};
use super::strays::Mark;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Instant;
use tokio::sync::oneshot;

/// A command's process group; dropping it kills the group at once.
#[derive(Debug)]
pub(super) struct Group(Arc<Members>);

/// The members of a group, signalled as long as its number is theirs.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) leader: Pid,
    /// Whether the leader was reaped: from then on the number may be somebody else's.
    reaped: Mutex<bool>,
}

struct Watched {
    child: Child,
    members: Arc<Members>,
    exit: oneshot::Sender<Ended>,
    mark: Option<Mark>,
}

/// Starts the command as the leader of a new group. Whoever carries the mark when it has ended is
/// killed too.
pub(super) fn spawn(mut command: Command, mark: Option<Mark>) -> io::Result<(Group, Exit)> {
    if let Some(mark) = &mark {
        mark.put(&mut command);
    }
    // The watcher first: a child that nobody can watch must not be started.
    let (give, take) = mpsc::channel::<Watched>();
    std::thread::Builder::new()
        .name("endstop-reaper".to_owned())
        .stack_size(256 * 1024)
        .spawn(move || take.recv().map(watch))?;
    let child = command.process_group(0).spawn()?;
    let members = Arc::new(Members::led_by(Pid::from_child(&child)));
    let group = Group(Arc::clone(&members));
    let (tell, exit) = oneshot::channel();
    // The thread waits for this; should it have gone, the group dies with this error.
    give.send(Watched { child, members, exit: tell, mark })
        .map_err(|_| io::Error::other("the reaper thread has ended"))?;
    Ok((group, exit))
}

/// Waits for the leader's end, kills what it left, reaps it, tells.
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
        // Still a zombie: the number is the group's. Whom it left in the background dies now.
        // (It is not where the host ignores SIGCHLD, so that the system reaps by itself.)
        if looked.is_ok() {
            let _ = kill_process_group(members.leader, Signal::KILL);
        }
        let status = child.wait();
        *reaped = true;
        status
    };
    let left = mark.map(|mark| mark.kill_all(Instant::now() + PATIENCE)).unwrap_or_default();
    // Nobody may be listening any more.
    let _ = exit.send(Ended { status: status.map(Some), left, orphans: None });
}

impl Members {
    /// The group of a process that leads one, and that has not been reaped.
    pub(super) fn led_by(leader: Pid) -> Members {
        Members { leader, reaped: Mutex::new(false) }
    }

    /// Signals all of them, as long as the number is theirs.
    pub(super) fn signal(&self, signal: Signal) {
        if !*self.reaped() {
            // It fails where nobody is left to signal, which is what is wanted, and where none of
            // them is ours to signal: then they are there when the waiting for them is over.
            let _ = kill_process_group(self.leader, signal);
        }
    }

    /// Whether the leader was reaped. While this is held, nobody signals.
    pub(super) fn reaped(&self) -> MutexGuard<'_, bool> {
        self.reaped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Group {
    /// Asks every process of the group to end.
    pub(super) fn ask(&self) {
        self.0.signal(Signal::TERM);
    }

    /// Kills every process of the group.
    pub(super) fn kill(&self) {
        self.0.signal(Signal::KILL);
    }

    /// Who leads it.
    pub(super) fn leader(&self) -> Option<u32> {
        u32::try_from(self.0.leader.as_raw_nonzero().get()).ok()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
