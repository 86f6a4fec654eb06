//! The list of the runs in the store, which every server and worker of the store can read and write.
//!
//! ```
//! use endstop_restate::{Accepted, Catalog, Decision, RunRequest, Store};
//! let folder = tempfile::tempdir()?;
//! let catalog = Catalog::of(&Store::open(folder.path())?);
//! let run = Accepted::new(RunRequest::default(), 1_700_000_000_000);
//! assert_eq!(catalog.accept("r1", &run)?, None); // `Some` with the first request, if there was one
//! assert!(catalog.list()?.is_empty(), "it is not decided yet");
//! assert_eq!(catalog.decide("r1", Decision::Accepted)?, Decision::Accepted);
//! assert_eq!(catalog.decide("r1", Decision::Withdrawn)?, Decision::Accepted);
//! assert_eq!(catalog.list()?.len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A server writes a request here before it sends it to the engine. If the engine does not answer, the
//! server cannot know if it has the request. So one file decides: either a server or a worker notes
//! `accepted`, or a server notes `withdrawn`, and the first note counts. A worker does not begin a run
//! that is withdrawn, so a client that got an error can repeat its request, and no run is lost or
//! performed twice.
//!
//! ```text
//! FOLDER/index/NUMBER-RUN           the accepted runs in their order
//! FOLDER/runs/RUN/request.json      the request, with its owner and its time
//! FOLDER/runs/RUN/decision.json     accepted or withdrawn
//! FOLDER/runs/RUN/started.json      the invocation that began the run
//! FOLDER/runs/RUN/stop-cancel       a client has asked for this stop
//! FOLDER/runs/RUN/head.json         the last step that the engine has
//! FOLDER/runs/RUN/ended.json        the summary of the ending
//! ```

use crate::files::{create_once, private_folder, read, replace};
use crate::request::{RunRequest, Stop};
use crate::step::Past;
use crate::store::{Store, StoreError, Tip};
use endstop::{Category, NanoUsd, Outcome, Termination};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Digits of a number in the name of a file, so that names sort as numbers.
const DIGITS: usize = 19;

/// A request for a run, as a server or a worker has accepted it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accepted {
    /// Place in the order in which runs were accepted. Larger is newer.
    pub number: i64,
    /// The request, without the secrets of the server's environment.
    pub request: RunRequest,
    /// The name of the token that asked for the run; empty without one.
    #[serde(default)]
    pub owner: String,
    /// Hash of the request as the client sent it, to recognise a repeated one.
    #[serde(default)]
    pub digest: String,
    /// Unix time in milliseconds.
    pub created_ms: u64,
}

impl Accepted {
    /// Describes a request that is accepted at this time, in Unix milliseconds.
    pub fn new(request: RunRequest, created_ms: u64) -> Accepted {
        Accepted { number: 0, request, owner: String::new(), digest: String::new(), created_ms }
    }
}

/// The decision about a request that was written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The engine has it.
    Accepted,
    /// The client got an error. No worker begins the run.
    Withdrawn,
}

/// The start of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Began {
    /// The engine's id of the workflow that began it.
    pub invocation: String,
    /// Unix time in milliseconds.
    pub at_ms: u64,
}

/// The state of a run after its last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadState {
    /// The run works.
    Running,
    /// The run waits for a decision.
    Parked,
    /// The run has ended.
    Ended,
}

/// The last step that the engine has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The step.
    #[serde(flatten)]
    pub tip: Tip,
    /// The state after it.
    pub state: HeadState,
}

/// The summary of an ending.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The termination, for example `stop`.
    pub termination: String,
    /// The termination's category, for example `success`.
    pub category: String,
    /// The evidence.
    pub evidence: String,
    /// Number of turns.
    pub turns: u32,
    /// The known cost in US dollars; `None` if no part of the cost is known.
    pub cost_usd: Option<f64>,
    /// Unix time in milliseconds.
    pub ended_ms: u64,
    /// The step with the outcome.
    pub tip: Tip,
}

