//! The write-once ending of a run: whatever becomes of the task that drives it, somebody who
//! waits is answered, once.
//!
//! ```text
//! let ending = EndingCell::default();
//! ending.write(outcome);            // true: the first one stands
//! let outcome = ending.wait().await;
//! ```
//!
//! `models.rs` goes through every order of its steps.

use super::sync::{Arc, Mutex, lock};
use endstop_core::{DecidedBy, NanoUsd, Outcome, Termination, Usage};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Holds an outcome that is written once and may be awaited by many.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndingCell(Arc<Mutex<Cell>>);

#[derive(Debug, Default)]
struct Cell {
    outcome: Option<std::sync::Arc<Outcome>>,
    /// Who waits; empty once the outcome is written.
    waiting: Vec<(u64, Waker)>,
    next: u64,
}

impl EndingCell {
    /// Writes the outcome; `false`, and nothing changes, where there is one.
    pub(crate) fn write(&self, outcome: Outcome) -> bool {
        let waiting = {
            let mut cell = lock(&self.0);
            if cell.outcome.is_some() {
                return false;
            }
            cell.outcome = Some(std::sync::Arc::new(outcome));
            std::mem::take(&mut cell.waiting)
        };
        for (_, waker) in waiting {
            // A waker is the caller's code; one that panics keeps no other from waking.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
        true
    }

    /// The outcome, where it is written.
    pub(crate) fn get(&self) -> Option<std::sync::Arc<Outcome>> {
        lock(&self.0).outcome.clone()
    }

    /// Waits for the outcome.
    pub(crate) fn wait(&self) -> Wait<'_> {
        Wait { cell: self, place: None }
    }
}

/// A wait for the outcome; dropped, it is forgotten.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    cell: &'a EndingCell,
    place: Option<u64>,
}

impl Cell {
    /// Has this waker woken when the outcome is written; the one it takes the place of comes back.
    fn register(&mut self, place: &mut Option<u64>, waker: Waker) -> Option<Waker> {
        let place = *place.get_or_insert(self.next);
        let mine = self.waiting.iter_mut().find(|(waiting, _)| *waiting == place);
        if let Some((_, old)) = mine {
            return Some(std::mem::replace(old, waker));
        }
        self.next = self.next.max(place + 1);
        self.waiting.push((place, waker));
        None
    }

    fn forget(&mut self, place: u64) -> Option<Waker> {
        let at = self.waiting.iter().position(|(waiting, _)| *waiting == place)?;
        Some(self.waiting.swap_remove(at).1)
    }
}

impl Future for Wait<'_> {
    type Output = std::sync::Arc<Outcome>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Wakers are cloned and dropped outside the lock: with one a task may go, and with the
        // task a handle that looks here.
        let waker = cx.waker().clone();
        let replaced = {
            let mut cell = lock(&self.cell.0);
            match &cell.outcome {
                Some(outcome) => return Poll::Ready(std::sync::Arc::clone(outcome)),
                None => cell.register(&mut self.place, waker),
            }
        };
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let waker = lock(&self.cell.0).forget(place);
            drop(waker);
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
        cost_upper: None,
        cost_unknown: true,
        tokens_upper: None,
        overrun: NanoUsd::ZERO,
        duration,
        turns: 0,
        model_calls: 0,
        compactions: Vec::new(),
        fired: Vec::new(),
        tool_calls: 0,
        retry_after: None,
        no_progress_snapshot: None,
        error_diagnostic: None,
        would_fit: None,
        halted_reason: None,
        model: None,
        provider: None,
        run_id: None,
        verified: None,
    }
}
