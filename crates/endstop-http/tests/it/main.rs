//! The client against servers and proxies on real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::pedantic,
    missing_docs,
    unreachable_pub,
    dead_code,
    reason = "tests"
)]

mod bodies;
mod pooling;
mod proxies;
mod refusals;
mod secured;
mod server;
