//! Detects if another thread has made progress since it was first observed.
//!
//! ```text
//! let mut looks = Looks::default();
//! while !looks.has_run_on(&thread) { /* wait a moment */ }
//! ```
//!
//! A thread that has entered a function may be preempted before its first instruction, for any
//! length of time on a busy machine. On Linux the kernel reports how long a thread was on a
//! processor, and if it sleeps. A thread that has run for some milliseconds has executed more than a
//! few instructions, and a thread that sleeps for long was put to sleep by the code it executes. On
//! other systems elapsed time is the only evidence, and it is a guess.

use super::sync::{ThreadId, current_thread};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Processor time after which a thread has certainly executed its next instructions.
const ENOUGH: Duration = Duration::from_millis(4);
/// Time for which a sleeping thread must have slept to count as started. A short sleep proves nothing:
/// a thread that waits for a lock of the allocator sleeps until the owner of the lock gets a processor
/// again, which takes some milliseconds on a busy machine.
const ASLEEP: Duration = Duration::from_millis(25);
/// Time after which a thread counts as started if its state cannot be read.
const BLIND: Duration = Duration::from_millis(250);
/// Time after which a thread counts as started if it waits in the kernel, for example for a disk. A
/// thread that waits for a processor does not count as started, because it gets one at some time.
const STUCK: Duration = Duration::from_secs(2);

/// A thread of this process.
#[derive(Clone, Debug)]
pub(super) struct Thread {
    id: ThreadId,
    /// The thread's folder in `/proc`, for example `/proc/7/task/9`; `None` if there is none.
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
    // Thread-local storage is not available while the thread is torn down.
    FOLDER.try_with(Clone::clone).ok().flatten()
}

#[cfg(not(all(target_os = "linux", not(all(test, endstop_loom)))))]
fn folder() -> Option<Arc<str>> {
    None
}

/// The observations of a thread so far.
#[derive(Debug)]
pub(super) struct Looks {
    began: Instant,
    /// The thread's processor time at the first observation.
    first: Option<Duration>,
    /// The thread's processor time at the last observation.
    last: Option<Duration>,
    /// The first observation of the sleep in which the thread was seen last.
    asleep_since: Option<Instant>,
}

impl Default for Looks {
    fn default() -> Looks {
        Looks { began: Instant::now(), first: None, last: None, asleep_since: None }
    }
}

impl Looks {
    /// Observes the thread again. Returns `true` if it has run on since the first observation.
    pub(super) fn has_run_on(&mut self, thread: &Thread) -> bool {
        // loom does not model time: waiting there ends only by a notification.
        if cfg!(all(test, endstop_loom)) {
            return false;
        }
        match thread.folder.as_deref().and_then(seen) {
            Some(now) => {
                let stuck = !matches!(now.state, 'R' | 'S') && self.began.elapsed() >= STUCK;
                self.has_advanced(now) || stuck
            }
            None => self.began.elapsed() >= BLIND,
        }
    }

    /// Compares an observation with the earlier ones. Returns `true` if the thread has worked, or
    /// sleeps for long.
    fn has_advanced(&mut self, Seen { ran, state }: Seen) -> bool {
        let first = *self.first.get_or_insert(ran);
        let still = self.last.replace(ran) == Some(ran);
        // A thread that ran since the last observation is in another sleep.
        let since = self.asleep_since.filter(|_| still).or_else(|| Some(Instant::now()));
        self.asleep_since = since.filter(|_| state == 'S');
        ran.saturating_sub(first) >= ENOUGH
            || self.asleep_since.is_some_and(|since| since.elapsed() >= ASLEEP)
    }
}

/// One observation of a thread.
struct Seen {
    /// The processor time of the thread.
    ran: Duration,
    /// The state of the thread, as `/proc` names it: `R` runs or waits for a processor, `S` sleeps.
    state: char,
}

fn seen(folder: &str) -> Option<Seen> {
    let times = std::fs::read_to_string(format!("{folder}/schedstat")).ok()?;
    let ran = Duration::from_nanos(times.split_whitespace().next()?.parse().ok()?);
    let stat = std::fs::read_to_string(format!("{folder}/stat")).ok()?;
    // Skip past the last `)`: the thread name before it is in brackets and may contain brackets
    // itself.
    let state = stat.rsplit(')').next()?.trim_start().chars().next()?;
    Some(Seen { ran, state })
}

#[cfg(test)]
#[cfg(all(target_os = "linux", not(endstop_loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Observes a thread until it is seen to have started, however long that takes.
    fn until_seen(code: impl FnOnce(mpsc::Receiver<()>) + Send + 'static) {
        let (is, thread) = mpsc::channel();
        let (stop, stopped) = mpsc::channel();
        let other = std::thread::spawn(move || {
            is.send(Thread::current()).unwrap();
            code(stopped);
        });
        let thread = thread.recv().unwrap();
        assert!(!thread.is_current());
        let mut looks = Looks::default();
        while !looks.has_advanced(seen(thread.folder.as_deref().unwrap()).unwrap()) {
            assert!(looks.began.elapsed() < Duration::from_secs(60), "it is not seen to start");
            std::thread::yield_now();
        }
        drop(stop);
        other.join().unwrap();
    }

    #[test]
    fn working_or_sleeping_thread_has_started() {
        until_seen(|stopped| {
            let _ = stopped.recv();
        });
        until_seen(|stopped| {
            while stopped.try_recv() != Err(mpsc::TryRecvError::Disconnected) {
                std::hint::spin_loop();
            }
        });
    }
}
