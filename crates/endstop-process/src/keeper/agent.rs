//! The keeper of an agent program: a program that shares the terminal of its host.
//!
//! ```text
//! shell ── endstop ◄─ socket ─► keeper ──► agent ──► tool
//!          └ foreground group ─ (own group) ─┘       └ its own session
//! ```
//!
//! The agent program is in the process group of the host, so that it may read from the terminal,
//! and keys such as Ctrl-C reach both. The keeper is in the same session, because a process can only
//! join a group of its session, but in a group of its own, so that no key reaches it. It has no
//! descriptor of the terminal.
//!
//! Agent programs start their tools in sessions of their own, so a signal to a group reaches only a
//! part of the processes. Therefore each process is signalled by itself: the descendants of the
//! keeper (on Linux it is a subreaper, so that none can leave it) and all processes with the mark.
//! On other systems only the agent program itself is known.

use super::report::{self, Done};
use super::serve::{StopSignal, be_deaf, hear, thread};
use crate::ended::PATIENCE;
use crate::tree::orphans::Mark;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, wait, waitid};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time that remaining processes have to end after the agent program has ended by itself.
const REST: Duration = Duration::from_secs(2);

/// Interval at which the keeper looks for remaining processes; their deaths wake it earlier.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The agent program.
struct Agent {
    leader: Pid,
    /// A folder to remove at the end.
    temporary: Option<PathBuf>,
    /// `true` once the program was reaped. From then on the id may belong to another process.
    reaped: Mutex<bool>,
}

/// Returns the order to start a program in a process group: the group, the folder to remove at the
/// end or nothing, the program and its arguments, with NUL between them.
pub(super) fn order(group: i32, temporary: Option<&Path>, words: &[OsString]) -> Vec<u8> {
    let mut order = group.to_string().into_bytes();
    order.push(0);
    order.extend_from_slice(temporary.map_or(&[], |folder| folder.as_os_str().as_bytes()));
    for word in words {
        order.push(0);
        order.extend_from_slice(word.as_bytes());
    }
    order
}

/// Sends a descriptor before the order.
pub(super) fn send_input(to: &UnixStream, input: impl AsFd) -> io::Result<()> {
    let fds = [input.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("no space for a descriptor"));
    }
    // A descriptor needs at least one byte to travel with.
    sendmsg(to, &[IoSlice::new(&[0])], &mut control, SendFlags::empty())?;
    Ok(())
}

fn receive_input(from: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(from, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::empty())?;
    let received = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let input = received.ok_or_else(|| io::Error::other("the host has sent no input"))?;
    // The keeper's processes must not inherit it by accident.
    rustix::io::fcntl_setfd(&input, rustix::io::FdFlags::CLOEXEC)?;
    Ok(input)
}

/// Supervises one agent program, whose processes carry the mark.
pub(super) fn serve(mark: Option<OsString>) -> ExitCode {
    let Some(mark) = mark.map(Mark::of_run) else { return ExitCode::FAILURE };
    let Ok(host) = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from) else {
        return ExitCode::FAILURE;
    };
    let (tell, heard) = mpsc::channel();
    let last_word = match start(&host, &mark, &tell) {
        Ok(agent) => {
            let done = decide(&agent, &heard, &mark);
            if let Some(folder) = &agent.temporary {
                // The host usually removes it too, if it is alive.
                let _ = fs::remove_dir_all(folder);
            }
            done.line()
        }
        Err(error) => report::refused(&error),
    };
    // Fails if the host is gone; the result is then not needed.
    let _ = (&host).write_all(last_word.as_bytes());
    ExitCode::SUCCESS
}

fn start(host: &UnixStream, mark: &Mark, tell: &Sender<StopSignal>) -> io::Result<Arc<Agent>> {
    be_deaf()?;
    rustix::process::setpgid(None, None)?;
    // Only a name for process lists, which would otherwise show `exe`.
    let _ = fs::write("/proc/self/comm", "endstop-keeper");
    // The keeper has the environment of its host, and the agent program knows its process id.
    crate::hidden::hide_from_other_processes();
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let input = receive_input(host)?;
    let order = report::receive_line(host)?;
    let mut words = order.split(|byte| *byte == 0);
    let group = words.next().and_then(|group| std::str::from_utf8(group).ok()?.parse().ok());
    let (Some(group), Some(folder), Some(program)) = (group, words.next(), words.next()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let temporary = (!folder.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(folder)));
    let nothing = File::options().write(true).open("/dev/null")?;
    // Start the threads first, because without them a started child would never be reaped.
    let (give, take) = mpsc::channel::<Arc<Agent>>();
    let (reaping, stops) = (tell.clone(), host.try_clone()?);
    thread("reaper", move || {
        if let Ok(agent) = take.recv() {
            reap(&agent, &stops, &reaping);
        }
    })?;
    let (orders, hearing) = (host.try_clone()?, tell.clone());
    thread("hearer", move || hear(orders, &hearing))?;

    let mut command = Command::new(OsStr::from_bytes(program));
    command.args(words.map(OsStr::from_bytes)).stdin(Stdio::from(input)).process_group(group);
    mark.put(&mut command);
    let child = command.spawn()?;
    // Closes our copy of the program's input.
    drop(command);
    let agent =
        Arc::new(Agent { leader: Pid::from_child(&child), temporary, reaped: Mutex::new(false) });
    // From here on nothing may return early, because the program runs and must be supervised to
    // its end.
    let _ = give.send(Arc::clone(&agent));
    // A reader of the program's output would never see its end if the keeper held it open too.
    let _ = rustix::stdio::dup2_stdout(&nothing);
    let _ = rustix::stdio::dup2_stderr(&nothing);
    // A keeper must not keep a file system busy that the user wants to unmount.
    let _ = std::env::set_current_dir("/");
    // If the host is gone, the reading thread reports it.
    let _ = (&*host).write_all(report::started(child.id()).as_bytes());
    Ok(agent)
}

