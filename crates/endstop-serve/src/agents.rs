//! The named agents of a server: all that a client may start.
//!
//! ```text
//! let agents = Agents::new([("reviewer".to_owned(), Arc::new(source) as Arc<dyn AgentSource>)]);
//! let built = agents.get("reviewer").unwrap().build(&plan)?;
//! ```

use endstop::journal::SqliteJournal;
use endstop::wire::redact::KnownKeys;
use endstop::{Agent, Limits};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The configuration of one run: its id, its journal, and its limits after the client's changes.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// Id of the run.
    pub run_id: String,
    /// The task, as the client wrote it.
    pub task: String,
    /// The limits: those of the agent, or lower ones.
    pub limits: Limits,
    /// The journal that stores the run.
    pub journal: SqliteJournal,
}

/// An agent that was built for one run.
pub struct BuiltAgent {
    /// The agent.
    pub agent: Agent,
    /// Secrets that must not appear in events, in addition to those of the agent's provider.
    pub secrets: KnownKeys,
    /// Resources that are released when the run has ended or is [parked](endstop::park), for example
    /// its connections.
    pub resources: Box<dyn Any + Send>,
    /// Called when the run has ended, after the resources were released, but not when it is parked,
    /// for example to remove its folder. May block.
    pub at_end: Option<AtEnd>,
}

/// Work at the end of a run.
pub type AtEnd = Box<dyn FnOnce() + Send>;

impl fmt::Debug for BuiltAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuiltAgent").field("agent", &self.agent).finish_non_exhaustive()
    }
}

/// Builds the agent of each run. Clients choose a source by its name and can set nothing else but
/// the task and lower limits.
pub trait AgentSource: Send + Sync {
    /// Returns the limits of the agent, which a request may lower.
    fn limits(&self) -> Limits;

    /// Returns the name of the model, for display.
    fn model(&self) -> Option<String> {
        None
    }

    /// Checks lower limits before a run with them is accepted. The default accepts all.
    ///
    /// # Errors
    /// Describes why the agent cannot run with these limits.
    fn check(&self, limits: &Limits) -> Result<(), String> {
        let _ = limits;
        Ok(())
    }

    /// Builds the agent of a run. It must use the journal and the limits of the plan, and report
    /// approvals as events
    /// ([`AgentBuilder::approval_events`](endstop::AgentBuilder::approval_events)). Called again
    /// with the same id if the run is resumed after a restart or a park. May block.
    ///
    /// # Errors
    /// Describes why the agent cannot be built. The run then ends as `error_during_execution`.
    fn build(&self, plan: &RunPlan) -> Result<BuiltAgent, String>;
}

/// The agents of a server, by name. Cheap to clone.
#[derive(Clone, Default)]
pub struct Agents(Arc<BTreeMap<String, Arc<dyn AgentSource>>>);

impl fmt::Debug for Agents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl Agents {
    /// Collects named agents.
    pub fn new(agents: impl IntoIterator<Item = (String, Arc<dyn AgentSource>)>) -> Agents {
        Agents(Arc::new(agents.into_iter().collect()))
    }

    /// Returns the agent with this name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn AgentSource>> {
        self.0.get(name)
    }

    /// Returns the names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}
