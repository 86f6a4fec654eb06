//! JSON shapes of `generateContent`. Parsing is lenient: a field of an unexpected type counts as
//! missing.

use crate::bounded::{Choices, List};
use crate::json::{Count, Str};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Prefix of an id that was generated here, for a call that came without one.
pub(super) const MADE_ID: &str = "call_gemini_";

/// A chunk of a stream, or a complete body.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Chunk<'a> {
    #[serde(borrow, default)]
    pub(super) candidates: Option<Choices<Candidate<'a>>>,
    #[serde(borrow, default)]
    pub(super) prompt_feedback: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) usage_metadata: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) model_version: Str<'a>,
    #[serde(borrow, default)]
    pub(super) response_id: Str<'a>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Candidate<'a> {
    #[serde(default)]
    pub(super) index: Count,
    #[serde(borrow, default)]
    pub(super) content: Option<&'a RawValue>,
    /// Name of the value, or its number in the enumeration.
    #[serde(borrow, default)]
    pub(super) finish_reason: Str<'a>,
    #[serde(borrow, default)]
    pub(super) finish_message: Str<'a>,
    #[serde(borrow, default)]
    pub(super) safety_ratings: Option<&'a RawValue>,
    /// The searches that the answer is based on.
    #[serde(borrow, default)]
    pub(super) grounding_metadata: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) logprobs_result: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct Content<'a> {
    #[serde(borrow, default)]
    pub(super) parts: Option<List<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Part<'a> {
    #[serde(borrow, default)]
    pub(super) text: Str<'a>,
    /// `true` if the text is a thought.
    #[serde(borrow, default)]
    pub(super) thought: Str<'a>,
    #[serde(borrow, default)]
    pub(super) thought_signature: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) function_call: Option<&'a RawValue>,
    /// Code that the provider runs.
    #[serde(borrow, default)]
    pub(super) executable_code: Option<&'a RawValue>,
}

/// Code that the model writes for the provider's interpreter.
#[derive(Deserialize)]
pub(super) struct Code<'a> {
    #[serde(borrow, default)]
    pub(super) code: Str<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Call<'a> {
    #[serde(borrow, default)]
    pub(super) id: Str<'a>,
    #[serde(borrow, default)]
    pub(super) name: Str<'a>,
    #[serde(borrow, default)]
    pub(super) args: Option<&'a RawValue>,
    /// Arguments in fragments, which Vertex AI sends if the request asks for it.
    #[serde(borrow, default)]
    pub(super) partial_args: Option<List<Piece<'a>>>,
    #[serde(borrow, default)]
    pub(super) will_continue: Str<'a>,
}

/// A fragment of a call's arguments: a value or part of a string, and its position.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Piece<'a> {
    #[serde(borrow, default)]
    pub(super) json_path: Str<'a>,
    #[serde(borrow, default)]
    pub(super) string_value: Str<'a>,
    #[serde(borrow, default)]
    pub(super) number_value: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) bool_value: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) will_continue: Str<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Feedback<'a> {
    #[serde(borrow, default)]
    pub(super) block_reason: Str<'a>,
    #[serde(borrow, default)]
    pub(super) block_reason_message: Str<'a>,
    #[serde(borrow, default)]
    pub(super) safety_ratings: Option<&'a RawValue>,
}

/// Token counts. Thoughts are not included in the candidates, and the results of the server's tools
/// not in the prompt.
#[derive(Deserialize)]
pub(super) struct Usage<'a> {
    #[serde(default, rename = "promptTokenCount")]
    pub(super) prompt: Count,
    #[serde(default, rename = "candidatesTokenCount")]
    pub(super) candidates: Count,
    #[serde(default, rename = "cachedContentTokenCount")]
    pub(super) cached: Count,
    #[serde(default, rename = "thoughtsTokenCount")]
    pub(super) thoughts: Count,
    #[serde(default, rename = "toolUsePromptTokenCount")]
    pub(super) tool_prompt: Count,
    #[serde(borrow, default, rename = "serviceTier")]
    pub(super) service_tier: Str<'a>,
    /// Vertex: the same.
    #[serde(borrow, default, rename = "trafficType")]
    pub(super) traffic_type: Str<'a>,
    // Counts by kind of content.
    #[serde(borrow, default, rename = "promptTokensDetails")]
    pub(super) prompt_details: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "candidatesTokensDetails")]
    pub(super) candidates_details: Option<&'a RawValue>,
}

/// The tokens of one kind of content.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ModalityCount<'a> {
    /// Name of the kind, or its number in the enumeration.
    #[serde(borrow, default)]
    pub(super) modality: Str<'a>,
    #[serde(default)]
    pub(super) token_count: Count,
}

/// Log probabilities of a candidate.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Logprobs {
    #[serde(default)]
    pub(super) chosen_candidates: Option<Vec<Logprob>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Logprob {
    pub(super) log_probability: f64,
}
