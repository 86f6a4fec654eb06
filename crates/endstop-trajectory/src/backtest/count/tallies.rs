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
//! The number of stored tasks is bounded over all groups ([`Room`]).

use super::hash::stable_hash;
use super::room::Room;
use super::tally::Tally;
use crate::backtest::group::{Group, GroupBy};
use crate::backtest::judge::judged_run::JudgedRun;
use crate::backtest::settings::Settings;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of groups that are counted apart.
const MOST_GROUPS: usize = 256;

/// The counts of all groups.
#[derive(Clone, Debug)]
pub(in crate::backtest) struct Tallies {
    pub(in crate::backtest) settings: Settings,
    pub(in crate::backtest) counts: GroupCounts,
}

/// The counts by group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::backtest) struct GroupCounts {
    /// The groups by their hash.
    groups: BTreeMap<u64, (Group, Tally)>,
    /// The runs of all other groups, by dataset.
    others: BTreeMap<String, Tally>,
    /// The number of tasks that a group may store.
    room: Room,
    /// The number of tasks that all groups store.
    #[serde(skip)]
    stored: Room,
}

impl Default for GroupCounts {
    fn default() -> GroupCounts {
        let (groups, others) = (BTreeMap::new(), BTreeMap::new());
        GroupCounts { groups, others, room: Room::MOST, stored: Room::default() }
    }
}

impl Tallies {
    /// Creates empty counts.
    pub(in crate::backtest) fn new(settings: Settings) -> Tallies {
        Tallies { settings, counts: GroupCounts::default() }
    }

