//! Reads the bodies of model calls: one file for each format, and the parts that they share.
//!
//! A body is read in two steps. [`Request::read`] finds the fields and the beginning and end of each
//! message, without parsing the messages. A message is parsed only if it is needed, because a
//! history is sent again with each call.

mod anthropic;
mod caps;
mod chat;
mod cohere;
mod converse;
mod fields;
mod gemini;
mod hosted;
mod media;
mod parts;
mod request;
mod responses;
mod strict;
mod tools;
mod top;

pub(super) use caps::cap_place;
pub(crate) use fields::Fields;
pub use request::{Request, Unreadable};
pub use top::Structured;
