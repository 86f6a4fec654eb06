//! Runs that are driven step by step, without an engine.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failed assumption fails the test")]

mod support;

mod crashes;
mod endings;
mod exports;
mod parks;
mod scenarios;
mod stops;
mod stores;