impl Summary {
    /// Summarises an outcome, which is JSON. One that cannot be read is never a success.
    pub fn of(outcome: &str, tip: Tip, ended_ms: u64) -> Summary {
        let read = endstop::core::bounded_json::from_str::<Outcome>(outcome);
        let (termination, category, evidence, turns, cost_usd) = match read {
            Ok(outcome) => (
                outcome.termination.to_string(),
                outcome.category().to_string(),
                outcome.decided_by.evidence.clone(),
                outcome.turns,
                outcome.known_cost().map(NanoUsd::to_usd),
            ),
            Err(error) => (
                Termination::ErrorDuringExecution.to_string(),
                Category::Retryable.to_string(),
                format!("its outcome cannot be read: {error}"),
                0,
                None,
            ),
        };
        Summary { termination, category, evidence, turns, cost_usd, ended_ms, tip }
    }
}

/// A run in the list.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The request.
    pub accepted: Accepted,
    /// The decision; `None` while the engine is asked.
    pub decision: Option<Decision>,
    /// The start, if a worker has started it.
    pub began: Option<Began>,
    /// The last step, if there is one.
    pub head: Option<Head>,
    /// The ending, if there is one.
    pub ended: Option<Summary>,
    /// The stop that a client has asked for.
    pub stop: Option<Stop>,
}

/// The list of the runs in a store. Cheap to clone. All methods block.
#[derive(Clone, Debug)]
pub struct Catalog {
    store: Store,
    index: PathBuf,
}

impl Catalog {
    /// Returns the list of a store.
    pub fn of(store: &Store) -> Catalog {
        Catalog { store: store.clone(), index: store.folder().join("index") }
    }

    /// Writes a request down, unless there is one under this id. Returns the earlier one.
    ///
    /// # Errors
    /// The id is not valid, or the store cannot be written.
    pub fn accept(&self, run: &str, accepted: &Accepted) -> Result<Option<Accepted>, StoreError> {
        let folder = self.store.folder_of(run)?;
        private_folder(&folder).map_err(|source| StoreError::io(&folder, source))?;
        let number = if accepted.number == 0 {
            number_at(accepted.created_ms, run)
        } else {
            accepted.number
        };
        let accepted = Accepted { number, ..accepted.clone() };
        let path = folder.join("request.json");
        if once(&path, &accepted)? {
            return Ok(None);
        }
        let first = json::<Accepted>(&path)?;
        first.map(Some).ok_or_else(|| StoreError::io(&path, io::ErrorKind::NotFound.into()))
    }

    /// Decides about a request that was written down, and lists an accepted run. Returns the decision
    /// that counts, which is the first one.
    ///
    /// # Errors
    /// There is no such request, or the store cannot be written.
    pub fn decide(&self, run: &str, decision: Decision) -> Result<Decision, StoreError> {
        let folder = self.store.folder_of(run)?;
        let path = folder.join("decision.json");
        let decision = if once(&path, &decision)? {
            decision
        } else {
            let first = json::<Decision>(&path)?;
            first.ok_or_else(|| StoreError::io(&path, io::ErrorKind::NotFound.into()))?
        };
        if decision == Decision::Accepted {
            let path = folder.join("request.json");
            let accepted = json::<Accepted>(&path)?
                .ok_or_else(|| StoreError::io(&path, io::ErrorKind::NotFound.into()))?;
            self.enter(run, accepted.number)?;
        }
        Ok(decision)
    }

    /// Adds a run to the index.
    fn enter(&self, run: &str, number: i64) -> Result<(), StoreError> {
        let path = self.index.join(format!("{number:0DIGITS$}-{run}"));
        if path.exists() {
            return Ok(());
        }
        private_folder(&self.index)
            .and_then(|()| fs::write(&path, b""))
            .map_err(|source| StoreError::io(&path, source))
    }

