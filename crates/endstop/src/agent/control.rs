//! Cancels and terminates a run from any thread, and decides whether user code may still start.
//!
//! ```text
//! control.cancel();                                       // the handle or the loop
//! if let Some(request) = control.poll(heard, cx.waker())  // the driver, before each event
//! control.start(Request::Cancel, || tool.call(...))       // `None`: the run was stopped before
//! ```
//!
//! # What starts after a stop
//!
//! A driver learns of a cancel at its next poll. Until then it may write its journal, call observers
//! and spawn tasks, so a check on the driver's side cannot keep the promise that no tool starts after
//! `cancel` has returned. The promise is kept by one lock:
//!
//! - [`Control::start`] takes the lock, refuses if a stop was requested, and otherwise registers an
//!   [`Entry`]. It then runs the first poll of the user's code outside the lock and removes the entry.
//! - [`Control::cancel`] takes the same lock to record its request. Later starts are refused. Starts
//!   that registered earlier are past the check but may not have reached the user's first
//!   instruction, because their thread can be preempted in between. `cancel` therefore waits until
//!   their first poll has returned.
//!
//! `cancel` must not wait for user code to finish: a tool may block its thread, or wait for the thread
//! that cancels. Two rules see to that. Entries of the calling thread do not count: the user's code is
//! what called `cancel`, so it has started. And an entry whose thread is seen to work or to sleep
//! ([`Looks`]) has started, too; on Linux that takes a few milliseconds. On a runtime of one thread
//! there is never an entry of another thread, and `cancel` never waits.
//!
//! A run that works for a tool call of another run has the other's control as its `outer` one. A
//! start registers with all of them, so that a cancel of the outer run also holds back what the inner
//! run would start before it is told.
//!
//! `models.rs` checks every order of these steps.

use super::sync::{Arc, Condvar, Mutex, lock, wait_timeout};
use super::thread::{Looks, Thread};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Poll, Waker};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often a stop looks at a thread on which user code starts.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// What was asked of a run; a later one outranks the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Request {
    Cancel,
    Terminate,
}

/// The one way into a run that is under way.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    shared: Arc<Requests>,
    /// Cancelled when the run is stopped; tools hold children of it.
    pub(crate) token: CancellationToken,
    /// The control of the run whose tool call this run works for.
    outer: Option<std::sync::Arc<Control>>,
}

#[derive(Debug, Default)]
struct Requests {
    asked: Mutex<Asked>,
    /// Notified when an entry is removed.
    started: Condvar,
}

#[derive(Debug, Default)]
struct Asked {
    /// The most that was asked.
    request: Option<Request>,
    driver: Option<Waker>,
    /// A tool has reported spending that the driver has not booked.
    spent: bool,
    /// User code that is in its first poll.
    entries: Vec<Entry>,
    next: u64,
}

/// User code that passed the check and may not have reached its first instruction.
#[derive(Debug)]
struct Entry {
    number: u64,
    thread: Thread,
    /// The least request that would have refused it.
    refused_by: Request,
}

/// Removes its entries, also if the user's code panics.
struct Entered<'a> {
    control: &'a Control,
    number: u64,
    _outer: Option<Box<Entered<'a>>>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let shared = &self.control.shared;
        lock(&shared.asked).entries.retain(|entry| entry.number != self.number);
        shared.started.notify_all();
    }
}

impl Control {
    pub(crate) fn new(token: CancellationToken) -> Control {
        Control { shared: Arc::default(), token, outer: None }
    }

    /// A control of a run that works for a tool call of the run that `outer` controls.
    pub(crate) fn within(token: CancellationToken, outer: Option<&Control>) -> Control {
        let outer = outer.cloned().map(std::sync::Arc::new);
        Control { outer, ..Control::new(token) }
    }

    /// Cancels the run. No user code of it starts after this has returned.
    pub(crate) fn cancel(&self) {
        if self.request(Request::Cancel) {
            self.until_started(Request::Cancel);
        }
    }

    /// Terminates the run; as [`cancel`](Self::cancel).
    #[cfg(all(test, endstop_loom))]
    pub(crate) fn terminate(&self) {
        if self.request(Request::Terminate) {
            self.until_started(Request::Terminate);
        }
    }

    /// Records a request and tells the driver and the tools; `true` if user code is starting, for which
    /// [`until_started`](Self::until_started) waits.
    #[must_use]
    pub(crate) fn request(&self, request: Request) -> bool {
        let (driver, starting) = {
            let mut asked = lock(&self.shared.asked);
            asked.request = asked.request.max(Some(request));
            (asked.driver.take(), !asked.entries.is_empty())
        };
        // Both after the request is recorded: the driver hears it before the result of a tool that ends
        // at once because its token was cancelled. The tools do not wait for the driver, which a slow
        // journal may hold up.
        self.token.cancel();
        if let Some(driver) = driver {
            driver.wake();
        }
        starting
    }

