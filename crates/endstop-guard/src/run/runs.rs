//! The runs of a guard: each with its lock, its clock, and a signal for its end.

use super::answer_call::as_answer;
use super::call::{CallFacts, Ticket, lock_call};
use super::calls::Response;
use super::ending::ProgramEnd;
use super::event::Hear;
use super::guarded::{Counts, Guarded};
use super::journal::RunRecord;
use super::key_sets::KeySets;
use super::settings::Settings;
use crate::exchange::{RunKey, Threads};
use endstop_core::guest::Spending;
use endstop_core::{
    Limits, ModelTurn, NanoUsd, Outcome, RuleHit, SignalReason, Termination, Usage,
};
use endstop_wire::WireFormat;
use endstop_wire::redact::KnownKeys;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;
use tokio::time::Instant;

/// A run that its gatekeeper, its observers and its clock share.
pub(super) struct Shared {
    run: Mutex<Guarded>,
    threads: Arc<Mutex<Threads>>,
    began: Instant,
    wall_ms: u64,
    may_cut_text: bool,
    changed: Notify,
    clock: Arc<Clock>,
}

/// The signals of a run for the task that reports its deadlines.
#[derive(Default)]
struct Clock {
    /// The run has ended or was dropped, or a deadline has come nearer.
    news: Notify,
    /// The deadline that the task waits for.
    waits_for: Mutex<Option<Duration>>,
}

