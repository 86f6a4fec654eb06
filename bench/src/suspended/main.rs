//! `bench-suspended [RUNS]`: what a run holds of memory while its stream is silent, and how long it
//! takes until all have ended that are terminated at once.
//!
//! ```text
//! cargo build --release -p endstop-bench
//! target/release/bench-suspended 1000
//! ```
//!
//! The scripted server is this program once more, in a process of its own: its memory is not
//! counted. Each run is a loop of its own; all share a provider, and each has heard a first delta.

#[cfg(target_os = "linux")]
mod runs;
#[cfg(target_os = "linux")]
mod server;

use std::process::ExitCode;

#[cfg(target_os = "linux")]
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a program")]
fn main() -> ExitCode {
    let word = std::env::args().nth(1);
    let done = match word.as_deref() {
        Some(server::WORD) => server::serve().map(|()| String::new()),
        Some(word) => match word.parse() {
            Ok(count) => runs::measured(count),
            Err(_) => Err("give how many runs: 1000".into()),
        },
        None => runs::measured(1_000),
    };
    match done {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench-suspended: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Memory is read from `/proc`.
#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    ExitCode::FAILURE
}
