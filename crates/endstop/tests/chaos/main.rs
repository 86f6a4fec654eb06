//! Runs over servers that answer well, badly or not at all, some with user code that refuses, panics,
//! hangs or blocks, and half of them with a journal. They are steered, parked, answered and stopped at
//! random moments.
//!
//! ```text
//! cargo test -p endstop --test chaos                                          # 300 runs
//! ENDSTOP_CHAOS_RUNS=10000 cargo test --release -p endstop --test chaos       # prints tables, too
//! ```
//!
//! Sixteen conversations at once use the formats of OpenAI and Anthropic, and share a tree of budgets that
//! a thread checks continuously. The test prints the reason and fails if
//!
//! - a run does not end exactly once, its events do not end with its ending, or its fields disagree;
//! - a provider would reject a request, including requests of runs after one that was stopped;
//! - the replay of a journal differs from its run: the outcome, byte for byte, or a request of the kernel;
//! - an accepted message is lost, or a call runs whose request was denied or had expired;
//! - a budget exceeds its ceiling, keeps a reservation, or booked a sum other than that of its runs;
//! - after a round of 1,000 runs there is one more connection, descriptor, task, thread or process than
//!   before the first round.
//!
//! The seed determines all choices; sockets and threads determine the timing. Then some more
//! runs leak a connection, a task, a thread and a process, approve denied calls, lose messages and events of
//! replays, and the test fails if its checks miss one of these. Linux only, because leaks are read from `/proc`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::pedantic,
    clippy::print_stdout,
    missing_docs,
    reason = "tests"
)]

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
fn main() -> ExitCode {
    // Commands of the tool `shell` start this program again as their keeper.
    endstop::process::keeper::serve_if_asked().unwrap_or_else(rounds::all)
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    ExitCode::SUCCESS
}
