//! The behaviour of `endstop-trajectory`, one module a subject; files are in `fixtures/`.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test where it stands")]
#![allow(clippy::needless_pass_by_value, reason = "a helper takes the JSON that is written for it")]

mod read_claude_code;
mod read_codex;
mod read_hostile;
mod read_inspect;
mod read_otel;
mod reading;
