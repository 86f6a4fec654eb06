//! The write-once outcome of a run: its waiter is answered, even if the driver's task is lost.
//!
//! ```text
//! let ending = EndingCell::default();
//! ending.write(outcome);            // true: the first outcome wins
//! let outcome = ending.wait().await;
//! ```

use endstop_core::{DecidedBy, Decision, Layer, NanoUsd, Outcome, ParkRequest, Termination, Usage};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::SetOnce;

/// A cell for an outcome that is written once. Only the handle of the run waits for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndingCell(Arc<Ending>);

#[derive(Debug, Default)]
struct Ending {
    outcome: SetOnce<Arc<Outcome>>,
    /// The request, if the run was parked. The outcome is then that of its part in this process.
    parked: OnceLock<Arc<ParkRequest>>,
}

impl EndingCell {
    /// Writes the outcome. Returns `false` and changes nothing if there already is one.
    pub(crate) fn write(&self, outcome: impl Into<Arc<Outcome>>) -> bool {
        // The waker is the caller's code. The outcome is written before it is called, so a panic
        // of the waker changes nothing; it must not reach the driver.
        let written = catch_unwind(AssertUnwindSafe(|| self.0.outcome.set(outcome.into()).is_ok()));
        written.unwrap_or(true)
    }

    /// Writes that the run is parked. `part` is the outcome for a caller that waits for one.
    pub(crate) fn park(&self, request: Arc<ParkRequest>, part: Outcome) {
        // First, so that the caller that the outcome wakes sees that the run is parked.
        let _ = self.0.parked.set(request);
        self.write(part);
    }

    /// Returns the outcome if the run has ended.
    pub(crate) fn get(&self) -> Option<Arc<Outcome>> {
        let ended = self.0.outcome.get().filter(|_| self.parked().is_none());
        ended.map(Arc::clone)
    }

    /// Returns the request if the run is parked.
    pub(crate) fn parked(&self) -> Option<Arc<ParkRequest>> {
        self.0.parked.get().filter(|_| self.0.outcome.get().is_some()).map(Arc::clone)
    }

    /// `true` if this process has finished its part of the run.
    pub(crate) fn is_written(&self) -> bool {
        self.0.outcome.get().is_some()
    }

    /// Waits for the outcome.
    pub(crate) async fn wait(&self) -> Arc<Outcome> {
        Arc::clone(self.0.outcome.wait().await)
    }
}

/// The outcome of a run whose task was lost together with its kernel.
pub(in crate::agent) fn lost(terminated: bool, duration: Duration) -> Outcome {
    let (termination, layer, decision) = if terminated {
        (Termination::Terminated, Layer::Caller, Decision::Terminate)
    } else {
        (Termination::ErrorDuringExecution, Layer::Fault, Decision::Driver)
    };
    Outcome {
        termination,
        decided_by: DecidedBy { layer, decision, evidence: "the run's task was lost".to_owned() },
        also: Vec::new(),
        last_text: None,
        deliverable: None,
        summary: None,
        structured: None,
        messages: Vec::new(),
        epoch: 0,
        signal: None,
        usage: Usage::default(),
        cache: None,
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
        models: Vec::new(),
        run_id: None,
        verified: None,
        verify_rounds: Vec::new(),
        hand_over: None,
        branched_from: None,
        background: Vec::new(),
        suspended: Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Wake, Waker};

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker of the caller");
        }
    }

    #[tokio::test]
    async fn first_outcome_wins() {
        let cell = EndingCell::default();
        assert!(cell.get().is_none());
        assert!(cell.write(Outcome { turns: 1, ..lost(false, Duration::ZERO) }));
        assert!(!cell.write(Outcome { turns: 2, ..lost(false, Duration::ZERO) }));
        assert_eq!(cell.get().map(|outcome| outcome.turns), Some(1));
        assert_eq!(cell.wait().await.turns, 1);
    }

    #[tokio::test]
    async fn panicking_waker_keeps_outcome() {
        let cell = EndingCell::default();
        let mut waiting = pin!(cell.wait());
        let waker = Waker::from(Arc::new(Panics));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(cell.write(lost(true, Duration::ZERO)));
        assert_eq!(waiting.await.termination, Termination::Terminated);
        assert_eq!(cell.wait().await.termination, Termination::Terminated);
    }
}
