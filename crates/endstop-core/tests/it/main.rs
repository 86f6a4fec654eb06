//! The behaviour of `endstop-core`, one module a subject; vectors come from `testdata/`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as the tests do")]

mod default_detection;
mod final_pattern;
mod policies;
mod registry;
mod termination_vectors;
mod vectors;
