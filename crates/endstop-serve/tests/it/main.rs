//! The server over real sockets: runs, events, access, bad input, shutdown and restart.

mod access;
mod bad_input;
mod events;
mod page;
mod queue;
mod restart;
mod runs;
mod stops;
mod support;
