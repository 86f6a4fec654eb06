//! Kills the process of a run with `kill -9` after each record of its journal and at random
//! moments. The resumed run must not repeat or lose a step that had finished, and it must end
//! exactly once.
//!
//! ```text
//! cargo test -p endstop --test deaths                        # each record, and 12 random moments
//! ENDSTOP_DEATHS=200 cargo test -p endstop --test deaths     # 200 random moments
//! ```
//!
//! The program also plays the victim: with arguments it is the process that runs the agent.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::pedantic,
    clippy::print_stdout,
    missing_docs,
    reason = "tests"
)]

use std::process::ExitCode;

#[cfg(unix)]
mod victim;
#[cfg(unix)]
mod watch;

#[cfg(unix)]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("victim") => victim::run(&arguments[1..]),
        _ => watch::all(),
    }
}

#[cfg(not(unix))]
fn main() -> ExitCode {
    ExitCode::SUCCESS
}
