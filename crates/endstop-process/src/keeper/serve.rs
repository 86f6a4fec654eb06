//! The keeper's side: starts the command, receives the host's requests, and kills every process
//! that must not outlive the command.
//!
//! ```text
//! host ── "sleep 1000 & wait" ──► keeper ──► sh ──► sleep
//!      ── T, or the end ────────►   │ its session, and on Linux its foster children
//!      ◄─ started … ended … ─────   ┘
//! ```
//!
//! There are three threads: one reads from the host, one reaps children, and the main thread
//! decides. On Linux the keeper is a *subreaper*: a process whose parent dies becomes a child of
//! the keeper, so that no process can escape it. When the keeper has no child left, no process of
//! the command is left.
//!
//! The exit status goes over the socket in the system's own encoding. The keeper could instead kill
//! itself with the same signal, but then its host could not tell the two deaths apart, and a signal
//! that dumps core would dump the keeper's memory.

use super::report::{self, ASK, Done, INTERRUPT};
use crate::ended::PATIENCE;
use crate::shell::shell;
use crate::tree::group::Members;
use crate::tree::orphans::Mark;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, wait, waitid, waitpid};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Interval at which the keeper looks for remaining processes; their deaths wake it earlier. Short,
/// because a process that starts a successor and exits is met only between the two.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// A message to the deciding thread.
pub(super) enum StopSignal {
    /// The host asks an agent program to interrupt its work and to end.
    Interrupt,
    /// The host asks the command to end.
    Ask,
    /// The host requests that the command is killed, or has died itself.
    Kill,
    /// The command has ended with this status; `alone` if it has left no process.
    Ended { status: i32, alone: bool },
    /// No process is left.
    Alone,
}

/// Returns `true` if this process was started by a host, and not by a user who passed the argument.
/// A host connects a socket to the standard input.
pub(super) fn is_asked() -> bool {
    rustix::fs::fstat(io::stdin()).is_ok_and(|stat| {
        rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Socket
    })
}

/// Supervises one command. `mark` is the command's mark, or `-` if the command may leave daemons.
/// If `talks`, the command also reads from the socket that it writes to; otherwise it has no input.
pub(super) fn serve(mark: Option<OsString>, talks: bool) -> ExitCode {
    let mark = mark.filter(|mark| mark != "-").map(Mark::of);
    let Ok(host) = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from) else {
        return ExitCode::FAILURE;
    };
    let (tell, heard) = mpsc::channel();
    let last_word = match start(&host, mark.as_ref(), talks, &tell) {
        Ok(members) => decide(&members, &heard, mark.as_ref()).line(),
        Err(error) => report::refused(&error),
    };
    // Fails if the host is gone; the result is then not needed.
    let _ = (&host).write_all(last_word.as_bytes());
    ExitCode::SUCCESS
}

/// Makes the keeper ignore signals, because only its host may control it. Uses handlers, because a
/// command would inherit ignored signals. SIGCHLD is among them for a host that ignores it: the
/// keeper would inherit that and never learn how its command ended.
pub(super) fn be_deaf() -> io::Result<()> {
    use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    let heard = Arc::new(AtomicBool::new(false));
    for signal in [SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&heard))?;
    }
    Ok(())
}

/// Starts the command that the host sent, and closes everything that belongs to the command.
fn start(
    host: &UnixStream,
    mark: Option<&Mark>,
    talks: bool,
    tell: &Sender<StopSignal>,
) -> io::Result<Arc<Members>> {
    be_deaf()?;
    // Signals from a terminal only reach processes of its session. The session also lets the host
    // find the command's processes if the keeper is killed.
    rustix::process::setsid()?;
    // Only a name for process lists, which would otherwise show `exe`.
    let _ = fs::write("/proc/self/comm", "endstop-keeper");
    // The keeper has the environment of its host, and its command knows its process id.
    crate::hidden::hide_from_other_processes();
    #[cfg(target_os = "linux")]
    if mark.is_some() {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    }
    let line = report::receive_line(host)?;
    let nothing = File::options().write(true).open("/dev/null")?;
    // Start the threads first, because without them a started child would never be reaped.
    let (give, take) = mpsc::channel::<Arc<Members>>();
    let reaping = tell.clone();
    thread("reaper", move || {
        if let Ok(members) = take.recv() {
            reap(&members, &reaping);
        }
    })?;
    let (orders, hearing) = (host.try_clone()?, tell.clone());
    thread("hearer", move || hear(orders, &hearing))?;

    let mut command = shell(OsStr::from_bytes(&line));
    let input =
        if talks { Stdio::from(io::stdout().as_fd().try_clone_to_owned()?) } else { Stdio::null() };
    command.stdin(input).process_group(0);
    if let Some(mark) = mark {
        mark.put(&mut command);
    }
    let child = command.spawn()?;
    // Closes our copy of the command's input, if it has one.
    drop(command);
    let members = Arc::new(Members::led_by(Pid::from_child(&child)));
    // From here on nothing may return early, because a command runs and must be supervised to its
    // end.
    let _ = give.send(Arc::clone(&members));
    // The host would never see the end of the output if the keeper held it open too.
    let _ = rustix::stdio::dup2_stdout(&nothing);
    let _ = rustix::stdio::dup2_stderr(&nothing);
    // A keeper must not keep a file system busy that the user wants to unmount.
    let _ = std::env::set_current_dir("/");
    // If the host is gone, the reading thread reports it.
    let _ = (&*host).write_all(report::started(child.id()).as_bytes());
    Ok(members)
}

