//! The behaviour of `endstop-wire`, one module a subject; recordings come from `testdata/`.

mod bad_input;
mod decode;
mod encode;
mod precedence;
mod providers;
mod recordings;
mod sse;
