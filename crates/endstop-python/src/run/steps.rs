//! The steps of a run: one call at a time uses its state, and a stop from another thread waits for it.

use super::ending;
use crate::errors::{Exception, error};
use crate::exit::enter;
use crate::outcome::Outcome;
use crate::policy::code::{not_a_failure, take_raised};
use crate::slot::{Slot, Taken};
use endstop_guest::run_state::RunState;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// Stops that came while another call used the run.
pub(super) const CANCEL: u8 = 1;
// The greater number, because `request` replaces a weaker stop by a stronger one with `fetch_max`.
pub(super) const TERMINATE: u8 = 2;

/// The steps of a run, of which one call at a time uses the state.
pub(crate) struct Steps {
    state: Slot<RunState>,
    /// `CANCEL` or `TERMINATE`, for the call that has the state.
    requested: AtomicU8,
    began: Instant,
    /// The time for which the run had run when it was parked.
    before: Duration,
    /// A clock in seconds that replaces the real one.
    clock: Option<Py<PyAny>>,
    /// The clock's value at the start.
    clock_began: f64,
    /// `true` once the ending was reported.
    is_reported: AtomicBool,
}

impl Steps {
    /// Time since the start.
    pub(super) fn now(&self, py: Python<'_>) -> PyResult<Duration> {
        match &self.clock {
            None => Ok(self.before.saturating_add(self.began.elapsed())),
            Some(clock) => {
                // A clock that went back behind the start is at the start, because the kernel has
                // no negative time.
                let seconds: f64 = clock.call0(py)?.extract(py)?;
                if !seconds.is_finite() {
                    let message = format!("the clock returned {seconds}, which is not a time");
                    return Err(error(py, Exception::Config, message));
                }
                let since = Duration::try_from_secs_f64(seconds - self.clock_began);
                Ok(self.before.saturating_add(since.unwrap_or_default()))
            }
        }
    }

    /// Runs a step of the run. Python code that the step calls finds the run in use.
    pub(super) fn step<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut RunState, Duration) -> T,
    ) -> PyResult<T> {
        let _inside = enter(py);
        // Before the state is taken, because a clock in Python may use this run.
        let at = self.now(py)?;
        let mut state = self.state.take(py, "run")?;
        not_parked(py, &state)?;
        // Another thread may have requested a stop after the previous call had looked for one.
        self.stop_if_requested(&mut state, at);
        // An exception from before this step must not be reported as one of this step's policies.
        let _ = take_raised();
        let done = work(&mut state, at);
        self.stop_if_requested(&mut state, at);
        self.report_end(py, state);
        // Ctrl-C in a policy has ended the run, and the program expects it as well.
        not_a_failure(py).map_or(Ok(done), Err)
    }

    /// Reports the ending of the run, once.
    pub(super) fn report_end(&self, py: Python<'_>, state: Taken<'_, RunState>) {
        if state.is_running() || self.is_reported.swap(true, Ordering::AcqRel) {
            return;
        }
        let outcome = state.outcome();
        // Put back first, because a handler of the program's log may use this run.
        drop(state);
        if let Some(outcome) = outcome {
            ending::report(py, &Outcome(outcome));
        }
    }

    /// Performs a stop that another thread requested.
    pub(super) fn stop_if_requested(&self, state: &mut RunState, at: Duration) {
        match self.requested.swap(0, Ordering::AcqRel) {
            0 => {}
            CANCEL => {
                state.cancel(at);
            }
            _ => {
                state.terminate(at);
            }
        }
    }

    /// Requests a stop, and performs it unless another call uses the run; that call does so then.
    pub(super) fn request(&self, py: Python<'_>, stop: u8) -> PyResult<Option<Outcome>> {
        let at = self.now(py)?;
        // First the request, then the attempt: if the attempt fails, the call that has the state
        // still sees the request, or the next call or `outcome` does.
        self.requested.fetch_max(stop, Ordering::AcqRel);
        let Some(mut state) = self.state.try_take() else { return Ok(None) };
        not_parked(py, &state)?;
        self.stop_if_requested(&mut state, at);
        let outcome = state.outcome().map(Outcome);
        self.report_end(py, state);
        Ok(outcome)
    }

    pub(super) fn peek(&self, py: Python<'_>) -> PyResult<Taken<'_, RunState>> {
        let state = self.state.take(py, "run")?;
        not_parked(py, &state)?;
        Ok(state)
    }

    /// Works with the spending of the run, which a parked one has as well.
    pub(super) fn spending<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut RunState) -> T,
    ) -> PyResult<T> {
        Ok(work(&mut *self.state.take(py, "run")?))
    }

    /// Starts the clock of a run.
    pub(super) fn new(
        py: Python<'_>,
        state: RunState,
        clock: Option<Py<PyAny>>,
    ) -> PyResult<Steps> {
        let clock_began = match &clock {
            Some(clock) => clock.call0(py)?.extract(py)?,
            None => 0.0,
        };
        let before = state.elapsed();
        Ok(Steps {
            is_reported: AtomicBool::new(false),
            state: Slot::new(state),
            requested: AtomicU8::new(0),
            began: Instant::now(),
            before,
            clock,
            clock_began,
        })
    }

    /// `true` if the run is parked.
    pub(super) fn is_parked(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.state.take(py, "run")?.is_parked())
    }

    /// Returns the outcome, if the run has ended.
    pub(super) fn outcome(&self, py: Python<'_>) -> PyResult<Option<Outcome>> {
        let mut state = self.state.take(py, "run")?;
        if state.is_parked() {
            return Ok(None);
        }
        // A stop may come just as a call puts the state back; then this is the first to see it.
        if self.requested.load(Ordering::Acquire) != 0 {
            let at = self.now(py)?;
            self.stop_if_requested(&mut state, at);
        }
        let outcome = state.outcome().map(Outcome);
        self.report_end(py, state);
        Ok(outcome)
    }

    /// Returns the state for `repr`: without an error, because debuggers print objects while another
    /// thread uses them.
    pub(super) fn try_peek(&self) -> Option<Taken<'_, RunState>> {
        self.state.try_take()
    }
}

/// An error for a run that is parked.
fn not_parked(py: Python<'_>, state: &RunState) -> PyResult<()> {
    if !state.is_parked() {
        return Ok(());
    }
    let message = "the run is parked; continue with Run.resume(text), in any process";
    Err(error(py, Exception::Config, message))
}
