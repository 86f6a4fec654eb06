//! Who is whose child, read from `/proc`, and killing that hits nobody else. Linux only.
//!
//! ```text
//! let end = Instant::now() + Duration::from_secs(1);
//! let left = tree::kill_all(|| tree::below(keeper), end); // who did not die
//! ```
//!
//! A number may go to another process between the look and the signal. So a process is held by a
//! descriptor first and looked at again: what started at the same instant under the same number is
//! the same process, and a signal through the descriptor reaches no other.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::HashSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long deaths are waited for before it is looked again: somebody may have come meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A process as it was seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process {
    pub(super) pid: Pid,
    pub(super) parent: i32,
    pub(super) session: i32,
    /// It has ended, and only waits to be reaped.
    pub(super) ended: bool,
    /// When it was started, in ticks since the machine was.
    started: u64,
}

/// The processes of the machine, as far as they can be seen.
pub(super) fn all() -> impl Iterator<Item = Process> {
    numbers().filter_map(look)
}

/// The numbers of all processes.
pub(super) fn numbers() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").ok();
    entries.into_iter().flatten().flatten().filter_map(|entry| {
        entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw)
    })
}

/// Looks at one process; `None`: it is not there.
pub(super) fn look(pid: Pid) -> Option<Process> {
    let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    parse(pid, &String::from_utf8_lossy(&stat))
}

/// `pid (name) state parent group session …`; the name may hold anything.
fn parse(pid: Pid, stat: &str) -> Option<Process> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<i32>().ok();
    // The first thread may have ended before the others: then the process goes on.
    let ended = matches!(*fields.first()?, "Z" | "X") && number(17)? <= 1;
    let started = fields.get(19)?.parse().ok()?;
    Some(Process { pid, parent: number(1)?, session: number(3)?, ended, started })
}

/// The children of a process, their children, and so on; not those that have ended.
pub(super) fn below(root: Pid) -> Vec<Process> {
    let root = root.as_raw_nonzero().get();
    let mut parents = vec![root];
    let mut family = HashSet::from([root]);
    let mut found = Vec::new();
    while let Some(parent) = parents.pop() {
        // The kernel's own list is by far faster than a look at every process: whoever starts a
        // successor and ends at once is to be met alive. Some kernels are built without it.
        let Some(children) = children(parent) else { return by_parents(root) };
        for child in children.into_iter().filter(|child| family.insert(*child)) {
            parents.push(child);
            found.extend(Pid::from_raw(child).and_then(look).filter(|child| !child.ended));
        }
    }
    found
}

/// The children of a process, also those that have ended and wait to be reaped.
pub(super) fn children_of(parent: Pid) -> Vec<Process> {
    let number = parent.as_raw_nonzero().get();
    match children(number) {
        Some(children) => children.into_iter().filter_map(Pid::from_raw).filter_map(look).collect(),
        None => all().filter(|process| process.parent == number).collect(),
    }
}

/// The numbers of a process's children; none of a process that is gone. `None`: the kernel has no
/// such list.
fn children(parent: i32) -> Option<Vec<i32>> {
    let mut children = Vec::new();
    let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) else { return Some(children) };
    for thread in threads.flatten() {
        match fs::read_to_string(thread.path().join("children")) {
            Ok(list) => {
                children.extend(list.split_ascii_whitespace().flat_map(str::parse::<i32>));
            }
            // The thread may have ended; then its `stat` is gone too.
            Err(_) if thread.path().join("stat").exists() => return None,
            Err(_) => {}
        }
    }
    Some(children)
}

