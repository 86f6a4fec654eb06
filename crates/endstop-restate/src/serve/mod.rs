//! Durable runs behind `endstop serve`: the same HTTP API, page and A2A routes over the runs that
//! workers drive.
//!
//! ```no_run
//! # async fn run(agents: Vec<endstop_serve::backend::AgentInfo>) -> Result<(), Box<dyn std::error::Error>> {
//! use endstop_restate::Store;
//! use endstop_restate::serve::{DurableRuns, RunsOptions};
//! use endstop_serve::{ServeOptions, Server, Tokens};
//! use std::sync::Arc;
//! let store = Store::open("/srv/endstop")?;
//! let options = RunsOptions::new("http://127.0.0.1:8080");
//! let runs = DurableRuns::open(store, agents, &options, |problem| eprintln!("{problem}"))?;
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:4180").await?;
//! let server =
//!     Server::over(listener, Arc::new(runs), Tokens::default(), ServeOptions::default())?;
//! server.run(std::future::pending(), std::future::pending()).await;
//! # Ok(()) }
//! ```
//!
//! Any number of servers can do this at once. Each reads the store that the workers share, so runs can be
//! listed and followed while the engine is down. Requests that change a run go to the engine; one that the
//! engine does not confirm in time is answered with 503, and had no effect that repeating it would double.

mod accept;
mod backend;
mod engine;
mod list;
mod tail;

pub use backend::{DurableRuns, RunsOptions};
