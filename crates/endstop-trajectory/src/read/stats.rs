//! Counts what was read, and collects irregularities with a few examples of each.
//!
//! ```
//! use endstop_trajectory::{Trajectory, read::ReadStats};
//! let mut stats = ReadStats::new();
//! stats.run(&Trajectory::new("a"));
//! stats.run(&Trajectory::new("a"));
//! assert_eq!((stats.runs, stats.twice_in_file.count), (2, 1));
//! ```
//!
//! For each run the count stores 16 bytes, the hashes of its id and its file, in order to detect
//! duplicates. After [`ReadStats::REMEMBERED`] ids it only counts the runs that it could not compare.
//! All other state has a constant size, however many runs are read.

use super::build::OUT_OF_ORDER;
use crate::model::{Origin, Trajectory};
use crate::read::findings::shortened;
use crate::read::problem::{Problem, ProblemKind};
use crate::time::split_time;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Number of examples stored for each kind of irregularity.
const NAMED: usize = 5;
/// Maximum number of kinds of notes that are counted separately.
const KINDS: usize = 200;

/// An irregularity: its number of occurrences, and the first examples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// Number of occurrences.
    pub count: u64,
    /// The first few occurrences in the order of the input, each with its file and line.
    pub first: Vec<String>,
    /// The positions of these occurrences in the input.
    at: Vec<Position>,
}

/// The position of a run in the input: the number of its chunk, and its number in that chunk.
pub type Position = (u64, u64);

impl Finding {
    fn add(&mut self, at: Position, name: impl FnOnce() -> String) {
        self.count += 1;
        // Runs may be counted in another order than that of the input.
        let place = self.at.partition_point(|other| *other <= at);
        if place < NAMED {
            self.at.insert(place, at);
            self.first.insert(place, name());
            self.at.truncate(NAMED);
            self.first.truncate(NAMED);
        }
    }
}

/// Counts of runs and of their irregularities.
#[derive(Clone, Debug, Default)]
pub struct ReadStats {
    /// Number of runs. The runs of subagents are part of their parent's run.
    pub runs: u64,
    /// Number of turns.
    pub turns: u64,
    /// Number of tool calls, including those of a simulated user.
    pub calls: u64,
    /// Number of tool results.
    pub results: u64,
    /// Number of tool results that are failures.
    pub errors: u64,
    /// Number of runs with a recorded success or failure.
    pub labelled: u64,
    /// Number of runs that succeeded.
    pub succeeded: u64,
    /// Number of runs by recorded ending.
    pub endings: BTreeMap<String, u64>,
    /// Number of runs by format.
    pub formats: BTreeMap<&'static str, u64>,
    /// Runs without a turn.
    pub empty: Finding,
    /// Runs without a recorded success or failure.
    pub without_outcome: Finding,
    /// Runs whose steps are out of order, by their times or by their numbers.
    pub out_of_order: Finding,
    /// Runs whose id occurs earlier in the same file.
    pub twice_in_file: Finding,
    /// Runs whose id occurs in another file.
    pub twice_over_files: Finding,
    /// Number of runs whose ids were not compared, because the limit of remembered ids was reached.
    pub not_compared: u64,
    /// The readers' notes by kind: the text before the colon.
    pub notes: BTreeMap<String, Finding>,
    /// Records that were not read, by kind of problem.
    pub problems: BTreeMap<ProblemKind, Finding>,
    /// Maps the hash of an id to the hash of the file in which it first occurred.
    seen: HashMap<u64, u64>,
    /// The position of the run or the problem that is counted next.
    position: Position,
}

impl ReadStats {
    /// Number of ids that are remembered: as many as a table of 2²⁰ places holds, which takes 18 MB.
    pub const REMEMBERED: usize = 7 << 17;

    /// Creates an empty count.
    pub fn new() -> ReadStats {
        ReadStats::default()
    }

    /// Sets the position of the next run or problem. Each one that is counted advances it.
    pub fn move_to(&mut self, position: Position) {
        self.position = position;
    }

