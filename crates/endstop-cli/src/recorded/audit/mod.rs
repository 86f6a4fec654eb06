//! The sessions that coding agents left on disk: where they are, and the results of a scan.

pub(crate) mod find;
pub(crate) mod found;
mod progress;

pub(crate) use found::Found;
