//! Tasks of the project that are no tests: `cargo xtask NAME`.
//!
//! | task | does |
//! |---|---|
//! | `faults` | puts twenty faults into the kernel, one by one, and says which test catches each |
//! | `llama` | fetches a small model and a llama-server, and runs endstop against them |
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it talks to whoever runs it")]

mod faults;
mod llama;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let task = args.next();
    let rest: Vec<String> = args.collect();
    let result = match task.as_deref() {
        Some("faults") => faults::run(&rest),
        Some("llama") => llama::run(&rest),
        _ => Err("usage: cargo xtask faults [NAME…] | cargo xtask llama".to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("xtask: {problem}");
            ExitCode::FAILURE
        }
    }
}
