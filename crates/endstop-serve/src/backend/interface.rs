//! The trait of a place where runs live.

use super::events::{After, EventSource};
use super::future::{Answering, Waiting};
use super::request::{BranchRequest, RunRequest};
use super::run::{AgentInfo, Filter, RunInfo, Started, Stop, Totals};
use endstop::event::RequestId;
use endstop::{Approval, LimitChanges};
use serde_json::Value;

/// A place where runs live: it accepts them, drives them or has them driven, and stores them.
///
/// The server has checked that the client may use the agent of the run before it calls any of these.
/// A result that was returned must survive a crash of the process. An error of the kind
/// [`Unavailable`](super::ErrorKind::Unavailable) means that the request had no effect, or that
/// repeating it has none in addition.
pub trait Backend: Send + Sync {
    /// Returns the agents that can be started.
    fn agents(&self) -> Vec<AgentInfo>;

    /// Accepts a request for a run of a known agent. The same owner and key return the same run;
    /// owners do not share keys. `request` has no [origin](RunRequest::origin).
    fn start<'a>(
        &'a self,
        owner: &'a str,
        key: Option<&'a str>,
        request: RunRequest,
    ) -> Answering<'a, Started>;

    /// Accepts a request for a branch of a run, of the same agent. The key has the same meaning as for
    /// [`start`](Self::start).
    fn branch<'a>(
        &'a self,
        owner: &'a str,
        key: Option<&'a str>,
        run: &'a str,
        request: BranchRequest,
    ) -> Answering<'a, Started>;

    /// Returns a run; `None` if there is no such run.
    fn get<'a>(&'a self, run: &'a str) -> Answering<'a, Option<RunInfo>>;

    /// Returns the outcome of a run that has ended; `None` if there is none.
    fn outcome<'a>(&'a self, run: &'a str) -> Answering<'a, Option<Value>>;

    /// Returns the runs that a filter fits, the newest first.
    fn list(&self, filter: Filter) -> Answering<'_, Vec<RunInfo>>;

    /// Returns the events of a run after a place; `None` if the run has ended and there are none.
    fn follow<'a>(
        &'a self,
        run: &'a str,
        after: After,
    ) -> Answering<'a, Option<Box<dyn EventSource>>>;

    /// Returns the requests for approval that are open, each with `request_id`, `tool` and `arguments`.
    fn open_requests<'a>(&'a self, run: &'a str) -> Answering<'a, Vec<Value>>;

    /// Asks for the stop of a run. Does nothing if the run has ended; a terminate outranks a cancel.
    fn stop<'a>(&'a self, run: &'a str, stop: Stop) -> Answering<'a, ()>;

    /// Answers a request for approval. The first answer counts.
    fn answer<'a>(
        &'a self,
        run: &'a str,
        request: RequestId,
        approval: Approval,
    ) -> Answering<'a, ()>;

    /// Sends the model a message, which it reads before its next call.
    fn say<'a>(&'a self, run: &'a str, text: String) -> Answering<'a, ()>;

    /// Lowers limits of a run that works.
    fn set_limits<'a>(&'a self, run: &'a str, changes: LimitChanges) -> Answering<'a, ()>;

    /// Returns the counters and gauges.
    fn totals(&self) -> Answering<'_, Totals>;

    /// Checks that runs are accepted.
    fn ready(&self) -> Answering<'_, ()>;

    /// Refuses new runs, and prepares the runs of this process for its exit. `hurry` ends the grace
    /// period early.
    fn shut_down<'a>(&'a self, hurry: Waiting<'a, ()>) -> Waiting<'a, ()>;
}
