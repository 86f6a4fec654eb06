//! Runs over HTTP: a server that starts, lists, streams, stops and answers runs of named agents,
//! with a live page. One process embeds everything; its store is the journal, and a file next to
//! it.
//!
//! ```
//! use endstop::journal::SqliteJournal;
//! use endstop::testkit::{ScriptedModel, Turn};
//! use endstop::{Agent, Limits};
//! use endstop_serve::{AgentSource, Agents, BuiltAgent, RunPlan, ServeOptions, Server, Tokens};
//! use std::sync::Arc;
//!
//! struct Greeter;
//! impl AgentSource for Greeter {
//!     fn limits(&self) -> Limits {
//!         Limits::default()
//!     }
//!     fn build(&self, plan: &RunPlan) -> Result<BuiltAgent, String> {
//!         let agent = Agent::builder(ScriptedModel::new([Turn::text("Hello.")]))
//!             .limits(plan.limits.clone())
//!             .journal(plan.journal.clone())
//!             .approval_events(true)
//!             .build()
//!             .map_err(|error| error.to_string())?;
//!         Ok(BuiltAgent { agent, secrets: Default::default(), resources: Box::new(()), at_end: None })
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let journal = SqliteJournal::open(dir.path().join("journal.db"))?;
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let agents = Agents::new([("greeter".to_owned(), Arc::new(Greeter) as Arc<dyn AgentSource>)]);
//! let server = Server::open(
//!     listener, journal, agents, Tokens::default(), ServeOptions::default(), |problem| eprintln!("{problem}"),
//! )?;
//! // curl -H 'content-type: application/json' -d '{"agent":"greeter","task":"Hi"}' ADDRESS/v1/runs
//! # let stop = std::future::ready(());
//! server.run(stop, std::future::pending()).await;
//! # Ok(()) }
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]

mod a2a;
mod access;
mod agents;
mod api;
mod app;
pub mod backend;
mod clock;
mod metrics;
mod operator;
mod options;
mod page;
mod runs;
mod server;
mod service;

pub use access::{Client, TokenFileError, Tokens};
pub use agents::{AgentSource, Agents, AtEnd, BuiltAgent, RunPlan};
pub use operator::{OpenRun, Operator, OperatorError};
pub use options::ServeOptions;
pub use runs::StoreError;
pub use server::{ServeError, Server};
