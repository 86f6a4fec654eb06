//! The keeper's own side: it starts the command, hears the host, kills what must not live on.
//!
//! ```text
//! host ── "sleep 1000 & wait" ──► keeper ──► sh ──► sleep
//!      ── T, or the end ────────►   │ its session, and on Linux its foster children
//!      ◄─ started … ended … ─────   ┘
//! ```
//!
//! Three threads: one hears the host, one reaps, and this one decides. On Linux the keeper is a
//! *subreaper*: whose parent dies becomes its child, so that nobody can leave, and when it has no
//! child left, nobody is.
//!
//! How the command ended goes over the socket in the system's own encoding. The keeper could also
//! kill itself with the same signal; but then its host could not tell the two deaths apart, and a
//! signal that dumps core would dump the keeper's.

use super::super::group::Members;
use super::super::strays::Mark;
use super::super::{PATIENCE, shell};
use super::report::{self, ASK, Done};
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

/// How often it is looked for those who are left; their deaths wake it earlier. Often: whoever
/// starts a successor and ends is met only between the two.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// What the deciding thread is told.
enum Heard {
    /// The host asks the command to end.
    Ask,
    /// The host wants it dead, or is dead itself.
    Kill,
    /// The command has ended so; `alone`: it has left nobody.
    Ended { status: i32, alone: bool },
    /// Nobody is left.
    Alone,
}

/// Whether this process was started by a host, and not by somebody who is curious.
pub(super) fn is_asked() -> bool {
    rustix::fs::fstat(io::stdin()).is_ok_and(|stat| {
        rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Socket
    })
}

/// Keeps one command, whose mark this is; `-`: it may leave daemons. `talks`: what it writes to is a
/// socket, which it also reads from; else it has no input.
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
    // It fails where the host is gone.
    let _ = (&host).write_all(last_word.as_bytes());
    ExitCode::SUCCESS
}

/// A keeper is asked and told by its host alone. Handlers, not ignored signals: a command would
/// inherit these. SIGCHLD is among them for a host that ignores it: its keeper would inherit that,
/// and never hear how its command ended.
fn be_deaf() -> io::Result<()> {
    use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    let heard = Arc::new(AtomicBool::new(false));
    for signal in [SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&heard))?;
    }
    Ok(())
}

/// Starts the command as the host has said it, and lets go of everything that is the command's.
fn start(
    host: &UnixStream,
    mark: Option<&Mark>,
    talks: bool,
    tell: &Sender<Heard>,
) -> io::Result<Arc<Members>> {
    be_deaf()?;
    // A signal from the terminal reaches its session's processes only. And it is by the session
    // that the host knows the command's processes, should the keeper be killed.
    rustix::process::setsid()?;
    // Only a name, for who lists processes: its file would be `exe`.
    let _ = fs::write("/proc/self/comm", "endstop-keeper");
    // It has the environment of its host, and can be found by the command that it keeps.
    crate::process::hide_from_other_processes();
    #[cfg(target_os = "linux")]
    if mark.is_some() {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    }
    let line = report::receive_line(host)?;
    let nothing = File::options().write(true).open("/dev/null")?;
    // The threads first: a child that nobody can watch must not be started.
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
    // What it reads from, if it has something.
    drop(command);
    let members = Arc::new(Members::led_by(Pid::from_child(&child)));
    // From here on nothing fails: there is a command, and somebody must see to its end.
    let _ = give.send(Arc::clone(&members));
    // Were the output held here too, the host would never see its end.
    let _ = rustix::stdio::dup2_stdout(&nothing);
    let _ = rustix::stdio::dup2_stderr(&nothing);
    let _ = std::env::set_current_dir("/");
    // Where the host is gone, the hearer says so.
    let _ = (&*host).write_all(report::started(child.id()).as_bytes());
    Ok(members)
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).stack_size(64 * 1024).spawn(work)?;
    Ok(())
}

/// Hears the host, to its end.
fn hear(mut host: UnixStream, tell: &Sender<Heard>) {
    let mut orders = [0; 16];
    loop {
        match host.read(&mut orders) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // An error is an end too: of a host that has died with something unread.
            Ok(0) | Err(_) => break drop(tell.send(Heard::Kill)),
            Ok(read) if orders[..read].contains(&ASK) => drop(tell.send(Heard::Ask)),
            Ok(_) => {}
        }
    }
}

/// Reaps the command, and whoever becomes a child of the keeper, until there is nobody.
fn reap(members: &Members, tell: &Sender<Heard>) {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    loop {
        match waitid(WaitId::All, look) {
            Err(Errno::INTR) => continue,
            Err(_) => break drop(tell.send(Heard::Alone)),
            Ok(_) => {}
        }
        // Somebody has ended. The leader's number is needed until its group is dead.
        let mut reaped = members.reaped();
        let leads = Some(members.leader);
        let ended = |id| matches!(waitid(id, look | WaitIdOptions::NOHANG), Ok(Some(_)));
        let ending = if !*reaped && ended(WaitId::Pid(members.leader)) {
            let _ = rustix::process::kill_process_group(members.leader, Signal::KILL);
            waitpid(leads, WaitOptions::empty())
        } else {
            // It may be the leader that has ended since. Then whoever is left of its group is
            // found as a child, not by the group's number.
            wait(WaitOptions::NOHANG)
        };
        if let Ok(Some((pid, status))) = ending
            && Some(pid) == leads
        {
            *reaped = true;
            let alone =
                matches!(waitid(WaitId::All, look | WaitIdOptions::NOHANG), Err(Errno::CHILD));
            let _ = tell.send(Heard::Ended { status: status.as_raw(), alone });
        }
    }
}

/// Does as the host says, until nobody is left or time is up.
fn decide(members: &Members, heard: &mpsc::Receiver<Heard>, mark: Option<&Mark>) -> Done {
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
            Ok(Heard::Ask) => members.signal(Signal::TERM),
            Ok(Heard::Alone) => alone = true,
            Ok(Heard::Ended { status: how, alone: nobody }) => {
                status = Some(how);
                alone = nobody;
                end.get_or_insert_with(|| Instant::now() + PATIENCE);
            }
            Ok(Heard::Kill) => {
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
        // The second net: for whoever was started by somebody else on the command's behalf.
        left.extend(mark.kill_all(end.unwrap_or_else(|| Instant::now() + PATIENCE)));
    }
    left.sort_unstable();
    left.dedup();
    Done { status, left }
}

#[cfg(target_os = "linux")]
fn kill_children() {
    use super::super::tree;
    for process in tree::below(rustix::process::getpid()) {
        let _ = tree::kill(&process);
    }
}

#[cfg(target_os = "linux")]
fn living_children() -> Vec<u32> {
    use super::super::tree;
    tree::pids(&tree::below(rustix::process::getpid()))
}

/// Without `/proc` nobody knows whose child is who.
#[cfg(not(target_os = "linux"))]
fn kill_children() {}

#[cfg(not(target_os = "linux"))]
fn living_children() -> Vec<u32> {
    Vec::new()
}
