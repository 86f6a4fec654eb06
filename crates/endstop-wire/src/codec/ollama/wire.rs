//! JSON shapes of `/api/chat`. Parsing is lenient: a string or count of an unexpected type counts
//! as missing. Calls are the exception, because a call that is lost here would never be answered.

use crate::bounded::List;
use crate::json::{Count, Str};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Prefix of an id that was generated here, for a call that came without one.
pub(super) const MADE_ID: &str = "call_ollama_";

/// An object of a stream, or a complete body.
#[derive(Deserialize)]
pub(super) struct Chunk<'a> {
    #[serde(borrow, default)]
    pub(super) model: Str<'a>,
    #[serde(borrow, default)]
    pub(super) created_at: Str<'a>,
    #[serde(borrow, default)]
    pub(super) message: Option<Message<'a>>,
    /// Text of `/api/generate`, which has no message.
    #[serde(borrow, default)]
    pub(super) response: Str<'a>,
    #[serde(borrow, default)]
    pub(super) thinking: Str<'a>,
    /// `true` in the last object.
    #[serde(borrow, default)]
    pub(super) done: Str<'a>,
    #[serde(borrow, default)]
    pub(super) done_reason: Str<'a>,
    #[serde(default)]
    pub(super) prompt_eval_count: Count,
    #[serde(default)]
    pub(super) eval_count: Count,
    #[serde(borrow, default)]
    pub(super) logprobs: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow, default)]
    pub(super) content: Str<'a>,
    #[serde(borrow, default)]
    pub(super) thinking: Str<'a>,
    #[serde(borrow, default)]
    pub(super) tool_calls: Option<List<Call<'a>>>,
}

#[derive(Deserialize)]
pub(super) struct Call<'a> {
    #[serde(borrow, default)]
    pub(super) id: Str<'a>,
    #[serde(borrow, default)]
    pub(super) function: Option<Function<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Function<'a> {
    #[serde(borrow, default)]
    pub(super) name: Str<'a>,
    /// An object. Some gateways send its JSON text instead.
    #[serde(borrow, default)]
    pub(super) arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct Logprob {
    pub(super) logprob: f64,
}
