//! The write-once ending of a run: whatever becomes of the task that drives it, somebody who
//! waits is answered, once.

use endstop_core::{DecidedBy, NanoUsd, Outcome, Termination, Usage};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Holds an outcome that is written once and may be awaited by many.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndingCell(Arc<Cell>);

#[derive(Debug, Default)]
struct Cell {
    outcome: Mutex<Option<Arc<Outcome>>>,
    written: Notify,
}

impl EndingCell {
    /// Writes the outcome; `false`, and nothing changes, where there is one.
    pub(crate) fn write(&self, outcome: Outcome) -> bool {
        {
            let mut cell = self.0.outcome.lock().unwrap_or_else(PoisonError::into_inner);
            if cell.is_some() {
                return false;
            }
            *cell = Some(Arc::new(outcome));
        }
        self.0.written.notify_waiters();
        true
    }

    /// The outcome, where it is written.
    pub(crate) fn get(&self) -> Option<Arc<Outcome>> {
        self.0.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for the outcome.
    pub(crate) async fn wait(&self) -> Arc<Outcome> {
        loop {
            let written = self.0.written.notified();
            tokio::pin!(written);
            // Registered before the look, so that a write between the two is not missed.
            written.as_mut().enable();
            if let Some(outcome) = self.get() {
                return outcome;
            }
            written.await;
        }
    }
}

/// The outcome of a run whose kernel was lost with its task.
pub(super) fn lost(terminated: bool, duration: Duration) -> Outcome {
    let (termination, layer, name) = if terminated {
        (Termination::Terminated, "caller", "terminate")
    } else {
        (Termination::ErrorDuringExecution, "fault", "driver")
    };
    Outcome {
        termination,
        decided_by: DecidedBy {
            layer: layer.to_owned(),
            name: name.to_owned(),
            evidence: "the run's task was lost".to_owned(),
        },
        also: Vec::new(),
        last_text: None,
        deliverable: None,
        summary: None,
        structured: None,
        messages: Vec::new(),
        epoch: 0,
        signal: None,
        usage: Usage::default(),
        cost: NanoUsd::ZERO,
        cost_unknown: true,
        overrun: NanoUsd::ZERO,
        duration,
        turns: 0,
        model_calls: 0,
        tool_calls: 0,
        retry_after: None,
        no_progress_snapshot: None,
        error_diagnostic: None,
        halted_reason: None,
        model: None,
        provider: None,
        run_id: None,
        verified: None,
    }
}
