//! Tokens and money: usage as a provider reported it, and amounts in integer nano-dollars.
//!
//! ```
//! use endstop_core::Usage;
//! let usage = Usage { input_tokens: Some(1_000), output_tokens: Some(100), ..Usage::default() };
//! assert_eq!(usage.total_tokens(), 1_100);
//! ```
//!
//! In the JSON of outcomes and events, money is a number of dollars, and `null` if it is unknown. The
//! records of a journal have the integers, because a sum of them must be exact:
//!
//! ```text
//! #[serde(rename = "cost_usd", with = "optional_usd")]
//! pub cost: Option<NanoUsd>,
//! ```

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign};

/// An amount of money in nano-dollars (10⁻⁹ USD). Integers, because sums of floating-point dollars
/// drift, and a ceiling must be exact.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct NanoUsd(
    /// The number of nano-dollars.
    pub u64,
);

impl NanoUsd {
    /// Zero dollars.
    pub const ZERO: NanoUsd = NanoUsd(0);

    /// Rounds a dollar amount to the nearest nano-dollar; negative and non-finite amounts become
    /// zero.
    pub fn from_usd(usd: f64) -> NanoUsd {
        if usd.is_finite() && usd > 0.0 { NanoUsd((usd * 1e9).round() as u64) } else { NanoUsd(0) }
    }

    /// The amount in dollars, for display only: do not compute with it.
    pub fn to_usd(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// `self - other`, or zero if that is negative.
    #[must_use]
    pub fn saturating_sub(self, other: NanoUsd) -> NanoUsd {
        NanoUsd(self.0.saturating_sub(other.0))
    }
}

impl Add for NanoUsd {
    type Output = NanoUsd;
    fn add(self, other: NanoUsd) -> NanoUsd {
        // Saturating: an overflow must not wrap to a small amount, which would disable a ceiling.
        NanoUsd(self.0.saturating_add(other.0))
    }
}

impl AddAssign for NanoUsd {
    fn add_assign(&mut self, other: NanoUsd) {
        *self = *self + other;
    }
}

impl fmt::Display for NanoUsd {
    /// Formats dollars with two to six decimals, for example `$0.0045`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:.6}", self.to_usd());
        let kept = text.trim_end_matches('0');
        let decimals = kept.len() - kept.find('.').map_or(0, |dot| dot + 1);
        // At least two decimals, as amounts of money have. The text has six, so the index is in
        // bounds.
        write!(f, "${}", &text[..kept.len() + 2usize.saturating_sub(decimals)])
    }
}

/// Token usage of one model call as the provider reported it (`None`: not reported).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Prompt tokens: the provider's raw field.
    pub input_tokens: Option<u64>,
    /// Generated tokens: the provider's raw field (with reasoning, if the provider includes it).
    pub output_tokens: Option<u64>,
    /// Prompt tokens read from a cache.
    pub cached_input_tokens: Option<u64>,
    /// Prompt tokens written to a cache.
    pub cache_write_tokens: Option<u64>,
    /// The part of `cache_write_tokens` that is stored for an hour, if the provider reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_1h_tokens: Option<u64>,
    /// Generated tokens spent on reasoning.
    pub reasoning_tokens: Option<u64>,
    /// `true` if `input_tokens` excludes cached tokens (Anthropic), `false` if it includes them
    /// (OpenAI).
    pub cache_apart: bool,
    /// `true` if `output_tokens` excludes reasoning that is generated and billed (Gemini), `false`
    /// if it includes reasoning.
    pub reasoning_apart: bool,
    /// `true` if Endstop estimated the numbers, because the attempt ended before the provider
    /// counted.
    pub estimated: bool,
    /// Relation of the bill to the cost of these tokens at the list price.
    #[serde(skip_serializing_if = "Billing::is_by_tokens")]
    pub billing: Billing,
}

/// The relation of a call's bill to the cost of its tokens at the list price.
///
/// A total has the largest value of its parts.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Billing {
    /// The bill is the cost of the tokens.
    #[default]
    ByTokens,
    /// The bill is at most that, because the provider reports a discount of unknown size, such as a
    /// service tier without a listed price.
    AtMost,
    /// The bill may be higher, because it has parts that the token counts do not show, such as a
    /// fee for web searches, tokens of audio, or a service tier with a surcharge.
    More,
}

impl Billing {
    /// Returns whether the token counts and the list price determine the bill.
    pub fn is_by_tokens(&self) -> bool {
        *self == Billing::ByTokens
    }
}

