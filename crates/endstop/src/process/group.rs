//! A process group that is signalled only while its number is surely its own.
//!
//! The number of a group is that of its leader, and a number that nobody has any more goes to
//! somebody else. A zombie still has its number. So the leader is *watched* without being reaped
//! (`waitid` with `WNOWAIT`), the rest of the group is killed while the zombie holds the number,
//! and only then is the leader reaped. Every signal goes through a lock under which it is known
//! whether that has happened.
//!
//! The watching is done by a thread of its own, not by a task: it reaps also when the future was
//! dropped, the runtime has gone down or the loop was terminated.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use tokio::sync::oneshot;

/// A command's process group; dropping it kills the group at once.
#[derive(Debug)]
pub(super) struct Group(Arc<Members>);

#[derive(Debug)]
struct Members {
    leader: Pid,
    /// Whether the leader was reaped: from then on the number may be somebody else's.
    reaped: Mutex<bool>,
}

/// How the command ended, told once its group has been killed and its leader reaped.
pub(super) type Exit = oneshot::Receiver<io::Result<ExitStatus>>;

struct Watched {
    child: Child,
    members: Arc<Members>,
    exit: oneshot::Sender<io::Result<ExitStatus>>,
    hunt_strays: Option<Mark>,
}

#[cfg(target_os = "linux")]
use super::strays::Mark;

/// Where there is no `/proc`, whoever leaves the group is not found.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
struct Mark;

#[cfg(not(target_os = "linux"))]
impl Mark {
    fn new() -> Mark {
        Mark
    }
    #[expect(clippy::unused_self, reason = "the same shape everywhere")]
    fn put(&self, _command: &mut Command) {}
    #[expect(clippy::unused_self, reason = "the same shape everywhere")]
    fn kill_all(&self) {}
}

/// Starts the command as the leader of a new group.
pub(super) fn spawn(mut command: Command, hunt_strays: bool) -> io::Result<(Group, Exit)> {
    let mark = hunt_strays.then(Mark::new);
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
    let leader = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("the system gave a process number that is none"))?;
    let members = Arc::new(Members { leader, reaped: Mutex::new(false) });
    let group = Group(Arc::clone(&members));
    let (tell, exit) = oneshot::channel();
    // The thread waits for this; should it have gone, the group dies with this error.
    give.send(Watched { child, members, exit: tell, hunt_strays: mark })
        .map_err(|_| io::Error::other("the thread that reaps has ended"))?;
    Ok((group, exit))
}

/// Waits for the leader's end, kills what it left, reaps it, tells.
fn watch(watched: Watched) {
    let Watched { mut child, members, exit, hunt_strays } = watched;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let looked = loop {
        match waitid(WaitId::Pid(members.leader), options) {
            Err(Errno::INTR) => {}
            looked => break looked,
        }
    };
    let status = {
        let mut reaped = members.reaped.lock().unwrap_or_else(PoisonError::into_inner);
        // Still a zombie: the number is the group's. Whom it left in the background dies now.
        // (It is not where the host ignores SIGCHLD, so that the system reaps by itself.)
        if looked.is_ok() {
            let _ = kill_process_group(members.leader, Signal::KILL);
        }
        let status = child.wait();
        *reaped = true;
        status
    };
    if let Some(mark) = hunt_strays {
        mark.kill_all();
    }
    // Nobody may be listening any more.
    let _ = exit.send(status);
}

impl Group {
    /// Asks every process of the group to end.
    pub(super) fn ask(&self) {
        self.signal(Signal::TERM);
    }

    /// Kills every process of the group.
    pub(super) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        let reaped = self.0.reaped.lock().unwrap_or_else(PoisonError::into_inner);
        if !*reaped {
            // The only failure is that nobody is left to signal, which is what is wanted.
            let _ = kill_process_group(self.0.leader, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
