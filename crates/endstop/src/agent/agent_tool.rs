//! A tool that runs an agent: each call is a run of its own, under the run that called it.
//!
//! ```
//! use endstop::Agent;
//! use endstop::testkit::{ScriptedModel, Turn};
//! use endstop::agent::AgentTool;
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let researcher = Agent::builder(ScriptedModel::new([Turn::text("It is 42.")])).build().unwrap();
//! let research = AgentTool::new("research", "Finds out what is asked.", researcher);
//! let boss = [Turn::call("research", &serde_json::json!({"task": "What is it?"})), Turn::text("42.")];
//! let agent = Agent::builder(ScriptedModel::new(boss)).tool(research).build().unwrap();
//! assert!(agent.run("Ask around.").unwrap().await.is_success());
//! # }
//! ```
//!
//! - A cancel, a terminate, a deadline and the time limit of the call also stop the inner run, at
//!   any depth, and nothing of it outlives the call. After a `cancel` of the outer run has
//!   returned, the inner run starts no tool and no model call.
//! - The agent's own stops apply as well: `terminate` on it ends the inner runs, and later calls are
//!   refused. Any number of calls, and of other runs of the agent, can be in progress.
//! - The spending of the inner run counts towards the outer run's cost, tokens and ceilings, and is
//!   recorded in the outer run's journal, as soon as it occurs. Before each call the inner run
//!   reserves from what is left of those ceilings.
//! - The outer model receives the inner answer if the run succeeded. Otherwise it receives an error
//!   that names the termination, with the last text.

use super::session::Session;
use super::shared::Agent;
use crate::budget::SharedBudget;
use crate::tool::{Tool, ToolContext, ToolFuture, ToolOutput, text_argument};
use endstop_core::{Outcome, is_blank};
use serde_json::{Map, Value, json};
use std::fmt;
use std::pin::pin;
use std::time::Duration;

/// Default time limit of a call. It is long because the inner run has its own limits.
const TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// A tool that runs an agent.
pub struct AgentTool {
    name: String,
    description: String,
    agent: Agent,
    timeout: Duration,
}

impl AgentTool {
    /// Creates a tool with this name. Each call runs the agent on the argument `task`, in a new
    /// conversation.
    pub fn new(name: impl Into<String>, description: impl Into<String>, agent: Agent) -> AgentTool {
        AgentTool { name: name.into(), description: description.into(), agent, timeout: TIMEOUT }
    }

    /// Sets the time limit of a call (default: an hour). The agent's own limits apply as well.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }
}

impl fmt::Debug for AgentTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentTool").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Tool for AgentTool {
    fn name(&self) -> &str {
        &self.name
    }
    fn description(&self) -> &str {
        &self.description
    }
    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {"task": {"type": "string", "description": "What to do, in full."}},
            "required": ["task"]
        })
    }
    fn call(&self, arguments: Map<String, Value>, context: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            let task = match text_argument(&arguments, "task") {
                Ok(task) => task.to_owned(),
                Err(problem) => return problem,
            };
            let config = &self.agent.0.config;
            let bounded = context.budget().as_ref().is_some_and(SharedBudget::bounds_cost);
            let ceiling = "the budget of the run that calls it";
            if bounded && let Err(problem) = config.check_prices(ceiling) {
                return ToolOutput::error(format!("the agent: {problem}"));
            }
            told(&run(Session::within(&self.agent, &context), task, &context).await)
        })
    }
    fn parallel_safe(&self) -> bool {
        true
    }
    fn timeout(&self) -> Option<Duration> {
        Some(self.timeout)
    }
}

/// Terminates a session when its run is no longer needed; the outer run waits for its end.
struct Held<'a>(Session, &'a ToolContext);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.terminate();
        let session = self.0.clone();
        self.1.leave_behind(async move { session.settled().await });
    }
}

/// Runs the session for this call. Returns `Err` if it could not start. Its driver reports the
/// spending.
async fn run(session: Session, task: String, context: &ToolContext) -> Result<Outcome, String> {
    let session = Held(session, context);
    let handle = session.0.run(task).map_err(|problem| problem.to_string())?;
    let mut outcome = pin!(handle.outcome());
    let (mut cancelled, mut terminated) = (false, false);
    let outcome = loop {
        tokio::select! {
            // Stops first: an outcome that is ready at the same time may be the result of the stop.
            biased;
            () = context.cancelled(), if !cancelled => {
                cancelled = true;
                session.0.cancel();
            }
            () = context.terminated(), if !terminated => {
                terminated = true;
                session.0.terminate();
            }
            outcome = &mut outcome => break outcome,
        }
    };
    // The tools have ended with the run; this waits for the last of its tasks.
    session.0.settled().await;
    Ok(outcome)
}

fn told(ended: &Result<Outcome, String>) -> ToolOutput {
    let outcome = match ended {
        Ok(outcome) => outcome,
        Err(problem) => return ToolOutput::error(format!("the agent: {problem}")),
    };
    if outcome.is_success() {
        return ToolOutput::ok(outcome.answer().unwrap_or_default());
    }
    let said = outcome.deliverable.as_ref().map(|value| match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    });
    let said = said.or_else(|| outcome.last_text.clone());
    let decided = &outcome.decided_by;
    let mut problem = format!(
        "the agent ended as {} ({}): {}",
        outcome.termination,
        outcome.category().as_str(),
        decided.evidence
    );
    if let Some(said) = said.filter(|said| !is_blank(said)) {
        problem.push_str("\nIts last text, which is not an answer: ");
        problem.push_str(&said);
    }
    ToolOutput::error(problem)
}
