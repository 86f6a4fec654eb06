//! The behaviour of `endstop-trajectory`, one module a subject; recordings come from `fixtures/`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::type_complexity,
    clippy::pedantic,
    missing_docs,
    unreachable_pub,
    dead_code,
    reason = "tests"
)]

mod broken;
mod common;
mod files;
mod read_atif;
mod read_intercode;
mod read_messages;
mod read_neutral;
mod read_swe_agent;
mod read_tau;
mod round_trip;
