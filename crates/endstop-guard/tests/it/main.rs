//! Behaviour of `endstop-guard`, one module per subject.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test where it stands")]

mod exchange;
