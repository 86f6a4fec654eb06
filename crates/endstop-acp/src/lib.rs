//! Endstop agents for editors: a server of the [Agent Client Protocol](https://agentclientprotocol.com),
//! version 1, over standard input and output.
//!
//! ```
//! use endstop::Agent;
//! use endstop::testkit::{ScriptedModel, Turn};
//! use endstop_acp::{AcpServer, OpenedSession, SessionRequest};
//! use tokio_util::sync::CancellationToken;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = AcpServer::new(|request: SessionRequest| async move {
//!     let agent = Agent::builder(ScriptedModel::new([Turn::text("Hello.")]))
//!         .working_dir(request.dir)
//!         // The editor is asked about each call whose permission is `Ask`.
//!         .approval_events(true)
//!         .build()?;
//!     Ok(OpenedSession::new(agent))
//! });
//! // In a program: `tokio::io::stdin()` and `tokio::io::stdout()`.
//! let input: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#;
//! server.serve(input, tokio::io::sink(), CancellationToken::new()).await?;
//! # Ok(()) }
//! ```
//!
//! - One session of the protocol is one [`Session`](endstop::Session) of its own agent; one prompt is
//!   one run, which ends exactly once.
//! - The stop reason follows the table of [`Termination::as_acp`](endstop::Termination::as_acp); the
//!   termination, its cost and its evidence are in `_meta.endstop` of the answer, or in `data` of a
//!   JSON-RPC error. An ending that is not a success never becomes `end_turn`.
//! - `session/cancel`, `$/cancel_request`, a closed input and the caller's token cancel the runs, and
//!   their tools are stopped before [`AcpServer::serve`] returns.

mod ending;
mod lines;
mod mcp_servers;
mod permission;
mod prompt;
mod run;
mod server;
mod sessions;
mod source;
mod tool_call;
mod updates;

pub use server::{AcpError, AcpServer};
pub use source::{OpenError, OpenedSession, SessionRequest, SessionSource};
