//! Agents for other agents: the A2A protocol, version 1.0, in its JSON-RPC binding.
//!
//! ```text
//! GET  /a2a/{agent}/.well-known/agent-card.json
//! POST /a2a/{agent}      SendMessage, SendStreamingMessage, GetTask, CancelTask, SubscribeToTask
//! ```
//!
//! A task is a run, and its id is the run's. The state of an ended task follows the table of
//! [`Termination::as_a2a`](endstop::Termination::as_a2a); the termination is in the task's metadata.
//! A run that waits for an approval is `TASK_STATE_INPUT_REQUIRED`, and a message to the task
//! answers it.

mod caller;
mod card;
mod envelope;
mod message;
mod methods;
mod rpc;
mod stream;
mod task;
mod updates;

use crate::app::App;
use axum::Router;
use axum::routing::{get, post};
use std::sync::Arc;

/// Returns the routes of the protocol.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/a2a/{agent}", post(rpc::call))
        .route("/a2a/{agent}/.well-known/agent-card.json", get(card::card))
}
