//! A run with its lock, its clock, and a signal for each change.

use super::calls::{CallFacts, Ticket, lock_call};
use super::event::OnEvent;
use super::guarded::{Guarded, Response};
use super::journal::{KeySets, RunRecord};
use super::response::as_answer;
use super::settings::Settings;
use crate::exchange::{RunKey, Threads};
use endstop_core::guest::Spending;
use endstop_core::{ModelTurn, SignalReason, Usage, Window};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;
use tokio::time::Instant;

/// A run that its gatekeeper, its observers and its clock share.
pub(super) struct Shared {
    run: Mutex<Guarded>,
    /// Held while a call is decided about, so that what was found before it is admitted still holds then.
    decides: Mutex<()>,
    threads: Arc<Mutex<Threads>>,
    began: Instant,
    wall_ms: u64,
    may_cut_text: bool,
    pub(super) changed: Notify,
    clock: Arc<Clock>,
}

/// The signals of a run for the task that reports its deadlines.
#[derive(Default)]
struct Clock {
    /// The run has ended or was dropped, or a deadline has come nearer.
    nearer: Notify,
    /// The deadline that the task waits for.
    waits_for: Mutex<Option<Duration>>,
    /// The last time at which the process was seen to run, while a call has a deadline.
    ran_at: Mutex<Option<Duration>>,
}

/// Interval at which the clock wakes while a call has a deadline, to notice that the process was suspended.
const WATCH: Duration = Duration::from_secs(1);

impl Drop for Shared {
    // The clock of the run waits for this signal.
    fn drop(&mut self) {
        self.clock.nearer.notify_one();
    }
}

impl Shared {
    /// Starts a run and its clock.
    #[expect(
        clippy::disallowed_methods,
        reason = "the clock's task ends with the run or its handles"
    )]
    pub(super) fn start(
        key: RunKey,
        settings: &Arc<Settings>,
        threads: &Arc<Mutex<Threads>>,
        key_sets: &Arc<KeySets>,
        on_event: OnEvent,
    ) -> Arc<Shared> {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall_ms = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
        let record = RunRecord::new(settings.journal.clone(), Arc::clone(key_sets));
        let run = Guarded::new(key, Arc::clone(settings), wall_ms, record, on_event);
        let shared = Arc::new(Shared {
            run: Mutex::new(run),
            decides: Mutex::default(),
            threads: Arc::clone(threads),
            began: Instant::now(),
            wall_ms,
            may_cut_text: settings.policy.is_some(),
            changed: Notify::new(),
            clock: Arc::default(),
        });
        tokio::spawn(keep_time(Arc::downgrade(&shared), Arc::clone(&shared.clock)));
        shared
    }

    /// Time since the run began.
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn unix_seconds(&self) -> u64 {
        self.wall_ms / 1000
    }

    /// `true` if a policy may end a text in the middle of a stream.
    pub(super) fn may_cut_text(&self) -> bool {
        self.may_cut_text
    }

    // The state after a panic is not half-changed in a way that matters: the kernel has a guard of
    // its own, and the ledger only grows.
    pub(super) fn lock(&self) -> MutexGuard<'_, Guarded> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets one call at a time be decided about.
    pub(super) fn decides(&self) -> MutexGuard<'_, ()> {
        self.decides.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies waiters, and the clock if its deadline moved closer or the run ended. The run must not be locked.
    pub(super) fn changed(&self) {
        let (ended, due) = {
            let run = self.lock();
            (run.outcome().is_some(), run.wake_at())
        };
        if ended {
            self.clock.nearer.notify_one();
        } else {
            self.wake_by(due);
        }
        self.changed.notify_waiters();
    }

    /// Notifies the clock if this deadline is nearer than the one that it waits for.
    pub(super) fn wake_by(&self, due: Option<Duration>) {
        let waits_for = *self.clock.waits_for();
        // Most changes move no deadline, and some move it away: then the clock looks once too often.
        if due.is_some_and(|due| waits_for.is_none_or(|known| due < known)) {
            self.clock.nearer.notify_one();
        }
    }

    /// Reports the time in which the process was suspended, if it was. To be called before anything that has come since is
    /// reported, because the time would count against the deadlines of calls.
    pub(super) fn note_suspension(&self, at: Duration) {
        let gap = {
            let mut ran_at = self.clock.ran_at();
            let Some(before) = *ran_at else { return };
            *ran_at = Some(before.max(at));
            at.saturating_sub(before)
        };
        // A wake that is a little late is that of a busy machine.
        if gap > 2 * WATCH {
            self.lock().suspended(at, gap.saturating_sub(WATCH));
        }
    }

    /// Reports the use of a subscription's windows.
    pub(super) fn windows(&self, windows: Vec<Window>) {
        let at = self.now();
        self.lock().windows(at, windows);
        self.changed();
    }

    /// The moment of a time of the run; `None` if the clock cannot express it.
    pub(super) fn moment(&self, at: Duration) -> Option<Instant> {
        self.began.checked_add(at)
    }

    /// Reports the end of a call to the run, and its response to the table of conversations. A call that the
    /// provider works on stays open. Returns what was booked for the call, if it has ended.
    pub(super) fn finished(
        &self,
        ticket: &Ticket,
        facts: &Arc<CallFacts>,
        response: Response,
    ) -> Option<Spending> {
        if let Some(id) = works_on(facts, &response)
            && self.lock().hold(self.now(), id, ticket, facts)
        {
            let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            threads.works_on(&facts.seat, facts.kind, id);
            drop(threads);
            self.changed();
            return None;
        }
        {
            let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            match &response {
                Ok(turn) => threads.answered(&facts.seat, facts.kind, turn),
                Err(_) => threads.failed(&facts.seat, facts.kind),
            }
        }
        let at = self.now();
        self.note_suspension(at);
        // After the ids of its calls are known, because a client may send results all the same.
        let response = response.map(|turn| as_answer(turn, facts.reply.structured.as_ref()));
        let booked = self.lock().ended(at, ticket, response);
        self.changed();
        Some(booked)
    }

    /// Notes that a call counts as complete at this time, unless more of it comes.
    pub(super) fn ends_at(&self, ticket: &Ticket, at: Option<Duration>) {
        self.lock().calls.ends_at(ticket.number, at);
        self.changed();
    }

    /// Books what a response reported after its call had ended, as far as it is more than what was booked then.
    pub(super) fn book_late(&self, facts: &CallFacts, booked: &Spending, turn: &ModelTurn) {
        let mut usage = turn.usage.clone();
        if usage.prompt_tokens() == 0 {
            // Some formats report the prompt at the beginning.
            let output = usage.output_tokens;
            usage = Usage { output_tokens: output, ..booked.usage.clone() };
        }
        let cost = turn.cost.or_else(|| Some(facts.price?.cost(&usage))).unwrap_or_default();
        let more = Spending {
            usage: usage.since(&booked.usage),
            cost: cost.saturating_sub(booked.cost),
            ..Spending::default()
        };
        if turn.usage.total_tokens() > 0 && more.usage.total_tokens() > 0 {
            self.lock().account.book_late(&more);
            self.changed();
        }
    }

    /// Books an answer to a call that was not counted, because it costs nothing elsewhere.
    pub(super) fn book_uncounted(&self, facts: &CallFacts, turn: &ModelTurn) {
        let mut run = self.lock();
        run.has_answered_below = true;
        run.counts.calls += 1;
        run.counts.metered += 1;
        run.counts.without_text += 1;
        if turn.usage.total_tokens() == 0 || (facts.price.is_none() && turn.cost.is_none()) {
            run.account.ledger.book_unknown();
        }
        drop(run);
        self.book_late(facts, &Spending::default(), turn);
        self.changed();
    }
}

