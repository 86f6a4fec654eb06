//! The events of a run, and their writers.
//!
//! A [`RunHandle`](crate::RunHandle) is a stream of [`AgentEvent`]s. Each event has its
//! [kind](AgentEventKind) and its [`Origin`]: the run, the turn, and the path if the run is nested in
//! another one.
//!
//! ```
//! use endstop::Agent;
//! use endstop::event::AgentEventKind;
//! use endstop::testkit::{ScriptedModel, Turn};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let agent = Agent::builder(ScriptedModel::new([Turn::text("It is 42.")])).build()?;
//! let mut handle = agent.run("What is it?")?;
//! while let Some(event) = handle.next().await {
//!     match event.kind {
//!         AgentEventKind::TextDelta { text, .. } => print!("{text}"),
//!         AgentEventKind::ToolStarted { name, .. } => println!("→ {name}"),
//!         AgentEventKind::Finished { outcome, .. } => println!("\n{}", outcome.termination),
//!         _ => {}
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! - An event is built only if an observer or a reader of the handle exists.
//! - The JSON form has the key `type`, the keys of the [`Origin`], and the fields of the kind.
//!   It can be read back. It has the secrets that a tool or a model wrote: what leaves the program goes
//!   through an [`EventWriter`], as the two methods below do. Costs are numbers of dollars, in keys that
//!   end in `_usd`, and `null` if they are unknown.
//! - [`RunHandle::sse`](crate::RunHandle::sse) and
//!   [`RunHandle::json_lines`](crate::RunHandle::json_lines) are streams of bytes for a web server.

mod agent_event;
mod kind;
pub(crate) mod queue;
mod redaction;
mod writer;

pub(crate) use agent_event::RunPlace;
pub use agent_event::{AgentEvent, CallId, Origin, RequestId};
pub use kind::AgentEventKind;
pub(crate) use kind::turn_of;
pub use writer::EventWriter;
