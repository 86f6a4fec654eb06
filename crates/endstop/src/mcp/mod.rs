//! Tools of MCP servers: processes that are talked with, and addresses.
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
//! - **A server that cannot be started, or that speaks another version of the protocol, is an error
//!   of [`connect`](McpServer::connect)**, before a model is paid. So is one that says nothing.
//! - A call that is cancelled, runs out of time or belongs to a run that is terminated ends at once,
//!   and the server is told so (`notifications/cancelled`).
//! - **A server that dies ends its calls as tool errors.** It is not started again: what it knew is
//!   gone, and nobody would see it. Over HTTP each call is a request of its own, and goes where the
//!   server is again.
//! - Of a result 64 KiB are kept, its beginning and its end, as of a command's output; a message of
//!   more than 4 MiB is not held at all, and its call ends as an error (16 MiB where a server answers
//!   over HTTP with plain JSON).
//! - A schema of more than 64 KiB, or beyond 1 MiB for all tools of a server, is not sent to a model:
//!   the tool is [left out](McpTools::left_out).
//! - What a server asks for itself (sampling, elicitation, roots) is refused, and never run. Its
//!   notifications are not read.
//! - A process is run as [commands](crate::process) are: it has a keeper where `main` called
//!   [`serve_if_asked`](crate::process::keeper::serve_if_asked), dies with all that it started, and is
//!   not given variables whose names look like those of secrets, unless they are allowed by name.
//! - Values of headers are not in `Debug`, errors or logs.

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

/// The largest message that is held.
const LARGEST_MESSAGE: usize = 4 << 20;

/// How long a server has to be ready, unless told otherwise.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// The longest name of a server: it stands before the name of each of its tools.
const LONGEST_NAME: usize = 32;

/// An MCP server, and how it is reached.
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
    /// An address, and what goes with each request.
    Address { url: String, headers: Vec<(String, String)>, allow_http: bool },
}

impl McpServer {
    /// A process that is talked with over its standard streams, by a command line for `sh -c`
    /// (Windows: `cmd /C`). `name` is 1 to 32 letters, digits, `_` and `-`.
    pub fn stdio(name: impl Into<String>, line: impl Into<String>) -> McpServer {
        McpServer::process(name.into(), Ok(line.into()))
    }

    /// The same, by a program and its arguments, none of which the shell reads.
    pub fn command<W: AsRef<str>>(
        name: impl Into<String>,
        words: impl IntoIterator<Item = W>,
    ) -> McpServer {
        McpServer::process(name.into(), stdio::line_of(words))
    }

    fn process(name: String, line: Result<String, String>) -> McpServer {
        McpServer::at(name, Place::Process { line, dir: None, allowed: Vec::new() })
    }

    /// A server at an address, over streamable HTTP.
    pub fn http(name: impl Into<String>, url: impl Into<String>) -> McpServer {
        let place = Place::Address { url: url.into(), headers: Vec::new(), allow_http: false };
        McpServer::at(name.into(), place)
    }

    fn at(name: String, place: Place) -> McpServer {
        McpServer { name, place, only: None, timeout: None, ready_within: READY_WITHIN }
    }

    /// A header of each request; nothing of a process.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> McpServer {
        if let Place::Address { headers, .. } = &mut self.place {
            headers.push((name.into(), value.into()));
        }
        self
    }

    /// Allows headers and credentials of the address to be sent to another machine over `http://`,
    /// where everyone on the way can read them. Without it that is an error of
    /// [`connect`](Self::connect).
    #[must_use]
    pub fn allow_http(mut self) -> McpServer {
        if let Place::Address { allow_http, .. } = &mut self.place {
            *allow_http = true;
        }
        self
    }

    /// Lets a process see a variable of the environment whose name looks like a secret.
    #[must_use]
    pub fn allow_variable(mut self, name: impl Into<String>) -> McpServer {
        if let Place::Process { allowed, .. } = &mut self.place {
            allowed.push(name.into());
        }
        self
    }

    /// The folder that a process runs in.
    #[must_use]
    pub fn in_dir(mut self, folder: impl Into<PathBuf>) -> McpServer {
        if let Place::Process { dir, .. } = &mut self.place {
            *dir = Some(folder.into());
        }
        self
    }

    /// Takes these tools alone, by the names that the server gives them.
    #[must_use]
    pub fn only<N: Into<String>>(mut self, tools: impl IntoIterator<Item = N>) -> McpServer {
        self.only = Some(tools.into_iter().map(Into::into).collect());
        self
    }

    /// The time limit of each call; without one the run's `tool_timeout` counts.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> McpServer {
        self.timeout = Some(limit);
        self
    }

    /// How long the server has to be ready (30 s).
    #[must_use]
    pub fn ready_within(mut self, limit: Duration) -> McpServer {
        self.ready_within = limit;
        self
    }

    /// Starts it or calls it, agrees on a version of the protocol, and asks for its tools.
    ///
    /// # Errors
    /// Its name or its address is none, it cannot be started or reached, it is not ready in time, it
    /// speaks another version of the protocol, it has no tools or not those that were asked for, two
    /// of them would have one name. The message names the server and what it said.
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

    /// The values of its headers: what a journal or a log must not have.
    pub fn known_keys(&self) -> KnownKeys {
        match &self.place {
            Place::Address { headers, .. } => {
                KnownKeys::new(headers.iter().flat_map(|(_, value)| {
                    // Also without the scheme before it.
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
            // A command line may have a key among its words.
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

/// The tools of a server that is there. Where this and the tools are dropped, a process is killed;
/// [`close`](McpTools::close) lets it end by itself.
pub struct McpTools {
    connection: Arc<Connection>,
    tools: Vec<Arc<dyn Tool>>,
    left_out: Vec<String>,
}

impl McpTools {
    /// The server's name.
    pub fn name(&self) -> &str {
        self.connection.name()
    }

    /// The version of the protocol that was agreed on.
    pub fn protocol_version(&self) -> &str {
        self.connection.version()
    }

    /// Its tools, in its order. Each is named `SERVER__TOOL`, with `_` for what providers do not take
    /// in a name.
    pub fn tools(&self) -> impl Iterator<Item = Arc<dyn Tool>> + '_ {
        self.tools.iter().map(Arc::clone)
    }

    /// Why tools of the server are not among [`tools`](McpTools::tools), a sentence for each: their
    /// names or schemas are too large. Such a tool is an error if it was asked for by name.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Ends the connection, and a process: its input ends, after a second it is asked to end, after
    /// another it is killed with all that it started. Returns when it is gone. Calls after it fail.
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

/// Why there are no tools of a server. Its text names the server and says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpError {
    /// The server's name.
    pub server: String,
    /// What kind of problem it is.
    pub kind: McpErrorKind,
    problem: String,
}

/// What kind of problem there is with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum McpErrorKind {
    /// It is configured wrongly.
    Config,
    /// It could not be started or reached, or ended before it was ready.
    Start,
    /// It was not ready in time.
    Timeout,
    /// It speaks another version of the protocol.
    Version,
    /// It did not answer as the protocol says, or refused.
    Protocol,
    /// It has not the tools that were asked for, or has two of one name.
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
