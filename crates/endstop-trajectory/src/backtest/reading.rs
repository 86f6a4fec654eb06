//! Counts of the runs that were read, which can be added to those of other parts in any order.
//!
//! ```text
//! let mut reading = Reading::default();
//! reading.run("sql", &run);
//! reading.problem(&problem);
//! ```
//!
//! Unlike [`ReadStats`](crate::read::ReadStats) it depends neither on the order of the runs nor on
//! their division into files: it names examples by run id, and compares ids within a dataset.

use super::count::hash::stable_hash;
use super::count::sample::Sample;
use crate::model::Trajectory;
use crate::read::{Content, Findings, Opened, Options, Problem, shortened};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Number of examples of each kind.
const NAMED: usize = 5;
/// Maximum number of endings that are counted separately.
const ENDINGS: usize = 200;

/// Counts of the runs of a backtest, as they were read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Reading {
    /// Number of runs.
    pub runs: u64,
    /// Number of turns.
    pub turns: u64,
    /// Number of runs by format.
    pub formats: BTreeMap<String, u64>,
    /// Number of runs by recorded ending.
    pub endings: BTreeMap<String, u64>,
    /// Runs without a recorded success or failure.
    pub without_outcome: Examples,
    /// Records that could not be read, by kind of problem.
    pub problems: BTreeMap<String, Examples>,
    /// Number of files that are obviously not runs.
    pub skipped: u64,
    /// Number of runs whose id occurs more than once in their dataset, without the first of each id.
    /// If there are more than a million runs, only a part of the ids is compared.
    pub duplicates: u64,
    /// Number of runs by the hash of their dataset and id.
    #[serde(skip)]
    pub(crate) ids: Ids,
}

/// Number of runs by the hash of their dataset and id.
pub(crate) type Ids = Sample<u64>;

/// A number of cases, and the first few by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Examples {
    /// Number of cases.
    pub count: u64,
    /// The first five: in alphabetical order, or in that of files and records.
    pub first: Vec<String>,
}

impl Examples {
    /// Returns the examples of each kind.
    pub fn of(found: Findings) -> Vec<(String, Examples)> {
        let kinds = found.into_kinds();
        kinds.map(|(kind, count, first)| (kind, Examples { count, first })).collect()
    }

    fn add(&mut self, name: &str) {
        self.count += 1;
        self.name(name);
    }

    fn name(&mut self, name: &str) {
        let name = shortened(name);
        let place = self.first.partition_point(|other| other.as_str() < name);
        if place < NAMED && self.first.get(place).is_none_or(|other| other != name) {
            self.first.insert(place, name.to_owned());
            self.first.truncate(NAMED);
        }
    }

    fn merge(&mut self, other: &Examples) {
        self.count = self.count.saturating_add(other.count);
        for name in &other.first {
            self.name(name);
        }
    }
}

