//! `bench-chaos [RUNS] [SEED] [--leak fd|task|process|connection] [--fault denial|message|replay]`: a
//! stress test. It makes runs over servers that answer well, badly or not at all, some with user code
//! that refuses, panics, hangs or blocks, and with a journal. It steers, parks, answers and stops them
//! at random moments, compares them with their journals, and checks for leaks.
//!
//! ```text
//! cargo build --release -p endstop-bench
//! target/release/bench-chaos 10000
//! ```
//!
//! It prints how the runs ended. It exits with 1 if a run did not end exactly once, a conversation
//! is not valid, a budget exceeded its ceiling, or anything is left: a connection, a descriptor, a
//! task, a thread or a process. `--leak` leaks something on purpose, and `--fault` approves a denied
//! call, loses a message or changes a replay, which the test must detect.

#[cfg(target_os = "linux")]
mod answers;
#[cfg(target_os = "linux")]
mod budgets;
#[cfg(target_os = "linux")]
mod checks;
#[cfg(target_os = "linux")]
mod dice;
#[cfg(target_os = "linux")]
mod heard;
#[cfg(target_os = "linux")]
mod left;
#[cfg(target_os = "linux")]
mod parks;
#[cfg(target_os = "linux")]
mod rough;
#[cfg(target_os = "linux")]
mod rounds;
#[cfg(target_os = "linux")]
mod runs;
#[cfg(target_os = "linux")]
mod setup;
#[cfg(target_os = "linux")]
mod steer;
#[cfg(target_os = "linux")]
mod stored;
#[cfg(target_os = "linux")]
mod tally;
#[cfg(target_os = "linux")]
mod tools;
#[cfg(target_os = "linux")]
mod verdicts;

use std::process::ExitCode;

#[cfg(target_os = "linux")]
#[expect(clippy::print_stderr, reason = "a program")]
fn main() -> ExitCode {
    // Commands of the tool `shell` start this program again as their keeper.
    if let Some(code) = endstop::process::keeper::serve_if_asked() {
        return code;
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    match rounds::Plan::read(&words).and_then(|plan| rounds::all(&plan)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench-chaos: {error}");
            ExitCode::from(2)
        }
    }
}

/// Exits with a failure, because leaks are read from `/proc`.
#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    ExitCode::FAILURE
}
