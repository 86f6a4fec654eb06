//! Tools of MCP servers, which are reached as child processes or over HTTP.
//!
//! ```no_run
//! use endstop::AgentLoop;
//! use endstop::mcp::McpServer;
//! # async fn example(builder: endstop::AgentBuilder) -> Result<(), Box<dyn std::error::Error>> {
//! let files = McpServer::command("files", ["mcp-server-filesystem", "/srv/data"]).connect().await?;
//! let agent = files.tools().fold(builder, |builder, tool| builder.shared_tool(tool)).build()?;
//! let outcome = agent.run("What is in the folder?")?.outcome().await; // it has `files__read_file` …
//! files.close().await; // the process has ended
//! # Ok(()) }
//! ```
//!
//! - **A server that cannot be started, that does not answer, or that speaks another version of the
//!   protocol is an error of [`connect`](McpServer::connect)**, before any model call is paid for.
//! - A call ends at once if it is cancelled, if its time limit is reached, or if its run is
//!   terminated. The server is notified (`notifications/cancelled`).
//! - **If a server dies, its calls end as tool errors.** The server is not restarted, because its
//!   state is lost and the model would not notice. Over HTTP each call is a separate request, so
//!   calls succeed again once the server is back.
//! - A result is cut to 64 KiB, its beginning and its end, as the output of a command is. A message
//!   of more than 4 MiB is not stored at all, and its call ends as an error (16 MiB if a server
//!   answers over HTTP with plain JSON).
//! - A tool is [left out](McpTools::left_out) if its schema is larger than 64 KiB, or if the
//!   schemas of all tools of the server exceed 1 MiB.
//! - Requests of a server (sampling, elicitation, roots) are refused. Its notifications are
//!   ignored.
//! - A server process runs as [commands](crate::process) do: it has a keeper if `main` called
//!   [`serve_if_asked`](crate::process::keeper::serve_if_asked), and its whole process tree is
//!   killed when it ends. It does not get variables that look like secrets unless they are allowed
//!   by name.
//! - Header values do not appear in `Debug` output, errors or logs.

mod answer;
mod connection;
mod guard;
mod http;
mod lines;
mod stdio;
mod tool;
mod top_level;

use crate::tool::Tool;
use connection::Connection;
use endstop_wire::redact::{KnownKeys, address};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The largest message that is accepted, in bytes.
const LARGEST_MESSAGE: usize = 4 << 20;

/// Default time that a server has to become ready.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// The longest name of a server. The name is a prefix of its tools' names, which providers limit.
const LONGEST_NAME: usize = 32;

/// Configuration of an MCP server.
#[derive(Clone)]
pub struct McpServer {
    name: String,
    place: Place,
    only: Option<Vec<String>>,
    timeout: Option<Duration>,
    ready_within: Duration,
}

#[derive(Clone)]
enum Place {
    /// A command line for the shell, its folder, and the variables that it may see.
    Process { line: Result<String, String>, dir: Option<PathBuf>, allowed: Vec<String> },
    /// An address, and the headers of each request.
    Address { url: String, headers: Vec<(String, String)>, allow_http: bool },
}

impl McpServer {
    /// Creates a server that runs as a child process and exchanges messages over its standard
    /// streams. `line` is a command line for `sh -c` (Windows: `cmd /C`). `name` is 1 to 32
    /// letters, digits, `_` and `-`.
    pub fn stdio(name: impl Into<String>, line: impl Into<String>) -> McpServer {
        McpServer::process(name.into(), Ok(line.into()))
    }

    /// Creates a server that runs as a child process, from a program and its arguments, which the
    /// shell does not interpret.
    pub fn command<W: AsRef<str>>(
        name: impl Into<String>,
        words: impl IntoIterator<Item = W>,
    ) -> McpServer {
        McpServer::process(name.into(), stdio::line_of(words))
    }

    fn process(name: String, line: Result<String, String>) -> McpServer {
        McpServer::at(name, Place::Process { line, dir: None, allowed: Vec::new() })
    }

    /// Creates a server that is reached at an address over streamable HTTP.
    pub fn http(name: impl Into<String>, url: impl Into<String>) -> McpServer {
        let place = Place::Address { url: url.into(), headers: Vec::new(), allow_http: false };
        McpServer::at(name.into(), place)
    }

    fn at(name: String, place: Place) -> McpServer {
        McpServer { name, place, only: None, timeout: None, ready_within: READY_WITHIN }
    }

    /// Adds a header to each request. Has no effect on a server that runs as a process.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> McpServer {
        if let Place::Address { headers, .. } = &mut self.place {
            headers.push((name.into(), value.into()));
        }
        self
    }

    /// Allows headers and credentials in the address to be sent to another machine over `http://`,
    /// although everyone on the way can read them. Without this, [`connect`](Self::connect) returns
    /// an error.
    #[must_use]
    pub fn allow_http(mut self) -> McpServer {
        if let Place::Address { allow_http, .. } = &mut self.place {
            *allow_http = true;
        }
        self
    }

    /// Lets a server process see an environment variable that looks like a secret.
    #[must_use]
    pub fn allow_variable(mut self, name: impl Into<String>) -> McpServer {
        if let Place::Process { allowed, .. } = &mut self.place {
            allowed.push(name.into());
        }
        self
    }

    /// Sets the folder in which a server process runs.
    #[must_use]
    pub fn in_dir(mut self, folder: impl Into<PathBuf>) -> McpServer {
        if let Place::Process { dir, .. } = &mut self.place {
            *dir = Some(folder.into());
        }
        self
    }

    /// Uses only these tools, given by the server's own names.
    #[must_use]
    pub fn only<N: Into<String>>(mut self, tools: impl IntoIterator<Item = N>) -> McpServer {
        self.only = Some(tools.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the time limit of each call. The default is the run's `tool_timeout`.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> McpServer {
        self.timeout = Some(limit);
        self
    }

    /// Sets the time that the server has to become ready (default 30 s).
    #[must_use]
    pub fn ready_within(mut self, limit: Duration) -> McpServer {
        self.ready_within = limit;
        self
    }

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

    /// Returns the values of the headers, which must not be written to a journal or a log.
    pub fn known_keys(&self) -> KnownKeys {
        match &self.place {
            Place::Address { headers, .. } => {
                KnownKeys::new(headers.iter().flat_map(|(_, value)| {
                    // A server may echo the token without its scheme, for example without `Bearer`.
                    [value.as_str(), value.split_once(' ').map_or("", |(_, rest)| rest)]
                }))
            }
            Place::Process { .. } => KnownKeys::default(),
        }
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("McpServer");
        shown.field("name", &self.name);
        match &self.place {
            // A command line may contain a key, so it is not shown.
            Place::Process { dir, allowed, .. } => {
                shown.field("dir", dir).field("allowed", allowed);
            }
            Place::Address { url, headers, .. } => {
                let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
                shown.field("url", &address(url)).field("headers", &names);
            }
        }
        shown.field("only", &self.only).field("timeout", &self.timeout).finish_non_exhaustive()
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
        let names: Vec<&str> = self.tools.iter().map(|tool| tool.name()).collect();
        f.debug_struct("McpTools")
            .field("server", &self.name())
            .field("tools", &names)
            .finish_non_exhaustive()
    }
}

/// Error of [`McpServer::connect`]. Its text names the server and the fix.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    fn new(server: &str, kind: McpErrorKind, problem: impl Into<String>) -> McpError {
        McpError { server: server.to_owned(), kind, problem: problem.into() }
    }
}

impl fmt::Display for McpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MCP server `{}`: {}", self.server, self.problem)
    }
}

impl std::error::Error for McpError {}