    fn advance(&mut self) -> Position {
        let (chunk, nth) = self.position;
        self.position = (chunk, nth + 1);
        (chunk, nth)
    }

    /// Counts a run, or a problem, at its position in the input. Runs that several threads read may be
    /// counted in any order, and the examples are still the first of each kind.
    pub fn run_at(&mut self, position: Position, run: Result<&Trajectory<'_>, &Problem>) {
        self.position = position;
        match run {
            Ok(run) => self.run(run),
            Err(problem) => self.problem(problem),
        }
    }

    /// Counts a run.
    pub fn run(&mut self, run: &Trajectory<'_>) {
        let at = self.advance();
        self.runs += 1;
        self.count(run);
        *self.formats.entry(run.origin.format).or_default() += 1;
        match run.recorded.success {
            Some(success) => {
                self.labelled += 1;
                self.succeeded += u64::from(success);
            }
            None => self.without_outcome.add(at, || named(run)),
        }
        let ending = run.ending.as_ref().map_or("not said", |ending| &ending.reason);
        if let Some(count) = of_kind(&mut self.endings, ending) {
            *count += 1;
        }
        if run.turns().next().is_none() {
            self.empty.add(at, || named(run));
        }
        if let Some(why) = disorder(run) {
            self.out_of_order.add(at, || format!("{}: {why}", named(run)));
        }
        for note in &run.notes {
            let kind = note.split_once(": ").map_or(note.as_str(), |(kind, _)| kind);
            if let Some(finding) = of_kind(&mut self.notes, kind) {
                finding.add(at, || format!("{}: {}", named(run), shortened(note)));
            }
        }
        self.compare(run, at);
    }

    /// Counts a record that was not read.
    pub fn problem(&mut self, problem: &Problem) {
        let at = self.advance();
        self.problems.entry(problem.kind).or_default().add(at, || problem.to_string());
    }

    fn count(&mut self, run: &Trajectory<'_>) {
        // Copied steps were counted in the run that they were copied from.
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

    fn compare(&mut self, run: &Trajectory<'_>, at: Position) {
        // A collision of these hashes would only add a false duplicate to the report.
        let (id, file) = (hash(&run.run_id), hash(&run.origin.file));
        match self.seen.get(&id) {
            Some(other) if *other == file => self.twice_in_file.add(at, || named(run)),
            Some(_) => self.twice_over_files.add(at, || named(run)),
            None if self.seen.len() < ReadStats::REMEMBERED => {
                self.seen.insert(id, file);
            }
            None => self.not_compared += 1,
        }
    }
}

/// Returns the value of a kind. Kinds come from the files, so that their number and lengths are bounded:
/// a hostile file must not exhaust memory. The first by alphabet are counted, because runs may come in
/// any order.
fn of_kind<'k, T: Default>(kinds: &'k mut BTreeMap<String, T>, kind: &str) -> Option<&'k mut T> {
    let kind = shortened(kind);
    if kinds.len() >= KINDS && !kinds.contains_key(kind) {
        if kinds.last_key_value().is_some_and(|(last, _)| kind > last.as_str()) {
            return None;
        }
        kinds.pop_last();
    }
    Some(kinds.entry(kind.to_owned()).or_default())
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

