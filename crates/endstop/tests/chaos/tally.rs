//! Counts the events of the runs, and collects the failed checks.
//!
//! ```text
//! tally.ended("cancelled");
//! tally.broken("run 7: it ended twice");
//! ```

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The counters, shared by all threads.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    endings: BTreeMap<String, u64>,
    stops: BTreeMap<String, u64>,
    answers: BTreeMap<String, u64>,
    tools: BTreeMap<String, u64>,
    code: BTreeMap<String, u64>,
    actions: BTreeMap<String, u64>,
    /// Costs within the shared budgets in nano-dollars: the sum of the outcomes, and the sum
    /// booked.
    told: u64,
    booked: u64,
    broken: Vec<String>,
    slowest: Duration,
}

impl Tally {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the end of a run.
    pub(crate) fn ended(&self, termination: &str) {
        *self.counts().endings.entry(termination.to_owned()).or_default() += 1;
    }

    /// Counts the stop of a run.
    pub(crate) fn stopped(&self, how: &str) {
        *self.counts().stops.entry(how.to_owned()).or_default() += 1;
    }

    /// Records the time from a stop to the end of the run.
    pub(crate) fn took(&self, since: Duration) {
        let mut counts = self.counts();
        counts.slowest = counts.slowest.max(since);
    }

    /// Counts an answer of a server.
    pub(crate) fn answered(&self, how: &str) {
        *self.counts().answers.entry(how.to_owned()).or_default() += 1;
    }

    /// Counts the start of a tool.
    pub(crate) fn tool(&self, name: &str) {
        *self.counts().tools.entry(name.to_owned()).or_default() += 1;
    }

    /// Counts an action of user code.
    pub(crate) fn code(&self, how: &str) {
        *self.counts().code.entry(how.to_owned()).or_default() += 1;
    }

    /// Counts an action of the user, or what became of one.
    pub(crate) fn acted(&self, how: &str) {
        *self.counts().actions.entry(how.to_owned()).or_default() += 1;
    }

    /// Adds the costs of a round within its budgets: by its outcomes, and as booked.
    pub(crate) fn cost(&self, told: u64, booked: u64) {
        let mut counts = self.counts();
        counts.told += told;
        counts.booked += booked;
    }

    /// Records a failed check.
    pub(crate) fn broken(&self, what: &str) {
        self.counts().broken.push(what.to_owned());
    }

    /// Returns the failed checks.
    pub(crate) fn breaches(&self) -> Vec<String> {
        self.counts().broken.clone()
    }

    /// Returns the number of runs that ended.
    pub(crate) fn runs(&self) -> u64 {
        self.counts().endings.values().sum()
    }

    pub(crate) fn print(&self) {
        let counts = self.counts();
        for (title, table) in [
            ("ending", &counts.endings),
            ("stop", &counts.stops),
            ("answer", &counts.answers),
            ("tool", &counts.tools),
            ("user code", &counts.code),
            ("action", &counts.actions),
        ] {
            println!("| {title} | times |\n|---|---|");
            for (name, times) in table {
                println!("| {name} | {times} |");
            }
            println!();
        }
        let usd = |nano: u64| nano as f64 / 1e9;
        let (told, booked) = (usd(counts.told), usd(counts.booked));
        println!("shared budgets: {booked:.4} USD booked, {told:.4} USD in the outcomes");
        println!("slowest end after a stop: {:.0} ms", counts.slowest.as_secs_f64() * 1e3);
    }
}