    /// Notes that an invocation begins the run. Returns the first one.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn begin(&self, run: &str, began: &Began) -> Result<Began, StoreError> {
        let path = self.store.folder_of(run)?.join("started.json");
        if once(&path, began)? {
            return Ok(began.clone());
        }
        json::<Began>(&path)?.ok_or_else(|| StoreError::io(&path, io::ErrorKind::NotFound.into()))
    }

    /// Notes that a client has asked for a stop.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn stopping(&self, run: &str, stop: Stop) -> Result<(), StoreError> {
        let path = self.store.folder_of(run)?.join(stop_file(stop));
        create_once(&path, b"").map(drop).map_err(|source| StoreError::io(&path, source))
    }

    /// Notes the last step that the engine has. A step before the noted one changes nothing: a worker
    /// that was suspended for a while must not hide the later steps of another one.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn head(&self, run: &str, head: &Head) -> Result<(), StoreError> {
        let path = self.store.folder_of(run)?.join("head.json");
        if json::<Head>(&path)?.is_some_and(|known| known.tip.number > head.tip.number) {
            return Ok(());
        }
        let text = serde_json::to_vec(head).unwrap_or_default();
        replace(&path, &text).map_err(|source| StoreError::io(&path, source))
    }

    /// Notes the ending of a run, once.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn ended(&self, run: &str, summary: &Summary) -> Result<(), StoreError> {
        let path = self.store.folder_of(run)?.join("ended.json");
        let first = if once(&path, summary)? { None } else { json::<Summary>(&path)? };
        let tip = first.unwrap_or_else(|| summary.clone()).tip;
        // After the summary, because readers look at the head only, and then at the summary.
        self.head(run, &Head { tip, state: HeadState::Ended })
    }

    /// Returns the last step of a run that the engine has.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn head_of(&self, run: &str) -> Result<Option<Head>, StoreError> {
        json(&self.store.folder_of(run)?.join("head.json"))
    }

    /// Returns the steps of a run that the engine has; none if the run has not begun, or was removed.
    ///
    /// # Errors
    /// The store cannot be read, or a step is missing or has changed.
    pub fn past_of(&self, run: &str) -> Result<Past, StoreError> {
        let mut past = Past::default();
        // Not all steps in the folder: those of a worker that was cut off are not part of the run.
        if let Some(head) = self.head_of(run)? {
            self.store.steps_to(run, &head.tip, None)?.iter().for_each(|step| past.take(step));
        }
        Ok(past)
    }

    /// Returns a run; `None` if there is no request for it.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn get(&self, run: &str) -> Result<Option<Entry>, StoreError> {
        let folder = self.store.folder_of(run)?;
        let Some(accepted) = json(&folder.join("request.json"))? else { return Ok(None) };
        // In this order, because a terminate outranks an earlier cancel, whose file stays.
        let stops = [Stop::Terminate, Stop::Cancel];
        Ok(Some(Entry {
            accepted,
            decision: json(&folder.join("decision.json"))?,
            began: json(&folder.join("started.json"))?,
            head: json(&folder.join("head.json"))?,
            ended: json(&folder.join("ended.json"))?,
            stop: stops.into_iter().find(|stop| folder.join(stop_file(*stop)).exists()),
        }))
    }

    /// Returns the numbers and ids of the accepted runs, the newest first.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn list(&self) -> Result<Vec<(i64, String)>, StoreError> {
        let failed = |source| StoreError::io(&self.index, source);
        let entries = match fs::read_dir(&self.index) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut all = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            let parts = name.to_str().and_then(|name| name.split_once('-'));
            // Other files, for example of a backup, are not runs.
            let Some((number, run)) = parts.filter(|(number, _)| number.len() == DIGITS) else {
                continue;
            };
            if let Ok(number) = number.parse() {
                all.push((number, run.to_owned()));
            }
        }
        all.sort_unstable_by(|one, other| other.cmp(one));
        Ok(all)
    }
}

