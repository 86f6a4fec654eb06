//! An audit in parts: the sessions of each part are counted on their own, for example in another
//! process, and the counts are merged.
//!
//! ```
//! use endstop_trajectory::audit::{Plan, merge, tally};
//! use endstop_trajectory::read::Content;
//! let plan = Plan::new(10);
//! let run = |id: u32| format!(r#"{{"schema":"neutral-traj/1","run_id":"{id}","steps":[]}}"#);
//! let parts = [run(1), run(2)].map(|run| {
//!     tally(Content::of(run.into_bytes(), "runs.jsonl"), None, &plan)
//! });
//! assert_eq!(merge(parts)?.audit.sessions, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The merged audit is the same for each division into parts and each order of them.

use super::noticed::Noticed;
use super::session::Session;
use super::total::Audit;
use crate::backtest::{Ids, MergeError, Reading, Recognised, records, seal, unseal};
use crate::pricing::Prices;
use crate::read::{Content, Findings, Options};
use crate::time::unix_ms;
use serde::{Deserialize, Serialize};

/// The name of the format of the counts.
const FORMAT: &str = "endstop-audit";

/// The settings of an audit in parts; all parts need the same `top` and `since_ms`.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Maximum number of worst sessions that are stored.
    pub top: usize,
    /// Sessions that ended before this time, in Unix milliseconds, are left out.
    pub since_ms: Option<i64>,
    /// Options for reading the bytes.
    pub options: Options,
}

impl Plan {
    /// Creates a plan that stores up to `top` of the worst sessions.
    pub fn new(top: usize) -> Plan {
        Plan { top, since_ms: None, options: Options::default() }
    }

    fn settings(&self) -> Settings {
        Settings { top: self.top, since_ms: self.since_ms }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Settings {
    top: usize,
    since_ms: Option<i64>,
}

impl Settings {
    fn digest(&self) -> String {
        format!("top {}, since {:?}", self.top, self.since_ms)
    }
}

#[derive(Serialize, Deserialize)]
struct Counts {
    audit: Audit,
    too_old: u64,
    files: u64,
    reading: Reading,
    noticed: Noticed,
    ids: Ids,
}

/// Audits the sessions of a part. A record that cannot be read is counted as a problem.
///
/// `dataset` is the place of the sessions in the report, instead of their file and line. Give it if the
/// records of one file are divided, because their lines then depend on the division.
pub fn tally(content: Content, dataset: Option<&str>, plan: &Plan) -> Vec<u8> {
    let prices = Prices::new();
    let mut counts = Counts::new(plan);
    let file = content.name();
    let recognised = records(content, &plan.options, &mut |run| {
        let run = match run {
            Ok(run) => run,
            Err(problem) => {
                counts.reading.problem(&problem);
                return counts.noticed.problem(dataset, &problem);
            }
        };
        let times = || run.steps.iter().filter_map(|step| unix_ms(step.at.as_deref()?));
        // A session without times could be of any date, so it is not left out.
        if plan.since_ms.is_some_and(|since| times().max().is_some_and(|last| last < since)) {
            counts.too_old += 1;
            return;
        }
        counts.reading.run(dataset.unwrap_or_default(), &run);
        counts.noticed.run(dataset, &run);
        let mut session = Session::of(&run, &prices);
        if let Some(dataset) = dataset {
            dataset.clone_into(&mut session.file);
            session.at = None;
        }
        counts.audit.add(session);
    });
    match recognised {
        // Of a dataset, the number of parts depends on the division.
        Recognised::Known => counts.files = u64::from(dataset.is_none()),
        Recognised::Skipped(why) => {
            counts.reading.skipped += 1;
            counts.noticed.skipped.add(why, &file, None, "");
        }
        Recognised::Unknown => {}
    }
    counts.seal(plan)
}

/// Counts the entries of folders that a walk skipped.
pub fn tally_skipped(skipped: Findings, plan: &Plan) -> Vec<u8> {
    let mut counts = Counts::new(plan);
    counts.reading.skipped = skipped.count();
    counts.noticed.skipped = skipped;
    counts.seal(plan)
}

/// Returns the counts of no session, with the settings of a plan.
pub fn no_sessions(plan: &Plan) -> Vec<u8> {
    Counts::new(plan).seal(plan)
}

impl Counts {
    fn new(plan: &Plan) -> Counts {
        Counts {
            audit: Audit::new(plan.top),
            too_old: 0,
            files: 0,
            reading: Reading::default(),
            noticed: Noticed::default(),
            ids: Ids::default(),
        }
    }

    fn seal(mut self, plan: &Plan) -> Vec<u8> {
        self.ids = std::mem::take(&mut self.reading.ids);
        seal_counts(&plan.settings(), &self)
    }
}

fn seal_counts(settings: &Settings, counts: &Counts) -> Vec<u8> {
    seal(FORMAT, settings, settings.digest(), counts)
}

/// The results of an audit in parts.
#[derive(Clone, Debug)]
pub struct Merged {
    /// The totals and the worst sessions.
    pub audit: Audit,
    /// Number of sessions that were left out because they are too old.
    pub too_old: u64,
    /// Number of files of known formats, without those of named datasets.
    pub files: u64,
    /// The counts of reading.
    pub reading: Reading,
    /// The irregularities of the input.
    pub noticed: Noticed,
}

/// Merges the counts of [`tally`], in any order.
///
/// # Errors
/// There is no part; the bytes of a part are not counts; or its version or its settings are not those
/// of the first part.
pub fn merge<B: AsRef<[u8]>>(parts: impl IntoIterator<Item = B>) -> Result<Merged, MergeError> {
    let (_, counts) = sum(parts)?;
    let Counts { audit, too_old, files, reading, noticed, ids } = counts;
    let reading = Reading { ids, ..reading }.finish();
    Ok(Merged { audit, too_old, files, reading, noticed })
}

/// Merges the counts of [`tally`] into counts again.
///
/// # Errors
/// As [`merge`].
pub fn combine<B: AsRef<[u8]>>(parts: impl IntoIterator<Item = B>) -> Result<Vec<u8>, MergeError> {
    sum(parts).map(|(settings, counts)| seal_counts(&settings, &counts))
}

fn sum<B: AsRef<[u8]>>(
    parts: impl IntoIterator<Item = B>,
) -> Result<(Settings, Counts), MergeError> {
    let mut all: Option<(Settings, Counts)> = None;
    for (bytes, part) in parts.into_iter().zip(1..) {
        let (settings, _, mut counts): (Settings, String, Counts) =
            unseal(FORMAT, bytes.as_ref(), part)?;
        let Some((first, own)) = &mut all else {
            counts.audit.keep_at_most(settings.top);
            all = Some((settings, counts));
            continue;
        };
        if *first != settings {
            return Err(MergeError::Settings {
                part,
                found: settings.digest(),
                first: first.digest(),
                differs: "another number of sessions, or another time".to_owned(),
            });
        }
        own.audit.merge(counts.audit);
        own.too_old = own.too_old.saturating_add(counts.too_old);
        own.files = own.files.saturating_add(counts.files);
        own.noticed.merge(counts.noticed);
        // The ids are apart, because the JSON of a report leaves them out.
        let read = Reading { ids: counts.ids, ..counts.reading };
        let mut whole =
            Reading { ids: std::mem::take(&mut own.ids), ..std::mem::take(&mut own.reading) };
        whole.add(read);
        own.ids = std::mem::take(&mut whole.ids);
        own.reading = whole;
    }
    all.ok_or(MergeError::Empty)
}
