//! A run as its owner sees it, and the warning about a program that does not use the proxy.
//!
//! ```no_run
//! # async fn guarded(run: endstop_guard::run::RunHandle) {
//! use endstop_guard::run::{NO_CALLS_AFTER, warn_without_calls};
//! if let Some(warning) = warn_without_calls(&run, NO_CALLS_AFTER).await {
//!     eprintln!("{warning}");
//! }
//! # }
//! ```

use super::calls::Work;
use super::conversation::Conversation;
use super::ending::ProgramEnd;
use super::guarded::{Guarded, Rejected};
use super::meter::Counts;
use super::shared::Shared;
use crate::exchange::RunKey;
use endstop_core::guest::Spending;
use endstop_core::{Decision, Limits, NanoUsd, Outcome, Pause, RuleHit, Termination};
use endstop_wire::redact::KnownKeys;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

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
    /// Known cost so far; `None` if no part of it is known.
    pub cost: Option<NanoUsd>,
    /// Time since the first call.
    pub elapsed: Duration,
    /// Model calls in flight.
    pub in_flight: usize,
}

impl fmt::Debug for RunHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
            turns: spent.turns.saturating_add(run.account.ledger.turns_in_flight()),
            tokens: spent.usage.total_tokens(),
            cost: spent.known_cost(),
            elapsed: now,
            in_flight: run.calls.len(),
        }
    }

    /// Closes the run if no call is in flight, and the last one was at least this long ago. `true`
    /// if it was, also for a run that had ended before.
    pub fn close_if_idle(&self, after: Duration, detail: &str) -> bool {
        let now = self.0.now();
        let mut run = self.0.lock();
        let waits = run.calls.len() > 0 || run.held_back > 0;
        if waits || now.saturating_sub(run.active_at()) < after {
            return false;
        }
        // Under the same lock, so that no call can begin in between.
        run.close(now, &ProgramEnd::new(true, detail));
        drop(run);
        self.0.changed();
        true
    }

    /// Closes the run if nothing of it is open: no call is in flight, and its last response asks for no tool. `true`
    /// if it was.
    pub fn close_if_settled(&self, detail: &str) -> bool {
        let now = self.0.now();
        let mut run = self.0.lock();
        let last = run.conversations.deciding().and_then(Conversation::provisional);
        if run.calls.len() > 0 || run.held_back > 0 || last.is_none() {
            return false;
        }
        run.close(now, &ProgramEnd::new(true, detail));
        drop(run);
        self.0.changed();
        true
    }

    /// The limits that hold now.
    pub fn limits(&self) -> Limits {
        self.0.lock().settings.limits.clone()
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
        self.0.lock().calls.len()
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

    /// Returns the pause that the calls of the run must make, for a window of its subscription or for its rate.
    pub(super) fn pause(&self) -> Option<Pause> {
        let at = self.0.now();
        self.0.lock().pause(at)
    }

    /// Waits for the end of a pause, or until the run ends or its limits change.
    pub(super) async fn wait_for_pause(&self, pause: &Pause, work: Work) {
        let mut held = HeldBack::new(&self.0, pause, work);
        let limits = self.limits();
        let changed = self.until(|run| run.outcome().is_some() || run.limits() != limits);
        // A time that the clock cannot express never comes.
        match self.0.moment(pause.until) {
            Some(until) => drop(tokio::time::timeout_at(until, changed).await),
            None => changed.await,
        }
        held.is_over = true;
    }

    /// Waits until a turn need not wait any more for those in flight.
    pub(super) async fn wait_for_turns(&self, pause: &Pause, work: Work) {
        let mut held = HeldBack::new(&self.0, pause, work);
        self.until(|run| run.0.lock().waits_for_turns(work).is_none()).await;
        held.is_over = true;
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

/// A request that waits for the end of a pause. Dropped with its connection, if the client does not wait.
struct HeldBack {
    run: Arc<Shared>,
    call: Rejected,
    is_over: bool,
}

impl HeldBack {
    fn new(run: &Arc<Shared>, pause: &Pause, work: Work) -> HeldBack {
        let decision = Decision::Limit(pause.limit);
        let reason = format!("the program left while its call was held back: {}", pause.evidence);
        let call = Rejected { decision, reason, work };
        run.lock().holds_back(&call);
        HeldBack { run: Arc::clone(run), call, is_over: false }
    }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        let at = self.run.now();
        self.run.lock().returns(at, Some(&self.call).filter(|_| !self.is_over));
    }
}

/// Time without a model call after which a program is reported. Clients send their first call within
/// seconds, unless they wait for the user.
pub const NO_CALLS_AFTER: Duration = Duration::from_secs(20);

/// A program has lived for some time, and no model call has come through guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoCallsWarning {
    /// Time since its start.
    pub after: Duration,
}

/// Waits for the first model call of a run, and returns a warning if none comes within this time. Requests of another
/// kind do not count: a program may test the connection, and make its calls elsewhere. Cancel-safe.
pub async fn warn_without_calls(run: &RunHandle, within: Duration) -> Option<NoCallsWarning> {
    let called = run.until(|run| run.counts().has_model_calls());
    let is_late = tokio::time::timeout(within, called).await.is_err();
    is_late.then_some(NoCallsWarning { after: within })
}

impl fmt::Display for NoCallsWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no call after {} s: the program waits for you, or it does not use the proxy, and no limit holds for it",
            self.after.as_secs()
        )
    }
}
