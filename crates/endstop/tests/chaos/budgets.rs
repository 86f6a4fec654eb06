//! Shared budgets of the runs, and a thread that checks them continuously.
//!
//! ```text
//! let budgets = Budgets::new(&mut dice, runs);
//! let watch = budgets.watch(&tally)?;
//! // … runs within `budgets.one(&mut dice)` …
//! watch.end(); // no reservation is left
//! ```

use crate::dice::Dice;
use crate::tally::Tally;
use endstop::NanoUsd;
use endstop::budget::SharedBudget;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// A budget, its parts and their parts; the root is first.
#[derive(Clone)]
pub(crate) struct Budgets(Vec<(SharedBudget, NanoUsd)>);

impl Budgets {
    /// Creates budgets with ceilings that some of this many runs reach.
    pub(crate) fn new(dice: &mut Dice, runs: u64) -> Budgets {
        let run = NanoUsd::from_usd(0.000_4);
        // `run` is about the cost of an average run. The parts may add up to more than the whole, so
        // that both levels refuse reservations.
        let mut ceiling = |share: u64| NanoUsd(run.0 * runs * dice.between(share / 2, share) / 100);
        let whole = ceiling(70);
        let mut all = vec![(SharedBudget::new(whole), whole)];
        for _ in 0..3 {
            let (of_part, of_leaf) = (ceiling(30), ceiling(12));
            let part = all[0].0.part(of_part);
            all.push((part.part(of_leaf), of_leaf));
            all.push((part, of_part));
        }
        Budgets(all)
    }

    /// Returns one of the budgets.
    pub(crate) fn one(&self, dice: &mut Dice) -> Option<SharedBudget> {
        let at = dice.below(self.0.len() as u64) as usize;
        self.0.get(at).map(|(budget, _)| budget.clone())
    }

    /// Returns the amount spent within the root.
    pub(crate) fn spent(&self) -> NanoUsd {
        self.0.first().map_or(NanoUsd::ZERO, |(whole, _)| whole.spent())
    }

    /// Starts a thread that checks all budgets until it is ended.
    pub(crate) fn watch(&self, tally: &Arc<Tally>) -> std::io::Result<Watch> {
        let stop = Arc::new(AtomicBool::new(false));
        let (budgets, stopped, seen) = (self.clone(), Arc::clone(&stop), Arc::clone(tally));
        let thread = std::thread::Builder::new().spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if let Some(passed) = budgets.passed() {
                    seen.broken(&passed);
                }
                // Not a busy loop, which would take a processor away from the runs.
                std::thread::sleep(Duration::from_micros(100));
            }
        })?;
        Ok(Watch { budgets: self.clone(), tally: Arc::clone(tally), stop, thread })
    }

    fn passed(&self) -> Option<String> {
        self.0.iter().find_map(|(budget, ceiling)| {
            let committed = budget.committed();
            (committed > *ceiling).then(|| format!("{committed:?} of a budget of {ceiling:?}"))
        })
    }
}

/// The thread that checks the budgets.
pub(crate) struct Watch {
    budgets: Budgets,
    tally: Arc<Tally>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Watch {
    /// Stops the thread and makes the last check, after all runs have ended.
    pub(crate) fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        if self.thread.join().is_err() {
            self.tally.broken("the watch over the budgets panicked");
        }
        for (budget, ceiling) in &self.budgets.0 {
            // A reservation that outlives its run would make the budget smaller for all later runs.
            let (spent, reserved) = (budget.spent(), budget.reserved());
            if reserved > NanoUsd::ZERO {
                self.tally.broken(&format!("{reserved:?} stay reserved of {ceiling:?}"));
            }
            if spent > *ceiling {
                self.tally.broken(&format!("{spent:?} spent of {ceiling:?}"));
            }
        }
    }
}
