//! A response that a framework describes, because it does not show the provider's bytes.

use crate::detection::NativeDetection;
use crate::response::count;
use endstop_core::ToolCall;
use endstop_guest::describe::{Counts, Description};
use napi_derive::napi;

/// A tool call as a framework describes it.
#[napi(object)]
pub struct GivenCall {
    /// The provider's id of the call.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// The arguments: JSON text.
    pub arguments: String,
}

/// The content of a described response.
#[napi(object)]
pub struct Described {
    /// The visible text.
    pub text: Option<String>,
    /// The provider's finish value as it sent it, in any format. If it is missing or blank, the
    /// response counts as cut, and never as a success.
    pub finish: Option<String>,
    /// The tool calls.
    pub calls: Option<Vec<GivenCall>>,
    /// The text with which the model refused.
    pub refusal: Option<String>,
    /// Prompt tokens.
    pub input_tokens: Option<f64>,
    /// Generated tokens.
    pub output_tokens: Option<f64>,
    /// Prompt tokens read from a cache.
    pub cached_input_tokens: Option<f64>,
    /// Prompt tokens written to a cache.
    pub cache_write_tokens: Option<f64>,
    /// The part of `cacheWriteTokens` that is stored for an hour.
    #[napi(js_name = "cacheWrite1hTokens")]
    pub cache_write_1h_tokens: Option<f64>,
    /// Generated tokens spent on reasoning.
    pub reasoning_tokens: Option<f64>,
    /// All tokens together.
    pub total_tokens: Option<f64>,
    /// Cost in US dollars.
    pub cost_usd: Option<f64>,
    /// The model that answered.
    pub model: Option<String>,
}

/// Describes a response by hand.
#[napi(catch_unwind)]
pub fn describe(given: Described) -> NativeDetection {
    let calls = given.calls.unwrap_or_default().into_iter().map(|call| ToolCall {
        id: call.id,
        name: call.name,
        arguments: call.arguments,
    });
    NativeDetection(endstop_guest::describe::describe(Description {
        text: given.text.unwrap_or_default(),
        finish: given.finish,
        calls: calls.collect(),
        refusal: given.refusal,
        usage: endstop_core::Usage::from(Counts {
            input: given.input_tokens.map(count),
            output: given.output_tokens.map(count),
            cached_input: given.cached_input_tokens.map(count),
            cache_write: given.cache_write_tokens.map(count),
            cache_write_1h: given.cache_write_1h_tokens.map(count),
            reasoning: given.reasoning_tokens.map(count),
            total: given.total_tokens.map(count),
        }),
        cost_usd: given.cost_usd,
        model: given.model,
    }))
}
