//! The behaviour of `endstop-wire`, one module a subject; recordings come from `testdata/`.

mod catalogue;
mod recordings;
