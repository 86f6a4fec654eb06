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
//! A driver notices a cancel at its next poll. Until then it may write its journal, call observers
//! and spawn tasks, so a check on the driver's side cannot guarantee that no tool starts after
//! `cancel` has returned. One lock guarantees it:
//!
//! - [`Control::start`] takes the lock, refuses if a stop was requested, and otherwise registers an
//!   [`Entry`]. It then runs the first poll of the user's code outside the lock and removes the
//!   entry.
//! - [`Control::cancel`] takes the same lock to record its request. Later starts are refused.
//!   Starts that registered earlier are past the check but may not have reached the user's first
//!   instruction, because their thread can be preempted in between. `cancel` therefore waits until
//!   their first poll has returned.
//!
//! `cancel` must not wait for user code to finish: a tool may block its thread, or wait for the
//! thread that cancels. Two rules prevent that. Entries of the calling thread do not count, because
//! the user's code itself called `cancel` and so has started. And an entry whose thread is observed
//! to work or to sleep ([`Looks`]) has started, too; on Linux that takes some tens of milliseconds. On a
//! single-threaded runtime there is never an entry of another thread, and `cancel` never waits.
//!
//! # Why a blocking start is observed
//!
//! The step of a start that counts is the insertion of its entry, the step of a stop is the record of
//! its request, and one lock orders them. If the stop is first, the start is refused. If the start is
//! first, the stop sees its entry, and returns after the entry was removed: the first poll has
//! returned, so the user's first instruction was executed before. That removal is an exact mark, and
//! it is the one that almost every stop waits for.
//!
//! Only a first poll that blocks its thread has no such mark, and none can be set for it, because
//! none of our instructions runs between the user's first one and the return of the poll. A mark
//! before the first instruction is not exact: the thread can be preempted between the two, and a stop
//! that has seen the mark returns before the instruction is executed. A lock that is held during the
//! poll is exact, but makes the stop wait for the code. Both in one step needs the system's help (a
//! restartable sequence that is aborted before its last instruction), and with it unsafe code. So a
//! stop observes the thread: processor time or a long sleep after the insertion is the evidence that
//! it has passed the few instructions in between.
//!
//! # Inner runs
//!
//! A run that works for a tool call of another run has the other's control as its `outer` one. A
//! start registers with all of them, so that a cancel of the outer run also refuses what the inner
//! run would start before it is notified.
//!
//! The loom tests in `loom_tests.rs` check every order of these steps.

use super::mailbox::Mailbox;
use super::sync::{Arc, Condvar, Mutex, lock, wait_timeout};
use super::thread::{Looks, Thread};
use endstop_core::{EventKind, Limits};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::OnceLock;
use std::task::{Poll, Waker};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Interval at which a stop checks a thread on which user code starts.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// A requested stop. A later variant outranks the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Request {
    Cancel,
    Terminate,
}

/// The shared handle through which a run is stopped.
// One pointer, because the agent, the session, the handle, the driver and each tool call have one.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    shared: Arc<Requests>,
}

#[derive(Debug)]
struct Requests {
    asked: Mutex<Asked>,
    /// Notified when an entry is removed.
    started: Condvar,
    /// Created for the first tool, because a run that only waits for a model needs none.
    tokens: OnceLock<Tokens>,
    /// The control of the run on whose tool call this run works.
    outer: Option<Control>,
}

#[derive(Debug)]
struct Tokens {
    /// Cancelled when the run is stopped.
    stopped: CancellationToken,
    /// Cancelled when the run is terminated, and then `stopped` as well.
    terminated: CancellationToken,
}

impl Tokens {
    fn new() -> Tokens {
        let terminated = CancellationToken::new();
        Tokens { stopped: terminated.child_token(), terminated }
    }

    fn cancel(&self, request: Request) {
        match request {
            Request::Cancel => self.stopped.cancel(),
            Request::Terminate => self.terminated.cancel(),
        }
    }
}

/// The reason for which a run takes no letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// This process parks the run, or has parked it.
    Parked,
    /// The run has ended.
    Ended,
}

/// What has arrived for the driver of a run.
pub(crate) struct News {
    /// Tools have reported spending.
    pub(crate) spent: bool,
    /// The next message or change of limits.
    pub(crate) letter: Option<EventKind>,
}

#[derive(Debug, Default)]
struct Asked {
    /// The strongest request so far.
    request: Option<Request>,
    driver: Option<Waker>,
    /// A tool has reported spending that the driver has not booked yet.
    spent: bool,
    /// Boxed, because most runs get no letter.
    mailbox: Option<Box<Mailbox>>,
    /// The reason for which the run takes no letters.
    closed: Option<Closed>,
    /// User code that is currently in its first poll.
    entries: Vec<Entry>,
    /// Number of stops that wait for an entry to be removed.
    waiting: usize,
    next: u64,
}

