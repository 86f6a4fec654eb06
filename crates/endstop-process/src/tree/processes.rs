//! Reads the process tree from `/proc` and kills processes without hitting an unrelated one. Linux
//! only.
//!
//! ```text
//! let end = Instant::now() + Duration::from_secs(1);
//! let left = tree::kill_all(|| tree::below(keeper), end); // those that are still alive
//! ```
//!
//! A process id may pass to another process between the look and the signal. Therefore the process
//! is first held by a descriptor (pidfd) and then looked at again. The same id with the same start
//! time is the same process, and a signal through the descriptor reaches no other.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::HashSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Time to wait for deaths before looking for processes again, because new ones may have been
/// started.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A process as it was when it was looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) parent: i32,
    /// Process group, or 0 if its leader is in another PID namespace.
    pub(crate) group: i32,
    /// Session, or 0 if its leader is in another PID namespace.
    pub(crate) session: i32,
    /// `true` if the process has ended and only waits to be reaped.
    pub(crate) ended: bool,
    /// `true` if a signal has stopped the process (job control).
    pub(crate) stopped: bool,
    /// Start time, in clock ticks since the machine was booted.
    started: u64,
}

/// Returns all processes that this process can see.
pub(crate) fn all() -> impl Iterator<Item = Process> {
    numbers().filter_map(look)
}

/// Returns the ids of all processes.
pub(crate) fn numbers() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").ok();
    entries.into_iter().flatten().flatten().filter_map(|entry| {
        entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw)
    })
}

/// Looks at one process. Returns `None` if it does not exist.
pub(crate) fn look(pid: Pid) -> Option<Process> {
    let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    parse(pid, &String::from_utf8_lossy(&stat))
}

/// Parses `pid (name) state parent group session …`. The name may contain any character, so the
/// fields are counted from the last `) `.
fn parse(pid: Pid, stat: &str) -> Option<Process> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<i32>().ok();
    // The first thread may end before the others; the process then still runs. Field 17 is the
    // number of threads.
    let ended = matches!(*fields.first()?, "Z" | "X") && number(17)? <= 1;
    let stopped = *fields.first()? == "T";
    let started = fields.get(19)?.parse().ok()?;
    let (parent, group, session) = (number(1)?, number(2)?, number(3)?);
    Some(Process { pid, parent, group, session, ended, stopped, started })
}

/// Returns the descendants of a process, without those that have ended. May miss a child while
/// another one is being reaped, so an empty result does not prove that there is none.
pub(crate) fn below(root: Pid) -> Vec<Process> {
    let root = root.as_raw_nonzero().get();
    let mut parents = vec![root];
    let mut family = HashSet::from([root]);
    let mut found = Vec::new();
    while let Some(parent) = parents.pop() {
        // The kernel's list of children is far faster than looking at every process. Speed matters
        // because a process that starts a successor and exits at once must be met alive. Some
        // kernels are built without the list.
        let Some(children) = children(parent) else { return by_parents(root) };
        for child in children.into_iter().filter(|child| family.insert(*child)) {
            parents.push(child);
            found.extend(Pid::from_raw(child).and_then(look).filter(|child| !child.ended));
        }
    }
    found
}

/// Returns the children of a process, including those that have ended and wait to be reaped.
pub(crate) fn children_of(parent: Pid) -> Vec<Process> {
    let number = parent.as_raw_nonzero().get();
    match children(number) {
        Some(children) => children.into_iter().filter_map(Pid::from_raw).filter_map(look).collect(),
        None => all().filter(|process| process.parent == number).collect(),
    }
}

/// Returns the ids of a process's children; an empty list if the process is gone, and `None` if the
/// kernel has no such list.
fn children(parent: i32) -> Option<Vec<i32>> {
    let mut children = Vec::new();
    let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) else { return Some(children) };
    for thread in threads.flatten() {
        match fs::read_to_string(thread.path().join("children")) {
            Ok(list) => {
                children.extend(list.split_ascii_whitespace().flat_map(str::parse::<i32>));
            }
            // The thread may have ended; then its `stat` is gone too, and the kernel does have the
            // list.
            Err(_) if thread.path().join("stat").exists() => return None,
            Err(_) => {}
        }
    }
    Some(children)
}

/// Returns the descendants by looking at every process.
fn by_parents(root: i32) -> Vec<Process> {
    let mut rest: Vec<Process> = all().collect();
    let mut family = HashSet::from([root]);
    let mut found = Vec::new();
    // Ids do not show which process is older, because they wrap around, so one pass is not enough.
    loop {
        let (children, others): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|process| family.contains(&process.parent));
        if children.is_empty() {
            return found;
        }
        family.extend(children.iter().map(|child| child.pid.as_raw_nonzero().get()));
        found.extend(children.into_iter().filter(|child| !child.ended));
        rest = others;
    }
}

/// Kills the processes that `find` returns, until it returns none twice in a row or until `end`.
/// Returns the ids of those that are still alive then.
pub(crate) fn kill_all(find: impl Fn() -> Vec<Process>, end: Instant) -> Vec<u32> {
    loop {
        // An empty look is repeated, because one look can miss a process: the kernel's list of
        // children may skip a child while another one is being reaped, and a process that is being
        // started is not in the list yet.
        let found = Some(find()).filter(|found| !found.is_empty()).unwrap_or_else(&find);
        if found.is_empty() {
            return Vec::new();
        }
        let killed: Vec<OwnedFd> = found.iter().filter_map(kill).collect();
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return pids(&found);
        }
        one_has_ended(&killed, left.min(LOOK_AGAIN));
    }
}

