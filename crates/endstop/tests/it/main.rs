//! The tools and the test kit: real processes, real files, real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail as the tests do"
)]

#[cfg(target_os = "linux")]
mod shell;
mod testkit;
mod tools;
