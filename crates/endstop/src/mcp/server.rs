//! The configuration of an MCP server.
//!
//! ```text
//! let server = McpServer::http("docs", "https://host/mcp").header("authorization", token);
//! ```

use super::stdio;
use super::variables::Variables;
use endstop_wire::redact::{KnownKeys, address};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Default time that a server has to become ready.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// The longest name of a server. The name is a prefix of its tools' names, which providers limit.
pub(super) const LONGEST_NAME: usize = 32;

/// Configuration of an MCP server.
#[derive(Clone)]
pub struct McpServer {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) only: Option<Vec<String>>,
    pub(super) timeout: Option<Duration>,
    pub(super) ready_within: Duration,
}

#[derive(Clone)]
pub(super) enum Place {
    /// A command line for the shell, and where and with which variables it runs.
    Process { line: Result<String, String>, dir: Option<PathBuf>, variables: Variables },
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
        McpServer::at(name, Place::Process { line, dir: None, variables: Variables::default() })
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
        if let Place::Process { variables, .. } = &mut self.place {
            variables.allowed.push(name.into());
        }
        self
    }

    /// Sets an environment variable for a server process. Has no effect on a server that is reached
    /// over HTTP.
    #[must_use]
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<String>) -> McpServer {
        if let Place::Process { variables, .. } = &mut self.place {
            variables.set.push((name.into(), value.into()));
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

    /// Returns the values of the headers, and of the variables that look like secrets. They must not
    /// be written to a journal or a log.
    pub fn known_keys(&self) -> KnownKeys {
        match &self.place {
            Place::Address { headers, .. } => {
                KnownKeys::new(headers.iter().flat_map(|(_, value)| {
                    // A server may echo the token without its scheme, for example without `Bearer`.
                    [value.as_str(), value.split_once(' ').map_or("", |(_, rest)| rest)]
                }))
            }
            Place::Process { variables, .. } => {
                KnownKeys::of_variables(variables.set.iter().cloned())
            }
        }
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("McpServer");
        shown.field("name", &self.name);
        match &self.place {
            // A command line may contain a key, so it is not shown.
            Place::Process { dir, variables, .. } => {
                let set: Vec<&str> = variables.set.iter().map(|(name, _)| name.as_str()).collect();
                shown.field("dir", dir).field("allowed", &variables.allowed).field("set", &set);
            }
            Place::Address { url, headers, .. } => {
                let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
                shown.field("url", &address(url)).field("headers", &names);
            }
        }
        shown.field("only", &self.only).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
