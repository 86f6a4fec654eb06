//! Finds, opens, unpacks and splits files: from a path to chunks of records.
//!
//! ```text
//! source ──open──► unpack ──detect──► file ──json_list──► chunk ──► the reader of the format
//! ```

pub(crate) mod chunk;
mod detect;
pub(crate) mod file;
pub(crate) mod json_lines;
mod json_list;
pub(crate) mod memory;
pub(crate) mod open;
pub(crate) mod repair;
pub(crate) mod source;
pub(crate) mod truncated;
pub(crate) mod unpack;
