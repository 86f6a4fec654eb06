//! Whether another thread has made progress since it was first looked at.
//!
//! ```text
//! let mut looks = Looks::default();
//! while !looks.has_run_on(&thread) { /* wait a moment */ }
//! ```
//!
//! A thread that has entered a function may be preempted before its first instruction, for as long as
//! a busy machine likes. On Linux the kernel tells how long a thread was on a processor, and whether
//! it sleeps. A thread that has run for a millisecond has executed more than a few instructions, and
//! one that sleeps was put to sleep by what it executes. Elsewhere time alone is a guess.

use super::sync::{ThreadId, current_thread};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time on a processor in which a thread has certainly executed its next instructions.
const ENOUGH: Duration = Duration::from_millis(1);
/// The guess if the thread cannot be seen.
const BLIND: Duration = Duration::from_millis(250);
/// The guess if the thread gets no processor, or waits in the kernel.
const STARVED: Duration = Duration::from_secs(2);

/// A thread of this process.
#[derive(Clone, Debug)]
pub(super) struct Thread {
    id: ThreadId,
    /// Where the kernel reports on it; `None` if it does not.
    folder: Option<Arc<str>>,
}

impl Thread {
    pub(super) fn current() -> Thread {
        Thread { id: current_thread(), folder: folder() }
    }

    pub(super) fn is_current(&self) -> bool {
        self.id == current_thread()
    }
}

#[cfg(all(target_os = "linux", not(all(test, endstop_loom))))]
fn folder() -> Option<Arc<str>> {
    thread_local! {
        static FOLDER: Option<Arc<str>> = std::fs::read_link("/proc/thread-self")
            .ok()
            .and_then(|link| Some(format!("/proc/{}", link.to_str()?).into()));
    }
    // While the thread is torn down there is none.
    FOLDER.try_with(Clone::clone).ok().flatten()
}

#[cfg(not(all(target_os = "linux", not(all(test, endstop_loom)))))]
fn folder() -> Option<Arc<str>> {
    None
}

/// What was seen of a thread so far.
#[derive(Debug)]
pub(super) struct Looks {
    began: Instant,
    /// Its time on a processor at the first look.
    first: Option<Duration>,
    /// It slept at the last look.
    slept: bool,
}

impl Default for Looks {
    fn default() -> Looks {
        Looks { began: Instant::now(), first: None, slept: false }
    }
}

impl Looks {
    /// Looks again. One sleep proves nothing, for it may be the allocator's; two in a row do.
    pub(super) fn has_run_on(&mut self, thread: &Thread) -> bool {
        // loom knows no time: what waits there waits for a notification.
        if cfg!(all(test, endstop_loom)) {
            return false;
        }
        let Some(folder) = &thread.folder else { return self.began.elapsed() >= BLIND };
        let Some((ran, sleeps)) = seen(folder) else { return self.began.elapsed() >= BLIND };
        let first = *self.first.get_or_insert(ran);
        let slept = std::mem::replace(&mut self.slept, sleeps);
        ran.saturating_sub(first) >= ENOUGH || (slept && sleeps) || self.began.elapsed() >= STARVED
    }
}

/// A thread's time on a processor, and whether it sleeps.
fn seen(folder: &str) -> Option<(Duration, bool)> {
    let times = std::fs::read_to_string(format!("{folder}/schedstat")).ok()?;
    let ran = Duration::from_nanos(times.split_whitespace().next()?.parse().ok()?);
    let stat = std::fs::read_to_string(format!("{folder}/stat")).ok()?;
    // After the name, which may have brackets of its own.
    let state = stat.rsplit(')').next()?.trim_start().chars().next()?;
    Some((ran, state == 'S'))
}

#[cfg(test)]
#[cfg(all(target_os = "linux", not(endstop_loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Looks at a thread until it is seen to run on; how long that took.
    fn until_seen(code: impl FnOnce(mpsc::Receiver<()>) + Send + 'static) -> Duration {
        let (is, thread) = mpsc::channel();
        let (stop, stopped) = mpsc::channel();
        let other = std::thread::spawn(move || {
            is.send(Thread::current()).unwrap();
            code(stopped);
        });
        let thread = thread.recv().unwrap();
        assert!(!thread.is_current());
        let (began, mut looks) = (Instant::now(), Looks::default());
        while !looks.has_run_on(&thread) {
            std::thread::yield_now();
        }
        let took = began.elapsed();
        drop(stop);
        other.join().unwrap();
        took
    }

    #[test]
    fn thread_that_works_or_sleeps_has_run_on() {
        let sleeps = until_seen(|stopped| {
            let _ = stopped.recv();
        });
        assert!(sleeps < STARVED, "asleep: {sleeps:?}");
        let works = until_seen(|stopped| {
            while stopped.try_recv() != Err(mpsc::TryRecvError::Disconnected) {
                std::hint::spin_loop();
            }
        });
        assert!(works < STARVED, "at work: {works:?}");
    }
}