/// Possible usage of attempts beyond what is known, because they were aborted or ended without a
/// usage report: at most the rest of their reservations. `None`: no bound is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreported {
    /// Possible cost in addition to the known cost.
    pub cost: Option<NanoUsd>,
    /// Possible tokens in addition to the known ones.
    pub tokens: Option<u64>,
}

impl Unreported {
    /// Everything was reported.
    pub const NOTHING: Unreported = Unreported { cost: Some(NanoUsd::ZERO), tokens: Some(0) };

    /// The unreported part of spending of which only `cost_unknown` is known.
    pub fn of_unknown(cost_unknown: bool) -> Unreported {
        let cost = if cost_unknown { None } else { Some(NanoUsd::ZERO) };
        Unreported { cost, tokens: Some(0) }
    }

    /// Returns the increase over an earlier state of this total.
    #[must_use]
    pub fn since(self, earlier: Unreported) -> Unreported {
        let cost = |now: NanoUsd| now.saturating_sub(earlier.cost.unwrap_or_default());
        let tokens = |now: u64| now.saturating_sub(earlier.tokens.unwrap_or(0));
        Unreported { cost: self.cost.map(cost), tokens: self.tokens.map(tokens) }
    }
}

impl Default for Unreported {
    fn default() -> Unreported {
        Unreported::NOTHING
    }
}

impl AddAssign for Unreported {
    // One unbounded part makes the sum unbounded, so `None` wins.
    fn add_assign(&mut self, other: Unreported) {
        self.cost = self.cost.zip(other.cost).map(|(a, b)| a + b);
        self.tokens = self.tokens.zip(other.tokens).map(|(a, b)| a.saturating_add(b));
    }
}

impl Usage {
    /// All prompt tokens, including cached ones.
    pub fn prompt_tokens(&self) -> u64 {
        let input = self.input_tokens.unwrap_or(0);
        if self.cache_apart {
            input
                .saturating_add(self.cached_input_tokens.unwrap_or(0))
                .saturating_add(self.cache_write_tokens.unwrap_or(0))
        } else {
            input
        }
    }

    /// All generated tokens, including reasoning; `None` if nothing was reported.
    pub fn generated_tokens(&self) -> Option<u64> {
        let apart = self.reasoning_tokens.filter(|_| self.reasoning_apart);
        match (self.output_tokens, apart) {
            (Some(output), Some(reasoning)) => Some(output.saturating_add(reasoning)),
            (output, reasoning) => output.or(reasoning),
        }
    }

    /// Prompt and generated tokens together.
    pub fn total_tokens(&self) -> u64 {
        self.prompt_tokens().saturating_add(self.generated_tokens().unwrap_or(0))
    }

    /// Tokens read from a cache, written to one for the default time, and written for an hour.
    pub(crate) fn cache_tokens(&self) -> (u64, u64, u64) {
        let written = self.cache_write_tokens.unwrap_or(0);
        // Bounded by the sum, because a server may report a part that is larger.
        let for_hour = self.cache_write_1h_tokens.unwrap_or(0).min(written);
        (self.cached_input_tokens.unwrap_or(0), written - for_hour, for_hour)
    }

    /// Adds `other` to this running total. The total is an estimate if any part of it is. If the
    /// two count differently, the total is converted to the OpenAI convention: cached tokens are
    /// part of the prompt tokens, reasoning is part of the output tokens.
    pub fn add(&mut self, other: &Usage) {
        fn sum(a: &mut Option<u64>, b: Option<u64>) {
            if let Some(b) = b {
                *a = Some(a.unwrap_or(0).saturating_add(b));
            }
        }
        self.estimated |= other.estimated;
        self.billing = self.billing.max(other.billing);
        // A report without numbers must not decide the counting convention of the total.
        if other.is_blank() {
            return;
        }
        let mut other = other.clone();
        if self.is_blank() {
            (self.cache_apart, self.reasoning_apart) = (other.cache_apart, other.reasoning_apart);
        }
        if self.cache_apart != other.cache_apart {
            self.count_cached_in();
            other.count_cached_in();
        }
        if self.reasoning_apart != other.reasoning_apart {
            self.count_reasoning_in();
            other.count_reasoning_in();
        }
        sum(&mut self.input_tokens, other.input_tokens);
        sum(&mut self.output_tokens, other.output_tokens);
        sum(&mut self.cached_input_tokens, other.cached_input_tokens);
        sum(&mut self.cache_write_tokens, other.cache_write_tokens);
        sum(&mut self.cache_write_1h_tokens, other.cache_write_1h_tokens);
        sum(&mut self.reasoning_tokens, other.reasoning_tokens);
    }

