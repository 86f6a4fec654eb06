//! The host's side of a keeper: starts it, sends requests to it, and takes over its work if the
//! keeper is killed.
//!
//! ```text
//! let (keeper, order) = keeper_for("sleep 1000 & wait", mark)?; // not started yet
//! let (kept, exit) = spawn(keeper, order)?;
//! kept.ask(); // SIGTERM to the command's group
//! drop(kept); // all of it is killed at once
//! ```

use super::program::{self, AGENT, ARGUMENT};
use super::report::{self, ASK, INTERRUPT, Report};
use crate::ended::{Ended, Exit, Orphans, PATIENCE};
use crate::tree::orphans::Mark;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Interval at which the host checks whether a keeper was stopped or takes too long.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Time after which a keeper that was asked to kill is killed itself. It has [`PATIENCE`] for its
/// work and needs longer only if it was stopped.
const TOO_LONG: Duration = Duration::from_millis(1500);

/// Time after which a stopped keeper (SIGSTOP) is killed. It cannot do its work, and only its
/// command has a reason to stop it.
const STOPPED_TOO_LONG: Duration = Duration::from_secs(1);

/// A command with its keeper. Dropping it kills both at once.
#[derive(Debug)]
pub(crate) struct Kept(Arc<Line>);

/// The connection to a keeper.
#[derive(Debug)]
struct Line {
    /// Only the keeper holds the other end, and only the host this one, so that the end of either
    /// process is seen by the other. It does not block, because async threads write to it too.
    stream: UnixStream,
    /// Bytes that the keeper was not ready to receive, in their order.
    unsent: Mutex<VecDeque<u8>>,
    /// Time at which the keeper was asked to kill.
    killed: OnceLock<Instant>,
    /// Set if the command was killed before the keeper had received its command line.
    killed_unsent: OnceLock<()>,
    /// Process id of the command, once it has started.
    leader: OnceLock<u32>,
}

struct Watched {
    keeper: Child,
    line: Arc<Line>,
    exit: oneshot::Sender<Ended>,
    mark: Option<Mark>,
    agent: bool,
}

/// The order that a keeper receives after it has started.
pub(crate) struct Order {
    command: Vec<u8>,
    mark: Option<Mark>,
    ours: UnixStream,
    /// `true` if the command is an agent program, which shares the terminal.
    agent: bool,
}

