//! The behaviour of `endstop-core`, one module a subject; vectors come from `testdata/`.
