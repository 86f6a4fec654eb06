//! The behaviour of `endstop-core`, one module a subject; vectors come from `testdata/`.
#![allow(clippy::unwrap_used, clippy::pedantic, missing_docs, reason = "tests")]

mod kernel_laws;
mod world;
