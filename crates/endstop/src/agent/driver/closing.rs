//! The end of a run: what still runs is stopped, and its one outcome is given to whoever waits, also where
//! the run's task was dropped.
//!
//! ```ignore
//! driver.finish(outcome).await;
//! ```

use super::super::ending::lost;
use super::super::handle::AgentEvent;
use super::{Driver, in_provider};
use crate::tool::{Spent, ToolContext};
use endstop_core::{Effect, EffectId, Event, EventKind, NanoUsd, Outcome, Step, Termination};
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
            let Spent { usage, cost, cost_unknown } = spent;
            outcome.add_spent(&usage, cost, cost_unknown);
            if let Some(recorder) = &mut self.recorder {
                let event = Event::new(now, EventKind::Spent { usage, cost, cost_unknown });
                recorder.keep(&event, &[], None);
            }
        }
        self.give(outcome, true);
    }

    /// Lets go of the provider.
    pub(super) fn close(&mut self) {
        self.hang_up();
        let (session, provider) = (self.session.take(), &*self.shared.config.provider);
        // A panic of it cannot change the ending any more.
        let _ = in_provider(provider, || drop(session));
    }

    /// Gives the outcome: to the loop, to the observers, to whoever waits.
    pub(super) fn give(&mut self, outcome: Outcome, whole: bool) {
        self.finished = true;
        // Before anybody hears of the ending: who does may close what the spans go to.
        self.trace.ended(&outcome);
        let reserved: Vec<EffectId> = self.reserved.keys().copied().collect();
        for id in reserved {
            self.settle(id, NanoUsd::ZERO);
        }
        if let Some(recorder) = self.recorder.as_mut().filter(|_| whole) {
            recorder.ended(&outcome);
            self.tell_problem();
        }
        let event = AgentEvent::Ended(Arc::new(outcome.clone()));
        // An observer that panics on the last event cannot change the ending any more.
        let _ = self.shared.tell(&event);
        self.shared.finished(self.number, Some(&outcome).filter(|_| whole));
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
            if let Effect::Settle { id, spent } = effect {
                self.settle(id, spent);
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
