//! Runs that are driven step by step, without an engine.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failed assumption fails the test")]

mod support;

mod branches;
mod crashes;
mod endings;
#[cfg(feature = "serve")]
mod engine;
mod exports;
mod letters;
mod parks;
mod scenarios;
#[cfg(feature = "serve")]
mod served;
#[cfg(feature = "serve")]
mod served_branches;
mod stops;
mod stores;
