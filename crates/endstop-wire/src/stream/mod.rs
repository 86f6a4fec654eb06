//! Splits the body of a response into events: server-sent events, Amazon's event stream, and JSON.

pub(crate) mod elements;
pub mod eventstream;
pub mod json_end;
mod members;
pub mod sniff;
pub mod sse;
