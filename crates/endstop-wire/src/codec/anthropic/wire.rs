//! JSON shapes of Anthropic messages. Parsing is lenient: a field of an unexpected type counts as
//! missing.

use crate::bounded::List;
use crate::json::{Count, Str};
use serde::Deserialize;
use serde_json::value::RawValue;

/// An event of a stream.
#[derive(Deserialize)]
pub(super) struct Event<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Str<'a>,
    #[serde(default)]
    pub(super) index: Count,
    #[serde(borrow, default)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) content_block: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) delta: Option<Delta<'a>>,
    #[serde(borrow, default)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) context_management: Option<&'a RawValue>,
}

/// A delta of a block or of the message. The two share this type because both use the field
/// `delta`.
#[derive(Deserialize)]
pub(super) struct Delta<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Str<'a>,
    #[serde(borrow, default)]
    pub(super) text: Str<'a>,
    #[serde(borrow, default)]
    pub(super) thinking: Str<'a>,
    #[serde(borrow, default)]
    pub(super) signature: Str<'a>,
    #[serde(borrow, default)]
    pub(super) partial_json: Str<'a>,
    #[serde(borrow, default)]
    pub(super) citation: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) stop_reason: Str<'a>,
    #[serde(borrow, default)]
    pub(super) stop_sequence: Str<'a>,
    #[serde(borrow, default)]
    pub(super) stop_details: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) container: Option<&'a RawValue>,
}

/// A message: a complete body, or the `message_start` of a stream.
#[derive(Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Str<'a>,
    #[serde(borrow, default)]
    pub(super) id: Str<'a>,
    #[serde(borrow, default)]
    pub(super) model: Str<'a>,
    #[serde(borrow, default)]
    pub(super) content: Option<List<&'a RawValue>>,
    #[serde(borrow, default)]
    pub(super) stop_reason: Str<'a>,
    #[serde(borrow, default)]
    pub(super) stop_sequence: Str<'a>,
    #[serde(borrow, default)]
    pub(super) stop_details: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) container: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) context_management: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
}

/// A content block.
#[derive(Deserialize)]
pub(super) struct Block<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Str<'a>,
    #[serde(borrow, default)]
    pub(super) text: Str<'a>,
    #[serde(borrow, default)]
    pub(super) thinking: Str<'a>,
    #[serde(borrow, default)]
    pub(super) signature: Str<'a>,
    #[serde(borrow, default)]
    pub(super) id: Str<'a>,
    #[serde(borrow, default)]
    pub(super) name: Str<'a>,
    #[serde(borrow, default)]
    pub(super) input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) caller: Option<Caller<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Caller<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Str<'a>,
}

#[derive(Deserialize)]
pub(super) struct Usage<'a> {
    #[serde(default)]
    pub(super) input_tokens: Count,
    #[serde(default)]
    pub(super) output_tokens: Count,
    #[serde(default)]
    pub(super) cache_read_input_tokens: Count,
    #[serde(default)]
    pub(super) cache_creation_input_tokens: Count,
    /// The tokens by lifetime.
    #[serde(borrow, default)]
    pub(super) cache_creation: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) output_tokens_details: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) service_tier: Str<'a>,
    /// `fast` has a price of its own.
    #[serde(borrow, default)]
    pub(super) speed: Str<'a>,
    /// Region of the inference: `us` has a surcharge.
    #[serde(borrow, default)]
    pub(super) inference_geo: Str<'a>,
    #[serde(borrow, default)]
    pub(super) server_tool_use: Option<&'a RawValue>,
    /// Usage of each sampling step. The other counts do not include steps of compaction, or of
    /// another model that advises.
    #[serde(borrow, default)]
    pub(super) iterations: Option<List<&'a RawValue>>,
}

/// The numbers of calls of the server's tools that have a fee. Fetching a page has none.
#[derive(Deserialize)]
pub(super) struct ServerToolUse {
    #[serde(default)]
    pub(super) web_search_requests: Count,
    #[serde(default)]
    pub(super) code_execution_requests: Count,
}

/// A step of sampling.
#[derive(Deserialize)]
pub(super) struct Iteration<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Str<'a>,
}

/// Tokens written to the cache, by lifetime.
#[derive(Deserialize)]
pub(super) struct CacheCreation {
    #[serde(default)]
    pub(super) ephemeral_1h_input_tokens: Count,
}

#[derive(Deserialize)]
pub(super) struct OutputDetails {
    #[serde(default)]
    pub(super) thinking_tokens: Count,
    #[serde(default)]
    pub(super) reasoning_tokens: Count,
}