/// Reaps the agent program and all other children of the keeper, until there is none left. Reports
/// to the host if job control stops the program.
fn reap(agent: &Agent, mut host: &UnixStream, tell: &Sender<StopSignal>) {
    let any = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
    loop {
        match waitid(WaitId::All, any) {
            Err(Errno::INTR) => continue,
            Err(_) => break drop(tell.send(StopSignal::Alone)),
            Ok(_) => {}
        }
        let mut reaped = agent.reaped.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) else {
            continue;
        };
        if pid != agent.leader || *reaped {
            continue;
        }
        if status.stopped() {
            let _ = host.write_all(report::STOPPED);
        } else {
            *reaped = true;
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
            let alone = matches!(waitid(WaitId::All, look), Err(Errno::CHILD));
            let _ = tell.send(StopSignal::Ended { status: status.as_raw(), alone });
        }
    }
}

/// Carries out the host's requests until no process is left or the time is over.
fn decide(agent: &Agent, heard: &mpsc::Receiver<StopSignal>, mark: &Mark) -> Done {
    let mut status = None;
    // `true` if the host drives the end of the processes, from request to request.
    let mut driven = false;
    let mut rest: Option<Instant> = None;
    let mut end: Option<Instant> = None;
    let mut alone = false;
    while !alone {
        let next = if rest.is_none() && end.is_none() {
            heard.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            heard.recv_timeout(LOOK_AGAIN)
        };
        match next {
            Ok(StopSignal::Interrupt) => {
                driven = true;
                agent.signal(mark, Signal::INT);
            }
            Ok(StopSignal::Ask) => {
                driven = true;
                agent.signal(mark, Signal::TERM);
            }
            Ok(StopSignal::Kill) => drop(end.get_or_insert_with(|| Instant::now() + PATIENCE)),
            Ok(StopSignal::Ended { status: how, alone: nobody }) => {
                status = Some(how);
                alone = nobody;
                if !driven && !alone {
                    agent.signal(mark, Signal::TERM);
                    rest = Some(Instant::now() + REST);
                }
            }
            Ok(StopSignal::Alone) => alone = true,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if rest.is_some_and(|rest| Instant::now() >= rest) {
            end.get_or_insert_with(|| Instant::now() + PATIENCE);
        }
        if let Some(end) = end.filter(|_| !alone) {
            if Instant::now() >= end {
                break;
            }
            agent.signal(mark, Signal::KILL);
        }
    }
    let mut left = if alone { Vec::new() } else { agent.living(mark) };
    // The mark also finds processes that another process started on the program's behalf and that
    // are not descendants of the keeper.
    left.extend(mark.kill_all(end.unwrap_or_else(|| Instant::now() + PATIENCE)));
    left.sort_unstable();
    left.dedup();
    Done { status, left }
}

#[cfg(target_os = "linux")]
impl Agent {
    /// Signals every process of the agent program. A stopped process is continued, because it could
    /// not end otherwise.
    #[expect(clippy::unused_self, reason = "the same shape as without `/proc`")]
    fn signal(&self, mark: &Mark, signal: Signal) {
        for process in members(mark) {
            // A process that is gone or belongs to another user is reported at the end.
            let _ = crate::tree::processes::signal(&process, signal);
            if process.stopped {
                let _ = crate::tree::processes::signal(&process, Signal::CONT);
            }
        }
    }

    /// Returns the processes that are still alive.
    #[expect(clippy::unused_self, reason = "the same shape as without `/proc`")]
    fn living(&self, mark: &Mark) -> Vec<u32> {
        crate::tree::processes::pids(&members(mark))
    }
}

/// Returns the living descendants of this process and the processes with the mark.
#[cfg(target_os = "linux")]
fn members(mark: &Mark) -> Vec<crate::tree::processes::Process> {
    let own = rustix::process::getpid();
    let mut members = crate::tree::processes::below(own);
    members.extend(mark.carriers().into_iter().filter(|one| one.pid != own));
    members.sort_unstable_by_key(|one| one.pid.as_raw_nonzero());
    members.dedup_by_key(|one| one.pid);
    members
}

#[cfg(not(target_os = "linux"))]
impl Agent {
    /// Signals the agent program, unless it was reaped.
    fn signal(&self, _mark: &Mark, signal: Signal) {
        let reaped = self.reaped.lock().unwrap_or_else(PoisonError::into_inner);
        if !*reaped {
            let _ = rustix::process::kill_process(self.leader, signal);
            let _ = rustix::process::kill_process(self.leader, Signal::CONT);
        }
    }

    fn living(&self, _mark: &Mark) -> Vec<u32> {
        let reaped = self.reaped.lock().unwrap_or_else(PoisonError::into_inner);
        if *reaped { Vec::new() } else { vec![self.leader.as_raw_nonzero().get() as u32] }
    }
}
