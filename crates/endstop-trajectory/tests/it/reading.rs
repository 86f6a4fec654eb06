//! Reads a file in one of the session formats, and counts its content.
//!
//! ```text
//! let read = fixture("claude_code", "agentpile_duplicates.jsonl");
//! assert_eq!(counts(read.only()), (3, 2, 2, 1, 0));
//! ```

use endstop_trajectory::read::{Problem, ProblemKind, testing};
use endstop_trajectory::{Step, Trajectory};
use std::path::Path;

pub(crate) struct Read {
    pub(crate) runs: Vec<Trajectory<'static>>,
    pub(crate) problems: Vec<Problem>,
}

impl Read {
    /// Returns the only run, and asserts that there are no problems.
    pub(crate) fn only(&self) -> &Trajectory<'static> {
        assert_eq!((self.runs.len(), self.problems.as_slice()), (1, &[][..]));
        &self.runs[0]
    }

    pub(crate) fn kinds(&self) -> Vec<(Option<u64>, ProblemKind)> {
        self.problems.iter().map(|problem| (problem.at, problem.kind)).collect()
    }
}

pub(crate) fn bytes(folder: &str, file: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(folder).join(file);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Reads a fixture in the format that is detected.
pub(crate) fn fixture(folder: &str, file: &str) -> Read {
    let bytes = bytes(folder, file);
    let format = testing::recognised(file, &bytes);
    read(format.unwrap_or_else(|| panic!("{file} has an unknown format")), &bytes)
}

pub(crate) fn read(format: &str, bytes: &[u8]) -> Read {
    let mut all = Read { runs: Vec::new(), problems: Vec::new() };
    let known = testing::read(format, "a file", bytes, &mut |read| match read {
        Ok(run) => all.runs.push(run.into_owned()),
        Err(problem) => all.problems.push(problem),
    });
    assert!(known, "{format}");
    all
}

/// Counts steps, turns, calls, results and failed results.
pub(crate) fn counts(run: &Trajectory<'_>) -> (usize, usize, usize, usize, usize) {
    let results = || run.steps.iter().flat_map(|step| &step.results);
    (
        run.steps.len(),
        run.turns().count(),
        run.steps.iter().map(|step| step.calls.len()).sum(),
        results().count(),
        results().filter(|result| result.is_error).count(),
    )
}

/// Returns the reason of the ending and the recorder's own name for it.
pub(crate) fn ending<'r>(run: &'r Trajectory<'_>) -> Option<(&'r str, &'r str)> {
    let ending = run.ending.as_ref()?;
    Some((&ending.reason, ending.native.as_deref().unwrap_or_default()))
}

/// Returns the ids of a step's calls, and those of its results.
pub(crate) fn ids<'s>(step: &'s Step<'_>) -> (Vec<&'s str>, Vec<&'s str>) {
    (
        step.calls.iter().filter_map(|call| call.id.as_deref()).collect(),
        step.results.iter().filter_map(|result| result.call_id.as_deref()).collect(),
    )
}

/// Returns the tokens of a step: input, generated, read from a cache.
pub(crate) fn tokens(step: &Step<'_>) -> (Option<u64>, Option<u64>, Option<u64>) {
    let usage = step.usage.as_ref().unwrap();
    (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)
}

/// Formats records as lines of JSON.
pub(crate) fn lines(records: &[serde_json::Value]) -> Vec<u8> {
    records.iter().flat_map(|record| format!("{record}\n").into_bytes()).collect()
}
