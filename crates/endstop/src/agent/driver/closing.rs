//! The end of a run: what still runs is stopped, and its one outcome is given to whoever waits, also where
//! the run's task was dropped.
//!
//! ```ignore
//! driver.finish(outcome).await;
//! ```

use super::super::ending::lost;
use super::super::handle::{AgentEvent, WarningEvent};
use super::super::pending::Pending;
use super::{Driver, in_provider};
use crate::budget::Amount;
use crate::tool::{Spent, ToolContext};
use endstop_core::{Effect, EffectId, Event, EventKind, Message, Outcome, Role, Step, Termination};
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

/// How long what was told to stop may take before the outcome is given without it.
const LAST_WAIT: Duration = Duration::from_millis(500);

impl Driver {
    /// Stops what still runs, and gives the outcome.
    pub(super) async fn finish(&mut self, mut outcome: Outcome) {
        self.close();
        self.timer = None;
        for context in self.tools.values() {
            context.stop_now();
        }
        for task in self.asked.values() {
            task.abort();
        }
        if !self.tasks.is_empty() {
            // Tools that were told to stop end their processes; those that do not are dropped,
            // and with them what they hold.
            let grace = if outcome.termination == Termination::Terminated {
                Duration::ZERO
            } else {
                LAST_WAIT
            };
            let ended = async { while self.tasks.join_next().await.is_some() {} };
            let _ = tokio::time::timeout(grace, ended).await;
            self.tasks.abort_all();
            let dropped = async {
                while self.tasks.join_next().await.is_some() {}
                // A run within one of them was terminated with it, and ends in its own time.
                for context in self.tools.values() {
                    context.aftermath().await;
                }
            };
            let _ = tokio::time::timeout(LAST_WAIT, dropped).await;
        }
        let now = self.now();
        // What they said to have spent until then is a part of what the run cost.
        for spent in self.tools.values().filter_map(ToolContext::take_spent) {
            let Spent { usage, cost, cost_unknown, unreported } = spent;
            outcome.add_spent(&usage, cost, cost_unknown, unreported);
            if let Some(recorder) = &mut self.recorder {
                let unreported = Some(unreported);
                let spent = EventKind::Spent { usage, cost, cost_unknown, unreported };
                let event = Event::new(now, spent);
                recorder.keep(&event, &[], None);
            }
        }
        let outcome = self.record_ending(outcome).await;
        self.give(outcome, true);
    }

    /// Has the journal store the ending, on a thread that may block. A journal that another process
    /// holds does not hold up the outcome of a run that was stopped: it is tried on without it.
    async fn record_ending(&mut self, outcome: Outcome) -> Outcome {
        let Some(recorder) = self.recorder.take_if(|recorder| recorder.is_recording()) else {
            return outcome;
        };
        let stopped =
            matches!(outcome.termination, Termination::Cancelled | Termination::Terminated);
        let spare = stopped.then(|| outcome.clone());
        let under_way = self.shared.tasks.token();
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
            self.tell(AgentEvent::Warning(WarningEvent::new(problem)));
        }
        outcome
    }

    /// Lets go of the provider.
    pub(super) fn close(&mut self) {
        self.hang_up();
        let (session, provider) = (self.session.take(), &*self.shared.config.provider);
        // A panic of it cannot change the ending any more.
        let _ = in_provider(provider, || drop(session));
    }

    /// Whether the model has said anything since the run's input. If it has not, the conversation of
    /// the loop stays as it was before the run: an input that the provider refuses would be sent again
    /// by each later run, and refused again.
    fn answered(&self, outcome: &Outcome) -> bool {
        let says =
            |message: &Message| message.role == Role::Assistant && Some(message.id) > self.input;
        outcome.turns > 0 || outcome.messages.iter().any(says)
    }

    /// Gives the outcome: to the loop, to the observers, to whoever waits.
    pub(super) fn give(&mut self, mut outcome: Outcome, whole: bool) {
        self.finished = true;
        self.report_ended(&outcome);
        // Before anybody hears of the ending: who does may close what the spans go to.
        self.trace.ended(&outcome);
        let reserved: Vec<EffectId> = self.reserved.keys().copied().collect();
        for id in reserved {
            self.settle(id, Amount::ZERO);
        }
        // A success is never resumed.
        if let (Some(budget), Some(id)) = (&self.shared.config.budget, &outcome.run_id)
            && outcome.is_success()
        {
            budget.forget_run(id);
        }
        if let Some(recorder) = self.recorder.as_mut().filter(|_| whole) {
            recorder.ended(&mut outcome);
            self.tell_problem();
        }
        let event = AgentEvent::Ended(Arc::new(outcome.clone()));
        // An observer that panics on the last event cannot change the ending any more.
        let _ = self.shared.tell(&self.control, &event);
        self.shared
            .finished(self.number, Some(&outcome).filter(|_| whole && self.answered(&outcome)));
        self.ending.write(outcome);
        self.sink.send(event);
    }
}

impl Drop for Driver {
    /// The task was aborted, or the runtime went down: the run ends all the same.
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let terminated = self.shared.token.is_cancelled();
        let event = if terminated {
            EventKind::Terminate
        } else {
            let message = "the run's task was dropped before it ended".to_owned();
            EventKind::Fault { name: "driver".to_owned(), message }
        };
        self.book_running();
        let at = self.now();
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
        // What a call that was cut has cost is no gift to whoever shares the budget.
        for effect in effects {
            if let Effect::Settle { id, spent, tokens } = effect {
                self.settle(id, Amount { usd: spent, tokens });
            }
        }
        self.close();
        match outcome {
            Some(outcome) => self.give(outcome, true),
            // The kernel went with its task: the conversation stays as it was before the run.
            None => self.give(lost(terminated, at), false),
        }
    }
}
