//! The lines of the control socket.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A question, as one line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    /// List the runs.
    // With braces, because unknown members of a unit variant are not refused.
    Runs {},
    /// Cancel a run.
    Cancel {
        /// The id of the run.
        run: String,
    },
    /// Change limits of a run.
    Limits {
        /// The id of the run.
        run: String,
        /// The new values, by name as in endstop.toml; the others stay.
        limits: Map<String, Value>,
    },
}

/// An answer, as one line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    /// The runs.
    Runs(Vec<LiveRun>),
    /// The request was carried out.
    Done,
    /// The process has no live run with this id.
    UnknownRun,
    /// The request is not supported by this kind of run.
    NotSupported(String),
    /// The question or a value in it is not valid.
    Invalid(String),
}

/// A live run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LiveRun {
    pub(crate) run_id: String,
    /// The command that drives it: `run`, `guard`, `listen` or `serve`.
    pub(crate) kind: String,
    /// The profile of a run of a standing proxy, or the agent of a run of `serve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) profile: Option<String>,
    /// `waiting`, `calling`, `tools`, or how it ended; of a run of `serve`: `queued`, `running` or
    /// `parked`.
    pub(crate) phase: String,
    pub(crate) turns: u32,
    /// `None` if no price is known.
    pub(crate) cost_usd: Option<f64>,
    pub(crate) elapsed_ms: u64,
    pub(crate) calls_in_flight: usize,
    /// The process.
    pub(crate) pid: u32,
}

/// The runs of a process.
pub(crate) trait Controlled: Send + Sync + 'static {
    /// Lists the runs.
    fn runs(&self) -> Vec<LiveRun>;
    /// Cancels a run.
    fn cancel(&self, run: &str) -> Reply;
    /// Changes limits of a run.
    fn limits(&self, run: &str, limits: &Map<String, Value>) -> Reply;

    /// Answers a question.
    fn reply(&self, request: &Request) -> Reply {
        match request {
            Request::Runs {} => Reply::Runs(self.runs()),
            Request::Cancel { run } => self.cancel(run),
            Request::Limits { run, limits } => self.limits(run, limits),
        }
    }
}
