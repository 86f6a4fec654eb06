//! What was counted, and what was broken.
//!
//! ```text
//! tally.ended("cancelled");
//! tally.broken("run 7: it ended twice");
//! ```

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Breaches beyond these are counted, not printed.
const SHOWN: u64 = 40;

/// What was counted.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    endings: BTreeMap<String, u64>,
    stops: BTreeMap<String, u64>,
    answers: BTreeMap<String, u64>,
    tools: BTreeMap<String, u64>,
    code: BTreeMap<String, u64>,
    /// Within the shared budgets, in nano-dollars: what the runs say to have cost, and what was
    /// booked.
    told: u64,
    booked: u64,
    broken: u64,
    slowest: Duration,
}

impl Tally {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run ended so.
    pub(crate) fn ended(&self, termination: &str) {
        *self.counts().endings.entry(termination.to_owned()).or_default() += 1;
    }

    /// A run was stopped so.
    pub(crate) fn stopped(&self, how: &str) {
        *self.counts().stops.entry(how.to_owned()).or_default() += 1;
    }

    /// A run ended so long after it was stopped.
    pub(crate) fn took(&self, since: Duration) {
        let mut counts = self.counts();
        counts.slowest = counts.slowest.max(since);
    }

    /// A server answered so.
    pub(crate) fn answered(&self, how: &str) {
        *self.counts().answers.entry(how.to_owned()).or_default() += 1;
    }

    /// A tool was started.
    pub(crate) fn tool(&self, name: &str) {
        *self.counts().tools.entry(name.to_owned()).or_default() += 1;
    }

    /// User code did so.
    pub(crate) fn code(&self, how: &str) {
        *self.counts().code.entry(how.to_owned()).or_default() += 1;
    }

    /// What a round cost within its budgets, as its runs say and as it was booked.
    pub(crate) fn cost(&self, told: u64, booked: u64) {
        let mut counts = self.counts();
        counts.told += told;
        counts.booked += booked;
    }

    /// Something does not hold.
    #[expect(clippy::print_stdout, reason = "the finding")]
    pub(crate) fn broken(&self, what: &str) {
        let mut counts = self.counts();
        counts.broken += 1;
        if counts.broken <= SHOWN {
            println!("BROKEN: {what}");
        }
    }

    /// How many things did not hold.
    pub(crate) fn breaches(&self) -> u64 {
        self.counts().broken
    }

    /// How many runs ended.
    pub(crate) fn runs(&self) -> u64 {
        self.counts().endings.values().sum()
    }

    #[expect(clippy::print_stdout, reason = "the result")]
    pub(crate) fn print(&self) {
        let counts = self.counts();
        for (title, table) in [
            ("ending", &counts.endings),
            ("stop", &counts.stops),
            ("answer", &counts.answers),
            ("tool", &counts.tools),
            ("user code", &counts.code),
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
