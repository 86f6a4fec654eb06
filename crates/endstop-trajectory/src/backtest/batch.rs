//! A backtest in parts: each part is counted on its own, for example in another process, and the
//! counts are merged.
//!
//! ```
//! use endstop_trajectory::backtest::{Batch, Candidate, Plan, merge, tally};
//! let plan = Plan::new(Candidate::reference()?);
//! let run = |id: u32| format!(
//!     r#"{{"schema":"neutral-traj/1","run_id":"{id}","outcome":{{"success":false}},"steps":[]}}"#
//! );
//! let parts = [run(1), run(2)].map(|run| {
//!     tally(Batch { bytes: run.into_bytes(), file: "runs.jsonl", dataset: Some("all") }, &plan)
//! });
//! let [one, two] = parts;
//! assert_eq!(merge([one?, two?])?.reading.runs, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The merged report is the same to the last digit for each division into parts and each order of
//! them, and the same as that of all runs in one part.

use super::calibrate::family::Family;
use super::candidate::Candidate;
use super::count::tallies::Tallies;
use super::dataset::dataset;
use super::figures::Figures;
use super::group::GroupBy;
use super::judge::Backtest;
use super::packed::{MergeError, difference, pack, unpack};
use super::reading::Reading;
use crate::read::{Content, Options, Outcomes};
use endstop_core::PolicyError;
use serde::Serialize;

/// The settings of a backtest in parts; all parts need the same.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The candidates.
    pub candidates: Vec<Candidate>,
    /// The share of good tasks that a calibrated threshold may stop; `None` calibrates nothing.
    pub alpha: Option<f64>,
    /// The field of a run that names its kind of task.
    pub group_by: GroupBy,
    /// Options for reading the bytes.
    pub options: Options,
    /// Outcomes from a separate file; they override those of the recordings.
    pub outcomes: Option<Outcomes>,
}

impl Plan {
    /// Creates a plan for these candidates.
    pub fn new(candidates: Vec<Candidate>) -> Plan {
        Plan {
            candidates,
            alpha: None,
            group_by: GroupBy::default(),
            options: Options::default(),
            outcomes: None,
        }
    }

    fn backtest(&self) -> Result<Backtest, PolicyError> {
        let test = Backtest::new(&self.candidates)?.grouping(self.group_by.clone());
        Ok(match self.alpha {
            Some(alpha) => test.calibrating(&Family::all(), alpha),
            None => test,
        })
    }
}

/// The content of a file, or whole records of it.
#[derive(Clone, Debug)]
pub struct Batch<'b> {
    /// The bytes, plain or packed with gzip or zstd.
    pub bytes: Vec<u8>,
    /// The name of the file: it helps to recognise the format, and names the dataset by default.
    pub file: &'b str,
    /// The dataset of the runs. Give it if a dataset has several files, because each file is a
    /// dataset of its own otherwise.
    pub dataset: Option<&'b str>,
}

/// Counts the effect of a plan's candidates on the runs of a batch. A record that cannot be read is
/// counted as a problem.
///
/// # Errors
/// A policy cannot be built.
pub fn tally(batch: Batch<'_>, plan: &Plan) -> Result<Vec<u8>, PolicyError> {
    if batch.bytes.is_empty() {
        // An engine may pass an empty partition, which is not a broken file.
        return Ok(pack(&plan.backtest()?.tallies, &Reading::default()));
    }
    tally_content(Content::of(batch.bytes, batch.file), batch.dataset, plan)
}

/// As [`tally`], for content that is read in chunks, so that it need not fit into the memory.
///
/// # Errors
/// A policy cannot be built.
pub fn tally_content(
    content: Content,
    name: Option<&str>,
    plan: &Plan,
) -> Result<Vec<u8>, PolicyError> {
    let mut test = plan.backtest()?;
    let mut outcomes = plan.outcomes.clone();
    let mut reading = Reading::default();
    reading.read(content, &plan.options, &mut |reading, mut run| {
        if let Some(outcomes) = &mut outcomes {
            outcomes.apply(&mut run);
        }
        let of_file = if name.is_none() { dataset(&run) } else { String::new() };
        let name = name.unwrap_or(&of_file);
        reading.run(name, &run);
        test.run(name, &run);
    });
    Ok(pack(&test.tallies, &reading))
}

/// Counts the entries of folders that a walk skipped.
///
/// # Errors
/// A policy cannot be built.
pub fn tally_skipped(skipped: u64, plan: &Plan) -> Result<Vec<u8>, PolicyError> {
    Ok(pack(&plan.backtest()?.tallies, &Reading { skipped, ..Reading::default() }))
}

/// The report of a backtest in parts.
#[derive(Clone, Debug, Serialize)]
pub struct Merged {
    /// The figures.
    pub figures: Figures,
    /// The counts of reading.
    pub reading: Reading,
}

/// Merges the counts of [`tally`], in any order.
///
/// # Errors
/// There is no part; the bytes of a part are not counts; or its version or its settings are not those
/// of the first part.
pub fn merge<B: AsRef<[u8]>>(parts: impl IntoIterator<Item = B>) -> Result<Merged, MergeError> {
    let (tallies, reading) = sum(parts)?;
    // `unpack` checked the families.
    let families = tallies.settings.families().unwrap_or_default();
    Ok(Merged { figures: Figures::of(tallies, &families), reading: reading.finish() })
}

/// Merges the counts of [`tally`] into counts again, so that an engine can merge some parts while
/// others are counted.
///
/// # Errors
/// As [`merge`].
pub fn combine<B: AsRef<[u8]>>(parts: impl IntoIterator<Item = B>) -> Result<Vec<u8>, MergeError> {
    sum(parts).map(|(tallies, reading)| pack(&tallies, &reading))
}

fn sum<B: AsRef<[u8]>>(
    parts: impl IntoIterator<Item = B>,
) -> Result<(Tallies, Reading), MergeError> {
    let mut all: Option<(Tallies, Reading)> = None;
    for (bytes, part) in parts.into_iter().zip(1..) {
        let (tallies, reading) = unpack(bytes.as_ref(), part)?;
        let Some((own, read)) = &mut all else {
            all = Some((tallies, reading));
            continue;
        };
        if own.settings != tallies.settings {
            return Err(MergeError::Settings {
                part,
                found: tallies.settings.digest(),
                first: own.settings.digest(),
                differs: difference(&own.settings, &tallies.settings),
            });
        }
        own.add(tallies);
        read.add(reading);
    }
    all.ok_or(MergeError::Empty)
}
