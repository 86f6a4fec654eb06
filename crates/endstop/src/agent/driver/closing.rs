//! Ends a run: stops the work in progress and delivers the one outcome, even if the run's task was
//! dropped. Or parks it: releases it without an outcome.
//!
//! ```text
//! driver.finish(outcome).await;
//! ```

use super::Driver;
use super::work::LAST_WAIT;
use crate::agent::handle::ending::lost;
use crate::agent::user_code;
use crate::agent::user_code::pending::Pending;
use crate::budget::Amount;
use crate::control::Request;
use crate::event::AgentEventKind;
use crate::journal::RunJournal;
use endstop_core::{
    Effect, Event, EventKind, HookDecision, Outcome, ParkRequest, Step, Termination,
};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

impl Driver {
    /// Stops the work in progress and delivers the outcome.
    pub(super) async fn finish(&mut self, mut outcome: Outcome) {
        // Close the provider first: an open stream would keep generating, and costing, in the
        // meantime.
        self.close();
        self.clock.stop();
        let grace =
            if outcome.termination == Termination::Terminated { Duration::ZERO } else { LAST_WAIT };
        self.work.stop(grace).await;
        let now = self.clock.now();
        // Spending that tools have reported by now is part of the run's cost.
        for spent in self.work.take_spent() {
            outcome.add_spent(&spent);
            if let Some(recorder) = &mut self.recorder {
                let event = Event::new(now, EventKind::Spent(spent));
                recorder.keep(&event, &[], None);
            }
        }
        // Bounded, because another process may hold the ledger; the work continues without the run.
        let settled = self.reservations.settle_all(self.delivery.owner());
        let _ = tokio::time::timeout(LAST_WAIT, settled).await;
        let outcome = self.record_ending(outcome).await;
        self.give(outcome, true);
    }

    /// Has the journal store the ending, on a thread that may block. If another process has the
    /// journal locked, a stopped run does not wait for it: the write continues after the outcome is
    /// delivered.
    async fn record_ending(&mut self, outcome: Outcome) -> Outcome {
        let Some(recorder) = self.recorder.take_if(|recorder| recorder.is_recording()) else {
            return outcome;
        };
        let stopped =
            matches!(outcome.termination, Termination::Cancelled | Termination::Terminated);
        // The writing thread owns the outcome, so a run that may not wait for it needs a copy.
        let spare = stopped.then(|| outcome.clone());
        // The token makes `settled` wait for the write even if the run does not.
        let under_way = self.delivery.owner().under_way();
        let mut pending =
            Pending::spawn((recorder, outcome, None), move |(recorder, outcome, problem)| {
                recorder.ended(outcome);
                *problem = recorder.close();
                drop(under_way);
            });
        let written = poll_fn(|cx| pending.poll(cx));
        let done = match spare {
            None => Ok(written.await),
            Some(spare) => tokio::time::timeout(LAST_WAIT, written).await.map_err(|_| spare),
        };
        let (outcome, problem) = match done {
            Ok((_, outcome, problem)) => (outcome, problem),
            Err(spare) => {
                let problem = "the journal has not stored the ending of this run yet, because another process holds it";
                (spare, Some(problem.to_owned()))
            }
        };
        if let Some(problem) = problem {
            self.report(|| AgentEventKind::Warning { message: problem });
        }
        outcome
    }

    /// Closes the mailbox of a run that has ended. Messages that came too late are part of the
    /// conversation, as if the kernel had taken them before the end.
    pub(super) fn keep_letters(&mut self, outcome: &mut Outcome) {
        let at = self.clock.now();
        for letter in self.stops.control.close_mailbox() {
            if let EventKind::Said { text } = &letter {
                outcome.add_said(text.clone());
                if let Some(recorder) = &mut self.recorder {
                    recorder.keep(&Event::new(at, letter), &[], None);
                }
            }
        }
    }

    /// Closes the model call and the provider session.
    fn close(&mut self) {
        self.queue.extend(self.model.close(&self.shared.config));
    }

    /// Delivers the outcome to the session, the observers and all waiters.
    fn give(&mut self, mut outcome: Outcome, whole: bool) {
        self.delivery.begin();
        if let Some(outer) = &mut self.outer {
            outer.report_ended(&outcome);
        }
        // Before any observer: a caller that learns of the ending may shut down the span exporter.
        self.trace.ended(&outcome);
        let owner = self.delivery.owner();
        self.reservations.settle_rest(owner);
        // A successful run is never resumed, so the budget can forget it.
        if let (Some(budget), Some(id)) = (&owner.budget, &outcome.run_id)
            && outcome.is_success()
        {
            budget.forget_run(id);
        }
        if let Some(recorder) = self.recorder.as_mut().filter(|_| whole) {
            recorder.ended(&mut outcome);
            self.report_problem();
        }
        let outcome = Arc::new(outcome);
        let finished = || AgentEventKind::Finished { outcome: Arc::clone(&outcome) };
        let event = self.reporter.report_last(finished);
        self.delivery.deliver(outcome, whole);
        if let Some(event) = event {
            self.reporter.send(event);
        }
    }

