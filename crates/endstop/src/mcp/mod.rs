//! Tools of MCP servers, which are reached as child processes or over HTTP.
//!
//! ```no_run
//! use endstop::Agent;
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
mod error;
mod guard;
mod http;
mod http_client;
mod lines;
mod log_output;
mod server;
mod stdio;
mod tool;
mod tools;
mod top_level;
mod variables;

pub use error::{McpError, McpErrorKind};
pub use server::McpServer;
pub use tools::McpTools;
