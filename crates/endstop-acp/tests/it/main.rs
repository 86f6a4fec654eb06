//! The server against the client of the official crate, over a pipe in memory.
#![allow(clippy::unwrap_used, clippy::panic, clippy::pedantic, missing_docs, reason = "tests")]

mod editor;
mod hostile;
mod permissions;
mod prompts;
mod stops;
