//! The shapes of InvokeModel, lenient: a field of an unexpected type is a missing one.

use crate::bounded::List;
use crate::json::{Count, Str};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// What a frame of the type `chunk` carries, beside padding.
#[derive(Deserialize)]
pub(super) struct Chunk<'a> {
    /// The model's own event, in base64.
    #[serde(borrow, default)]
    pub(super) bytes: Str<'a>,
}

/// What Bedrock puts beside the fields of a model, and what tells the model's format.
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
    /// Nova's fields.
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
    /// Those of text alone.
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
    /// Calls in a format that is not read.
    #[serde(default)]
    pub(super) tool_calls: Option<List<IgnoredAny>>,
    /// The stop string of Claude's text completions.
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
    /// The words of an error.
    #[serde(borrow, default)]
    pub(super) message: Str<'a>,
}

/// A choice of a text model; OpenAI's has a message or a delta instead of a text.
#[derive(Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(borrow, default)]
    pub(super) text: Str<'a>,
    #[serde(borrow, default)]
    pub(super) stop_reason: Str<'a>,
    #[serde(borrow, default)]
    pub(super) finish_reason: Str<'a>,
}

/// Mistral's output, Cohere's generation.
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

/// What Bedrock counted, in the last chunk of a stream.
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
