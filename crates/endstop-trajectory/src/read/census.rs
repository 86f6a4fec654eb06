//! What was read, in numbers, and what is odd about it, counted and with the first few named.
//!
//! ```
//! use endstop_trajectory::{Trajectory, read::Census};
//! let mut census = Census::new();
//! census.run(&Trajectory::new("a"));
//! census.run(&Trajectory::new("a"));
//! assert_eq!((census.runs, census.twice_in_file.count), (2, 1));
//! ```
//!
//! Of a run it keeps 16 bytes, for its id and its file, so that one that comes twice is seen; of ids
//! beyond [`Census::REMEMBERED`] it says how many it could not compare. All else is as large after a
//! million runs as after ten.

use super::{Problem, ProblemKind};
use crate::model::{Origin, Trajectory};
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

/// How many of a kind are named.
const NAMED: usize = 5;
/// How many kinds of notes are told apart.
const KINDS: usize = 200;

/// Something that was found, how often, and where first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// How often.
    pub count: u64,
    /// The first few, each with its file and line.
    pub first: Vec<String>,
}

impl Finding {
    fn add(&mut self, name: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < NAMED {
            self.first.push(name());
        }
    }
}

/// Counts of runs and of what is odd about them.
#[derive(Clone, Debug, Default)]
pub struct Census {
    /// Runs; those of agents within agents are part of theirs.
    pub runs: u64,
    /// Turns of them.
    pub turns: u64,
    /// Tool calls in them, those of a simulated user included.
    pub calls: u64,
    /// Results in them.
    pub results: u64,
    /// Results that are failures.
    pub errors: u64,
    /// Runs of which it is known whether they succeeded.
    pub labelled: u64,
    /// Runs that succeeded.
    pub succeeded: u64,
    /// Runs by how they ended, as the recording says.
    pub endings: BTreeMap<String, u64>,
    /// Runs by format.
    pub formats: BTreeMap<&'static str, u64>,
    /// Runs without a turn.
    pub empty: Finding,
    /// Runs of which nobody says whether they succeeded.
    pub without_outcome: Finding,
    /// Runs whose steps are out of order, by their times or by their numbers.
    pub out_of_order: Finding,
    /// Runs with the id of another one of the same file.
    pub twice_in_file: Finding,
    /// Runs with the id of one of another file.
    pub twice_over_files: Finding,
    /// Runs whose ids were not compared, as too many had come before.
    pub not_compared: u64,
    /// What the readers noted, by its kind: the text before the colon.
    pub notes: BTreeMap<String, Finding>,
    /// What was not read, by its kind.
    pub problems: BTreeMap<ProblemKind, Finding>,
    /// The hash of an id, and of the file where it came first.
    seen: HashMap<u64, u64>,
}

impl Census {
    /// How many ids are remembered.
    pub const REMEMBERED: usize = 1 << 24;

    /// Nothing read yet.
    pub fn new() -> Census {
        Census::default()
    }

    /// Counts a run.
    pub fn run(&mut self, run: &Trajectory<'_>) {
        self.runs += 1;
        self.count(run);
        *self.formats.entry(run.origin.format).or_default() += 1;
        match run.recorded.success {
            Some(success) => {
                self.labelled += 1;
                self.succeeded += u64::from(success);
            }
            None => self.without_outcome.add(|| named(run)),
        }
        let ending = run.ending.as_ref().map_or("not said", |ending| &ending.reason);
        if self.endings.len() < KINDS || self.endings.contains_key(ending) {
            *self.endings.entry(ending.to_owned()).or_default() += 1;
        }
        if run.turns().next().is_none() {
            self.empty.add(|| named(run));
        }
        if let Some(why) = disorder(run) {
            self.out_of_order.add(|| format!("{}: {why}", named(run)));
        }
        for note in &run.notes {
            let kind = note.split_once(": ").map_or(note.as_str(), |(kind, _)| kind);
            if self.notes.len() < KINDS || self.notes.contains_key(kind) {
                let finding = self.notes.entry(kind.to_owned()).or_default();
                finding.add(|| format!("{}: {note}", named(run)));
            }
        }
        self.compare(run);
    }

    /// Counts what was not read.
    pub fn problem(&mut self, problem: &Problem) {
        self.problems.entry(problem.kind).or_default().add(|| problem.to_string());
    }

    fn count(&mut self, run: &Trajectory<'_>) {
        for step in run.steps.iter().filter(|step| !step.copied) {
            self.turns += u64::from(step.is_turn());
            self.calls += step.calls.len() as u64;
            self.results += step.results.len() as u64;
            self.errors += step.results.iter().filter(|result| result.is_error).count() as u64;
        }
        for child in &run.children {
            self.count(child);
        }
    }

