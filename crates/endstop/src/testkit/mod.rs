//! Test kit: a scripted model that implements [`Provider`](crate::provider::Provider), and an HTTP
//! server that answers from a script in the wire format of each request. The server can split,
//! stall, reset and truncate its responses, and claim a wrong length.
//!
//! ```
//! use endstop::testkit::{Reply, Server, Turn};
//! # use std::time::Duration;
//! // The server ends the first stream early, and answers the second request completely.
//! let server = Server::start(|request| match request.number {
//!     1 => Reply::turn(request, &Turn::text("half an answer")).cut_after(200),
//!     _ => Reply::turn(request, &Turn::text("the whole answer")),
//! }).unwrap();
//! assert!(server.base_url().starts_with("http://127.0.0.1:"));
//! ```

pub mod cache_rules;
mod model;
mod reply;
mod request;
mod server;
pub mod sse;
pub mod strict;
mod strict_items;
mod strict_parts;
mod turn;

pub use model::ScriptedModel;
pub use reply::Reply;
pub use request::Request;
pub use server::Server;
pub use turn::Turn;
