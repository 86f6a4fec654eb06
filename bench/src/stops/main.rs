//! `bench-stops [TIMES]`: measures the time from a stop to the exit of the last process, counts the
//! processes that are left, and measures the overhead of a keeper.
//!
//! ```text
//! target/release/bench-stops 100
//! ```
//!
//! Each run is a process of `endstop run` (from the folder of this program) against a scripted
//! server whose model calls `shell` with a command that sleeps. Every process is watched through a
//! pidfd from before the stop until it has ended, so that a reused process id cannot be mistaken
//! for it.

#[cfg(target_os = "linux")]
mod runs;

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    // Commands run without a keeper only if the argument is `bare`, which measures that.
    let words: Vec<String> = std::env::args().skip(1).collect();
    let bare = words.first().is_some_and(|word| word == "bare");
    if !bare && let Some(code) = endstop::process::keeper::serve_if_asked() {
        return code;
    }
    let done = match words.first().map(String::as_str) {
        Some("bare" | "kept") => runs::trues(200),
        times => match times.map_or(Ok(100), str::parse) {
            Ok(times) => runs::table(times).and_then(|()| runs::overhead()),
            Err(_) => Err("expected the number of repetitions, for example 100".into()),
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

/// Exits with a failure, because other systems have no pidfd.
#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    ExitCode::FAILURE
}
