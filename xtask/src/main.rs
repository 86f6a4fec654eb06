//! Maintenance tasks of the project that are not tests: `cargo xtask NAME`.
//!
//! | task | does |
//! |---|---|
//! | `api` | prints the size of the public API, and what is unclear in it |
//! | `arrows` | counts import circles, and imports that point up between folders |
//! | `faults` | injects ten faults into the kernel, one by one, and prints the test that catches each |
//! | `llama` | fetches a small model and a llama-server, and runs endstop against them |
//! | `models` | writes the table of context windows and output caps from a newer source |
//! | `promises` | lists absolute words about limits, secrets and endings, with the tests that hold them |
//! | `style` | looks for words that docs/STYLE.md replaces, and counts words of the comments |
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

mod api;
mod arrows;
mod faults;
mod figures;
mod llama;
mod models;
mod promises;
mod source;
mod style;

use std::process::ExitCode;

fn main() -> ExitCode {
    // Cargo starts this program in the place of rustdoc, whose status it needs.
    if let Some(status) = api::as_rustdoc() {
        return ExitCode::from(u8::try_from(status).unwrap_or(1));
    }
    let mut args = std::env::args().skip(1);
    let task = args.next();
    let rest: Vec<String> = args.collect();
    let result = match task.as_deref() {
        Some("api") => api::run(),
        Some("arrows") => arrows::run(&rest),
        Some("faults") => faults::run(),
        Some("llama") => llama::run(&rest),
        Some("style") => style::run(&rest),
        Some("promises") => promises::run(),
        Some("models") => models::run(&rest),
        _ => Err("usage: cargo xtask api | arrows [--list | --write] | faults | llama | \
                  models FILE | promises | style [--count [REV]]"
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
