//! Errors of connecting to an MCP server.
//!
//! ```text
//! MCP server `files`: it was not ready within 30 s: …
//! ```

/// Error of [`McpServer::connect`](super::McpServer::connect). Its text names the server and the
/// fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("MCP server `{server}`: {problem}")]
pub struct McpError {
    /// Name of the server.
    pub server: String,
    /// Category of the problem.
    pub kind: McpErrorKind,
    problem: String,
}

/// Category of an [`McpError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum McpErrorKind {
    /// The configuration of the server is invalid.
    Config,
    /// The server could not be started or reached, or exited before it was ready.
    Start,
    /// The server was not ready in time.
    Timeout,
    /// The server speaks another version of the protocol.
    Version,
    /// The server returned an error or an invalid answer.
    Protocol,
    /// The requested tools are missing, or two tools would have the same name.
    Tools,
}

impl McpError {
    pub(super) fn new(server: &str, kind: McpErrorKind, problem: impl Into<String>) -> McpError {
        McpError { server: server.to_owned(), kind, problem: problem.into() }
    }
}