/// Returns the number of a run that is accepted at this time: the time, and digits of its id, so that runs of
/// the same millisecond have different numbers.
fn number_at(created_ms: u64, run: &str) -> i64 {
    let digits = crate::step::hash(run.as_bytes());
    // Five digits are the 20 bits by which the time is shifted.
    let digits = u64::from_str_radix(digits.get(..5).unwrap_or_default(), 16).unwrap_or(0);
    // 2^43 ms is the year 2248, so the sum is below 2^63.
    i64::try_from((created_ms.min(1 << 43) << 20) | digits).unwrap_or(i64::MAX)
}

fn stop_file(stop: Stop) -> &'static str {
    match stop {
        Stop::Cancel => "stop-cancel",
        Stop::Terminate => "stop-terminate",
    }
}

/// Writes a value as JSON, unless the file exists.
fn once(path: &Path, value: &impl Serialize) -> Result<bool, StoreError> {
    let text = serde_json::to_vec(value).map_err(|error| StoreError::io(path, error.into()))?;
    create_once(path, &text).map_err(|source| StoreError::io(path, source))
}

/// Reads a value; `None` if the file does not exist.
fn json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, StoreError> {
    let text = read(path).map_err(|source| StoreError::io(path, source))?;
    let parsed = text.map(|text| serde_json::from_slice(&text)).transpose();
    parsed.map_err(|error| StoreError::io(path, error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> (tempfile::TempDir, Catalog) {
        let folder = tempfile::tempdir().unwrap();
        let catalog = Catalog::of(&Store::open(folder.path()).unwrap());
        (folder, catalog)
    }

    fn tip(number: u64) -> Tip {
        Tip { number, sha256: format!("{number:064x}") }
    }

    #[test]
    fn first_decision_counts() {
        let (_folder, catalog) = catalog();
        let accepted = Accepted::new(RunRequest::default(), 5);
        assert_eq!(catalog.accept("a", &accepted).unwrap(), None);
        assert_eq!(catalog.decide("a", Decision::Withdrawn).unwrap(), Decision::Withdrawn);
        assert_eq!(catalog.decide("a", Decision::Accepted).unwrap(), Decision::Withdrawn);
        assert!(catalog.list().unwrap().is_empty());
        let again = Accepted::new(RunRequest { task: "t".to_owned(), ..RunRequest::default() }, 9);
        let first = catalog.accept("a", &again).unwrap().unwrap();
        assert_eq!((first.created_ms, first.request.task.as_str()), (5, ""));
    }

    #[test]
    fn list_is_newest_first() {
        let (_folder, catalog) = catalog();
        for (run, created_ms) in [("a", 5), ("b-1", 7), ("c", 6)] {
            catalog.accept(run, &Accepted::new(RunRequest::default(), created_ms)).unwrap();
            catalog.decide(run, Decision::Accepted).unwrap();
            catalog.decide(run, Decision::Accepted).unwrap();
        }
        let runs: Vec<String> = catalog.list().unwrap().into_iter().map(|(_, run)| run).collect();
        assert_eq!(runs, ["b-1", "c", "a"]);
    }

    #[test]
    fn late_head_hides_no_step() {
        let (_folder, catalog) = catalog();
        catalog.accept("a", &Accepted::new(RunRequest::default(), 5)).unwrap();
        let summary = Summary::of("{}", tip(20), 9);
        assert_eq!(summary.termination, "error_during_execution");
        catalog.ended("a", &summary).unwrap();
        catalog.head("a", &Head { tip: tip(5), state: HeadState::Running }).unwrap();
        let head = catalog.head_of("a").unwrap().unwrap();
        assert_eq!((head.tip.number, head.state), (20, HeadState::Ended));
        assert_eq!(catalog.get("a").unwrap().unwrap().ended, Some(summary));
    }

    #[test]
    fn ids_cannot_leave_the_folder() {
        let (_folder, catalog) = catalog();
        assert!(catalog.get("../a").is_err());
        assert!(catalog.accept("a/b", &Accepted::new(RunRequest::default(), 5)).is_err());
        assert_eq!(catalog.get("unknown").unwrap(), None);
    }
}
