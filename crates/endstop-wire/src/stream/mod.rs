//! Splits the body of a response into events: server-sent events, Amazon's event stream, and JSON.

pub(crate) mod elements;
pub mod eventstream;
pub mod json_end;
pub mod members;
pub(crate) mod plain_text;
pub mod sniff;
pub mod sse;
