//! The operator's view of a server: the user who runs the process sees and changes all runs, without
//! a token.

use crate::backend::Stop;
use crate::runs::{Progress, Runs};
use endstop::{LimitChanges, SteerError};
use std::fmt;
use std::time::Duration;

/// A handle to the runs of a server, for the user who runs it. Cheap to clone.
#[derive(Clone)]
pub struct Operator(Option<Runs>);

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Operator").field(&self.0.as_ref().map(Runs::agents)).finish()
    }
}

/// A run that has not ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenRun {
    /// Id of the run.
    pub run_id: String,
    /// Name of its agent.
    pub agent: String,
    /// `queued`, `running` or `parked`.
    pub state: &'static str,
    /// Number of complete turns.
    pub turns: u32,
    /// Cost so far in US dollars; `None` if no price is known.
    pub cost_usd: Option<f64>,
    /// Number of model calls that are in flight: 0 or 1.
    pub calls_in_flight: usize,
    /// Time since the request was accepted.
    pub age: Duration,
}

/// The reason why an operator's request was not carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OperatorError {
    /// No run with this id is open.
    #[error("there is no open run with this id")]
    UnknownRun,
    /// The run does not work, so it has no limits that could be changed.
    #[error("the run does not work yet, or is parked; repeat the request when it works")]
    NotWorking,
    /// A limit is not valid.
    #[error(transparent)]
    Limits(SteerError),
    /// The store of the server cannot be read or written.
    #[error(transparent)]
    Store(#[from] crate::StoreError),
}

impl Operator {
    pub(crate) fn new(runs: Option<Runs>) -> Operator {
        Operator(runs)
    }

    /// Returns the runs that have not ended, those that work first. May block.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn runs(&self) -> Result<Vec<OpenRun>, OperatorError> {
        let Some(runs) = &self.0 else { return Ok(Vec::new()) };
        let now = crate::clock::wall_ms();
        let rows = runs.unfinished()?.into_iter();
        let open = rows.map(|row| {
            let live = runs.live(&row.id);
            let Progress { turns, cost_usd, calling, .. } =
                live.map(|live| live.progress()).unwrap_or_default();
            OpenRun {
                turns,
                cost_usd,
                calls_in_flight: calling.into(),
                age: Duration::from_millis(now.saturating_sub(row.created_ms)),
                state: row.state.as_str(),
                run_id: row.id,
                agent: row.request.agent,
            }
        });
        Ok(open.collect())
    }

    /// Cancels a run. May block.
    ///
    /// # Errors
    /// There is no such run, or the request cannot be stored.
    pub fn cancel(&self, run: &str) -> Result<(), OperatorError> {
        let runs = self.0.as_ref().filter(|runs| runs.live(run).is_some());
        Ok(runs.ok_or(OperatorError::UnknownRun)?.stop_open(run, Stop::Cancel)?)
    }

    /// Changes limits of a run that works; the operator may also raise them.
    ///
    /// # Errors
    /// There is no such run, it does not work, or a limit is not valid.
    pub fn set_limits(&self, run: &str, changes: LimitChanges) -> Result<(), OperatorError> {
        let live = self.0.as_ref().and_then(|runs| runs.live(run));
        let live = live.ok_or(OperatorError::UnknownRun)?;
        let steering = live.steering().ok_or(OperatorError::NotWorking)?;
        steering.set_limits(changes).map_err(|error| match error {
            SteerError::Ended => OperatorError::UnknownRun,
            SteerError::Parked => OperatorError::NotWorking,
            error => OperatorError::Limits(error),
        })
    }
}
