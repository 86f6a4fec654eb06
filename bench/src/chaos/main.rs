//! `bench-chaos [RUNS] [SEED] [--leak fd|task|process|connection]`: runs over servers that answer
//! well, badly or not at all, some with user code that says no, panics, hangs or blocks, stopped at
//! any moment; and what is left of them.
//!
//! ```text
//! cargo build --release -p endstop-bench
//! target/release/bench-chaos 10000
//! ```
//!
//! It prints how the runs ended, and exits with 1 where one did not end once, a conversation was
//! torn, a budget passed its ceiling, or anything is left: a connection, a descriptor, a task, a
//! thread, a process. `--leak` leaves something on purpose, which must be seen.

#[cfg(target_os = "linux")]
mod answers;
#[cfg(target_os = "linux")]
mod budgets;
#[cfg(target_os = "linux")]
mod checks;
#[cfg(target_os = "linux")]
mod dice;
#[cfg(target_os = "linux")]
mod left;
#[cfg(target_os = "linux")]
mod rough;
#[cfg(target_os = "linux")]
mod rounds;
#[cfg(target_os = "linux")]
mod runs;
#[cfg(target_os = "linux")]
mod tally;
#[cfg(target_os = "linux")]
mod tools;

use std::process::ExitCode;

#[cfg(target_os = "linux")]
#[expect(clippy::print_stderr, reason = "a program")]
fn main() -> ExitCode {
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

/// What is left is read from `/proc`.
#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    ExitCode::FAILURE
}
