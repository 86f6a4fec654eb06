//! The parts that bindings share, as a binding uses them.
#![allow(clippy::unwrap_used, clippy::pedantic, missing_docs, unreachable_pub, reason = "tests")]

mod names;
mod parks;
mod runs;
mod slots;
mod streams;