/// User code that passed the check and may not have reached its first instruction.
#[derive(Debug)]
struct Entry {
    number: u64,
    thread: Thread,
    /// The weakest request that would have refused this start.
    refused_by: Request,
}

/// Removes the entries when dropped, so that they also go if the user's code panics.
struct Entered<'a> {
    control: &'a Control,
    number: u64,
    _outer: Option<Box<Entered<'a>>>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let shared = &self.control.shared;
        let mut asked = lock(&shared.asked);
        asked.entries.retain(|entry| entry.number != self.number);
        let waiting = asked.waiting > 0;
        drop(asked);
        // A notification is a system call even if no thread waits, and every start ends here.
        if waiting {
            shared.started.notify_all();
        }
    }
}

impl Control {
    /// Creates the control of a run. `outer` is that of the run on whose tool call it works.
    pub(crate) fn within(outer: Option<&Control>) -> Control {
        let (asked, started) = (Mutex::default(), Condvar::default());
        let (tokens, outer) = (OnceLock::new(), outer.cloned());
        Control { shared: Arc::new(Requests { asked, started, tokens, outer }) }
    }

    /// Returns the token that is cancelled when the run is stopped; tools hold child tokens.
    pub(crate) fn token(&self) -> &CancellationToken {
        &self.tokens().stopped
    }

    /// Returns the token that is cancelled when the run is terminated, and then
    /// [`token`](Self::token) as well.
    pub(crate) fn terminated(&self) -> &CancellationToken {
        &self.tokens().terminated
    }

    fn tokens(&self) -> &Tokens {
        if let Some(tokens) = self.shared.tokens.get() {
            return tokens;
        }
        let tokens = self.shared.tokens.get_or_init(Tokens::new);
        // A stop that was recorded before now has not seen the tokens. A later one sees them.
        if let Some(request) = self.pending(None) {
            tokens.cancel(request);
        }
        tokens
    }

    /// Cancels the run. None of its user code starts after this has returned.
    pub(crate) fn cancel(&self) {
        Control::stop_all(std::slice::from_ref(self), Request::Cancel);
    }

    /// Terminates the run, with the same guarantee as [`cancel`](Self::cancel).
    pub(crate) fn terminate(&self) {
        Control::stop_all(std::slice::from_ref(self), Request::Terminate);
    }

    /// Stops several runs. None of their user code starts after this has returned.
    pub(crate) fn stop_all(runs: &[Control], request: Request) {
        // Every run is informed before any is waited for, so that none starts more code meanwhile.
        let starting: Vec<&Control> = runs.iter().filter(|run| run.request(request)).collect();
        // Two bodies of different runs that stop both runs would otherwise wait for each other.
        for run in &starting {
            run.started_here();
        }
        for run in starting {
            run.until_started(request);
        }
    }

    /// Records a request and notifies the driver and the tools. Returns `true` if user code is
    /// starting; [`until_started`](Self::until_started) waits for that code.
    #[must_use]
    fn request(&self, request: Request) -> bool {
        let (driver, starting) = {
            let mut asked = lock(&self.shared.asked);
            // `max`: a cancel that follows a terminate must not weaken it.
            asked.request = asked.request.max(Some(request));
            (asked.driver.take(), !asked.entries.is_empty())
        };
        // Both follow the recorded request, so that the driver sees it before the result of a tool
        // that ends at once because its token was cancelled. Tools are notified directly because a
        // slow journal may hold up the driver.
        if let Some(tokens) = self.shared.tokens.get() {
            tokens.cancel(request);
        }
        if let Some(driver) = driver {
            driver.wake();
        }
        starting
    }

    /// Notes that the code on this thread has started: it requested a stop itself, so no other
    /// thread needs to wait for it either.
    fn started_here(&self) {
        let mut control = Some(self);
        while let Some(at) = control {
            lock(&at.shared.asked).entries.retain(|entry| !entry.thread.is_current());
            at.shared.started.notify_all();
            control = at.shared.outer.as_ref();
        }
    }