    /// Parks the run. Returns its outcome if it ends instead, for example at its deadline.
    pub(super) async fn park(&mut self, request: Box<ParkRequest>) -> Option<Box<Outcome>> {
        let id = request.id;
        let event = EventKind::Parked { request: request.clone() };
        if let Some(outcome) = self.feed(event).await {
            return Some(outcome);
        }
        if self.stops.is_pending() {
            // The run was stopped meanwhile, which takes precedence.
            self.stops.control.reopen_mailbox();
            return None;
        }
        if !self.is_stored() {
            let why = "the run could not be parked, because its journal cannot store the request";
            let answer = HookDecision::Deny(why.to_owned());
            self.queue.push_back(EventKind::Answered { id, answer });
            self.stops.control.reopen_mailbox();
            return None;
        }
        self.close();
        self.clock.stop();
        if let Some(log) = self.recorder.as_mut().and_then(|recorder| recorder.take_log()) {
            self.release(log).await;
        }
        self.give_parked(request);
        None
    }

    /// Releases the run in its journal, on a thread that may block.
    async fn release(&mut self, log: Box<dyn RunJournal>) {
        let under_way = self.delivery.owner().under_way();
        let mut pending = Pending::spawn((log, Ok(())), move |(log, released)| {
            let parked = AssertUnwindSafe(|| log.parked());
            *released = match catch_unwind(parked) {
                Ok(released) => released.map_err(|problem| problem.to_string()),
                Err(_) => Err("the journal's code panicked".to_owned()),
            };
            drop(under_way);
        });
        let (log, released) = poll_fn(|cx| pending.poll(cx)).await;
        user_code::let_go(Some(log));
        if let Err(problem) = released {
            let message = format!(
                "the run is parked, but it can be decided only after this process ends: {problem}"
            );
            self.report(|| AgentEventKind::Warning { message });
        }
    }

    /// Tells the handle that the run is parked, and ends the work of this process on it.
    fn give_parked(&mut self, request: Box<ParkRequest>) {
        let Some(run) = self.run.take() else { return };
        self.delivery.begin();
        let at = self.clock.now();
        self.reservations.settle_rest(self.delivery.owner());
        // For a caller that only waits for an outcome. The journal does not have it.
        let mut part = run.finish(Event::new(at, EventKind::Cancel), &mut Vec::new());
        part.decided_by.evidence = format!(
            "the run is parked and has not ended: it waits for a decision about {}",
            request.tool.as_deref().map_or("a question".to_owned(), |tool| format!("`{tool}`"))
        );
        let parked = Arc::new(ParkRequest::clone(&request));
        // Before the handle is ready, as at an ending: a resumed part reports its events to the
        // same observers.
        let event = self.reporter.report_last(|| AgentEventKind::Parked { request });
        self.delivery.park(parked, *part);
        if let Some(event) = event {
            self.reporter.send(event);
        }
    }
}

impl Drop for Driver {
    /// Ends the run if its task was aborted or the runtime was shut down.
    fn drop(&mut self) {
        if !self.delivery.is_due() {
            return;
        }
        let terminated = self.stops.control.pending(None) == Some(Request::Terminate);
        let event = if terminated {
            EventKind::Terminate
        } else {
            let message = "the run's task was dropped before it ended".to_owned();
            EventKind::Fault { name: "driver".to_owned(), message }
        };
        self.book_running();
        let at = self.clock.now();
        let event = Event::new(at, event);
        let before = self.recorder.as_mut().and_then(|recorder| recorder.before(&event));
        let run = self.run.take();
        let mut effects = Vec::new();
        let outcome = run.and_then(|run| match run.handle(event, &mut effects) {
            Step::Ended(outcome) => Some(*outcome),
            Step::Continue(_) => None,
        });
        if let Some(recorder) = self.recorder.as_mut().filter(|_| outcome.is_some()) {
            recorder.after(before, &effects, true);
        }
        let mut outcome = outcome;
        match &mut outcome {
            Some(outcome) => self.keep_letters(outcome),
            None => drop(self.stops.control.close_mailbox()),
        }
        // Charge calls that were cut off, too. Otherwise other runs would spend their share of the
        // budget again.
        for effect in effects {
            if let Effect::Settle { id, spent, tokens } = effect {
                self.settle(id, Amount { usd: spent, tokens });
            }
        }
        self.close();
        match outcome {
            Some(outcome) => self.give(outcome, true),
            // The kernel was lost with its task, so the conversation stays as it was before the
            // run.
            None => self.give(lost(terminated, at), false),
        }
    }
}