impl Drop for Shared {
    // The clock of the run waits for news.
    fn drop(&mut self) {
        self.clock.news.notify_one();
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
        hear: Hear,
    ) -> Arc<Shared> {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall_ms = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
        let record = RunRecord::new(settings.journal.clone(), Arc::clone(key_sets));
        let run = Guarded::new(key, Arc::clone(settings), wall_ms, record, hear);
        let shared = Arc::new(Shared {
            run: Mutex::new(run),
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
    // its own, and the books only grow.
    pub(super) fn lock(&self) -> MutexGuard<'_, Guarded> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies waiters, and the clock if its deadline moved closer or the run ended. The run must not be locked.
    pub(super) fn changed(&self) {
        let (ended, due) = {
            let run = self.lock();
            (run.outcome().is_some(), run.wake_at())
        };
        let waits_for = *self.clock.waits_for();
        // Most changes move no deadline, and some move it away: then the clock looks once too often.
        let is_nearer = due.is_some_and(|due| waits_for.is_none_or(|known| due < known));
        if ended || is_nearer {
            self.clock.news.notify_one();
        }
        self.changed.notify_waiters();
    }

    /// Reports the end of a call to the run, and what its response says to the table of threads. A call that the
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
        // After the ids of its calls are known, because a client may send results all the same.
        let response = response.map(|turn| as_answer(turn, facts.reply.structured.as_ref()));
        let booked = self.lock().ended(at, ticket, response);
        self.changed();
        Some(booked)
    }

    /// Notes that a call counts as complete after this time, unless more of it comes.
    pub(super) fn ends_after(&self, ticket: &Ticket, wait: Duration) {
        let at = self.now().saturating_add(wait);
        self.lock().ends_at(ticket.number, at);
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
            self.lock().book_late(&more);
            self.changed();
        }
    }
}

/// Returns the id of a response that the provider still works on.
fn works_on<'a>(facts: &CallFacts, response: &'a Response) -> Option<&'a str> {
    match response {
        // The response decides and not the request, whose members a server may read in another way.
        Ok(turn) if turn.signal.reason == SignalReason::InProgress => {
            let is_stored = facts.dialect.family == WireFormat::OpenAiResponses;
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
}

/// Reports deadlines to the run until it ends. Holds the run only while it reads it, so that a run
/// which is dropped without an end leaves no task.
async fn keep_time(shared: Weak<Shared>, clock: Arc<Clock>) {
    loop {
        let wake = {
            let Some(run) = shared.upgrade() else { return };
            let guarded = run.lock();
            if guarded.outcome().is_some() {
                return;
            }
            let wake = guarded.wake_at();
            // Before the run is unlocked, so that each later change is compared with this deadline. The news of one
            // in between is kept until it is waited for.
            *clock.waits_for() = wake;
            // A time that the clock cannot express never comes.
            wake.and_then(|at| run.began.checked_add(at))
        };
        match wake {
            None => clock.news.notified().await,
            Some(at) => {
                tokio::select! {
                    () = clock.news.notified() => {}
                    () = tokio::time::sleep_until(at) => {
                        let Some(run) = shared.upgrade() else { return };
                        let now = run.now();
                        // A complete call counts before a deadline of the same moment.
                        let complete = run.lock().take_complete(now);
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

/// A run as its owner sees it.
#[derive(Clone)]
pub struct RunHandle(pub(super) Arc<Shared>);

/// A snapshot of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveRun {
    /// Id of the run.
    pub id: String,
    /// The ending, if the run has ended.
    pub ended: Option<Termination>,
    /// Turns of all threads so far.
    pub turns: u32,
    /// Prompt and generated tokens so far.
    pub tokens: u64,
    /// Cost so far.
    pub cost: NanoUsd,
    /// Time since the first call.
    pub elapsed: Duration,
    /// Model calls in flight.
    pub in_flight: usize,
}

impl std::fmt::Debug for RunHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunHandle").field("id", &self.id()).finish_non_exhaustive()
    }
}

impl RunHandle {
    /// The name of the run, which commands for live runs use.
    pub fn id(&self) -> String {
        self.0.lock().key().id().to_owned()
    }

    /// The id of the run in the journal and in its outcome.
    pub fn record_id(&self) -> String {
        self.0.lock().id().to_owned()
    }

    /// The outcome, once the run has ended.
    pub fn outcome(&self) -> Option<Arc<Outcome>> {
        self.0.lock().outcome().cloned()
    }

    /// The spending of all threads of the run so far.
    pub fn spent(&self) -> Spending {
        self.0.lock().spent().clone()
    }

    /// Rules that fired so far in other conversations than the first one, whose hits are in the
    /// outcome. At most 256 are kept.
    pub fn fired_elsewhere(&self) -> Vec<RuleHit> {
        self.0.lock().fired().to_vec()
    }

    /// `true` if a call so far had the key of a subscription, so that its cost is what it would be by key.
    pub fn is_subscription(&self) -> bool {
        self.0.lock().is_subscription
    }

    /// Numbers of calls and threads so far.
    pub fn counts(&self) -> Counts {
        self.0.lock().counts
    }

    /// A snapshot of the run.
    pub fn live(&self) -> LiveRun {
        let now = self.0.now();
        let run = self.0.lock();
        let spent = run.spent();
        LiveRun {
            id: run.key().id().to_owned(),
            ended: run.outcome().map(|outcome| outcome.termination),
            turns: spent.turns.saturating_add(run.books.turns_in_flight()),
            tokens: spent.usage.total_tokens(),
            cost: spent.cost,
            elapsed: now,
            in_flight: run.in_flight(),
        }
    }

    /// Closes the run if no call is in flight, and the last one was at least this long ago. `true`
    /// if it was, also for a run that had ended before.
    pub fn close_if_quiet(&self, after: Duration, detail: &str) -> bool {
        let now = self.0.now();
        let mut run = self.0.lock();
        if run.in_flight() > 0 || now.saturating_sub(run.active_at()) < after {
            return false;
        }
        // Under the same lock, so that no call can begin in between.
        run.close(now, &ProgramEnd::new(true, detail));
        drop(run);
        self.0.changed();
        true
    }

    /// The limits that hold now.
    pub fn limits(&self) -> Limits {
        self.0.lock().limits().clone()
    }

    /// Changes the limits of the run. What was spent so far counts against them. Returns `false` if
    /// the run has ended.
    pub fn set_limits(&self, limits: Limits) -> bool {
        let at = self.0.now();
        let changed = self.0.lock().set_limits(at, limits);
        self.0.changed();
        changed
    }

    pub(super) fn key(&self) -> RunKey {
        self.0.lock().key().clone()
    }

    /// The secrets of the run, to be redacted from reports: the credentials in its requests so far, those of
    /// its journal's settings, and those of [`hide`](RunHandle::hide).
    pub fn secrets(&self) -> KnownKeys {
        self.0.lock().keys().clone()
    }

    /// Adds a secret, which is redacted from everything that the run reports and records from now on.
    pub fn hide(&self, secret: &str) {
        self.0.lock().record.hide(secret);
    }

    /// Waits until the journal has written the ended run, or could not write it.
    pub async fn recorded(&self) {
        let record = self.0.lock().take_record();
        if let Some(record) = record {
            record.close().await;
        }
    }

    /// The number of model calls in flight.
    pub fn in_flight(&self) -> usize {
        self.0.lock().in_flight()
    }

    /// Waits for the end of the run. Cancel-safe.
    pub async fn ended(&self) -> Arc<Outcome> {
        loop {
            self.until(|run| run.outcome().is_some()).await;
            if let Some(outcome) = self.outcome() {
                return outcome;
            }
        }
    }

    /// Waits until no model call is in flight. Cancel-safe.
    pub async fn idle(&self) {
        self.until(|run| run.in_flight() == 0).await;
    }

    /// Waits until a condition holds; it is checked after each change of the run. Cancel-safe.
    pub async fn until(&self, holds: impl Fn(&RunHandle) -> bool) {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            // Before the check, so that a change in between is not missed.
            changed.as_mut().enable();
            if holds(self) {
                return;
            }
            changed.await;
        }
    }

    /// Ends the run, because its program is gone. `ok` is `false` if the program reported a failure,
    /// described by `detail`. Returns the outcome that stands.
    pub fn close(&self, ok: bool, detail: &str) -> Arc<Outcome> {
        self.program_ended(&ProgramEnd::new(ok, detail))
    }

    /// Ends the run, because its program is gone. Returns the outcome that stands.
    pub fn program_ended(&self, end: &ProgramEnd<'_>) -> Arc<Outcome> {
        self.finish(|run, at| run.close(at, end))
    }

    /// Ends the run, because a person asked for it. Returns the outcome that stands.
    pub fn cancel(&self) -> Arc<Outcome> {
        self.finish(Guarded::cancel)
    }

    /// Ends the run at once. Returns the outcome that stands.
    pub fn terminate(&self) -> Arc<Outcome> {
        self.finish(Guarded::terminate)
    }

    fn finish(&self, end: impl FnOnce(&mut Guarded, Duration) -> Arc<Outcome>) -> Arc<Outcome> {
        let at = self.0.now();
        let outcome = end(&mut self.0.lock(), at);
        self.0.changed();
        outcome
    }
}
