//! A request to the scripted server.
//!
//! ```text
//! server.requests()[0].body["model"]
//! ```

use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Instant;

/// A request that the server received.
#[derive(Clone, Debug)]
pub struct Request {
    /// Number of the request, from 1.
    pub number: u64,
    /// Time at which the request was complete.
    pub at: Instant,
    /// Method, for example `POST`.
    pub method: String,
    /// Path of the request.
    pub path: String,
    /// Headers, by lower-case name.
    pub headers: BTreeMap<String, String>,
    /// Body as JSON; null if it is not valid JSON.
    pub body: Value,
    /// Body as received.
    pub bytes: Vec<u8>,
}
