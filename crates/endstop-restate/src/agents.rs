//! The named agents of a worker: all that a client may start.

use crate::bridge::EngineJournal;
use endstop::provider::KnownKeys;
use endstop::{Agent, Limits, NanoUsd};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The configuration of one attempt at a run.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// Id of the run: the key of its workflow.
    pub run_id: String,
    /// The task, as the client wrote it.
    pub task: String,
    /// The limits: those of the agent, or lower ones.
    pub limits: Limits,
    /// The journal that stores the run with the engine.
    pub journal: EngineJournal,
}

/// An agent that was built for one attempt at a run.
pub struct BuiltAgent {
    /// The agent.
    pub agent: Agent,
    /// Secrets that must not be stored, in addition to those of the agent's provider.
    pub secrets: KnownKeys,
    /// Resources that are released when the attempt is over, for example a folder.
    pub resources: Box<dyn Any + Send>,
}

impl fmt::Debug for BuiltAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuiltAgent").field("agent", &self.agent).finish_non_exhaustive()
    }
}

/// A ceiling that the runs of several workers share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetCeiling {
    /// Name of the budget: the key of its virtual object.
    pub name: String,
    /// The ceiling on the cost of all runs together.
    pub usd: NanoUsd,
}

/// Builds the agent of each attempt at a run. Clients choose a source by its name and can set nothing
/// else but the task and lower limits.
pub trait AgentSource: Send + Sync {
    /// Returns the limits of the agent, which a request may lower.
    fn limits(&self) -> Limits;

    /// Returns the budget that the runs of the agent share with others, if any. The ceiling on the
    /// cost of each run is reserved in it when the run begins.
    fn budget(&self) -> Option<BudgetCeiling> {
        None
    }

    /// Builds the agent of a run. It must use the journal and the limits of the plan, and park calls
    /// that need approval ([`ParkApprovals`](endstop::hook::ParkApprovals)). Called again, also by
    /// another worker, if the worker of the run died. May block.
    ///
    /// # Errors
    /// Describes why the agent cannot be built. The run then ends as `error_during_execution`.
    fn build(&self, plan: &RunPlan) -> Result<BuiltAgent, String>;
}

/// The agents of a worker, by name. Cheap to clone.
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
