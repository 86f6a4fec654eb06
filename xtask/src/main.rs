//! Maintenance tasks of the project that are not tests: `cargo xtask NAME`.
//!
//! | task | does |
//! |---|---|
//! | `arrows` | counts import circles, and imports that point up between folders |
//! | `faults` | injects faults into the kernel, one by one, and prints the test that catches each |
//! | `llama` | fetches a small model and a llama-server, and runs endstop against them |
//! | `models` | writes the table of context windows and output caps from a newer source |
//! | `style` | looks for words that docs/STYLE.md replaces, and counts words of the comments |
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

mod arrows;
mod faults;
mod llama;
mod models;
mod source;
mod style;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let task = args.next();
    let rest: Vec<String> = args.collect();
    let result = match task.as_deref() {
        Some("arrows") => arrows::run(&rest),
        Some("faults") => faults::run(&rest),
        Some("llama") => llama::run(&rest),
        Some("style") => style::run(&rest),
        Some("models") => models::run(&rest),
        _ => Err("usage: cargo xtask arrows [--list | --write] | faults [NAME…] | llama | \
                  models FILE | style"
            .to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("xtask: {problem}");
            ExitCode::FAILURE
        }
    }
}
