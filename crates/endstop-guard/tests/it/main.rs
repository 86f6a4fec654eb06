//! Behaviour of `endstop-guard`, one module per subject.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::pedantic,
    missing_docs,
    reason = "a helper of a test fails the test where it stands"
)]

mod exchange;
mod gate;
mod proxy;
mod repository;
mod standing;
mod wiring;
