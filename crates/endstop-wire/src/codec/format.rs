//! A row of the table of wire formats, which each folder has, with a function for each direction.
//!
//! | | client | server |
//! |---|---|---|
//! | request | `encode` | `read` |
//! | response | `decode` | `write` |
//!
//! A row without one of them does not compile. A format that is only read states so.

use super::request::{Encode, Fields, RequestReader, RequestSpec};
use super::response::RequestFacts;
use super::response::tail::Watch;
use super::response::turn::Accumulate;
use super::response::write::{Closing, Event, Response};
use crate::dialect::Dialect;
use serde_json::Value;

/// Creates the encoder of a conversation's requests.
pub(crate) type NewEncoder = fn(&Dialect, &RequestSpec) -> Box<dyn Encode>;

/// A wire format.
pub(crate) struct Format {
    /// `None`: requests are only read.
    pub(crate) encode: Option<NewEncoder>,
    /// Selects the reader of a request's body.
    pub(crate) read: fn(&Fields<'_>) -> Option<&'static RequestReader>,
    /// Creates the state that collects a response.
    pub(crate) decode: fn(&'static Dialect, &RequestFacts) -> Box<dyn Accumulate>,
    /// Writes responses. `None`: responses are only read.
    pub(crate) write: Option<&'static ResponseWriter>,
    /// Writes the body of an error, with its message and the id of the request.
    pub(crate) error: fn(&str, &str) -> Value,
    /// Writes the body of the error of a request that continues a response which the server does not have, with its
    /// message. `None`: a request in this format refers to no earlier response.
    pub(crate) unknown_response: Option<fn(&str) -> Value>,
}

/// The writer of a format.
pub(crate) struct ResponseWriter {
    /// Returns a whole body.
    pub(crate) body: fn(&Response<'_>) -> Value,
    /// Returns the events of a stream.
    pub(crate) events: fn(&Response<'_>) -> Vec<Event>,
    /// Returns the bytes of an event.
    pub(crate) frame: fn(&Event) -> Vec<u8>,
    /// Follows a stream, so that it can be ended before its end. The values are those of the closing events.
    pub(crate) watch: fn(Closing) -> Box<dyn Watch>,
}
