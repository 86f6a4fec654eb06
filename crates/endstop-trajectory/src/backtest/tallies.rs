//! The counts of all datasets of a backtest, which can be added to those of other runs.
//!
//! ```text
//! let mut tallies = Tallies::new(settings);
//! tallies.create("sql", 0);
//! tallies.add(other);
//! ```

use super::settings::Settings;
use super::tally::Tally;
use std::collections::BTreeMap;

/// The counts of all datasets.
#[derive(Clone, Debug)]
pub(super) struct Tallies {
    pub(super) settings: Settings,
    pub(super) datasets: BTreeMap<String, Tally>,
}

impl Tallies {
    /// Creates empty counts.
    pub(super) fn new(settings: Settings) -> Tallies {
        Tallies { settings, datasets: BTreeMap::new() }
    }

    /// Creates the counts of a dataset, if it has none.
    pub(super) fn create(&mut self, name: &str, families: usize) {
        // Not `entry`, because it requires an owned name for each of a million runs.
        if !self.datasets.contains_key(name) {
            let tally = Tally::new(self.settings.candidates.len(), families);
            self.datasets.insert(name.to_owned(), tally);
        }
    }

    /// Adds counts with equal settings.
    pub(super) fn add(&mut self, other: Tallies) {
        for (name, tally) in other.datasets {
            match self.datasets.get_mut(&name) {
                Some(own) => own.add(tally),
                None => drop(self.datasets.insert(name, tally)),
            }
        }
    }
}
