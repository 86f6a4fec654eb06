//! Provider wire formats for Endstop, pure: no I/O, no clock.

pub mod prices;
pub mod providers;
