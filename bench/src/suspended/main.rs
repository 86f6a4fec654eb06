//! `bench-suspended [RUNS]`: measures the memory of runs whose streams are silent, and the time to
//! end all of them when they are terminated at once.
//!
//! ```text
//! target/release/bench-suspended 1000
//! ```
//!
//! The scripted server is a second process of this program, so that its memory is not counted. Each
//! run has its own loop. All loops share a provider, and each run has received a first delta.

#[cfg(target_os = "linux")]
mod runs;
#[cfg(target_os = "linux")]
mod server;

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    let word = std::env::args().nth(1);
    let done = match word.as_deref() {
        Some(server::WORD) => server::serve().map(|()| String::new()),
        Some(word) => match word.parse() {
            Ok(count) => runs::measured(count),
            Err(_) => Err("expected the number of runs, for example 1000".into()),
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

/// Exits with a failure, because memory is read from `/proc`.
#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    ExitCode::FAILURE
}
