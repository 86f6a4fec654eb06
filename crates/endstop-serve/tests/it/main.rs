//! The server over real sockets: runs, events, access, bad input, shutdown and restart.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::pedantic,
    clippy::print_stderr,
    missing_docs,
    reason = "a helper of a test fails the test where it stands"
)]

mod a2a;
mod access;
mod bad_input;
mod branches;
mod events;
mod page;
mod parked;
mod queue;
mod restart;
mod runs;
mod steering;
mod stops;
mod support;
