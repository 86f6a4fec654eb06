//! Tests of MCP servers, which are separate processes or sockets. The test program also plays the
//! servers, their keeper and a host that is killed, so it does not use the default test harness:
//! `cargo test -p endstop --test mcp [PART OF A NAME]`.
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

#[cfg(target_os = "linux")]
mod address;
#[cfg(target_os = "linux")]
mod checks;
#[cfg(target_os = "linux")]
mod hosts;
#[cfg(target_os = "linux")]
#[path = "../../../endstop-process/tests/kept/processes.rs"]
mod processes;
#[cfg(target_os = "linux")]
mod server;
#[cfg(target_os = "linux")]
mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("--without-keeper") {
        // These checks run without a keeper.
    } else if let Some(code) = endstop::process::keeper::serve_if_asked() {
        return code;
    }
    #[cfg(target_os = "linux")]
    {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["--server", mode, log] => server::play(mode, log),
            ["--host", mark] => hosts::hold(mark),
            _ => support::all(&words),
        }
    }
    #[cfg(not(target_os = "linux"))]
    ExitCode::SUCCESS
}