/// Returns the id of a response that the provider still works on.
fn works_on<'a>(facts: &CallFacts, response: &'a Response) -> Option<&'a str> {
    match response {
        // The response decides and not the request, whose members a server may read in another way.
        Ok(turn) if turn.signal.reason == SignalReason::InProgress => {
            let is_stored = facts.dialect.family.works_in_background();
            turn.response_id.as_deref().filter(|_| is_stored)
        }
        // The client left the stream, and the provider continues.
        Err((_, partial)) if facts.is_background => partial.as_deref()?.response_id.as_deref(),
        Ok(_) | Err(_) => None,
    }
}

impl Clock {
    fn waits_for(&self) -> MutexGuard<'_, Option<Duration>> {
        self.waits_for.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ran_at(&self) -> MutexGuard<'_, Option<Duration>> {
        self.ran_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports deadlines to the run until it ends. Holds the run only while it reads it, so that a run
/// which is dropped without an end leaves no task.
async fn keep_time(shared: Weak<Shared>, clock: Arc<Clock>) {
    loop {
        let wake = {
            let Some(run) = shared.upgrade() else { return };
            let now = run.now();
            run.note_suspension(now);
            let guarded = run.lock();
            if guarded.outcome().is_some() {
                return;
            }
            let wake = guarded.wake_at();
            let watches = guarded.times_a_call();
            *clock.ran_at() = watches.then_some(now);
            // Before the run is unlocked, so that each later change is compared with this deadline. The signal of one
            // in between is kept until it is waited for.
            *clock.waits_for() = wake;
            let wake = wake.map(|at| if watches { at.min(now + WATCH) } else { at });
            // A time that the clock cannot express never comes.
            wake.and_then(|at| run.began.checked_add(at))
        };
        match wake {
            None => clock.nearer.notified().await,
            Some(at) => {
                tokio::select! {
                    () = clock.nearer.notified() => {}
                    () = tokio::time::sleep_until(at) => {
                        let Some(run) = shared.upgrade() else { return };
                        let now = run.now();
                        run.note_suspension(now);
                        // A complete call counts before a deadline of the same moment.
                        let complete = run.lock().calls.take_complete(now);
                        for reading in complete {
                            lock_call(&reading).end_if_finished();
                        }
                        run.lock().tick(now);
                        run.changed();
                    }
                }
            }
        }
    }
}
