//! The clock of a standing proxy: ends idle runs, and opens the budgets of the profiles anew each hour.
//!
//! A run counts in the hour in which its budget was opened, and so in the day, week and month of that hour.

use super::guard::Standing;
use super::profile::Profile;
use endstop::budget::SharedBudget;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An hour of UTC, counted since 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hour(pub u64);

impl Hour {
    /// The hour now.
    #[expect(clippy::disallowed_methods, reason = "the hour is a matter of the wall clock")]
    pub fn now() -> Hour {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Hour(since.as_secs() / 3600)
    }
}

/// Opens the budget of a profile, in the hour that begins; `None` if nothing bounds it.
pub type OpenBudget = Box<dyn Fn(&Profile) -> Result<Option<SharedBudget>, String> + Send>;

/// The books of the ceilings could not be opened. Runs are under the budgets of the hour before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ceilings of profile {profile}: {problem}")]
pub struct KeeperError {
    /// The profile.
    pub profile: String,
    /// The cause.
    pub problem: String,
}

/// Ends idle runs, and opens the budgets of the profiles.
pub struct Keeper {
    standing: Standing,
    idle_after: Duration,
    open: OpenBudget,
    hour: Hour,
}

impl Keeper {
    /// Opens the budgets of the profiles.
    ///
    /// # Errors
    /// A budget cannot be opened.
    pub fn new(
        standing: Standing,
        idle_after: Duration,
        open: OpenBudget,
        hour: Hour,
    ) -> Result<Keeper, KeeperError> {
        let keeper = Keeper { standing, idle_after, open, hour };
        keeper.open()?;
        Ok(keeper)
    }

    fn open(&self) -> Result<(), KeeperError> {
        for (at, profile) in self.standing.profiles().iter().enumerate() {
            let budget = (self.open)(profile).map_err(|problem| {
                let profile = profile.name.clone();
                KeeperError { profile, problem }
            })?;
            self.standing.set_budget(at, budget);
        }
        Ok(())
    }

    /// Does what is due.
    ///
    /// # Errors
    /// A budget cannot be opened. Everything else is done, and the next tick tries again.
    pub fn tick(&mut self, hour: Hour) -> Result<(), KeeperError> {
        for (profile, run) in self.standing.runs() {
            // The last answer decides: a complete one is a success, an open tool call is not.
            if run.close_if_idle(self.idle_after, "idle") {
                self.standing.forget(profile, &run);
            }
        }
        if hour != self.hour {
            self.open()?;
            self.hour = hour;
        }
        Ok(())
    }
}