pub(super) fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).stack_size(64 * 1024).spawn(work)?;
    Ok(())
}

/// Reads the host's requests until the connection ends.
pub(super) fn hear(mut host: UnixStream, tell: &Sender<StopSignal>) {
    let mut orders = [0; 16];
    loop {
        match host.read(&mut orders) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // An error is an end too, for example if a host died before it read everything.
            Ok(0) | Err(_) => break drop(tell.send(StopSignal::Kill)),
            Ok(read) => {
                for order in &orders[..read] {
                    // The receiver is gone if the work is done; nothing is left to be ended then.
                    match *order {
                        ASK => drop(tell.send(StopSignal::Ask)),
                        INTERRUPT => drop(tell.send(StopSignal::Interrupt)),
                        _ => {}
                    }
                }
            }
        }
    }
}

/// Reaps the command and all other children of the keeper, until there is none left.
fn reap(members: &Members, tell: &Sender<StopSignal>) {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    loop {
        match waitid(WaitId::All, look) {
            Err(Errno::INTR) => continue,
            Err(_) => break drop(tell.send(StopSignal::Alone)),
            Ok(_) => {}
        }
        // A child has ended. The leader's id is needed until its group has been killed, so the
        // leader is reaped only after that.
        let mut reaped = members.reaped();
        let leads = Some(members.leader);
        let ended = |id| matches!(waitid(id, look | WaitIdOptions::NOHANG), Ok(Some(_)));
        let ending = if !*reaped && ended(WaitId::Pid(members.leader)) {
            let _ = rustix::process::kill_process_group(members.leader, Signal::KILL);
            waitpid(leads, WaitOptions::empty())
        } else {
            // This may reap the leader if it has ended just now. Its remaining group is then found
            // as children of the keeper and not by the id of the group.
            wait(WaitOptions::NOHANG)
        };
        if let Ok(Some((pid, status))) = ending
            && Some(pid) == leads
        {
            *reaped = true;
            let alone =
                matches!(waitid(WaitId::All, look | WaitIdOptions::NOHANG), Err(Errno::CHILD));
            let _ = tell.send(StopSignal::Ended { status: status.as_raw(), alone });
        }
    }
}

/// Carries out the host's requests until no process is left or the time is over.
fn decide(members: &Members, heard: &mpsc::Receiver<StopSignal>, mark: Option<&Mark>) -> Done {
    let mut status = None;
    let mut end: Option<Instant> = None;
    let mut alone = false;
    while !alone {
        let next = match end {
            None => heard.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(end) if Instant::now() >= end => break,
            Some(_) => heard.recv_timeout(LOOK_AGAIN),
        };
        match next {
            Ok(StopSignal::Interrupt) => members.signal(Signal::INT),
            Ok(StopSignal::Ask) => members.signal(Signal::TERM),
            Ok(StopSignal::Alone) => alone = true,
            Ok(StopSignal::Ended { status: how, alone: nobody }) => {
                status = Some(how);
                alone = nobody;
                end.get_or_insert_with(|| Instant::now() + PATIENCE);
            }
            Ok(StopSignal::Kill) => {
                end.get_or_insert_with(|| Instant::now() + PATIENCE);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if end.is_some() && !alone {
            members.signal(Signal::KILL);
            if mark.is_some() {
                kill_children();
            }
        }
    }
    let mut left = Vec::new();
    if !alone {
        let leader = (!*members.reaped()).then(|| members.leader.as_raw_nonzero().get() as u32);
        left.extend(leader);
        left.extend(mark.map(|_| living_children()).unwrap_or_default());
    }
    if let Some(mark) = mark {
        // The mark also finds processes that another process started on the command's behalf and
        // that are not descendants of the keeper.
        left.extend(mark.kill_all(end.unwrap_or_else(|| Instant::now() + PATIENCE)));
    }
    left.sort_unstable();
    left.dedup();
    Done { status, left }
}

#[cfg(target_os = "linux")]
fn kill_children() {
    use crate::tree::processes;
    for process in processes::below(rustix::process::getpid()) {
        let _ = processes::kill(&process);
    }
}

#[cfg(target_os = "linux")]
fn living_children() -> Vec<u32> {
    use crate::tree::processes;
    processes::pids(&processes::below(rustix::process::getpid()))
}

/// Does nothing: without `/proc` the children are not known.
#[cfg(not(target_os = "linux"))]
fn kill_children() {}

#[cfg(not(target_os = "linux"))]
fn living_children() -> Vec<u32> {
    Vec::new()
}