    fn compare(&mut self, run: &Trajectory<'_>) {
        let (id, file) = (hash(&run.run_id), hash(&run.origin.file));
        match self.seen.get(&id) {
            Some(other) if *other == file => self.twice_in_file.add(|| named(run)),
            Some(_) => self.twice_over_files.add(|| named(run)),
            None if self.seen.len() < Census::REMEMBERED => {
                self.seen.insert(id, file);
            }
            None => self.not_compared += 1,
        }
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

fn named(run: &Trajectory<'_>) -> String {
    let Origin { file, at, .. } = &run.origin;
    match at {
        Some(at) => format!("{file}:{at}: {}", run.run_id),
        None => format!("{file}: {}", run.run_id),
    }
}

/// What a reader notes of steps whose numbers say that they are out of order.
pub(crate) const OUT_OF_ORDER: &str = "steps out of order";

/// Where the steps of a run are out of order, if anywhere.
fn disorder(run: &Trajectory<'_>) -> Option<String> {
    if let Some(note) = run.notes.iter().find(|note| note.starts_with(OUT_OF_ORDER)) {
        return Some(note.clone());
    }
    let mut before: Option<(usize, &str)> = None;
    for (i, step) in run.steps.iter().enumerate() {
        let Some(at) = step.at.as_deref() else { continue };
        if let Some((earlier, time)) = before.filter(|(_, time)| is_before(at, time)) {
            return Some(format!("step {} at {at}, step {} at {time}", i + 1, earlier + 1));
        }
        before = Some((i, at));
    }
    None
}

/// Whether a time is before another, both of the same zone and precision to the second: as text, which
/// is the order of time there. Of others nothing is said.
fn is_before(time: &str, other: &str) -> bool {
    let (Some((a, zone_a)), Some((b, zone_b))) = (split_time(time), split_time(other)) else {
        return false;
    };
    zone_a == zone_b && (a[..19] < b[..19] || a[..19] == b[..19] && fraction(a) < fraction(b))
}

fn fraction(time: &str) -> &str {
    time[19..].trim_end_matches('0')
}

/// `2026-06-30T11:40:29.249Z` as the time and its zone.
pub(crate) fn split_time(time: &str) -> Option<(&str, &str)> {
    let bytes = time.as_bytes();
    let shape = b"dddd-dd-ddTdd:dd:dd";
    let fits = bytes.len() >= shape.len()
        && shape.iter().zip(bytes).all(|(want, have)| match want {
            b'd' => have.is_ascii_digit(),
            b'T' => matches!(have, b'T' | b' '),
            other => have == other,
        });
    if !fits {
        return None;
    }
    let rest = &time[19..];
    let end = match rest.strip_prefix('.') {
        Some(digits) => 1 + digits.bytes().take_while(u8::is_ascii_digit).count(),
        None => 0,
    };
    let zone = &rest[end..];
    let offset = |zone: &str| {
        let bytes = zone.as_bytes();
        bytes.len() == 6 && matches!(bytes[0], b'+' | b'-') && bytes[3] == b':'
    };
    (end != 1 && (zone.is_empty() || zone == "Z" || offset(zone)))
        .then(|| (&time[..19 + end], zone))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Role, Step};

    #[test]
    fn times_are_compared_where_they_can_be() {
        assert!(is_before("2026-06-30T11:40:29Z", "2026-06-30T11:40:30Z"));
        assert!(is_before("2026-06-30T11:40:29.2Z", "2026-06-30T11:40:29.25Z"));
        assert!(!is_before("2026-06-30T11:40:29.250Z", "2026-06-30T11:40:29.25Z"));
        assert!(!is_before("2026-06-30T11:40:29Z", "2026-06-30T12:40:29+02:00"), "not said");
        assert!(!is_before("yesterday", "2026-06-30T12:40:29Z"));
        assert!(split_time("2026-06-30T11:40:29.").is_none());
        assert!(split_time("2026-06-30T11:40:29é").is_none());
    }

    #[test]
    fn what_is_odd_is_counted_and_the_first_few_are_named() {
        let mut census = Census::new();
        for i in 0..20 {
            let mut run = Trajectory::new(format!("run-{}", i % 7));
            run.origin.file = if i < 10 { "a" } else { "b" }.into();
            run.origin.at = Some(i + 1);
            let at = |s| Step {
                at: Some(format!("2026-01-01T00:00:{s:02}Z").into()),
                ..Step::new(Role::Agent)
            };
            run.steps = vec![at(5), at(if i == 3 { 4 } else { 6 })];
            run.notes = vec![format!("result without a call: c{i}")];
            census.run(&run);
        }
        assert_eq!((census.runs, census.turns), (20, 40));
        assert_eq!((census.twice_in_file.count, census.twice_over_files.count), (3, 10));
        assert_eq!(census.out_of_order.count, 1);
        assert!(census.out_of_order.first[0].starts_with("a:4: run-3: step 2 at"));
        let note = &census.notes["result without a call"];
        assert_eq!((note.count, note.first.len()), (20, 5));
        assert_eq!(census.without_outcome.count, 20);
        assert_eq!(census.endings["not said"], 20);
    }
}
