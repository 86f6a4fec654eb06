//! JSON shapes of Converse. Parsing is lenient: a field of an unexpected type counts as missing.

use crate::bounded::List;
use crate::json::{Count, Str};
use serde::Deserialize;
use serde_json::value::RawValue;

/// A complete body, or a message of a stream with its type as its only field.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Object<'a> {
    #[serde(borrow, default)]
    pub(super) output: Option<Output<'a>>,
    #[serde(borrow, default)]
    pub(super) stop_reason: Str<'a>,
    #[serde(borrow, default)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) service_tier: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) performance_config: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) trace: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) additional_model_response_fields: Option<&'a RawValue>,
    /// Message of an error.
    #[serde(borrow, default)]
    pub(super) message: Str<'a>,
    #[serde(borrow, default)]
    pub(super) content_block_start: Option<Event<'a>>,
    #[serde(borrow, default)]
    pub(super) content_block_delta: Option<Event<'a>>,
    #[serde(borrow, default)]
    pub(super) message_stop: Option<Event<'a>>,
    #[serde(borrow, default)]
    pub(super) metadata: Option<Event<'a>>,
    #[serde(borrow, default)]
    pub(super) internal_server_exception: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) model_stream_error_exception: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) model_timeout_exception: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) service_unavailable_exception: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) throttling_exception: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) validation_exception: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct Output<'a> {
    #[serde(borrow, default)]
    pub(super) message: Option<Message<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow, default)]
    pub(super) content: Option<List<&'a RawValue>>,
}

/// Payload of a stream message, with the fields of all types.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event<'a> {
    #[serde(default)]
    pub(super) content_block_index: Count,
    #[serde(borrow, default)]
    pub(super) start: Option<Start<'a>>,
    #[serde(borrow, default)]
    pub(super) delta: Option<Delta<'a>>,
    #[serde(borrow, default)]
    pub(super) stop_reason: Str<'a>,
    #[serde(borrow, default)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) service_tier: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) performance_config: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) trace: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) additional_model_response_fields: Option<&'a RawValue>,
}

/// Start of a block. Blocks of text or reasoning have none and begin with their first delta.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Start<'a> {
    #[serde(borrow, default)]
    pub(super) tool_use: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) tool_result: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Delta<'a> {
    #[serde(borrow, default)]
    pub(super) text: Str<'a>,
    #[serde(borrow, default)]
    pub(super) tool_use: Option<ToolUseDelta<'a>>,
    #[serde(borrow, default)]
    pub(super) tool_result: Option<List<&'a RawValue>>,
    #[serde(borrow, default)]
    pub(super) reasoning_content: Option<ReasoningDelta<'a>>,
}

#[derive(Deserialize)]
pub(super) struct ToolUseDelta<'a> {
    #[serde(borrow, default)]
    pub(super) input: Str<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReasoningDelta<'a> {
    #[serde(borrow, default)]
    pub(super) text: Str<'a>,
    #[serde(borrow, default)]
    pub(super) signature: Str<'a>,
    /// Base64 data.
    #[serde(borrow, default)]
    pub(super) redacted_content: Str<'a>,
}

/// A content block of a complete body.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Block<'a> {
    #[serde(borrow, default)]
    pub(super) text: Str<'a>,
    #[serde(borrow, default)]
    pub(super) tool_use: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) reasoning_content: Option<Reasoning<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolUse<'a> {
    #[serde(borrow, default, rename = "toolUseId")]
    pub(super) id: Str<'a>,
    #[serde(borrow, default)]
    pub(super) name: Str<'a>,
    #[serde(borrow, default)]
    pub(super) input: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Str<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reasoning<'a> {
    #[serde(borrow, default)]
    pub(super) reasoning_text: Option<ReasoningText<'a>>,
    #[serde(borrow, default)]
    pub(super) redacted_content: Str<'a>,
}

#[derive(Deserialize)]
pub(super) struct ReasoningText<'a> {
    #[serde(borrow, default)]
    pub(super) text: Str<'a>,
    #[serde(borrow, default)]
    pub(super) signature: Str<'a>,
}

/// Tokens written to the cache with one lifetime.
#[derive(Deserialize)]
pub(super) struct CacheDetail<'a> {
    #[serde(borrow, default)]
    pub(super) ttl: Str<'a>,
    #[serde(default, rename = "inputTokens")]
    pub(super) input: Count,
}

/// Token counts. Cached tokens are not included in the input.
#[derive(Deserialize)]
pub(super) struct Usage<'a> {
    #[serde(default, rename = "inputTokens")]
    pub(super) input: Count,
    #[serde(default, rename = "outputTokens")]
    pub(super) output: Count,
    #[serde(default, rename = "cacheReadInputTokens")]
    pub(super) cache_read: Count,
    #[serde(default, rename = "cacheWriteInputTokens")]
    pub(super) cache_write: Count,
    /// The tokens written, by lifetime.
    #[serde(borrow, default, rename = "cacheDetails")]
    pub(super) cache_details: Option<&'a RawValue>,
}

/// The service tier.
#[derive(Deserialize)]
pub(super) struct ServiceTier<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Str<'a>,
}

#[derive(Deserialize)]
pub(super) struct PerformanceConfig<'a> {
    #[serde(borrow, default)]
    pub(super) latency: Str<'a>,
}
