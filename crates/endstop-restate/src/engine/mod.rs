//! The services of a worker: what Restate calls.
//!
//! ```no_run
//! # async fn run(agents: endstop_restate::Agents) -> Result<(), Box<dyn std::error::Error>> {
//! use endstop_restate::Store;
//! use endstop_restate::engine::{Worker, WorkerOptions, listen};
//! let store = Store::open("/srv/endstop")?;
//! let options = WorkerOptions::new("http://127.0.0.1:8080");
//! let worker = Worker::open(agents, store, options, |problem| eprintln!("{problem}"))?;
//! let listener = listen("127.0.0.1:9080".parse()?, false)?;
//! worker.serve(listener, std::future::pending()).await?;
//! # Ok(()) }
//! ```
//!
//! | service | key | handlers |
//! |---|---|---|
//! | `EndstopLedger` (object) | the run | `start` runs an agent and returns its report, `report` reads it; ends a run that was killed |
//! | `EndstopRun` (workflow) | the run | `run` drives it; `stop`, `answer`, `parked` and `steer` reach it from outside |
//! | `EndstopBudget` (object) | the budget | `reserve`, `settle`, `balance` |
//! | `EndstopStore` (object) | `store` | `claim`: checks that all workers share one store |

mod budget;
mod claim;
mod client;
mod driving;
mod ledger;
mod letters;
mod listener;
mod plan;
mod shared;
mod stops;
mod worker;
mod workflow;

#[cfg(feature = "serve")]
pub(crate) use claim::KEY as STORE_KEY;
pub use client::ClientError;
#[cfg(feature = "serve")]
pub(crate) use client::EngineClient;
pub use listener::listen;
pub use worker::{Worker, WorkerError, WorkerOptions};