/// Prepares the keeper for this command line, and the order to send to it.
pub(crate) fn keeper_for(command: &str, mark: Option<Mark>) -> io::Result<(Command, Order)> {
    let program = program::path().ok_or_else(|| io::Error::other("there is no keeper"))?;
    if command.contains('\0') {
        // The same error as without a keeper, where the command line is an argument.
        let problem = "nul byte found in provided data";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    let (ours, theirs) = UnixStream::pair()?;
    let mut keeper = Command::new(program);
    keeper.arg0("endstop-keeper").arg(ARGUMENT);
    keeper.arg(mark.as_ref().map_or(OsStr::new("-"), Mark::text));
    keeper.stdin(OwnedFd::from(theirs));
    let command = command.as_bytes().to_vec();
    Ok((keeper, Order { command, mark, ours, agent: false }))
}

/// Prepares the keeper for an agent program with these arguments, the program first. The program
/// gets the standard input of this process, and its process group. The keeper removes the temporary
/// folder at the end.
pub(crate) fn keeper_of_agent(
    words: &[OsString],
    temporary: Option<&Path>,
    mark: Mark,
) -> io::Result<(Command, Order)> {
    let program = program::path().ok_or_else(|| {
        let problem = "an agent program needs a keeper; call `keeper::serve_if_asked` in `main`";
        io::Error::other(problem)
    })?;
    if words.iter().any(|word| word.as_bytes().contains(&0)) {
        let problem = "nul byte found in provided data";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    let (ours, theirs) = UnixStream::pair()?;
    // The keeper's own input is its connection, so the input of the agent program is sent.
    super::agent::send_input(&ours, io::stdin())?;
    let mut keeper = Command::new(program);
    keeper.arg0("endstop-keeper").arg(ARGUMENT).arg(mark.text()).arg(AGENT);
    keeper.stdin(OwnedFd::from(theirs));
    let command = super::agent::order(own_group(), temporary, words);
    Ok((keeper, Order { command, mark: Some(mark), ours, agent: true }))
}

/// Returns the process group of this process, or 0 if it cannot be named, as in a container whose
/// first process was started in a group outside. A program that is started with 0 gets a group of
/// its own.
#[cfg(target_os = "linux")]
fn own_group() -> i32 {
    // Not `getpgrp`, because rustix takes for granted that the group is not 0.
    crate::tree::processes::look(rustix::process::getpid()).map_or(0, |own| own.group)
}

#[cfg(not(target_os = "linux"))]
fn own_group() -> i32 {
    rustix::process::getpgrp().as_raw_nonzero().get()
}

/// Starts a keeper, which starts the command.
pub(crate) fn spawn(mut keeper: Command, order: Order) -> io::Result<(Kept, Exit)> {
    let Order { command, mark, ours, agent } = order;
    ours.set_nonblocking(true)?;
    // The command line is sent and is not an argument, because a search by words (`pkill -f`) must
    // find the command and not its keeper. The watcher sends it, because a keeper that starts
    // slowly would block this thread once the socket is full.
    let line = Arc::new(Line::new(ours, report::command_line(&command)));
    // Start the watcher first, because without it a started child would never be reaped.
    let (give, take) = mpsc::channel::<Watched>();
    std::thread::Builder::new()
        .name("endstop-reaper".to_owned())
        .stack_size(256 * 1024)
        .spawn(move || take.recv().map(watch))?;
    #[cfg(target_os = "linux")]
    let child = {
        if mark.is_none() {
            super::adopted::daemons_may_live();
        }
        let child = super::adopted::spawn(&mut keeper)?;
        // Before the keeper has its order, so that the command inherits it.
        crate::open_files::restore(child.id());
        child
    };
    #[cfg(not(target_os = "linux"))]
    let child = keeper.spawn()?;
    // Closes our copies of the keeper's end of the connection and of the output. With a copy left
    // open, the host would never see their end.
    drop(keeper);
    let kept = Kept(Arc::clone(&line));
    let (tell, exit) = oneshot::channel();
    give.send(Watched { keeper: child, line, exit: tell, mark, agent })
        .map_err(|_| io::Error::other("the reaper thread has ended"))?;
    Ok((kept, exit))
}

/// Reads the keeper's messages until they end, reaps the keeper, and reports the result.
fn watch(watched: Watched) {
    let Watched { mut keeper, line, exit, mark, agent } = watched;
    let report = line.hear(&mut keeper);
    let ended = match report {
        Report { ended: Some(done), .. } => {
            let status = Ok(done.status.map(ExitStatus::from_raw));
            Ended { status, left: done.left, orphans: None }
        }
        Report { refused: Some(0), .. } if line.killed_unsent.get().is_some() => {
            // The keeper received only a part of the command line, because the command was killed
            // before it had started.
            let status = Ok(Some(ExitStatus::from_raw(Signal::KILL.as_raw())));
            Ended { status, left: Vec::new(), orphans: None }
        }
        Report { refused: Some(0), .. } => {
            let status = Err(io::Error::other("no reason was given"));
            Ended { status, left: Vec::new(), orphans: None }
        }
        Report { refused: Some(code), .. } => {
            let status = Err(io::Error::from_raw_os_error(code));
            Ended { status, left: Vec::new(), orphans: None }
        }
        Report { started, .. } => {
            // The keeper was killed, so the host does the rest of its work.
            let (mut orphans, left) = instead_of(&keeper, started, mark.as_ref());
            // The children of an agent program may have stayed in the session of this process,
            // where they are not known as orphans.
            orphans.all_found &= !agent;
            Ended { status: Ok(None), left, orphans: Some(orphans) }
        }
    };
    wait_for_end(&keeper);
    #[cfg(target_os = "linux")]
    {
        super::adopted::forget(&mut keeper);
        super::adopted::reap();
    }
    #[cfg(not(target_os = "linux"))]
    let _ = keeper.wait();
    // The receiver is gone if the future was dropped.
    let _ = exit.send(ended);
}

/// Waits until a keeper has ended, without reaping it.
fn wait_for_end(keeper: &Child) {
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while matches!(waitid(WaitId::Pid(Pid::from_child(keeper)), ended), Err(Errno::INTR)) {}
}

/// Kills the processes that a dead keeper should have killed. Returns what became of them, and the
/// ids of those that are still alive.
fn instead_of(keeper: &Child, leader: Option<u32>, mark: Option<&Mark>) -> (Orphans, Vec<u32>) {
    // The keeper is not reaped yet, so its process id, which is also the id of its session, cannot
    // pass to another process. (If the host ignores SIGCHLD, the system has reaped it; the id still
    // belongs to the session as long as a process is in it.) The children of the keeper already
    // have another parent.
    wait_for_end(keeper);
    let end = Instant::now() + PATIENCE;
    kill_session(Pid::from_child(keeper), leader, mark, end)
}

#[cfg(target_os = "linux")]
fn kill_session(
    keeper: Pid,
    leader: Option<u32>,
    mark: Option<&Mark>,
    end: Instant,
) -> (Orphans, Vec<u32>) {
    use super::adopted;
    use crate::tree::processes;
    use std::cell::RefCell;
    use std::collections::HashSet;
    let session = keeper.as_raw_nonzero().get();
    let seen = RefCell::new(HashSet::new());
    let find = || {
        let mut found: Vec<_> = processes::all()
            // Daemons that may keep running have left the session.
            .filter(|one| !one.ended && one.session == session && one.pid != keeper)
            .collect();
        found.extend(mark.map(Mark::carriers).unwrap_or_default());
        found.extend(adopted::living());
        found.extend(adopted::living_child(leader));
        seen.borrow_mut().extend(processes::pids(&found));
        found
    };
    let mut left = processes::kill_all(find, end);
    adopted::reap_child(leader);
    left.sort_unstable();
    left.dedup();
    let killed = seen.borrow().len().saturating_sub(left.len());
    (Orphans { killed, all_found: mark.is_some() && adopted::finds_all() }, left)
}

#[cfg(not(target_os = "linux"))]
fn kill_session(
    keeper: Pid,
    leader: Option<u32>,
    _mark: Option<&Mark>,
    _end: Instant,
) -> (Orphans, Vec<u32>) {
    use rustix::process::{getsid, kill_process_group};
    let mut killed = 0;
    let leader = leader.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    if let Some(leader) = leader
        && getsid(Some(leader)) == Ok(keeper)
    {
        killed = usize::from(kill_process_group(leader, Signal::KILL).is_ok());
    }
    (Orphans { killed, all_found: false }, Vec::new())
}

/// Returns `true` if a keeper was stopped and not continued.
fn is_stopped(keeper: &Child) -> bool {
    let look = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(Pid::from_child(keeper)), look), Ok(Some(_)))
}

