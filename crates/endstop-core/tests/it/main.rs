//! The behaviour of `endstop-core`, one module a subject; vectors come from `testdata/`.

mod default_detection;
mod final_pattern;
mod policies;
mod registry;
mod termination_vectors;
mod vectors;
