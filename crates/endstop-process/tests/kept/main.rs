//! Tests of commands that run under a keeper. `main` must call `serve_if_asked`, so these tests do
//! not use the default test harness: `cargo test -p endstop-process --test kept [PART OF A NAME]`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::pedantic,
    clippy::print_stdout,
    missing_docs,
    unreachable_pub,
    dead_code,
    reason = "tests"
)]

#[cfg(target_os = "linux")]
mod agents;
#[cfg(target_os = "linux")]
mod checks;
#[cfg(target_os = "linux")]
mod processes;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = endstop_process::keeper::serve_if_asked() {
        return code;
    }
    #[cfg(target_os = "linux")]
    if std::env::args().nth(1).is_some_and(|word| word == agents::HOST) {
        return agents::host();
    }
    #[cfg(target_os = "linux")]
    return checks::all();
    #[cfg(not(target_os = "linux"))]
    ExitCode::SUCCESS
}