impl Line {
    fn new(stream: UnixStream, unsent: Vec<u8>) -> Line {
        Line {
            stream,
            unsent: Mutex::new(unsent.into()),
            killed: OnceLock::new(),
            killed_unsent: OnceLock::new(),
            leader: OnceLock::new(),
        }
    }

    fn unsent(&self) -> MutexGuard<'_, VecDeque<u8>> {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends these bytes after all earlier ones. Does not wait for the keeper: the watcher sends
    /// what does not fit into the socket.
    fn send(&self, bytes: &[u8]) {
        let mut unsent = self.unsent();
        unsent.extend(bytes);
        while !unsent.is_empty() {
            match (&self.stream).write(unsent.as_slices().0) {
                Ok(sent) => drop(unsent.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The keeper is gone or was asked to kill, so it needs no more requests.
                Err(_) => unsent.clear(),
            }
        }
    }

    /// Waits until the keeper has sent something or can receive more. Returns `false` if neither
    /// happened in [`LOOK_EVERY`].
    fn wait(&self) -> bool {
        let mut events = PollFlags::IN;
        if !self.unsent().is_empty() {
            events |= PollFlags::OUT;
        }
        let at_most = Timespec { tv_sec: 0, tv_nsec: i64::from(LOOK_EVERY.subsec_nanos()) };
        match poll(&mut [PollFd::new(&self.stream, events)], Some(&at_most)) {
            Ok(ready) => ready > 0,
            Err(_) => false,
        }
    }

    /// Sends what is unsent and reads everything that the keeper sends, until it reports its end or
    /// the connection closes.
    fn hear(&self, keeper: &mut Child) -> Report {
        let mut said = Vec::new();
        let mut buffer = [0; 1024];
        let mut stopped: Option<Instant> = None;
        loop {
            self.send(&[]);
            match (&self.stream).read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => {
                    said.extend_from_slice(&buffer[..read]);
                    if report::take_stops(&mut said) {
                        super::suspend::with(self.leader.get().copied());
                    }
                    let report = Report::read(&said);
                    if let Some(leader) = report.started {
                        let _ = self.leader.set(leader);
                    }
                    if report.ended.is_some() {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.wait() {
                        continue;
                    }
                    if is_stopped(keeper) {
                        stopped.get_or_insert_with(Instant::now);
                    } else {
                        stopped = None;
                    }
                    let long = |since: Option<&Instant>, most| {
                        since.is_some_and(|since| since.elapsed() > most)
                    };
                    if long(self.killed.get(), TOO_LONG) || long(stopped.as_ref(), STOPPED_TOO_LONG)
                    {
                        // The keeper was stopped or hangs. It is not reaped yet, so the id still
                        // belongs to it.
                        let _ = keeper.kill();
                    }
                }
                Err(_) => break,
            }
        }
        Report::read(&said)
    }
}

impl Kept {
    /// Asks every process of the command's group to end.
    pub(crate) fn ask(&self) {
        self.0.send(&[ASK]);
    }

