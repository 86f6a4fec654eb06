//! JSON shapes of the Responses API. Parsing is lenient: a field of an unexpected type counts as
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
    pub(super) output_index: Count,
    #[serde(borrow, default)]
    pub(super) item_id: Str<'a>,
    #[serde(borrow, default)]
    pub(super) delta: Str<'a>,
    #[serde(borrow, default)]
    pub(super) item: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) response: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
}

/// A response: a complete body, or the payload of a stream event.
#[derive(Deserialize)]
pub(super) struct Response<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Str<'a>,
    #[serde(borrow, default)]
    pub(super) id: Str<'a>,
    #[serde(borrow, default)]
    pub(super) model: Str<'a>,
    #[serde(borrow, default)]
    pub(super) status: Str<'a>,
    #[serde(borrow, default)]
    pub(super) service_tier: Str<'a>,
    #[serde(borrow, default)]
    pub(super) incomplete_details: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) output: Option<List<&'a RawValue>>,
    #[serde(borrow, default)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
    /// Azure: findings of its content filters.
    #[serde(borrow, default)]
    pub(super) content_filters: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct IncompleteDetails<'a> {
    #[serde(borrow, default)]
    pub(super) reason: Str<'a>,
}

/// An item of the output.
#[derive(Deserialize, Default)]
pub(super) struct Item<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Str<'a>,
    #[serde(borrow, default)]
    pub(super) id: Str<'a>,
    #[serde(borrow, default)]
    pub(super) call_id: Str<'a>,
    #[serde(borrow, default)]
    pub(super) name: Str<'a>,
    #[serde(borrow, default)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) summary: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) encrypted_content: Str<'a>,
    /// A string of JSON. Some items have the object itself.
    #[serde(borrow, default)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) input: Str<'a>,
    #[serde(borrow, default)]
    pub(super) action: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) operation: Option<&'a RawValue>,
    /// Code that the provider runs.
    #[serde(borrow, default)]
    pub(super) code: Str<'a>,
    /// `client` or `server`: the side that runs a `tool_search_call`.
    #[serde(borrow, default)]
    pub(super) execution: Str<'a>,
    // Fields that a message or call must carry when it is sent back.
    #[serde(borrow, default)]
    pub(super) phase: Str<'a>,
    #[serde(borrow, default)]
    pub(super) status: Str<'a>,
    #[serde(borrow, default)]
    pub(super) namespace: Str<'a>,
    #[serde(borrow, default)]
    pub(super) caller: Option<&'a RawValue>,
}

/// A part of a message's or reasoning item's content.
#[derive(Deserialize)]
pub(super) struct Piece<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Str<'a>,
    #[serde(borrow, default)]
    pub(super) text: Str<'a>,
    #[serde(borrow, default)]
    pub(super) refusal: Str<'a>,
    #[serde(borrow, default)]
    pub(super) logprobs: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct Logprob {
    pub(super) logprob: f64,
}

#[derive(Deserialize, Default)]
pub(super) struct Usage<'a> {
    #[serde(default)]
    pub(super) input_tokens: Count,
    #[serde(default)]
    pub(super) output_tokens: Count,
    #[serde(default)]
    pub(super) total_tokens: Count,
    #[serde(borrow, default)]
    pub(super) input_tokens_details: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) output_tokens_details: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) cost: Option<&'a RawValue>,
    /// xAI: the cost in ten-billionths of a dollar.
    #[serde(default)]
    pub(super) cost_in_usd_ticks: Count,
    /// OpenRouter: `true` if the user's own key of another provider paid for the tokens.
    #[serde(borrow, default)]
    pub(super) is_byok: Str<'a>,
    #[serde(borrow, default)]
    pub(super) cost_details: Option<&'a RawValue>,
}

/// Details of the input or the output side of the usage.
#[derive(Deserialize, Default)]
pub(super) struct Details {
    #[serde(default, rename = "cached_tokens")]
    pub(super) cached: Count,
    #[serde(default, rename = "cache_write_tokens")]
    pub(super) cache_write: Count,
    #[serde(default, rename = "reasoning_tokens")]
    pub(super) reasoning: Count,
}

/// Returns the raw value, unless it is absent or null.
pub(super) fn filled(raw: Option<&RawValue>) -> Option<&RawValue> {
    raw.filter(|r| r.get() != "null")
}

/// Details of the cost.
#[derive(Deserialize)]
pub(super) struct CostDetails {
    #[serde(default)]
    pub(super) upstream_inference_cost: Option<f64>,
}
