//! The clock of a standing proxy: ends idle runs, begins days, and stores what the day has cost.

use super::ceilings::{Day, StateFile};
use super::guard::Standing;
use endstop::budget::SharedBudget;
use std::time::Duration;

/// The state file could not be written. Calls continue under the ceilings in memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the spending of the day cannot be stored: {0}")]
pub struct KeeperError(String);

/// Ends idle runs, begins days, and stores the spending of the day.
#[derive(Debug)]
pub struct Keeper {
    standing: Standing,
    idle_after: Duration,
    state: Option<StateFile>,
    day: Day,
}

impl Keeper {
    /// Begins the day: what was spent before in it, by an earlier process, counts.
    pub fn new(
        standing: Standing,
        idle_after: Duration,
        state: Option<StateFile>,
        today: Day,
    ) -> Keeper {
        let keeper = Keeper { standing, idle_after, state, day: today };
        keeper.begin_day();
        keeper
    }

    fn begin_day(&self) {
        for (at, profile) in self.standing.profiles().iter().enumerate() {
            let budget = SharedBudget::within(None, profile.day_usd, profile.day_tokens);
            if let (Some(budget), Some(state)) = (&budget, &self.state) {
                state.restore(self.day, &profile.name, budget);
            }
            self.standing.begin_day(at, budget);
        }
    }

    /// Does what is due.
    ///
    /// # Errors
    /// The state file cannot be written. Everything else is done.
    pub fn tick(&mut self, today: Day) -> Result<(), KeeperError> {
        for (profile, run) in self.standing.runs() {
            // The last answer decides: a complete one is a success, an open tool call is not.
            if run.close_if_idle(self.idle_after, "idle") {
                self.standing.forget(profile, &run);
            }
        }
        // A clock that is set back must not give the ceiling of a day a second time.
        if today > self.day {
            self.day = today;
            self.begin_day();
        }
        self.store()
    }

    /// Writes the spending of the day.
    ///
    /// # Errors
    /// The state file cannot be written.
    pub fn store(&mut self) -> Result<(), KeeperError> {
        let Some(state) = &mut self.state else { return Ok(()) };
        let budgets = self.standing.budgets();
        let budgets = budgets.iter().map(|(name, budget)| (*name, budget));
        state.write(self.day, budgets).map_err(KeeperError)
    }
}