    /// Interrupts the command and everything that it has started.
    pub(crate) fn interrupt(&self) {
        self.0.send(&[INTERRUPT]);
    }

    /// Kills the command and everything that it started.
    pub(crate) fn kill(&self) {
        let _ = self.0.killed.set(Instant::now());
        {
            let mut unsent = self.0.unsent();
            // Requests to end may be unsent too, but the command line is far longer than they are.
            if !unsent.is_empty() {
                let _ = self.0.killed_unsent.set(());
                unsent.clear();
            }
        }
        // The end of the host's messages means "kill", so that a host that dies means the same.
        let _ = self.0.stream.shutdown(Shutdown::Write);
    }

    /// Returns the process id of the command, once it has started.
    pub(crate) fn leader(&self) -> Option<u32> {
        self.0.leader.get().copied()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Larger than the buffers of a socket.
    const LARGE: usize = 4_000_000;

    /// Starts a script in place of a keeper, with a large command line. The script has the socket
    /// as its input and its output. It waits until the returned pipe is dropped, so a host that waits
    /// for the script never gets there, and the script ends without a report.
    fn start(script: &str) -> (Kept, Exit, io::PipeWriter) {
        let (wait, go) = io::pipe().unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut keeper = Command::new("sh");
        keeper.args(["-c", &format!("timeout 60 cat <&2 >/dev/null || exit 1; {script}")]);
        keeper.stderr(OwnedFd::from(wait));
        keeper.stdout(OwnedFd::from(theirs.try_clone().unwrap())).stdin(OwnedFd::from(theirs));
        let command = vec![b'x'; LARGE];
        let order = Order { command, mark: Some(Mark::new()), ours, agent: false };
        let (kept, exit) = spawn(keeper, order).unwrap();
        (kept, exit, go)
    }

    #[test]
    fn slow_keeper_does_not_block_host() {
        let read = format!("head -c {} >/dev/null", LARGE + 8);
        let (kept, exit, go) = start(&format!("{read}; echo started 5; echo ended 0 "));
        drop(go);
        let ended = exit.blocking_recv().unwrap();
        assert!(ended.status.unwrap().unwrap().success());
        assert_eq!(kept.leader(), Some(5));
    }

    #[test]
    fn request_follows_large_command_line() {
        let read = format!("head -c {} >/dev/null", LARGE + 8);
        let script = format!("{read}; test \"$(head -c 1)\" = T && echo ended 0 ");
        let (kept, exit, go) = start(&script);
        kept.ask();
        drop(go);
        let ended = exit.blocking_recv().unwrap();
        assert!(ended.status.unwrap().unwrap().success());
    }

    #[test]
    fn kill_before_start_reported_as_kill() {
        let (kept, exit, go) = start("cat >/dev/null; echo refused 0");
        kept.kill();
        drop(go);
        let status = exit.blocking_recv().unwrap().status.unwrap().unwrap();
        assert_eq!(status.signal(), Some(9));
    }
}