    /// Returns the increase over an earlier state of this total.
    #[must_use]
    pub fn since(&self, earlier: &Usage) -> Usage {
        // The total may have switched to the OpenAI convention since then, but never back.
        let mut earlier = earlier.clone();
        if earlier.cache_apart && !self.cache_apart {
            earlier.count_cached_in();
        }
        if earlier.reasoning_apart && !self.reasoning_apart {
            earlier.count_reasoning_in();
        }
        let over = |now: Option<u64>, then: Option<u64>| {
            now.map(|now| now.saturating_sub(then.unwrap_or(0)))
        };
        Usage {
            input_tokens: over(self.input_tokens, earlier.input_tokens),
            output_tokens: over(self.output_tokens, earlier.output_tokens),
            cached_input_tokens: over(self.cached_input_tokens, earlier.cached_input_tokens),
            cache_write_tokens: over(self.cache_write_tokens, earlier.cache_write_tokens),
            cache_write_1h_tokens: over(self.cache_write_1h_tokens, earlier.cache_write_1h_tokens),
            reasoning_tokens: over(self.reasoning_tokens, earlier.reasoning_tokens),
            ..*self
        }
    }

    fn is_blank(&self) -> bool {
        let counts = [
            self.input_tokens,
            self.output_tokens,
            self.cached_input_tokens,
            self.cache_write_tokens,
            self.reasoning_tokens,
        ];
        counts.iter().all(Option::is_none)
    }

    fn count_cached_in(&mut self) {
        if self.cache_apart {
            self.input_tokens = Some(self.prompt_tokens());
            self.cache_apart = false;
        }
    }

    fn count_reasoning_in(&mut self) {
        if self.reasoning_apart {
            self.output_tokens = self.generated_tokens();
            self.reasoning_apart = false;
        }
    }
}

/// Money as a number of dollars.
pub(crate) mod usd {
    use super::NanoUsd;
    use serde::de::{Error as _, Unexpected};
    use serde::{Deserialize, Deserializer, Serialize as _, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
    pub(crate) fn serialize<S: Serializer>(
        money: &NanoUsd,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        money.to_usd().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<NanoUsd, D::Error> {
        let usd = f64::deserialize(deserializer)?;
        if !(0.0..=u64::MAX as f64 / 1e9).contains(&usd) {
            return Err(D::Error::invalid_value(
                Unexpected::Float(usd),
                &"a non-negative amount of dollars",
            ));
        }
        Ok(NanoUsd::from_usd(usd))
    }
}

/// Money as a number of dollars, or `null` if it is unknown, for `#[serde(with)]`.
pub mod optional_usd {
    use super::NanoUsd;
    use super::usd;
    use serde::{Deserialize, Deserializer, Serialize as _, Serializer};

    #[derive(Deserialize)]
    struct Usd(#[serde(with = "usd")] NanoUsd);

    /// Writes the amount.
    ///
    /// # Errors
    /// The serializer fails.
    pub fn serialize<S: Serializer>(
        money: &Option<NanoUsd>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        money.map(NanoUsd::to_usd).serialize(serializer)
    }

    /// Reads the amount.
    ///
    /// # Errors
    /// The value is not `null`, nor an amount of dollars that is 0 or more.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<NanoUsd>, D::Error> {
        Ok(Option::<Usd>::deserialize(deserializer)?.map(|money| money.0))
    }
}

/// The JSON form of a cost next to its `cost_unknown`: `null` if no part of the cost is known.
#[derive(Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct KnownUsd(#[serde(with = "optional_usd")] pub(crate) Option<NanoUsd>);

impl From<KnownUsd> for NanoUsd {
    fn from(cost: KnownUsd) -> NanoUsd {
        cost.0.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_show_two_to_six_decimals() {
        let shown: Vec<String> = [0, 1_500_000_000, 4_500_000, 10_000, 123_456_789_012]
            .map(|n| NanoUsd(n).to_string())
            .into();
        assert_eq!(shown, ["$0.00", "$1.50", "$0.0045", "$0.00001", "$123.456789"]);
    }

    #[test]
    fn total_has_least_certain_billing() {
        let of = |billing| Usage { output_tokens: Some(1), billing, ..Usage::default() };
        let mut total = of(Billing::AtMost);
        let plain = serde_json::to_string(&of(Billing::ByTokens)).unwrap();
        assert!(!plain.contains("billing"), "{plain}");
        total.add(&of(Billing::ByTokens));
        assert_eq!(total.billing, Billing::AtMost);
        total.add(&of(Billing::More));
        assert!(serde_json::to_string(&total).unwrap().contains(r#""billing":"more""#));
    }
}
