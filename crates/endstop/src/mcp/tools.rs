//! Connects to an MCP server and holds its tools.
//!
//! ```text
//! let tools = server.connect().await?;
//! tools.close().await;
//! ```

use super::connection::Connection;
use super::error::{McpError, McpErrorKind};
use super::server::{LONGEST_NAME, McpServer};
use super::tool;
use crate::tool::Tool;
use std::fmt;
use std::sync::Arc;
use tokio::time::Instant;

impl McpServer {
    /// Starts or contacts the server, agrees on a version of the protocol, and lists its tools.
    ///
    /// # Errors
    /// The server's name or address is invalid, it cannot be started or reached, it is not ready in
    /// time, it speaks another version of the protocol, it has no tools, one of the requested tools
    /// is missing or too large, or two tools would have the same name. The message names the server
    /// and quotes its output.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O and time.
    pub async fn connect(&self) -> Result<McpTools, McpError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if !(1..=LONGEST_NAME).contains(&self.name.len()) || !self.name.bytes().all(fits) {
            let problem = "invalid server name: expected 1 to 32 letters, digits, `_` or `-`";
            return Err(McpError::new(&self.name, McpErrorKind::Config, problem));
        }
        let deadline = Instant::now() + self.ready_within;
        let connection = Arc::new(Connection::open(self, deadline).await?);
        match tool::all(self, &connection, deadline).await {
            Ok((tools, left_out)) => Ok(McpTools { connection, tools, left_out }),
            Err(error) => {
                connection.close().await;
                Err(error)
            }
        }
    }
}

/// The tools of a connected server. When this value and the tools are dropped, a server process is
/// killed; [`close`](McpTools::close) lets it exit by itself.
pub struct McpTools {
    connection: Arc<Connection>,
    tools: Vec<Arc<dyn Tool>>,
    left_out: Vec<String>,
}

impl McpTools {
    /// Returns the name of the server.
    pub fn name(&self) -> &str {
        self.connection.name()
    }

    /// Returns the version of the protocol that client and server agreed on.
    pub fn protocol_version(&self) -> &str {
        self.connection.version()
    }

    /// Returns the tools in the server's order. Each is named `SERVER__TOOL`; characters that
    /// providers do not accept in a name become `_`.
    pub fn tools(&self) -> impl Iterator<Item = Arc<dyn Tool>> + '_ {
        self.tools.iter().map(Arc::clone)
    }

    /// Returns the reasons for which tools of the server are not among [`tools`](McpTools::tools),
    /// one sentence per tool: their names or schemas are too large. If such a tool was requested by
    /// name, [`connect`](McpServer::connect) returns an error instead.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Closes the connection. A server process first gets the end of its input, after a second
    /// SIGTERM, and after another second it is killed with all its children. Returns when the
    /// process is gone. Later calls fail.
    pub async fn close(&self) {
        self.connection.close().await;
    }
}

impl fmt::Debug for McpTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.tools.iter().map(Tool::name).collect();
        f.debug_struct("McpTools")
            .field("server", &self.name())
            .field("tools", &names)
            .finish_non_exhaustive()
    }
}
