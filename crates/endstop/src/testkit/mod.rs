//! A test kit: a scripted model that is a real provider, and a real server that answers from a
//! script, in the wire format that it is asked in, and that splits, stalls, resets and lies.
//!
//! ```
//! use endstop::testkit::{Reply, Server, Turn};
//! # use std::time::Duration;
//! // A server that closes the stream in its middle, and then answers.
//! let server = Server::start(|request| match request.number {
//!     1 => Reply::turn(request, &Turn::text("half an answer")).cut_after(200),
//!     _ => Reply::turn(request, &Turn::text("the whole answer")),
//! }).unwrap();
//! assert!(server.base_url().starts_with("http://127.0.0.1:"));
//! ```

mod formats;
mod model;
mod reply;
mod server;
pub mod sse;
pub mod strict;
mod turn;

pub use model::ScriptedModel;
pub use reply::Reply;
pub use server::{Request, Server};
pub use turn::Turn;
