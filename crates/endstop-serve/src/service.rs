//! The runs as a client sees them: those of the agents that it may use.

use crate::access::Client;
use crate::backend::{
    After, AgentInfo, Backend, BackendError, BranchRequest, EventSource, Filter, RunInfo,
    RunRequest, Started, Stop, Totals, Waiting,
};
use endstop::event::RequestId;
use endstop::{Approval, LimitChanges};
use serde_json::Value;
use std::sync::Arc;

/// The runs of a backend, behind the check of the client. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Service(Arc<dyn Backend>);

impl Service {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Service {
        Service(backend)
    }

    /// Returns the agents that the client may use.
    pub(crate) fn agents(&self, client: &Client) -> Vec<AgentInfo> {
        let mut agents = self.0.agents();
        // An agent that the token may not use must not be visible either.
        agents.retain(|agent| client.may_use(&agent.name));
        agents
    }

    /// `true` if the client may use this agent, and it exists.
    pub(crate) fn has_agent(&self, client: &Client, name: &str) -> bool {
        client.may_use(name) && self.0.agents().iter().any(|agent| agent.name == name)
    }

    /// Starts a run.
    pub(crate) async fn start(
        &self,
        client: &Client,
        key: Option<&str>,
        request: RunRequest,
    ) -> Result<Started, BackendError> {
        if !self.has_agent(client, &request.agent) {
            return Err(BackendError::unknown_agent());
        }
        self.0.start(owner(client), key, request).await
    }

    /// Starts a branch of a run.
    pub(crate) async fn branch(
        &self,
        client: &Client,
        key: Option<&str>,
        run: &str,
        request: BranchRequest,
    ) -> Result<Started, BackendError> {
        self.get(client, run).await?;
        self.0.branch(owner(client), key, run, request).await
    }

    /// Returns a run that the client may see, if there is one.
    pub(crate) async fn find(
        &self,
        client: &Client,
        run: &str,
    ) -> Result<Option<RunInfo>, BackendError> {
        let found = self.0.get(run).await?;
        Ok(found.filter(|run| client.may_use(&run.request.agent)))
    }

    /// Returns a run that the client may see.
    pub(crate) async fn get(&self, client: &Client, run: &str) -> Result<RunInfo, BackendError> {
        self.find(client, run).await?.ok_or_else(BackendError::unknown_run)
    }

    /// Returns the outcome of a run, which the caller has looked up.
    pub(crate) async fn outcome(&self, run: &RunInfo) -> Result<Option<Value>, BackendError> {
        self.0.outcome(&run.id).await
    }

    /// Returns the runs that the client may see and a filter fits, the newest first.
    pub(crate) async fn list(
        &self,
        client: &Client,
        filter: Filter,
    ) -> Result<Vec<RunInfo>, BackendError> {
        let mut filter = filter;
        if let Some(bound) = &client.agents {
            let asked = filter.agents.take();
            let visible = bound
                .iter()
                .filter(|agent| asked.as_ref().is_none_or(|asked| asked.contains(agent)));
            filter.agents = Some(visible.cloned().collect());
        }
        self.0.list(filter).await
    }

    /// Returns the events of a run, which the caller has looked up.
    pub(crate) async fn follow(
        &self,
        run: &RunInfo,
        after: After,
    ) -> Result<Option<Box<dyn EventSource>>, BackendError> {
        self.0.follow(&run.id, after).await
    }

    /// Returns the open requests of a run, which the caller has looked up.
    pub(crate) async fn open_requests(&self, run: &RunInfo) -> Result<Vec<Value>, BackendError> {
        self.0.open_requests(&run.id).await
    }

    /// Stops a run, and returns it.
    pub(crate) async fn stop(
        &self,
        client: &Client,
        run: &str,
        stop: Stop,
    ) -> Result<RunInfo, BackendError> {
        self.get(client, run).await?;
        self.0.stop(run, stop).await?;
        self.get(client, run).await
    }

    /// Answers a request for approval of a run, and returns the run.
    pub(crate) async fn answer(
        &self,
        client: &Client,
        run: &str,
        request: RequestId,
        approval: Approval,
    ) -> Result<RunInfo, BackendError> {
        self.get(client, run).await?;
        self.0.answer(run, request, approval).await?;
        self.get(client, run).await
    }

    /// Sends a message to a run, and returns the run.
    pub(crate) async fn say(
        &self,
        client: &Client,
        run: &str,
        text: String,
    ) -> Result<RunInfo, BackendError> {
        let found = self.get(client, run).await?;
        self.0.say(run, text).await?;
        Ok(found)
    }

    /// Lowers limits of a run, and returns the run.
    pub(crate) async fn set_limits(
        &self,
        client: &Client,
        run: &str,
        changes: LimitChanges,
    ) -> Result<RunInfo, BackendError> {
        let found = self.get(client, run).await?;
        self.0.set_limits(run, changes).await?;
        Ok(found)
    }

    /// Returns the gauges, and the counters of the agents that the client may use.
    pub(crate) async fn totals(&self, client: &Client) -> Result<Totals, BackendError> {
        let mut totals = self.0.totals().await?;
        totals.started.retain(|agent, _| client.may_use(agent));
        totals.ended.retain(|(agent, _), _| client.may_use(agent));
        totals.cost_usd.retain(|agent, _| client.may_use(agent));
        Ok(totals)
    }

    /// Checks that runs are accepted.
    pub(crate) async fn ready(&self) -> Result<(), BackendError> {
        self.0.ready().await
    }

    /// Prepares the runs of this process for its exit.
    pub(crate) async fn shut_down(&self, hurry: Waiting<'_, ()>) {
        self.0.shut_down(hurry).await;
    }
}

/// Returns the owner of a client's keys: they belong to a token, so that one client cannot read the run of
/// another by its key.
fn owner(client: &Client) -> &str {
    client.name.as_deref().unwrap_or_default()
}