pub(crate) fn pids(processes: &[Process]) -> Vec<u32> {
    processes.iter().map(|process| process.pid.as_raw_nonzero().get() as u32).collect()
}

/// Kills exactly this process. Returns `None` if it is gone or may not be killed.
pub(crate) fn kill(process: &Process) -> Option<OwnedFd> {
    signal(process, Signal::KILL)
}

/// Signals exactly this process. Returns `None` if it is gone or may not be signalled.
pub(crate) fn signal(process: &Process, signal: Signal) -> Option<OwnedFd> {
    let held = pidfd_open(process.pid, PidfdFlags::empty()).ok()?;
    let again = look(process.pid)?;
    if again.started != process.started {
        return None;
    }
    pidfd_send_signal(&held, signal).ok()?;
    Some(held)
}

/// Waits until one of the processes has ended, or until the time is over.
fn one_has_ended(held: &[OwnedFd], at_most: Duration) {
    let mut fds: Vec<PollFd<'_>> = held.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let at_most =
        Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: i64::from(at_most.subsec_nanos()) };
    // An interrupted wait only makes the next look happen sooner.
    let _ = poll(&mut fds, Some(&at_most));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    /// Time after which a test counts as hanging.
    const HANG: Duration = Duration::from_secs(60);

    /// Starts a process that has a child.
    fn parent() -> Child {
        Command::new("sh").args(["-c", "sleep 1000 & wait"]).spawn().unwrap()
    }

    fn until(so: impl Fn() -> bool) {
        let end = Instant::now() + HANG;
        while !so() {
            assert!(Instant::now() < end, "it never came");
            std::thread::yield_now();
        }
    }

    #[test]
    fn any_process_name_is_parsed() {
        let pid = Pid::from_raw(7).unwrap();
        let rest = "S 3 5 4 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 99 0";
        let seen = parse(pid, &format!("7 (a) Z 1 (b) {rest}")).unwrap();
        assert_eq!((seen.parent, seen.session), (3, 4));
        assert!(!seen.ended && seen.started == 99);
        // The first thread of two has ended; the process has not.
        let threads = "Z 3 5 4 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 2 0 99 0";
        assert!(!parse(pid, &format!("7 (a) {threads}")).unwrap().ended);
        assert!(parse(pid, &format!("7 (a) {}", rest.replace('S', "Z"))).unwrap().ended);
        assert!(parse(pid, "7 (a) S 3").is_none());
    }

    #[test]
    fn grandchildren_are_found_and_killed() {
        let mut child = parent();
        let pid = Pid::from_child(&child);
        until(|| below(pid).len() == 1);
        let grandchild = below(pid)[0];
        assert_eq!(grandchild.parent, pid.as_raw_nonzero().get());
        // Both ways find it; its state may have changed in between.
        let all: Vec<Pid> = by_parents(grandchild.parent).iter().map(|one| one.pid).collect();
        assert_eq!(all, [grandchild.pid]);
        let own = rustix::process::getpid();
        // Repeated, because the kernel's list may skip a child while another one is being reaped.
        until(|| below(own).iter().any(|one| one.pid == grandchild.pid));
        let end = Instant::now() + HANG;
        assert_eq!(kill_all(|| below(pid), end), [0; 0]);
        assert!(look(grandchild.pid).is_none_or(|seen| seen.ended));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn one_empty_look_is_repeated() {
        let mut child = parent();
        let pid = Pid::from_child(&child);
        until(|| below(pid).len() == 1);
        let grandchild = below(pid)[0];
        // Every other look misses the process, also the first and those after a kill.
        let looks = std::cell::Cell::new(0);
        let find = || {
            looks.set(looks.get() + 1);
            if looks.get() % 2 == 1 { Vec::new() } else { below(pid) }
        };
        assert_eq!(kill_all(find, Instant::now() + HANG), [0; 0]);
        assert!(look(grandchild.pid).is_none_or(|seen| seen.ended));
        assert!(looks.get() >= 4, "{} looks", looks.get());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn reused_process_id_is_not_killed() {
        let mut child = parent();
        let seen = look(Pid::from_child(&child)).unwrap();
        // A child that starts only after `kill_all` below would be left behind.
        until(|| below(seen.pid).len() == 1);
        assert!(kill(&Process { started: seen.started + 1, ..seen }).is_none());
        assert!(child.try_wait().unwrap().is_none(), "it lives");
        let end = Instant::now() + HANG;
        assert_eq!(kill_all(|| below(seen.pid), end), [0; 0]);
        let _ = child.kill();
        child.wait().unwrap();
    }

    #[test]
    fn survivor_of_kill_is_reported() {
        let mut child = parent();
        let seen = look(Pid::from_child(&child)).unwrap();
        until(|| below(seen.pid).len() == 1);
        let other = Process { started: seen.started + 1, ..seen };
        let left = kill_all(|| vec![other], Instant::now() + Duration::from_millis(30));
        assert_eq!(left, [child.id()]);
        let end = Instant::now() + HANG;
        assert_eq!(kill_all(|| below(seen.pid), end), [0; 0]);
        let _ = child.kill();
        child.wait().unwrap();
    }
}
