//! Tests of agent programs under guard. `main` must call `serve_if_asked`, so these tests do not use
//! the default test harness: `cargo test -p endstop-guard --test agent [PART OF A NAME]`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::pedantic,
    clippy::print_stdout,
    clippy::print_stderr,
    missing_docs,
    unreachable_pub,
    dead_code,
    reason = "tests"
)]

#[cfg(unix)]
mod checks;
#[cfg(unix)]
mod host;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = endstop_process::keeper::serve_if_asked() {
        return code;
    }
    #[cfg(unix)]
    return if std::env::args().nth(1).is_some_and(|word| word == host::HOST) {
        host::host()
    } else {
        checks::all()
    };
    #[cfg(not(unix))]
    ExitCode::SUCCESS
}
