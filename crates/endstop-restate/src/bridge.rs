//! The journal of a run whose engine stores the steps: it hands each batch of records to the driver
//! of the steps, and waits until the engine has them.
//!
//! ```text
//! agent ─► append(records) ─► Request ─► next step ─► the engine has it ─► Ok(())
//! ```

use crate::fork::Fork;
use crate::step::Past;
use endstop::Outcome;
use endstop::journal::{
    Journal, JournalError, JournalErrorKind, Record, RecordedRun, RunHeader, RunJournal,
};
use endstop::provider::KnownKeys;
use serde_json::Value;
use std::fmt;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::mpsc::UnboundedSender;

/// Something that the run wants stored. The sender of the answer is dropped if it cannot be.
pub(crate) enum Request {
    Append(Vec<Record>, SyncSender<()>),
    Ended(String, SyncSender<()>),
    /// A letter was refused, which no event of the run shows.
    Refused,
}

/// The journal of one run on an engine, for [`AgentBuilder::journal`](endstop::AgentBuilder::journal).
/// Cheap to clone; clones are the same journal.
#[derive(Clone)]
pub struct EngineJournal(Arc<Inner>);

struct Inner {
    past: Arc<Past>,
    /// The other run, if the run begins as a branch.
    fork: Option<Fork>,
    requests: UnboundedSender<Request>,
    state: Mutex<State>,
}

struct State {
    /// The header of a run that has started, until a step contains it.
    header: Option<String>,
    hidden: KnownKeys,
}

impl fmt::Debug for EngineJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineJournal").field("steps", &self.0.past.steps()).finish_non_exhaustive()
    }
}

impl EngineJournal {
    pub(crate) fn new(
        past: Arc<Past>,
        fork: Option<Fork>,
        requests: UnboundedSender<Request>,
    ) -> EngineJournal {
        let state = State { header: None, hidden: endstop::process::environment_secrets() };
        EngineJournal(Arc::new(Inner { past, fork, requests, state: Mutex::new(state) }))
    }

    /// Removes these secrets, too, from everything that is stored from now on.
    pub(crate) fn hide(&self, keys: &KnownKeys) {
        let mut state = self.state();
        state.hidden = state.hidden.and(keys);
    }

    /// Takes the header, the first time after the run has started.
    pub(crate) fn take_header(&self) -> Option<String> {
        self.state().header.take()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the decisions about letters stored.
    pub(crate) fn refused(&self) {
        // Without a receiver the attempt is over, and the next one decides again.
        let _ = self.0.requests.send(Request::Refused);
    }

    fn ask(&self, request: impl FnOnce(SyncSender<()>) -> Request) -> Result<(), JournalError> {
        let gone = || {
            let problem = "this worker no longer drives the run";
            JournalError::new("engine", problem, JournalErrorKind::Busy)
        };
        // With room for one answer, because the attempt sends it from asynchronous code and must
        // not block.
        let (stored, answer) = sync_channel(1);
        self.0.requests.send(request(stored)).map_err(|_| gone())?;
        // A thread of the runtime must not block without telling the runtime, because the task that
        // answers may be queued behind the one that waits.
        let multi = Handle::try_current()
            .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
        let wait = || answer.recv().map_err(|_| gone());
        if multi { tokio::task::block_in_place(wait) } else { wait() }
    }

    fn clean(&self, text: &str) -> String {
        let hidden = self.state().hidden.clone();
        clean(&hidden, text)
    }
}

/// Returns a record without secrets. As in every journal, its member `redacted` counts the cuts,
/// because a resumed run must know that its conversation differs from the real one.
fn clean(hidden: &KnownKeys, text: &str) -> String {
    let Some((mut value, cuts)) = hidden.out_of_json(text) else { return text.to_owned() };
    if let Value::Object(members) = &mut value {
        let before = members.get("redacted").and_then(Value::as_u64).unwrap_or_default();
        members.insert("redacted".to_owned(), before.saturating_add(cuts).into());
    }
    value.to_string()
}

impl Journal for EngineJournal {
    fn begin(&self, header: &RunHeader) -> Result<Box<dyn RunJournal>, JournalError> {
        let text = header.to_json().map_err(|error| {
            let problem = format!("the header of the run cannot be stored: {error}");
            JournalError::new("engine", problem, JournalErrorKind::Io)
        })?;
        let text = self.clean(&text);
        // Stored with the first records: until then nothing of the run is performed.
        self.state().header = Some(text);
        Ok(Box::new(Log(self.clone())))
    }

    fn load(&self, run: &str) -> Result<RecordedRun, JournalError> {
        match &self.0.fork {
            Some(fork) if fork.origin.run == run => fork.recorded(),
            _ => self.0.past.recorded(),
        }
    }

    fn resume(&self, _: &str) -> Result<Box<dyn RunJournal>, JournalError> {
        // The engine runs one attempt of a workflow at a time, so no other process drives the run.
        Ok(Box::new(Log(self.clone())))
    }

    fn hidden(&self) -> KnownKeys {
        self.state().hidden.clone()
    }
}

/// The record of the run.
struct Log(EngineJournal);

impl RunJournal for Log {
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        let hidden = self.0.hidden();
        let records = records.iter().map(|record| Record {
            event: clean(&hidden, &record.event),
            effects: record.effects.as_deref().map(|effects| clean(&hidden, effects)),
            ..record.clone()
        });
        let records = records.collect();
        self.0.ask(|stored| Request::Append(records, stored))
    }

    fn ended(&mut self, _: &Outcome, text: &str) -> Result<(), JournalError> {
        let text = self.0.clean(text);
        self.0.ask(|stored| Request::Ended(text, stored))
    }
}
