//! JSON shapes of `/v1/chat`. Parsing is lenient: a field of an unexpected type counts as missing.

use crate::json::Str;
use serde::Deserialize;
use serde_json::value::RawValue;

/// An event of a stream, or a complete body, which is an event without a type.
#[derive(Deserialize)]
pub(super) struct Event<'a> {
    #[serde(borrow, default, rename = "event_type")]
    pub(super) kind: Str<'a>,
    #[serde(borrow, default)]
    pub(super) generation_id: Str<'a>,
    #[serde(borrow, default)]
    pub(super) text: Str<'a>,
    #[serde(borrow, default)]
    pub(super) tool_calls: Option<&'a RawValue>,
    /// A fragment of a call that arrives complete later, or of the text before it.
    #[serde(borrow, default)]
    pub(super) tool_call_delta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) finish_reason: Str<'a>,
    #[serde(borrow, default)]
    pub(super) meta: Option<&'a RawValue>,
    /// The complete response, repeated at the end of a stream.
    #[serde(borrow, default)]
    pub(super) response: Option<&'a RawValue>,
    // An error has these fields instead.
    #[serde(borrow, default)]
    pub(super) message: Str<'a>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct Piece<'a> {
    #[serde(borrow, default)]
    pub(super) text: Str<'a>,
}

#[derive(Deserialize)]
pub(super) struct Call<'a> {
    #[serde(borrow, default)]
    pub(super) name: Str<'a>,
    #[serde(borrow, default)]
    pub(super) parameters: Option<&'a RawValue>,
}
