//! The source of the agents that sessions run.

use endstop::Agent;
use endstop::mcp::McpServer;
use endstop::wire::redact::KnownKeys;
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;

/// The request of an editor for a session.
#[derive(Debug)]
#[non_exhaustive]
pub struct SessionRequest {
    /// The folder that the session works in: an absolute path.
    pub dir: PathBuf,
    /// The MCP servers that the editor passes on. Not connected yet.
    pub servers: Vec<McpServer>,
}

/// The work that ends a session, for example the shutdown of its MCP servers.
pub(crate) type Closing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An agent for one session, and its resources.
pub struct OpenedSession {
    pub(crate) agent: Agent,
    pub(crate) secrets: KnownKeys,
    pub(crate) closing: Option<Closing>,
}

impl OpenedSession {
    /// Creates a session of this agent. No other session may use the agent, because the session
    /// terminates it when it is closed. Build it with
    /// [`approval_events`](endstop::AgentBuilder::approval_events), so that the editor is asked.
    pub fn new(agent: Agent) -> OpenedSession {
        OpenedSession { agent, secrets: KnownKeys::default(), closing: None }
    }

    /// Removes these secrets from everything that is sent to the editor. Credentials of a known
    /// format are always removed.
    #[must_use]
    pub fn hide(mut self, secrets: KnownKeys) -> OpenedSession {
        self.secrets = secrets;
        self
    }

    /// Awaits this when the session is closed, after its runs have ended.
    #[must_use]
    pub fn on_close(mut self, closing: impl Future<Output = ()> + Send + 'static) -> OpenedSession {
        self.closing = Some(Box::pin(closing));
        self
    }
}

impl fmt::Debug for OpenedSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedSession").field("agent", &self.agent).finish_non_exhaustive()
    }
}

/// The reason why a session could not be opened. The editor shows the message, so it must not
/// contain a secret.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct OpenError(String);

impl OpenError {
    /// Creates an error with a message for the user.
    pub fn new(message: impl Into<String>) -> OpenError {
        OpenError(message.into())
    }
}

impl From<endstop::BuildError> for OpenError {
    fn from(error: endstop::BuildError) -> OpenError {
        OpenError(error.to_string())
    }
}

impl From<endstop::mcp::McpError> for OpenError {
    fn from(error: endstop::mcp::McpError) -> OpenError {
        OpenError(error.to_string())
    }
}

/// Opens sessions: a closure from a [`SessionRequest`] to a future of an [`OpenedSession`].
pub trait SessionSource: Send + Sync + 'static {
    /// Builds the agent of a session.
    ///
    /// # Errors
    /// The reason, for the user.
    fn open(
        &self,
        request: SessionRequest,
    ) -> Pin<Box<dyn Future<Output = Result<OpenedSession, OpenError>> + Send>>;
}

impl<F, Opening> SessionSource for F
where
    F: Fn(SessionRequest) -> Opening + Send + Sync + 'static,
    Opening: Future<Output = Result<OpenedSession, OpenError>> + Send + 'static,
{
    fn open(
        &self,
        request: SessionRequest,
    ) -> Pin<Box<dyn Future<Output = Result<OpenedSession, OpenError>> + Send>> {
        Box::pin(self(request))
    }
}