    /// Waits until the code that was starting when `request` was recorded has started. The module
    /// documentation describes the protocol.
    fn until_started(&self, request: Request) {
        let mut looks: Vec<(u64, Looks)> = Vec::new();
        let mut started: Vec<u64> = Vec::new();
        loop {
            let mut asked = lock(&self.shared.asked);
            let waits =
                |entry: &Entry| entry.refused_by <= request && !started.contains(&entry.number);
            if !asked.entries.iter().any(waits) {
                return;
            }
            // The timeout is needed because user code that blocks in its first poll sends no
            // notification.
            asked.waiting += 1;
            asked = wait_timeout(&self.shared.started, asked, BETWEEN_LOOKS);
            asked.waiting -= 1;
            let entries = asked.entries.iter().filter(|entry| waits(entry));
            let waiting: Vec<_> =
                entries.map(|entry| (entry.number, entry.thread.clone())).collect();
            // Release the lock, because reading a thread's state from the kernel takes a while.
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

    /// Runs the first steps of user code. Returns `None` if a request of at least `refused_by` was
    /// recorded earlier, on this run or on one that it works for. A refused run has a request
    /// pending.
    pub(crate) fn start<T>(&self, refused_by: Request, code: impl FnOnce() -> T) -> Option<T> {
        let _entered = self.enter(refused_by)?;
        Some(code())
    }

    /// Awaits a future whose first poll starts user code; see [`start`](Self::start).
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
        if let Some(outer) = &self.shared.outer {
            entered = outer.enter(refused_by).map(Box::new);
            if entered.is_none() {
                // The outer run stops this one only later. Record the request now, so that the
                // refused start is not counted as a failure in the meantime.
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
        // Few start at once, and the list stays as long as the run.
        if asked.entries.capacity() == 0 {
            asked.entries.reserve_exact(1);
        }
        asked.entries.push(Entry { number, thread: Thread::current(), refused_by });
        drop(asked);
        Some(Entered { control: self, number, _outer: entered })
    }

    /// Wakes the driver so that it books the spending that tools have reported.
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

    /// Takes what has arrived since the last call. Call it after [`poll`](Self::poll), which registers
    /// the driver's waker, so that nothing that arrives between the two calls is missed.
    pub(crate) fn take_news(&self) -> News {
        let mut asked = lock(&self.shared.asked);
        News {
            spent: std::mem::take(&mut asked.spent),
            letter: asked.mailbox.as_mut().and_then(|mailbox| mailbox.pop()),
        }
    }

    /// Sends a letter to the driver. `write` sees what was sent before, and may refuse.
    ///
    /// # Errors
    /// The run takes no letters, or the error of `write`.
    pub(crate) fn send<E: From<Closed>>(
        &self,
        write: impl FnOnce(&mut Mailbox) -> Result<EventKind, E>,
    ) -> Result<(), E> {
        let driver = {
            let mut asked = lock(&self.shared.asked);
            if let Some(closed) = asked.closed {
                return Err(closed.into());
            }
            let mailbox = asked.mailbox.get_or_insert_default();
            let letter = write(mailbox)?;
            mailbox.push(letter);
            asked.driver.take()
        };
        if let Some(driver) = driver {
            driver.wake();
        }
        Ok(())
    }

    /// Returns the limits with all changes that were sent; `None` if there was none.
    pub(crate) fn sent_limits(&self) -> Option<Limits> {
        lock(&self.shared.asked).mailbox.as_ref().and_then(|mailbox| mailbox.limits.clone())
    }

    /// Accepts no further letters. Returns those that the driver has not taken.
    pub(crate) fn close_mailbox(&self) -> Vec<EventKind> {
        let mut asked = lock(&self.shared.asked);
        asked.closed = Some(Closed::Ended);
        asked.mailbox.as_mut().map(|mailbox| mailbox.take_all()).unwrap_or_default()
    }

    /// Accepts no further letters, because the run is about to be parked. Returns `false` and changes
    /// nothing if there is one that the driver has not taken: the journal of a parked run cannot take it
    /// any more.
    #[must_use]
    pub(crate) fn close_empty_mailbox(&self) -> bool {
        let mut asked = lock(&self.shared.asked);
        let empty = asked.mailbox.as_ref().is_none_or(|mailbox| mailbox.is_empty());
        if empty {
            asked.closed = Some(Closed::Parked);
        }
        empty
    }

    /// Accepts letters again, because the run was not parked.
    pub(crate) fn reopen_mailbox(&self) {
        lock(&self.shared.asked).closed.take_if(|closed| *closed == Closed::Parked);
    }

    /// Returns the recorded request if it is stronger than `known`.
    pub(crate) fn pending(&self, known: Option<Request>) -> Option<Request> {
        lock(&self.shared.asked).request.filter(|request| Some(*request) > known)
    }

    /// Returns the recorded request if it is stronger than `known`; otherwise registers the waker
    /// for it.
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
        // Drop the old waker outside the lock: it may be the last owner of a task, whose destructor
        // could take this lock.
        drop(replaced);
        None
    }
}
