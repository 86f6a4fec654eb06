//! The write-once outcome of a run: every waiter is answered exactly once, even if the driver's
//! task is lost.
//!
//! ```text
//! let ending = EndingCell::default();
//! ending.write(outcome);            // true: the first outcome wins
//! let outcome = ending.wait().await;
//! ```
//!
//! The loom tests in `loom_tests.rs` check every order of its steps.

use crate::control::sync::{Arc, Mutex, lock};
use endstop_core::{DecidedBy, NanoUsd, Outcome, Termination, Usage};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A cell for an outcome that is written once and may be awaited by many tasks.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndingCell(Arc<Mutex<Cell>>);

#[derive(Debug, Default)]
struct Cell {
    outcome: Option<std::sync::Arc<Outcome>>,
    /// The wakers of waiting tasks; empty once the outcome is written.
    waiting: Vec<(u64, Waker)>,
    next: u64,
}

impl EndingCell {
    /// Writes the outcome. Returns `false` and changes nothing if there already is one.
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
            // Wakers are the caller's code; a panicking one must not prevent the others from being
            // woken.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
        true
    }

    /// Returns the outcome if it is written.
    pub(crate) fn get(&self) -> Option<std::sync::Arc<Outcome>> {
        lock(&self.0).outcome.clone()
    }

    /// Returns a future of the outcome.
    pub(crate) fn wait(&self) -> Wait<'_> {
        Wait { cell: self, place: None }
    }
}

/// A future of the outcome. Dropping it removes its waker.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    cell: &'a EndingCell,
    place: Option<u64>,
}

impl Cell {
    /// Registers the waker to be woken when the outcome is written. Returns the waker that it
    /// replaces.
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
        // Clone and drop wakers outside the lock: dropping one may free its task, and with the task
        // a handle whose `Drop` takes this lock.
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

/// The outcome of a run whose task was lost together with its kernel.
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
        // The kernel's totals are gone, so the cost is reported as unknown rather than as zero.
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
