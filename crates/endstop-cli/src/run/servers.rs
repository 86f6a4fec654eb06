//! The connected MCP servers of a run.

use crate::failure::{Failure, Result};
use crate::output;
use endstop::mcp::{McpServer, McpTools};
use endstop::tool::Tool;
use endstop::wire::redact::KnownKeys;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::task::JoinSet;

/// The connected servers of a run. Their processes are killed on drop.
#[derive(Default)]
pub(crate) struct Servers {
    all: Vec<Arc<McpTools>>,
    secrets: KnownKeys,
}

impl Servers {
    /// Connects to all servers at the same time; the first one that cannot be used is the error.
    pub(crate) async fn connect(servers: impl Iterator<Item = McpServer>) -> Result<Servers> {
        let mut secrets = KnownKeys::default();
        // Dropping the set aborts the other connections if one fails.
        let mut connecting = JoinSet::new();
        for (at, server) in servers.enumerate() {
            secrets = secrets.and(&server.known_keys());
            connecting.spawn(async move { (at, server.connect().await) });
        }
        // Ordered by position in the settings, because they finish connecting in any order and the
        // tools must be sent in a stable order.
        let mut all = BTreeMap::new();
        while let Some(one) = connecting.join_next().await {
            let (at, connected) = one.map_err(|error| Failure::fault(format!("--mcp: {error}")))?;
            let tools = connected.map_err(|error| Failure::usage(error.to_string()))?;
            for problem in tools.left_out() {
                output::note(&format!("⚠ MCP server `{}`: {problem}", tools.name()));
            }
            all.insert(at, Arc::new(tools));
        }
        Ok(Servers { all: all.into_values().collect(), secrets })
    }

    pub(crate) fn tools(&self) -> impl Iterator<Item = Arc<dyn Tool>> + '_ {
        self.all.iter().flat_map(|server| server.tools())
    }

    /// The values of the servers' headers.
    pub(crate) fn secrets(&self) -> &KnownKeys {
        &self.secrets
    }

    /// Closes all servers at the same time, and returns when their processes have ended.
    pub(crate) async fn close(&self) {
        let mut closing = JoinSet::new();
        for server in self.all.iter().map(Arc::clone) {
            closing.spawn(async move { server.close().await });
        }
        // No timeout here, because each close has its own.
        while closing.join_next().await.is_some() {}
    }
}
