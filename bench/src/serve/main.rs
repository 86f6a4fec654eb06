//! `bench-serve --endstop PROGRAM [--runs N] [--rounds N] [--idle N] [--out FILE]`: measures what
//! `endstop serve` adds to runs of the library, and what its readers cost.
//!
//! ```text
//! target/release/bench-serve --endstop target/release/endstop
//! ```
//!
//! A run has ten turns: nine calls of `read_file`, and an answer; each turn streams twelve chunks. In
//! each round the library performs all runs in a process of its own, 64 at once, with a journal and
//! without one; then `endstop serve` performs them for 64 clients, each of which starts a run by HTTP
//! and reads its events to the end. The model's server is a process of this program, too. Each chunk
//! has the time at which it was sent, from which the reader computes its delay. Linux only, because
//! processor time and memory are read from `/proc`.

#[cfg(target_os = "linux")]
mod client;
#[cfg(target_os = "linux")]
mod idle;
#[cfg(target_os = "linux")]
mod library;
#[cfg(target_os = "linux")]
mod model;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod report;
#[cfg(target_os = "linux")]
mod serving;

use std::process::ExitCode;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Failure>;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    match report::main(&std::env::args().skip(1).collect::<Vec<String>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-serve: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Exits with a failure, because memory is read from `/proc`.
#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    ExitCode::FAILURE
}
