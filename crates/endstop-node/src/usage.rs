//! Token usage as a provider reported it.

use napi_derive::napi;

/// Token usage of a response or of a run. Null stands for a count that was not reported.
#[napi(object, use_nullable = true)]
pub struct Usage {
    /// Prompt tokens, as the provider counts them.
    #[napi(readonly)]
    pub input_tokens: Option<f64>,
    /// Generated tokens, as the provider counts them.
    #[napi(readonly)]
    pub output_tokens: Option<f64>,
    /// Prompt tokens read from a cache.
    #[napi(readonly)]
    pub cached_input_tokens: Option<f64>,
    /// Prompt tokens written to a cache.
    #[napi(readonly)]
    pub cache_write_tokens: Option<f64>,
    /// Generated tokens spent on reasoning.
    #[napi(readonly)]
    pub reasoning_tokens: Option<f64>,
    /// Prompt and generated tokens together, including cached ones.
    #[napi(readonly)]
    pub total_tokens: f64,
    /// True if Endstop estimated the numbers, because the provider did not count.
    #[napi(readonly)]
    pub estimated: bool,
}

impl From<&endstop_core::Usage> for Usage {
    fn from(usage: &endstop_core::Usage) -> Usage {
        // JavaScript has no other number; counts beyond 2^53 are not tokens of a run.
        let number = |count: Option<u64>| count.map(|count| count as f64);
        Usage {
            input_tokens: number(usage.input_tokens),
            output_tokens: number(usage.output_tokens),
            cached_input_tokens: number(usage.cached_input_tokens),
            cache_write_tokens: number(usage.cache_write_tokens),
            reasoning_tokens: number(usage.reasoning_tokens),
            total_tokens: usage.total_tokens() as f64,
            estimated: usage.estimated,
        }
    }
}

/// Reads a count that JavaScript gave. Negative and broken numbers are 0.
pub(crate) fn count(number: f64) -> u64 {
    // The conversion saturates, and reads NaN as 0.
    number as u64
}