    /// Returns the counts of a group, created if needed.
    pub(in crate::backtest) fn tally(
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

    /// Counts a judged run of a group; for `fired` see [`Tally::judged`].
    pub(in crate::backtest) fn judged(
        &mut self,
        (dataset, model, kind): (&str, Option<&str>, Option<&str>),
        run: &JudgedRun<'_>,
        fired: &[Option<&[Option<u32>]>],
    ) {
        let room = self.counts.room;
        let tally = self.tally(dataset, model, kind);
        let before = tally.stored();
        tally.judged(run, fired, room);
        let after = tally.stored();
        let stored = &mut self.counts.stored;
        stored.tasks += after.tasks - before.tasks;
        stored.scores += after.scores - before.scores;
        self.counts.make_room();
    }

    /// Adds counts with equal settings.
    pub(in crate::backtest) fn add(&mut self, other: Tallies) {
        self.counts.room = self.counts.room.min(other.counts.room);
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
        self.counts.shrink();
        self.counts.make_room();
    }

    /// Returns the groups in order, without kinds if there are too many. Runs that are not counted in a
    /// group have one with neither a model nor a kind.
    pub(in crate::backtest) fn into_groups(self) -> BTreeMap<Group, Tally> {
        let GroupCounts { groups: own, others, .. } = self.counts;
        let mut kinds: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (group, _) in own.values() {
            kinds.entry(&group.dataset).or_default().extend(group.kind.as_deref());
        }
        let has_many = |dataset: &str| {
            others.contains_key(dataset)
                || kinds.get(dataset).is_some_and(|own| own.len() > GroupBy::MOST_KINDS)
        };
        let merged: BTreeSet<String> = match self.settings.group_by {
            GroupBy::Auto => {
                kinds.keys().filter(|name| has_many(name)).map(|name| (*name).to_owned()).collect()
            }
            _ => BTreeSet::new(),
        };
        let mut groups: BTreeMap<Group, Tally> = BTreeMap::new();
        let mut add = |group: Group, tally: Tally| match groups.get_mut(&group) {
            Some(own) => own.add(tally),
            None => drop(groups.insert(group, tally)),
        };
        for (mut group, tally) in own.into_values() {
            if merged.contains(&group.dataset) {
                group.kind = None;
            }
            add(group, tally);
        }
        for (dataset, tally) in others {
            add(Group { dataset, model: None, kind: None }, tally);
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
            // The others may store more than a group may, and their tasks may be the same.
            self.shrink();
        }
        true
    }

    fn tallies(&mut self) -> impl Iterator<Item = &mut Tally> {
        self.groups.values_mut().map(|(_, tally)| tally).chain(self.others.values_mut())
    }

    /// Drops tasks while all groups together store too many.
    fn make_room(&mut self) {
        while self.room.shrinks(self.stored) {
            self.shrink();
        }
    }

    /// Drops the tasks for which a group has no room, and counts those that are stored.
    fn shrink(&mut self) {
        let room = self.room;
        let mut stored = Room::default();
        for tally in self.tallies() {
            tally.shrink(room);
            stored = stored.plus(tally.stored());
        }
        self.stored = stored;
    }

    fn add_other(&mut self, dataset: String, tally: Tally) {
        match self.others.get_mut(&dataset) {
            Some(own) => own.add(tally),
            None => drop(self.others.insert(dataset, tally)),
        }
    }

    /// Returns `true` if the counts have the lengths that the settings require.
    pub(in crate::backtest) fn fits(&self, candidates: usize, levels: &[usize]) -> bool {
        let tallies = self.groups.values().map(|(_, tally)| tally).chain(self.others.values());
        self.groups.len() <= MOST_GROUPS
            && tallies.into_iter().all(|tally| tally.fits(candidates, levels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backtest::calibrate::family::Family;
    use crate::backtest::candidate::Candidate;
    use crate::backtest::judge::curve::Curve;

    /// A large group, a small group, and one with runs without a task.
    fn runs() -> Vec<(&'static str, u32)> {
        let of = |name, count| (0..count).map(move |task| (name, task));
        of("large", 70_000).chain(of("small", 90)).chain(of("alone", 9000)).collect()
    }

    fn counted(runs: &[(&str, u32)]) -> Tallies {
        let mut settings = Settings::of(&Candidate::reference().unwrap()[..1]);
        settings.calibrate(&Family::all(), 0.1);
        let mut tallies = Tallies::new(settings);
        let spent = Curve::default();
        let never: Vec<Vec<Option<u32>>> =
            Family::all().iter().map(|family| vec![Some(9); family.levels()]).collect();
        let fired: Vec<Option<&[Option<u32>]>> = never.iter().map(|own| Some(&own[..])).collect();
        for (name, task) in runs {
            let run = JudgedRun {
                key: stable_hash([*name, &*task.to_string()]),
                has_task: *name != "alone",
                turns: 4,
                success: task % 3 > 0,
                full_from: None,
                stopped: &[(task % 5 == 0).then_some(2)],
                spent: &spent,
            };
            tallies.judged((name, None, None), &run, &fired);
        }
        tallies
    }

    #[test]
    fn many_tasks_leave_random_part() {
        let all = runs();
        let whole = counted(&all);
        let stored = whole.counts.stored;
        assert!(stored.tasks <= Room::MOST.tasks && stored.scores <= Room::MOST.scores);
        assert_eq!(whole.counts.room.tasks, Room::MOST.tasks / 2, "small groups need room too");
        let text = serde_json::to_string(&whole.counts).unwrap();
        let mut turned = all.clone();
        turned.reverse();
        assert_eq!(serde_json::to_string(&counted(&turned).counts).unwrap(), text);
        // Parts of different size, of which some are below the maximum.
        let mut sum = counted(&turned[..50_000]);
        for part in [&turned[50_000..51_000], &turned[51_000..]] {
            sum.add(counted(part));
        }
        assert_eq!(sum.counts.stored, stored);
        assert_eq!(serde_json::to_string(&sum.counts).unwrap(), text);
        let groups = whole.into_groups();
        let of = |name| &groups[&Group { dataset: String::from(name), ..Group::default() }];
        assert_eq!((of("small").stored().tasks, of("small").tasks_left_out()), (90, 0));
        assert_eq!(of("large").runs, 70_000);
        assert_eq!(of("large").tasks_left_out(), 70_000 - Room::MOST.tasks as u64 / 2);
    }
}