/// The result of reading a part.
pub(crate) enum Recognised {
    /// The part is in a known format.
    Known,
    /// The part is obviously not a run, for this reason.
    Skipped(&'static str),
    /// The part could not be opened.
    Unknown,
}

/// Passes each run of a part, and each record that cannot be read, to `each`.
pub(crate) fn records(
    content: Content,
    options: &Options,
    each: &mut dyn FnMut(Result<Trajectory<'_>, Problem>),
) -> Recognised {
    let mut chunks = match content.open(options) {
        Ok(Opened::Runs(chunks)) => chunks,
        Ok(Opened::Skipped(why)) => return Recognised::Skipped(why),
        Err(problem) => {
            each(Err(problem));
            return Recognised::Unknown;
        }
    };
    while let Some(chunk) = chunks.next() {
        match chunk {
            Ok(chunk) => {
                chunk.each(each);
                chunks.reuse(chunk);
            }
            Err(problem) => each(Err(problem)),
        }
    }
    Recognised::Known
}

impl Reading {
    /// Maximum number of ids that are compared.
    pub(crate) const IDS: usize = 1 << 20;

    /// Reads the runs of a part and passes each one to `each`, which counts it. Counts a record that
    /// cannot be read as a problem.
    pub(crate) fn read(
        &mut self,
        content: Content,
        options: &Options,
        each: &mut dyn FnMut(&mut Reading, Trajectory<'_>),
    ) {
        let read = records(content, options, &mut |run| match run {
            Ok(run) => each(self, run),
            Err(problem) => self.problem(&problem),
        });
        self.skipped += u64::from(matches!(read, Recognised::Skipped(_)));
    }

    /// Counts a run of a dataset.
    pub(crate) fn run(&mut self, dataset: &str, run: &Trajectory<'_>) {
        self.runs += 1;
        self.turns += run.turns().count() as u64;
        increase(&mut self.formats, run.origin.format, 1);
        let ending = run.ending.as_ref().map_or("not said", |ending| &ending.reason);
        increase(&mut self.endings, ending, 1);
        if run.recorded.success.is_none() {
            self.without_outcome.add(&run.run_id);
        }
        if let Some(count) = self.ids.entry(stable_hash([dataset, &run.run_id]), Reading::IDS) {
            *count += 1;
        }
    }

    /// Counts a record that could not be read.
    pub(crate) fn problem(&mut self, problem: &Problem) {
        // Without the file and line, which depend on the division into parts.
        self.problems.entry(problem.kind.as_str().to_owned()).or_default().add(&problem.what);
    }

    /// Adds the counts of another part.
    pub(crate) fn add(&mut self, other: Reading) {
        self.runs = self.runs.saturating_add(other.runs);
        self.turns = self.turns.saturating_add(other.turns);
        self.skipped = self.skipped.saturating_add(other.skipped);
        for (name, count) in other.formats {
            increase(&mut self.formats, &name, count);
        }
        for (name, count) in other.endings {
            increase(&mut self.endings, &name, count);
        }
        self.without_outcome.merge(&other.without_outcome);
        for (kind, examples) in other.problems {
            self.problems.entry(kind).or_default().merge(&examples);
        }
        self.ids.merge(other.ids, |own, other| *own = own.saturating_add(other));
        self.ids.shrink(Reading::IDS);
    }

    /// Completes the counts after the last part.
    pub(crate) fn finish(mut self) -> Reading {
        let again = self.ids.values().map(|count| count.saturating_sub(1));
        self.duplicates = again.fold(0, u64::saturating_add);
        self
    }
}

/// Increases the count of a name. Names come from files, so that only the first few by alphabet are
/// counted: this choice does not depend on their order.
fn increase(counts: &mut BTreeMap<String, u64>, name: &str, by: u64) {
    // Shortened before the look-up, because the map holds shortened names.
    let name = shortened(name);
    if let Some(count) = counts.get_mut(name) {
        *count = count.saturating_add(by);
        return;
    }
    if counts.len() >= ENDINGS {
        if counts.last_key_value().is_some_and(|(last, _)| name > last.as_str()) {
            return;
        }
        counts.pop_last();
    }
    counts.insert(name.to_owned(), by);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Ending;
    use proptest::prelude::*;

    /// Counts runs with these endings, which are also their ids.
    fn counted<'n>(names: impl IntoIterator<Item = &'n str>) -> Reading {
        let mut reading = Reading::default();
        for name in names {
            let ending = Ending { reason: name.into(), ..Ending::default() };
            reading.run("d", &Trajectory { ending: Some(ending), ..Trajectory::new(name) });
        }
        reading
    }

    #[test]
    fn long_endings_keep_their_count() {
        // The map holds the beginnings of long names; a second run must find that of the first.
        let long = "é".repeat(500);
        let reading = counted([&*long, &*long, &format!("{long}2")]);
        assert_eq!(reading.endings.values().collect::<Vec<_>>(), [&3]);
        let mut sum = counted([&*long]);
        sum.add(counted([&*long, "final"]));
        assert_eq!(sum.endings.values().collect::<Vec<_>>(), [&1, &2]);
        // A full map must not drop a name for a long one that it holds already.
        let mut names: Vec<String> = (0..ENDINGS - 1).map(|nth| format!("{nth:03}")).collect();
        names.insert(0, "!".repeat(1000));
        let full = counted(names.iter().chain(&names).map(String::as_str));
        assert_eq!((full.endings.len(), full.endings.values().min()), (ENDINGS, Some(&2)));
    }

    proptest! {
        #[test]
        fn parts_add_up_in_any_order(
            names in proptest::collection::vec(0_u32..400, 0..600), mask in any::<u64>(),
        ) {
            let names: Vec<String> = names.iter().map(|nth| format!("{nth:03}")).collect();
            let of = |want: bool| {
                let own = names.iter().enumerate().filter(|(nth, _)| (mask >> (nth % 64) & 1 == 1) == want);
                counted(own.map(|(_, name)| name.as_str()))
            };
            let whole = counted(names.iter().map(String::as_str)).finish();
            let mut distinct: Vec<&String> = names.iter().collect();
            distinct.sort();
            distinct.dedup();
            prop_assert_eq!(whole.duplicates as usize, names.len() - distinct.len());
            prop_assert_eq!(
                whole.endings.keys().collect::<Vec<_>>(), &distinct[..distinct.len().min(ENDINGS)]
            );
            for first in [true, false] {
                let mut sum = of(first);
                sum.add(of(!first));
                let sum = sum.finish();
                prop_assert_eq!(&sum.endings, &whole.endings);
                prop_assert_eq!(&sum.without_outcome, &whole.without_outcome);
                prop_assert_eq!((sum.runs, sum.duplicates), (whole.runs, whole.duplicates));
            }
        }
    }
}