    /// Waits until what was starting when `request` was recorded has started: see the module's
    /// documentation.
    pub(crate) fn until_started(&self, request: Request) {
        let mut control = Some(self);
        while let Some(at) = control {
            // Code of this thread that calls a stop has started; nothing waits for it any more.
            lock(&at.shared.asked).entries.retain(|entry| !entry.thread.is_current());
            at.shared.started.notify_all();
            control = at.outer.as_deref();
        }
        let mut looks: Vec<(u64, Looks)> = Vec::new();
        let mut started: Vec<u64> = Vec::new();
        loop {
            let mut asked = lock(&self.shared.asked);
            let waits =
                |entry: &Entry| entry.refused_by <= request && !started.contains(&entry.number);
            if !asked.entries.iter().any(waits) {
                return;
            }
            asked = wait_timeout(&self.shared.started, asked, BETWEEN_LOOKS);
            let entries = asked.entries.iter().filter(|entry| waits(entry));
            let waiting: Vec<_> =
                entries.map(|entry| (entry.number, entry.thread.clone())).collect();
            // Without the lock: to look at a thread takes a while.
            drop(asked);
            for (number, thread) in waiting {
                let known = looks.iter().position(|(known, _)| *known == number);
                let at = known.unwrap_or_else(|| {
                    looks.push((number, Looks::default()));
                    looks.len() - 1
                });
                if looks[at].1.has_run_on(&thread) {
                    started.push(number);
                }
            }
        }
    }

    /// Runs the first steps of user code; `None` if a request of at least `refused_by` came before,
    /// to this run or to one that it works for. A refused run has a request pending.
    pub(crate) fn start<T>(&self, refused_by: Request, code: impl FnOnce() -> T) -> Option<T> {
        let _entered = self.enter(refused_by)?;
        Some(code())
    }

    /// Awaits a future whose first poll starts user code: see [`start`](Self::start).
    pub(crate) async fn start_future<F: Future>(
        &self,
        refused_by: Request,
        code: F,
    ) -> Option<F::Output> {
        let mut code = pin!(code);
        let mut started = false;
        poll_fn(|cx| {
            if started {
                return code.as_mut().poll(cx).map(Some);
            }
            started = true;
            match self.start(refused_by, || code.as_mut().poll(cx)) {
                Some(polled) => polled.map(Some),
                None => Poll::Ready(None),
            }
        })
        .await
    }

    fn enter(&self, refused_by: Request) -> Option<Entered<'_>> {
        let mut entered = None;
        if let Some(outer) = &self.outer {
            entered = outer.enter(refused_by).map(Box::new);
            if entered.is_none() {
                // The outer run tells this one in its own time; what was refused must not count as a
                // failure until then.
                let _ = self.request(Request::Cancel);
                return None;
            }
        }
        let mut asked = lock(&self.shared.asked);
        if asked.request >= Some(refused_by) {
            return None;
        }
        let number = asked.next;
        asked.next += 1;
        asked.entries.push(Entry { number, thread: Thread::current(), refused_by });
        drop(asked);
        Some(Entered { control: self, number, _outer: entered })
    }

    /// Has the driver book what its tools have reported to have spent.
    pub(crate) fn spent(&self) {
        let driver = {
            let mut asked = lock(&self.shared.asked);
            asked.spent = true;
            asked.driver.take()
        };
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    /// Whether tools have reported spending since the last call. Ask after [`poll`](Self::poll), which
    /// registers the driver's waker: a report that comes between the two is not missed then.
    pub(crate) fn take_spent(&self) -> bool {
        std::mem::take(&mut lock(&self.shared.asked).spent)
    }

    /// What is asked, where it is more than `known`.
    pub(crate) fn pending(&self, known: Option<Request>) -> Option<Request> {
        lock(&self.shared.asked).request.filter(|request| Some(*request) > known)
    }

    /// What is asked, where it is more than `known`; else this waker is woken when it is.
    pub(crate) fn poll(&self, known: Option<Request>, waker: &Waker) -> Option<Request> {
        let replaced = {
            let mut asked = lock(&self.shared.asked);
            let request = asked.request.filter(|request| Some(*request) > known);
            if request.is_some() {
                return request;
            }
            match &asked.driver {
                Some(driver) if driver.will_wake(waker) => None,
                _ => asked.driver.replace(waker.clone()),
            }
        };
        // Outside the lock: with it a task may go.
        drop(replaced);
        None
    }
}
