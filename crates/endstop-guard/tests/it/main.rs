//! Behaviour of guard.
#![allow(clippy::unwrap_used, clippy::panic, clippy::pedantic, missing_docs, reason = "tests")]

mod repository;
mod wiring;
