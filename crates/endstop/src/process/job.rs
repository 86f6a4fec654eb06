//! Windows: a command in a job object, which dies whole. There is no gentle signal: whoever is
//! asked to end is killed after the grace.

use process_wrap::std::{ChildWrapper, CommandWrap, JobObject};
use std::io;
use std::process::{Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;
use tokio::sync::oneshot;

/// How often it is looked whether the command has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

type Shared = Arc<Mutex<Box<dyn ChildWrapper>>>;

/// A command's job; dropping it kills the job at once.
#[derive(Debug)]
pub(super) struct Group(Shared);

/// How the command ended, told once its job has been killed.
pub(super) type Exit = oneshot::Receiver<io::Result<ExitStatus>>;

/// Starts the command in a new job. Whom a process of the job starts is in the job too, so that
/// there are no strays to hunt.
pub(super) fn spawn(command: Command, _hunt_strays: bool) -> io::Result<(Group, Exit)> {
    let (give, take) = mpsc::channel::<(Shared, oneshot::Sender<io::Result<ExitStatus>>)>();
    std::thread::Builder::new()
        .name("endstop-reaper".to_owned())
        .stack_size(256 * 1024)
        .spawn(move || take.recv().map(|(child, exit)| watch(&child, exit)))?;
    let mut wrapped = CommandWrap::from(command);
    wrapped.wrap(JobObject);
    let child = Arc::new(Mutex::new(wrapped.spawn()?));
    let group = Group(Arc::clone(&child));
    let (tell, exit) = oneshot::channel();
    give.send((child, tell)).map_err(|_| io::Error::other("the thread that reaps has ended"))?;
    Ok((group, exit))
}

fn watch(child: &Shared, exit: oneshot::Sender<io::Result<ExitStatus>>) {
    let status = loop {
        // The inner child is the leader alone: who it left in the background does not hold this.
        match lock(child).inner_mut().try_wait() {
            Ok(None) => {}
            Ok(Some(status)) => break Ok(status),
            Err(error) => break Err(error),
        }
        std::thread::sleep(LOOK_EVERY);
    };
    let _ = lock(child).start_kill();
    let _ = exit.send(status);
}

fn lock(child: &Shared) -> MutexGuard<'_, Box<dyn ChildWrapper>> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Group {
    /// There is nothing to ask with; the grace passes.
    #[expect(clippy::unused_self, reason = "the same shape everywhere")]
    pub(super) fn ask(&self) {}

    /// Kills every process of the job.
    pub(super) fn kill(&self) {
        let _ = lock(&self.0).start_kill();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
