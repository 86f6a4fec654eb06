//! `bench-stops [TIMES]`: how long it takes from a stop to the last exit, and whether any process is
//! left, and what a keeper adds to a command.
//!
//! ```text
//! cargo build --release -p endstop-cli -p endstop-bench
//! target/release/bench-stops 100
//! ```
//!
//! Each run is a real one of `endstop run`, beside this program, against a scripted server; its
//! model calls `shell` with a command that sleeps. A process is watched by a descriptor from before
//! the stop until it has ended.

#[cfg(target_os = "linux")]
mod runs;

use std::process::ExitCode;

#[cfg(target_os = "linux")]
#[expect(clippy::print_stderr, reason = "a program")]
fn main() -> ExitCode {
    // Without a keeper only where this is what is measured.
    let words: Vec<String> = std::env::args().skip(1).collect();
    let bare = words.first().is_some_and(|word| word == "bare");
    if !bare && let Some(code) = endstop::process::keeper::serve_if_asked() {
        return code;
    }
    let done = match words.first().map(String::as_str) {
        Some("bare" | "kept") => runs::trues(200),
        times => match times.map_or(Ok(100), str::parse) {
            Ok(times) => runs::table(times).and_then(|()| runs::overhead()),
            Err(_) => Err("give how many times: 100".into()),
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-stops: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Processes are watched by descriptors that other systems do not have.
#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    ExitCode::FAILURE
}
