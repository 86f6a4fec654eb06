//! The counters of the runs of this process.

use crate::backend::Totals;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The counters of the runs of this process. Gauges are left at zero.
#[derive(Debug, Default)]
pub(super) struct Metrics(Mutex<Totals>);

impl Metrics {
    fn counts(&self) -> MutexGuard<'_, Totals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a run that starts or is resumed.
    pub(super) fn started(&self, agent: &str) {
        *self.counts().started.entry(agent.to_owned()).or_default() += 1;
    }

    /// Counts an ending.
    pub(super) fn ended(&self, agent: &str, termination: &str, cost_usd: Option<f64>) {
        let mut counts = self.counts();
        *counts.ended.entry((agent.to_owned(), termination.to_owned())).or_default() += 1;
        *counts.cost_usd.entry(agent.to_owned()).or_default() += cost_usd.unwrap_or(0.0);
    }

    /// Returns the counters.
    pub(super) fn totals(&self) -> Totals {
        self.counts().clone()
    }
}
