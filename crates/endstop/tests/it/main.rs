//! Integration tests of `endstop`, one module per subject, with real sockets, processes and time.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::pedantic,
    missing_docs,
    unreachable_pub,
    dead_code,
    reason = "tests"
)]

mod addresses;
mod attachments;
mod azure;
mod background;
mod bedrock;
mod caching;
mod cohere;
mod compaction;
mod conversation;
mod events;
mod fallback;
mod hooks;
mod hostile_servers;
#[cfg(target_os = "linux")]
mod hostile_tools;
mod intercepted;
mod journal;
mod late_starts;
mod layers;
mod lies;
mod lifecycle;
mod many_calls;
mod messages;
mod nested;
mod ollama;
mod params;
mod parked;
#[cfg(target_os = "linux")]
#[path = "../../../endstop-process/tests/kept/processes.rs"]
mod processes;
mod record;
mod scenarios;
mod session_stops;
mod sessions;
#[cfg(target_os = "linux")]
mod shell;
mod steering;
mod support;
mod suspension;
mod testkit;
mod tools;
mod transport;
mod typed;
mod typed_tools;
mod user_code;
mod verifying;
mod vertex;
#[cfg(unix)]
mod wrapping_up;
mod write_file;