/// Describes the first pair of steps that is out of order, if there is one.
fn disorder(run: &Trajectory<'_>) -> Option<String> {
    // A reader that has step numbers is more precise than the comparison of times below.
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

/// Returns `true` if `time` is before `other`. Both must have the same zone and be precise to the
/// second: then the order of the strings is the order of time. Otherwise returns `false`.
fn is_before(time: &str, other: &str) -> bool {
    let (Some((a, zone_a)), Some((b, zone_b))) = (split_time(time), split_time(other)) else {
        return false;
    };
    // Date and time of day separately, because the character between them may differ.
    let (whole_a, whole_b) = ((&a[..10], &a[11..19]), (&b[..10], &b[11..19]));
    zone_a == zone_b && (whole_a < whole_b || whole_a == whole_b && fraction(a) < fraction(b))
}

fn fraction(time: &str) -> &str {
    // `.25` and `.250` are the same time, and so are `.0` and no fraction.
    time[19..].trim_end_matches('0').trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Ending, Role, Step};

    #[test]
    fn only_comparable_times_are_compared() {
        assert!(is_before("2026-06-30T11:40:29Z", "2026-06-30T11:40:30Z"));
        assert!(is_before("2026-06-30T11:40:29.2Z", "2026-06-30T11:40:29.25Z"));
        assert!(!is_before("2026-06-30T11:40:29.250Z", "2026-06-30T11:40:29.25Z"));
        assert!(!is_before("2026-06-30T11:40:29Z", "2026-06-30T12:40:29+02:00"), "not said");
        assert!(!is_before("yesterday", "2026-06-30T12:40:29Z"));
        assert!(!is_before("2026-06-30 11:40:30Z", "2026-06-30T11:40:29Z"), "a space for the T");
        assert!(is_before("2026-06-30 11:40:29Z", "2026-06-30T11:40:30Z"));
        for whole in ["29.0", "29.000", "29"] {
            let (a, b) = (format!("2026-06-30T11:40:{whole}Z"), "2026-06-30T11:40:29.000Z");
            assert!(!is_before(&a, b) && !is_before(b, &a), "{whole}");
        }
        assert!(split_time("2026-06-30T11:40:29.").is_none());
        assert!(split_time("2026-06-30T11:40:29é").is_none());
    }

    #[test]
    fn examples_are_in_input_order() {
        let mut stats = ReadStats::new();
        for (chunk, nth) in [(2, 0), (0, 1), (7, 3), (0, 0), (1, 9), (7, 0), (3, 0), (1, 8)] {
            stats.move_to((chunk, nth));
            stats.run(&Trajectory::new(format!("{chunk}-{nth}")));
        }
        let empty: Vec<&str> = stats.empty.first.iter().map(|name| &name[2..]).collect();
        assert_eq!(empty, ["0-0", "0-1", "1-8", "1-9", "2-0"]);
        assert_eq!(stats.empty.count, 8);
    }

    #[test]
    fn irregularities_are_counted_with_examples() {
        let mut stats = ReadStats::new();
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
            stats.run(&run);
        }
        assert_eq!((stats.runs, stats.turns), (20, 40));
        assert_eq!((stats.twice_in_file.count, stats.twice_over_files.count), (3, 10));
        assert_eq!(stats.out_of_order.count, 1);
        assert!(stats.out_of_order.first[0].starts_with("a:4: run-3: step 2 at"));
        let note = &stats.notes["result without a call"];
        assert_eq!((note.count, note.first.len()), (20, 5));
        assert_eq!(stats.without_outcome.count, 20);
        assert_eq!(stats.endings["not said"], 20);
    }

    /// Counts 300 runs, each with its own ending and kind of note.
    fn many_kinds(order: impl Iterator<Item = u64>) -> ReadStats {
        let mut stats = ReadStats::new();
        for nth in order {
            let mut run = Trajectory::new(nth.to_string());
            // The names differ at their beginning, and are longer than any sensible name.
            let name = format!("{:03}{}", nth % 300, "x".repeat(5000));
            run.notes = vec![format!("{name}: a note")];
            run.ending = Some(Ending { reason: name.into(), ..Ending::default() });
            stats.run_at((nth, 0), Ok(&run));
        }
        stats
    }

    #[test]
    fn kinds_do_not_depend_on_order() {
        let (forward, backward) = (many_kinds(0..600), many_kinds((0..600).rev()));
        assert_eq!(forward.endings, backward.endings);
        assert_eq!(forward.notes, backward.notes);
        assert_eq!((forward.endings.len(), forward.notes.len()), (KINDS, KINDS));
        assert!(forward.endings.values().all(|count| *count == 2));
        // The names and the examples come from the files, so their lengths are bounded too.
        let longest =
            forward.notes.iter().flat_map(|(kind, found)| found.first.iter().chain([kind]));
        assert!(longest.chain(forward.endings.keys()).all(|text| text.len() < 1000));
    }
}
