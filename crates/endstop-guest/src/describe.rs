//! A response that a framework describes, because it does not show the provider's bytes.

use crate::response::Detection;
use endstop_core::{ErrorClass, ModelError, ModelTurn, NanoUsd, Part, ToolCall, Usage, is_blank};
use endstop_wire::Decoded;
use endstop_wire::dialect::WireFormat;
use endstop_wire::signal::finish::{Finish, finish_of};
use endstop_wire::signal::precedence::{TurnFacts, signal};

/// Tokens of a response, as a framework counts them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Prompt tokens.
    pub input: Option<u64>,
    /// Generated tokens.
    pub output: Option<u64>,
    /// Prompt tokens read from a cache.
    pub cached_input: Option<u64>,
    /// Prompt tokens written to a cache.
    pub cache_write: Option<u64>,
    /// The part of `cache_write` that is stored for an hour.
    pub cache_write_1h: Option<u64>,
    /// Generated tokens spent on reasoning.
    pub reasoning: Option<u64>,
    /// All tokens together.
    pub total: Option<u64>,
}

impl From<Counts> for Usage {
    /// Cached tokens are part of the prompt, and reasoning is part of the output, unless the total counts them next to
    /// those, or more tokens are cached than the prompt has: some frameworks pass on what the provider counted.
    ///
    /// ```
    /// use endstop_core::Usage;
    /// use endstop_guest::describe::Counts;
    /// let of = |total| Usage::from(Counts {
    ///     input: Some(100),
    ///     output: Some(10),
    ///     cached_input: Some(90),
    ///     total: Some(total),
    ///     ..Counts::default()
    /// });
    /// assert_eq!((of(110).prompt_tokens(), of(200).prompt_tokens()), (100, 190));
    /// ```
    fn from(counts: Counts) -> Usage {
        let Counts { input, output, cached_input, cache_write, cache_write_1h, reasoning, total } =
            counts;
        let count = |tokens: Option<u64>| tokens.unwrap_or(0);
        let cached = count(cached_input).saturating_add(count(cache_write));
        let thought = count(reasoning);
        let known = count(input).saturating_add(count(output));
        let apart = total.map_or(0, |total| total.saturating_sub(known));
        let both = cached.saturating_add(thought);
        Usage {
            input_tokens: input,
            output_tokens: output,
            cached_input_tokens: cached_input,
            cache_write_tokens: cache_write,
            cache_write_1h_tokens: cache_write_1h,
            reasoning_tokens: reasoning,
            cache_apart: cached > 0 && (apart == cached || apart == both || cached > count(input)),
            reasoning_apart: thought > 0 && (apart == both || apart == thought && apart != cached),
            ..Usage::default()
        }
    }
}

/// The content of a described response.
#[derive(Default)]
pub struct Description {
    /// The visible text.
    pub text: String,
    /// The provider's finish value as it sent it, in any format. If it is missing or blank, the
    /// response counts as cut, and never as a success.
    pub finish: Option<String>,
    /// The tool calls.
    pub calls: Vec<ToolCall>,
    /// The text with which the model refused.
    pub refusal: Option<String>,
    /// Token usage.
    pub usage: Usage,
    /// Cost in US dollars.
    pub cost_usd: Option<f64>,
    /// The model that answered.
    pub model: Option<String>,
}

/// Makes a decoded response of a description.
pub fn describe(given: Description) -> Detection {
    let Description { text, finish, calls, refusal, usage, cost_usd, model } = given;
    let refusal = refusal.filter(|text| !text.is_empty());
    let raw = finish.as_deref().unwrap_or_default();
    let facts = TurnFacts {
        finish: finish_in_any(raw),
        field: "finish_reason",
        raw,
        calls: calls.len(),
        args_valid: calls.iter().all(|call| call.parsed_arguments().is_ok()),
        text_blank: is_blank(&text),
        refusal: refusal.is_some(),
        // A framework that has a finish value has read the response to its end.
        terminated: finish.is_some(),
        ..TurnFacts::default()
    };
    let missing = raw.is_empty();
    // The finish value announces a call that the framework does not show, so that it cannot run.
    let call_missing = facts.finish == Finish::ToolUse && calls.is_empty();
    let signal = signal(&facts);
    let mut parts = Vec::new();
    if !text.is_empty() {
        parts.push(Part::Text { text });
    }
    parts.extend(refusal.map(|text| Part::Refusal { text }));
    parts.extend(calls.into_iter().map(Part::ToolCall));
    let turn = ModelTurn {
        usage,
        cost: cost_usd.map(NanoUsd::from_usd),
        model,
        finish_missing: missing,
        call_missing,
        ..ModelTurn::new(parts, signal.clone())
    };
    let error = missing.then(|| {
        let message = "the response has no finish value and may be cut";
        ModelError::new(ErrorClass::IncompleteStream, message)
    });
    let decoded = Decoded {
        turn: Some(turn),
        error,
        signal,
        service_tier: None,
        streamed: false,
        complete: !missing,
        value_missing: missing,
        should_retry: None,
        windows: Vec::new(),
    };
    Detection { api: "", decoded }
}

/// Returns the meaning of a finish value of an unknown format.
fn finish_in_any(raw: &str) -> Finish {
    // In the order of `ALL`, if formats that share a value disagree about it.
    let all = WireFormat::ALL.iter().map(|family| finish_of(*family, raw));
    all.into_iter().find(|found| *found != Finish::Unknown).unwrap_or(Finish::Unknown)
}
