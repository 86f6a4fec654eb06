//! Windows: runs a command in a job object, which is killed as a whole. There is no gentle signal,
//! so a command that is asked to end is killed after the grace period.
//!
//! ```text
//! let (group, exit) = group::spawn(command)?;
//! drop(group); // every process of the job is killed
//! ```
//!
//! The system kills the job when its last handle is closed. Only this process has a handle, so a
//! host that is killed takes its commands with it. `process-wrap` sets that limit
//! (`JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE`) only on its jobs for tokio, under `KillOnDrop`, and never
//! on those for std.

use crate::ended::{Ended, Exit};
use process_wrap::tokio::{ChildWrapper, CommandWrap, JobObject, KillOnDrop};
use std::io;
use std::process::{Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;
use tokio::sync::oneshot;

/// Interval at which the command is checked for its end.
const LOOK_EVERY: Duration = Duration::from_millis(10);

type Shared = Arc<Mutex<Box<dyn ChildWrapper>>>;

/// The job of a command. Dropping it kills the job at once.
#[derive(Debug)]
pub(crate) struct Group(Shared);

/// Starts the command in a new job. Processes that it starts are in the job too.
pub(crate) fn spawn(command: Command) -> io::Result<(Group, Exit)> {
    let (give, take) = mpsc::channel::<(Shared, oneshot::Sender<Ended>)>();
    std::thread::Builder::new()
        .name("endstop-reaper".to_owned())
        .stack_size(256 * 1024)
        .spawn(move || take.recv().map(|(child, exit)| watch(&child, exit)))?;
    let mut wrapped = CommandWrap::from(tokio::process::Command::from(command));
    wrapped.wrap(KillOnDrop).wrap(JobObject);
    let child = Arc::new(Mutex::new(wrapped.spawn()?));
    let group = Group(Arc::clone(&child));
    let (tell, exit) = oneshot::channel();
    give.send((child, tell)).map_err(|_| io::Error::other("the reaper thread has ended"))?;
    Ok((group, exit))
}

fn watch(child: &Shared, exit: oneshot::Sender<Ended>) {
    let status: io::Result<ExitStatus> = loop {
        // The inner child is only the leader, so background processes do not delay its end.
        match lock(child).inner_mut().try_wait() {
            Ok(None) => {}
            Ok(Some(status)) => break Ok(status),
            Err(error) => break Err(error),
        }
        std::thread::sleep(LOOK_EVERY);
    };
    let _ = lock(child).start_kill();
    let _ = exit.send(Ended { status: status.map(Some), left: Vec::new(), orphans: None });
}

fn lock(child: &Shared) -> MutexGuard<'_, Box<dyn ChildWrapper>> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Group {
    /// Does nothing, because there is no signal to ask with; the grace period passes.
    #[expect(clippy::unused_self, reason = "the same shape everywhere")]
    pub(crate) fn ask(&self) {}

    /// Kills every process of the job.
    pub(crate) fn kill(&self) {
        let _ = lock(&self.0).start_kill();
    }

    /// Returns the process id of the leader.
    pub(crate) fn leader(&self) -> Option<u32> {
        lock(&self.0).id()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
