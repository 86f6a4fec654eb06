//! The counts of all groups of a backtest, which can be added to those of other runs.
//!
//! ```text
//! let tally = tallies.tally("sql", Some("gpt-4"), None, families);
//! tallies.add(other);
//! ```
//!
//! The names of groups come from files, so that their number is bounded: of very many groups those with
//! the smallest hashes are counted apart, and the others together for each dataset. Which these are
//! depends neither on the order of the runs nor on their division into parts.

use super::group::{Group, GroupBy};
use super::hash::stable_hash;
use super::settings::Settings;
use super::tally::Tally;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of groups that are counted apart.
const MOST_GROUPS: usize = 256;

/// The counts of all groups.
#[derive(Clone, Debug)]
pub(super) struct Tallies {
    pub(super) settings: Settings,
    pub(super) counts: GroupCounts,
}

/// The counts by group.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct GroupCounts {
    /// The groups by their hash.
    groups: BTreeMap<u64, (Group, Tally)>,
    /// The runs of all other groups, by dataset.
    others: BTreeMap<String, Tally>,
}

impl Tallies {
    /// Creates empty counts.
    pub(super) fn new(settings: Settings) -> Tallies {
        Tallies { settings, counts: GroupCounts::default() }
    }

    /// Returns the counts of a group, created if needed.
    pub(super) fn tally(
        &mut self,
        dataset: &str,
        model: Option<&str>,
        kind: Option<&str>,
    ) -> &mut Tally {
        let key = stable_hash([dataset, model.unwrap_or("\0"), kind.unwrap_or("\0")]);
        let (candidates, families) =
            (self.settings.candidates.len(), self.settings.family_names().len());
        let new = || Tally::new(candidates, families);
        if self.counts.has_room(key) {
            let group = || Group {
                dataset: dataset.to_owned(),
                model: model.map(str::to_owned),
                kind: kind.map(str::to_owned),
            };
            &mut self.counts.groups.entry(key).or_insert_with(|| (group(), new())).1
        } else {
            self.counts.others.entry(dataset.to_owned()).or_insert_with(new)
        }
    }

    /// Adds counts with equal settings.
    pub(super) fn add(&mut self, other: Tallies) {
        for (key, (group, tally)) in other.counts.groups {
            if !self.counts.has_room(key) {
                self.counts.add_other(group.dataset, tally);
            } else if let Some((_, own)) = self.counts.groups.get_mut(&key) {
                own.add(tally);
            } else {
                self.counts.groups.insert(key, (group, tally));
            }
        }
        for (dataset, tally) in other.counts.others {
            self.counts.add_other(dataset, tally);
        }
    }

    /// Returns the groups in order, without kinds if there are too many. Runs that are not counted in a
    /// group have one with neither a model nor a kind.
    pub(super) fn groups(&self) -> BTreeMap<Group, Tally> {
        let mut kinds: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (group, _) in self.counts.groups.values() {
            kinds.entry(&group.dataset).or_default().extend(group.kind.as_deref());
        }
        let mut groups: BTreeMap<Group, Tally> = BTreeMap::new();
        let mut add = |group: Group, tally: &Tally| match groups.get_mut(&group) {
            Some(own) => own.add(tally.clone()),
            None => drop(groups.insert(group, tally.clone())),
        };
        for (group, tally) in self.counts.groups.values() {
            let mut group = group.clone();
            let many = self.counts.others.contains_key(&group.dataset)
                || kinds.get(&*group.dataset).is_some_and(|own| own.len() > GroupBy::MOST_KINDS);
            if self.settings.group_by == GroupBy::Auto && many {
                group.kind = None;
            }
            add(group, tally);
        }
        for (dataset, tally) in &self.counts.others {
            add(Group { dataset: dataset.clone(), model: None, kind: None }, tally);
        }
        groups
    }
}

impl GroupCounts {
    /// Makes room for a group, and returns `false` if it belongs to the others.
    fn has_room(&mut self, key: u64) -> bool {
        if self.groups.len() < MOST_GROUPS || self.groups.contains_key(&key) {
            return true;
        }
        if self.groups.last_key_value().is_none_or(|(last, _)| key > *last) {
            return false;
        }
        if let Some((_, (group, tally))) = self.groups.pop_last() {
            self.add_other(group.dataset, tally);
        }
        true
    }

    fn add_other(&mut self, dataset: String, tally: Tally) {
        match self.others.get_mut(&dataset) {
            Some(own) => own.add(tally),
            None => drop(self.others.insert(dataset, tally)),
        }
    }

    /// Returns `true` if the counts have the lengths that the settings require.
    pub(super) fn fits(&self, candidates: usize, levels: &[usize]) -> bool {
        let tallies = self.groups.values().map(|(_, tally)| tally).chain(self.others.values());
        self.groups.len() <= MOST_GROUPS
            && tallies.into_iter().all(|tally| tally.fits(candidates, levels))
    }
}
