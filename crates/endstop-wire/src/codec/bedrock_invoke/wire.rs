//! JSON shapes of InvokeModel. Parsing is lenient: a field of an unexpected type counts as missing.

use crate::bounded::List;
use crate::json::{Count, Str};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// Payload of a `chunk` frame. Its padding is ignored.
#[derive(Deserialize)]
pub(super) struct Chunk<'a> {
    /// The model's own event, in Base64.
    #[serde(borrow, default)]
    pub(super) bytes: Str<'a>,
}

/// Fields that Bedrock adds to a model's own, and fields that identify the model's format.
#[derive(Deserialize)]
pub(super) struct Mark<'a> {
    #[serde(borrow, default, rename = "amazon-bedrock-invocationMetrics")]
    pub(super) metrics: Option<&'a RawValue>,
    /// `INTERVENED` or `NONE`.
    #[serde(borrow, default, rename = "amazon-bedrock-guardrailAction")]
    pub(super) guardrail: Str<'a>,
    #[serde(borrow, default, rename = "amazon-bedrock-trace")]
    pub(super) trace: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Str<'a>,
    #[serde(borrow, default)]
    pub(super) choices: Option<List<Choice<'a>>>,
    /// Fields of Nova.
    #[serde(default)]
    pub(super) output: Option<IgnoredAny>,
    #[serde(default, rename = "messageStart")]
    pub(super) message_start: Option<IgnoredAny>,
    #[serde(default, rename = "contentBlockStart")]
    pub(super) content_block_start: Option<IgnoredAny>,
    #[serde(default, rename = "contentBlockDelta")]
    pub(super) content_block_delta: Option<IgnoredAny>,
    #[serde(default, rename = "messageStop")]
    pub(super) message_stop: Option<IgnoredAny>,
    /// Fields of text-only models.
    #[serde(borrow, default)]
    pub(super) completion: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) completions: Option<List<Jurassic<'a>>>,
    #[serde(borrow, default)]
    pub(super) generation: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) generations: Option<List<Piece<'a>>>,
    #[serde(borrow, default)]
    pub(super) outputs: Option<List<Piece<'a>>>,
    #[serde(borrow, default)]
    pub(super) results: Option<List<Titan<'a>>>,
    #[serde(borrow, default, rename = "outputText")]
    pub(super) output_text: Str<'a>,
    #[serde(borrow, default)]
    pub(super) text: Str<'a>,
    #[serde(borrow, default, rename = "completionReason")]
    pub(super) completion_reason: Str<'a>,
    #[serde(borrow, default)]
    pub(super) stop_reason: Str<'a>,
    #[serde(borrow, default)]
    pub(super) finish_reason: Str<'a>,
    /// Tool calls in a format that is not supported.
    #[serde(default)]
    pub(super) tool_calls: Option<List<IgnoredAny>>,
    /// Stop string of Claude's text completions.
    #[serde(borrow, default)]
    pub(super) stop: Str<'a>,
    #[serde(default)]
    pub(super) prompt_token_count: Count,
    #[serde(default)]
    pub(super) generation_token_count: Count,
    #[serde(default, rename = "inputTextTokenCount")]
    pub(super) input_text_token_count: Count,
    #[serde(default, rename = "totalOutputTextTokenCount")]
    pub(super) total_output_text_token_count: Count,
    /// Message of an error.
    #[serde(borrow, default)]
    pub(super) message: Str<'a>,
}

/// A choice of a text model. OpenAI's has a message or a delta instead of a text.
#[derive(Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(borrow, default)]
    pub(super) text: Str<'a>,
    #[serde(borrow, default)]
    pub(super) stop_reason: Str<'a>,
    #[serde(borrow, default)]
    pub(super) finish_reason: Str<'a>,
}

/// An output of Mistral or a generation of Cohere.
#[derive(Deserialize)]
pub(super) struct Piece<'a> {
    #[serde(borrow, default)]
    pub(super) text: Str<'a>,
    #[serde(borrow, default)]
    pub(super) stop_reason: Str<'a>,
    #[serde(borrow, default)]
    pub(super) finish_reason: Str<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Titan<'a> {
    #[serde(borrow, default)]
    pub(super) output_text: Str<'a>,
    #[serde(default)]
    pub(super) token_count: Count,
    #[serde(borrow, default)]
    pub(super) completion_reason: Str<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Jurassic<'a> {
    #[serde(borrow, default)]
    pub(super) data: Option<Data<'a>>,
    #[serde(borrow, default)]
    pub(super) finish_reason: Option<Reason<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Data<'a> {
    #[serde(borrow, default)]
    pub(super) text: Str<'a>,
}

#[derive(Deserialize)]
pub(super) struct Reason<'a> {
    #[serde(borrow, default)]
    pub(super) reason: Str<'a>,
}

/// Token counts by Bedrock, in the last chunk of a stream.
#[derive(Deserialize)]
pub(super) struct Metrics {
    #[serde(default, rename = "inputTokenCount")]
    pub(super) input: Count,
    #[serde(default, rename = "outputTokenCount")]
    pub(super) output: Count,
    #[serde(default, rename = "cacheReadInputTokenCount")]
    pub(super) cache_read: Count,
    #[serde(default, rename = "cacheWriteInputTokenCount")]
    pub(super) cache_write: Count,
}
