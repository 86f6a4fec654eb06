//! JSON shapes of `/v2/chat`. Parsing is lenient: a field of an unexpected type counts as missing.

use crate::bounded::List;
use crate::codec::response::turn::Common;
use crate::json::{Count, Str, lenient};
use endstop_core::Usage;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The field of the finish value.
pub(crate) const FINISH: &str = "finish_reason";

/// A complete body.
#[derive(Deserialize)]
pub(super) struct Body<'a> {
    #[serde(borrow, default)]
    pub(super) id: Str<'a>,
    /// An object in an answer, or the message string of an error.
    #[serde(borrow, default)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) finish_reason: Str<'a>,
    #[serde(borrow, default)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) logprobs: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
}

/// An event of a stream.
#[derive(Deserialize)]
pub(super) struct Event<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Str<'a>,
    #[serde(borrow, default)]
    pub(super) id: Str<'a>,
    #[serde(default)]
    pub(super) index: Count,
    #[serde(borrow, default)]
    pub(super) delta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) logprobs: Option<&'a RawValue>,
    // An error has these fields instead.
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) message: Str<'a>,
}

/// Content of an event's `delta`.
#[derive(Deserialize)]
pub(super) struct Change<'a> {
    #[serde(borrow, default)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) finish_reason: Str<'a>,
    #[serde(borrow, default)]
    pub(super) usage: Option<&'a RawValue>,
    /// Message of a failure.
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
}

/// A message or a fragment of one. A stream has one object in places that hold a list in a body.
#[derive(Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow, default)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) tool_plan: Str<'a>,
    #[serde(borrow, default)]
    pub(super) tool_calls: Option<&'a RawValue>,
}

/// A content block. Fragments do not repeat the block's type.
#[derive(Deserialize)]
pub(super) struct Block<'a> {
    #[serde(borrow, default)]
    pub(super) text: Str<'a>,
    #[serde(borrow, default)]
    pub(super) thinking: Str<'a>,
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
    #[serde(borrow, default)]
    pub(super) arguments: Str<'a>,
}

/// Log probabilities of the tokens of a chunk of text.
#[derive(Deserialize)]
pub(super) struct Logprobs {
    #[serde(default)]
    pub(super) logprobs: Option<Vec<f64>>,
}

#[derive(Deserialize)]
struct Counts<'a> {
    #[serde(borrow, default)]
    tokens: Option<&'a RawValue>,
    #[serde(borrow, default)]
    billed_units: Option<&'a RawValue>,
    #[serde(default)]
    cached_tokens: Count,
}

#[derive(Default, Deserialize)]
struct Tokens {
    #[serde(default, rename = "input_tokens")]
    input: Count,
    #[serde(default, rename = "output_tokens")]
    output: Count,
    #[serde(default, rename = "reasoning_tokens")]
    reasoning: Count,
}

/// Stores the token counts of `usage` (`meta` in Cohere v1): those of the model or, only if they
/// are missing, the billed ones.
pub(crate) fn count(raw: &RawValue, common: &mut Common) {
    let Some(counts) = lenient::<Counts<'_>>(raw) else {
        return;
    };
    let tokens: Tokens = counts.tokens.and_then(lenient).unwrap_or_default();
    let billed: Tokens = counts.billed_units.and_then(lenient).unwrap_or_default();
    common.count(&Usage {
        input_tokens: tokens.input.0.or(billed.input.0),
        output_tokens: tokens.output.0.or(billed.output.0),
        reasoning_tokens: tokens.reasoning.0,
        cached_input_tokens: counts.cached_tokens.0,
        ..Usage::default()
    });
}

/// Returns the items of a list, or the single item in its place. An item that fails to parse marks
/// the turn as broken.
pub(super) fn items<'a, T: Deserialize<'a>>(
    common: &mut Common,
    raw: Option<&'a RawValue>,
) -> Vec<T> {
    match raw {
        Some(raw) if raw.get().starts_with('[') => {
            let list = common.read::<List<&RawValue>>(raw);
            list.into_iter().flatten().filter_map(|raw| common.read(raw)).collect()
        }
        Some(raw) => common.read(raw).into_iter().collect(),
        None => Vec::new(),
    }
}