/// The same by looking at every process.
fn by_parents(root: i32) -> Vec<Process> {
    let mut rest: Vec<Process> = all().collect();
    let mut family = HashSet::from([root]);
    let mut found = Vec::new();
    // Numbers do not tell who came first: they start anew after the highest.
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

/// Kills whom `find` finds until it finds nobody, but not after `end`; gives the numbers of those
/// who are still there then.
pub(super) fn kill_all(find: impl Fn() -> Vec<Process>, end: Instant) -> Vec<u32> {
    loop {
        let found = find();
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

pub(super) fn pids(processes: &[Process]) -> Vec<u32> {
    processes.iter().map(|process| process.pid.as_raw_nonzero().get() as u32).collect()
}

/// Kills this process and no other; `None`: it is gone, or it is not ours to kill.
pub(super) fn kill(process: &Process) -> Option<OwnedFd> {
    let held = pidfd_open(process.pid, PidfdFlags::empty()).ok()?;
    let again = look(process.pid)?;
    if again.started != process.started {
        return None;
    }
    pidfd_send_signal(&held, Signal::KILL).ok()?;
    Some(held)
}

/// Waits until one of them has ended, or the time is over.
fn one_has_ended(held: &[OwnedFd], at_most: Duration) {
    let mut fds: Vec<PollFd<'_>> = held.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let at_most =
        Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: i64::from(at_most.subsec_nanos()) };
    // An interrupted wait only makes the next look come sooner.
    let _ = poll(&mut fds, Some(&at_most));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    /// A process that has a child of its own.
    fn parent() -> Child {
        Command::new("sh").args(["-c", "sleep 1000 & wait"]).spawn().unwrap()
    }

    fn until(so: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !so() {
            assert!(Instant::now() < end, "it never came");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_name_may_hold_anything() {
        let pid = Pid::from_raw(7).unwrap();
        let rest = "S 3 5 4 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 99 0";
        let seen = parse(pid, &format!("7 (a) Z 1 (b) {rest}")).unwrap();
        assert_eq!((seen.parent, seen.session), (3, 4));
        assert!(!seen.ended && seen.started == 99);
        // The first thread of two has ended: the process has not.
        let threads = "Z 3 5 4 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 2 0 99 0";
        assert!(!parse(pid, &format!("7 (a) {threads}")).unwrap().ended);
        assert!(parse(pid, &format!("7 (a) {}", rest.replace('S', "Z"))).unwrap().ended);
        assert!(parse(pid, "7 (a) S 3").is_none());
    }

    #[test]
    fn children_of_children_are_found_and_killed() {
        let mut child = parent();
        let pid = Pid::from_child(&child);
        until(|| below(pid).len() == 1);
        let grandchild = below(pid)[0];
        assert_eq!(grandchild.parent, pid.as_raw_nonzero().get());
        // By either way; they do not see it in the same state.
        let all: Vec<Pid> = by_parents(grandchild.parent).iter().map(|one| one.pid).collect();
        assert_eq!(all, [grandchild.pid]);
        let own = rustix::process::getpid();
        assert!(below(own).iter().any(|one| one.pid == grandchild.pid), "and from further up");
        let end = Instant::now() + Duration::from_secs(10);
        assert_eq!(kill_all(|| below(pid), end), [0; 0]);
        assert!(look(grandchild.pid).is_none_or(|seen| seen.ended));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_number_that_went_to_somebody_else_is_not_killed() {
        let mut child = parent();
        let seen = look(Pid::from_child(&child)).unwrap();
        assert!(kill(&Process { started: seen.started + 1, ..seen }).is_none());
        assert!(child.try_wait().unwrap().is_none(), "it lives");
        let end = Instant::now() + Duration::from_secs(10);
        assert_eq!(kill_all(|| below(seen.pid), end), [0; 0]);
        let _ = child.kill();
        child.wait().unwrap();
    }

    #[test]
    fn who_cannot_be_killed_is_named() {
        let mut child = parent();
        let seen = look(Pid::from_child(&child)).unwrap();
        let other = Process { started: seen.started + 1, ..seen };
        let left = kill_all(|| vec![other], Instant::now() + Duration::from_millis(30));
        assert_eq!(left, [child.id()]);
        let end = Instant::now() + Duration::from_secs(10);
        assert_eq!(kill_all(|| below(seen.pid), end), [0; 0]);
        let _ = child.kill();
        child.wait().unwrap();
    }
}
