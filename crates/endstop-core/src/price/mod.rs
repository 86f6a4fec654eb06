//! The price of a model, and the cost of calls.
//!
//! ```
//! use endstop_core::{Price, Usage};
//! let price = Price::usd_per_million_tokens(3.0, 15.0);
//! let usage = Usage { input_tokens: Some(1_000), output_tokens: Some(100), ..Usage::default() };
//! assert_eq!(price.cost(&usage).to_usd(), 0.0045);
//! ```
//!
//! Some providers charge a higher price if the prompt is longer than a threshold. The rule is the
//! same for all of them: the size is that of the whole prompt, including cached tokens, and the
//! higher price applies to all tokens of the call, not only to those beyond the threshold.
//!
//! - Anthropic, "Long context pricing": <https://platform.claude.com/docs/en/about-claude/pricing>
//! - Google: <https://ai.google.dev/gemini-api/docs/pricing> ("prompts > 200k tokens")
//! - OpenAI: <https://developers.openai.com/api/docs/pricing> (prompts with more than 272K tokens)
//! - xAI: <https://docs.x.ai/developers/pricing> (prompts of at least 200k tokens)

pub(crate) mod cache_use;

use crate::usage::{NanoUsd, Usage};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The price of a model: nano-dollars per million tokens of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Price {
    /// Price of a million prompt tokens.
    pub input: NanoUsd,
    /// Price of a million generated tokens.
    pub output: NanoUsd,
    /// Price of a million prompt tokens read from a cache; `None`: `input`.
    pub cached_input: Option<NanoUsd>,
    /// Price of a million prompt tokens written to a cache; `None`: `input`.
    pub cache_write: Option<NanoUsd>,
    /// Price of a million prompt tokens written to a cache for an hour. `None`: twice `input`, and
    /// at least `cache_write`; such writes are then not part of a worst case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_1h: Option<NanoUsd>,
    /// Prices of calls with a longer prompt, in any order. The price of a call is that of the
    /// highest threshold below the size of its prompt, for all of its tokens.
    #[serde(skip_serializing_if = "LongPrompts::is_empty")]
    pub long_prompts: LongPrompts,
}

/// The prices of a model for prompts beyond a number of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LongPrompt {
    /// The price applies if the prompt has more tokens than this, including cached ones.
    pub above: u64,
    /// Price of a million prompt tokens.
    pub input: NanoUsd,
    /// Price of a million generated tokens.
    pub output: NanoUsd,
    /// Price of a million prompt tokens read from a cache; `None`: `input`.
    pub cached_input: Option<NanoUsd>,
    /// Price of a million prompt tokens written to a cache; `None`: `input`.
    pub cache_write: Option<NanoUsd>,
}

/// At most [`LongPrompts::MAX`] prices for long prompts.
///
/// ```
/// use endstop_core::{LongPrompt, LongPrompts, NanoUsd, Price, Usage};
/// let long = LongPrompt {
///     above: 200_000,
///     input: NanoUsd::from_usd(6.0),
///     output: NanoUsd::from_usd(22.5),
///     ..LongPrompt::default()
/// };
/// let mut price = Price::usd_per_million_tokens(3.0, 15.0);
/// price.long_prompts = LongPrompts::new(&[long]).unwrap();
/// let cost = |prompt| {
///     let usage = Usage { input_tokens: Some(prompt), output_tokens: Some(0), ..Usage::default() };
///     price.cost(&usage).to_usd()
/// };
/// assert_eq!((cost(200_000), cost(200_001)), (0.6, 1.200006));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<LongPrompt>", into = "Vec<LongPrompt>")]
pub struct LongPrompts([Option<LongPrompt>; LongPrompts::MAX]);

impl LongPrompts {
    /// The maximum number of thresholds. No known provider has more.
    pub const MAX: usize = 2;
    /// No thresholds: all prompts have the same price.
    pub const NONE: LongPrompts = LongPrompts([None; LongPrompts::MAX]);

    /// Creates the list; `None` if it has more than [`LongPrompts::MAX`] prices.
    pub fn new(prices: &[LongPrompt]) -> Option<LongPrompts> {
        let mut list = LongPrompts::default();
        if prices.len() > LongPrompts::MAX {
            return None;
        }
        for (place, price) in list.0.iter_mut().zip(prices) {
            *place = Some(*price);
        }
        Some(list)
    }

    /// Returns whether all prompts have the same price.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// The prices, in the order of [`LongPrompts::new`].
    pub fn iter(&self) -> impl Iterator<Item = &LongPrompt> {
        self.0.iter().flatten()
    }
}

/// Error for more prices than [`LongPrompts::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyPrices {
    /// Number of the given prices.
    pub found: usize,
}

impl fmt::Display for TooManyPrices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (most, found) = (LongPrompts::MAX, self.found);
        write!(f, "expected at most {most} prices for long prompts, found {found}")
    }
}

impl std::error::Error for TooManyPrices {}

impl TryFrom<Vec<LongPrompt>> for LongPrompts {
    type Error = TooManyPrices;
    fn try_from(prices: Vec<LongPrompt>) -> Result<LongPrompts, TooManyPrices> {
        LongPrompts::new(&prices).ok_or(TooManyPrices { found: prices.len() })
    }
}

impl From<LongPrompts> for Vec<LongPrompt> {
    fn from(prices: LongPrompts) -> Vec<LongPrompt> {
        prices.iter().copied().collect()
    }
}

impl Price {
    /// Creates a price from US dollars per million tokens, without prices of its own for a cache.
    ///
    /// ```
    /// use endstop_core::{NanoUsd, Price};
    /// let price = Price::usd_per_million_tokens(3.0, 15.0).cached_input_usd(0.3);
    /// assert_eq!(price.output, NanoUsd::from_usd(15.0));
    /// assert_eq!(price.cached_input, Some(NanoUsd::from_usd(0.3)));
    /// ```
    #[must_use]
    pub fn usd_per_million_tokens(input: f64, output: f64) -> Price {
        let (input, output) = (NanoUsd::from_usd(input), NanoUsd::from_usd(output));
        Price { input, output, ..Price::default() }
    }

    /// Sets the price in US dollars of a million prompt tokens read from a cache.
    #[must_use]
    pub fn cached_input_usd(mut self, usd: f64) -> Price {
        self.cached_input = Some(NanoUsd::from_usd(usd));
        self
    }

    /// Sets the price in US dollars of a million prompt tokens written to a cache.
    #[must_use]
    pub fn cache_write_usd(mut self, usd: f64) -> Price {
        self.cache_write = Some(NanoUsd::from_usd(usd));
        self
    }

    /// Returns the price, without thresholds, of a call with this number of prompt tokens.
    #[must_use]
    pub fn for_prompt(&self, tokens: u64) -> Price {
        let reached = self.long_prompts.iter().filter(|long| long.above < tokens);
        match reached.max_by_key(|long| long.above) {
            Some(long) => self.of_long(long),
            None => Price { long_prompts: LongPrompts::default(), ..*self },
        }
    }

    /// Returns the highest price, without thresholds, of a call with at most this number of prompt
    /// tokens.
    #[must_use]
    pub fn up_to_prompt(&self, tokens: u64) -> Price {
        let base = Price { long_prompts: LongPrompts::default(), ..*self };
        let reached = self.long_prompts.iter().filter(|long| long.above < tokens);
        // The highest of each rate, because a threshold may raise one rate and lower another.
        reached.map(|long| self.of_long(long)).fold(base, |high, long| high.highest_rates(&long))
    }

    /// Returns the higher rate of two prices for each kind of token, without thresholds.
    ///
    /// ```
    /// use endstop_core::Price;
    /// let (one, other) = (Price::usd_per_million_tokens(3.0, 8.0), Price::usd_per_million_tokens(1.0, 9.0));
    /// assert_eq!(one.highest_rates(&other), Price::usd_per_million_tokens(3.0, 9.0));
    /// ```
    #[must_use]
    pub fn highest_rates(&self, other: &Price) -> Price {
        let cached = |price: &Price| price.cached_input.unwrap_or(price.input);
        let written = |price: &Price| price.cache_write.unwrap_or(price.input);
        let own = |field: fn(&Price) -> Option<NanoUsd>, of: fn(&Price) -> NanoUsd| {
            field(self).or(field(other)).map(|_| of(self).max(of(other)))
        };
        Price {
            input: self.input.max(other.input),
            output: self.output.max(other.output),
            cached_input: own(|price| price.cached_input, cached),
            cache_write: own(|price| price.cache_write, written),
            cache_write_1h: own(|price| price.cache_write_1h, Price::hour_write),
            long_prompts: LongPrompts::default(),
        }
    }

    /// The price beyond a threshold. Writes for an hour are priced by the rule of
    /// [`Price::hour_write`] there, and at least as high as below the threshold.
    fn of_long(&self, long: &LongPrompt) -> Price {
        let price = Price {
            input: long.input,
            output: long.output,
            cached_input: long.cached_input,
            cache_write: long.cache_write,
            ..Price::default()
        };
        let hour = self.cache_write_1h.map(|own| own.max(price.hour_write()));
        Price { cache_write_1h: hour, ..price }
    }

    /// Returns the cost of the tokens of one call, rounded up to the next nano-dollar.
    pub fn cost(&self, usage: &Usage) -> NanoUsd {
        let price = self.for_prompt(usage.prompt_tokens());
        let (cached, written, for_hour) = usage.cache_tokens();
        let input = usage.input_tokens.unwrap_or(0);
        // Some providers count cached tokens as a part of the prompt, others in addition to it.
        let plain = if usage.cache_apart {
            input
        } else {
            input.saturating_sub(cached).saturating_sub(written).saturating_sub(for_hour)
        };
        // `u128`, because tokens times a rate in nano-dollars per million overflows `u64` for long
        // runs.
        let part = |tokens: u64, rate: NanoUsd| u128::from(tokens) * u128::from(rate.0);
        let parts = [
            part(plain, price.input),
            part(cached, price.cached_input.unwrap_or(price.input)),
            part(written, price.cache_write.unwrap_or(price.input)),
            part(for_hour, price.hour_write()),
            part(usage.generated_tokens().unwrap_or(0), price.output),
        ];
        let micro = parts.into_iter().fold(0, u128::saturating_add);
        NanoUsd(u64::try_from(micro.div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }

    /// Returns the maximum output for `left` after a prompt of `prompt` tokens: the largest output
    /// whose [`worst`](Price::worst) cost does not exceed `left`. `None`: the prompt alone exceeds
    /// it.
    pub fn affordable(&self, prompt: u64, left: NanoUsd) -> Option<u64> {
        let price = self.up_to_prompt(prompt);
        let prompt = u128::from(prompt) * u128::from(price.dearest_input().0);
        let for_output = (u128::from(left.0) * 1_000_000).checked_sub(prompt)?;
        match u128::from(price.output.0) {
            0 => Some(u64::MAX),
            rate => Some(u64::try_from(for_output / rate).unwrap_or(u64::MAX)),
        }
    }

    /// Returns the price of a million tokens that are written to a cache for an hour. If none is
    /// set, Anthropic's rule applies: twice the price of plain input.
    pub fn hour_write(&self) -> NanoUsd {
        self.cache_write_1h.unwrap_or_else(|| {
            NanoUsd(self.input.0.saturating_mul(2)).max(self.cache_write.unwrap_or(self.input))
        })
    }

    /// Returns the price of a run whose requests store their prompts for an hour, so that the worst
    /// case of a call includes such writes.
    #[must_use]
    pub fn with_hour_writes(self) -> Price {
        Price { cache_write_1h: Some(self.hour_write()), ..self }
    }

    /// The highest price of a prompt token below all thresholds. A cache write can cost more than
    /// plain input, and the split is unknown before the call.
    fn dearest_input(&self) -> NanoUsd {
        let others = [self.cached_input, self.cache_write, self.cache_write_1h];
        others.into_iter().flatten().fold(self.input, NanoUsd::max)
    }

    /// Returns the worst-case cost of a call with at most `prompt` prompt tokens and `output`
    /// generated ones.
    pub fn worst(&self, prompt: u64, output: u64) -> NanoUsd {
        let price = self.up_to_prompt(prompt);
        let micro = u128::from(prompt) * u128::from(price.dearest_input().0)
            + u128::from(output) * u128::from(price.output.0);
        NanoUsd(u64::try_from(micro.div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_tokens_cost_same_either_convention() {
        let price = Price {
            input: NanoUsd::from_usd(10.0),
            output: NanoUsd::from_usd(0.0),
            cached_input: Some(NanoUsd::from_usd(1.0)),
            ..Price::default()
        };
        let within =
            Usage { input_tokens: Some(100), cached_input_tokens: Some(40), ..Usage::default() };
        let apart = Usage { input_tokens: Some(60), cache_apart: true, ..within.clone() };
        assert_eq!(price.cost(&within), price.cost(&apart));
        assert_eq!(price.cost(&within), NanoUsd(640_000));
        assert_eq!((within.prompt_tokens(), apart.prompt_tokens()), (100, 100));
    }

    #[test]
    fn reasoning_is_billed_in_either_convention() {
        let price = Price { output: NanoUsd::from_usd(10.0), ..Price::default() };
        let within =
            Usage { output_tokens: Some(100), reasoning_tokens: Some(40), ..Usage::default() };
        let apart = Usage { output_tokens: Some(60), reasoning_apart: true, ..within.clone() };
        assert_eq!(price.cost(&within), price.cost(&apart));
        assert_eq!((within.total_tokens(), apart.total_tokens()), (100, 100));
        assert_eq!(Usage { output_tokens: None, ..apart }.generated_tokens(), Some(40));
        assert_eq!(Usage::default().generated_tokens(), None);
    }

    #[test]
    fn affordable_output_uses_whole_budget() {
        for (input, output, prompt, left) in [
            (3_000_000_000, 15_000_000_000, 359, 4_750_000),
            (1, 1, 1, 1),
            (7, 3, 1_000_003, 98_900_000_000),
            (999_999_937, 1_000_000_007, 12_345, 77_777_777),
        ] {
            let price =
                Price { input: NanoUsd(input), output: NanoUsd(output), ..Price::default() };
            let most = price.affordable(prompt, NanoUsd(left)).unwrap();
            assert!(price.worst(prompt, most) <= NanoUsd(left), "{most} fit");
            assert!(price.worst(prompt, most + 1) > NanoUsd(left), "and no more than {most}");
        }
        let price = Price { input: NanoUsd(1_000_000), ..Price::default() };
        assert_eq!(price.affordable(5, NanoUsd(4)), None);
        assert_eq!(price.affordable(5, NanoUsd(5)), Some(u64::MAX));
    }

    fn tiered() -> Price {
        let long = |above, input: f64, output: f64| LongPrompt {
            above,
            input: NanoUsd::from_usd(input),
            output: NanoUsd::from_usd(output),
            cached_input: Some(NanoUsd::from_usd(input / 10.0)),
            ..LongPrompt::default()
        };
        Price {
            long_prompts: LongPrompts::new(&[long(1_000, 4.0, 20.0), long(100, 2.0, 15.0)])
                .unwrap(),
            ..Price::usd_per_million_tokens(1.0, 10.0).cached_input_usd(0.1)
        }
    }

    #[test]
    fn prompt_size_selects_price_of_all_tokens() {
        let price = tiered();
        let cost = |input, cached, cache_apart| {
            price.cost(&Usage {
                input_tokens: Some(input),
                cached_input_tokens: Some(cached),
                output_tokens: Some(10),
                cache_apart,
                ..Usage::default()
            })
        };
        assert_eq!(cost(100, 0, false), NanoUsd(100_000 + 100_000));
        assert_eq!(cost(101, 0, false), NanoUsd(202_000 + 150_000));
        assert_eq!(cost(1_001, 0, false), NanoUsd(4_004_000 + 200_000));
        // Cached tokens are part of the prompt's size in either convention.
        assert_eq!(cost(50, 51, true), NanoUsd(100_000 + 10_200 + 150_000));
        assert_eq!(cost(101, 51, false), cost(50, 51, true));
    }

    #[test]
    fn worst_case_uses_highest_reachable_price() {
        let price = tiered();
        assert_eq!(price.worst(100, 10), NanoUsd(200_000));
        assert_eq!(price.worst(101, 10), NanoUsd(352_000));
        assert_eq!(price.worst(2_000, 10), NanoUsd(8_200_000));
        let most = price.affordable(2_000, NanoUsd(8_200_000));
        assert_eq!(most, Some(10));
        // A lower price of long prompts does not lower the bound, because the prompt may be shorter.
        let cheap = LongPrompt { above: 5, input: NanoUsd(1), ..LongPrompt::default() };
        let long_prompts = LongPrompts::new(&[cheap]).unwrap();
        let price = Price { long_prompts, ..Price::usd_per_million_tokens(1.0, 10.0) };
        assert_eq!(price.worst(10, 10), NanoUsd(110_000));
    }

    #[test]
    fn hour_writes_follow_price_of_long_prompt() {
        let price = tiered().with_hour_writes();
        assert_eq!(price.for_prompt(100).hour_write(), NanoUsd::from_usd(2.0));
        assert_eq!(price.for_prompt(101).hour_write(), NanoUsd::from_usd(4.0));
        assert_eq!(price.worst(101, 0), NanoUsd(404_000));
    }

    #[test]
    fn price_without_thresholds_keeps_its_json() {
        let old = r#"{"input":3,"output":15,"cached_input":null,"cache_write":null}"#;
        let price: Price = serde_json::from_str(old).unwrap();
        assert_eq!(serde_json::to_string(&price).unwrap(), old);
        let json = serde_json::to_string(&tiered()).unwrap();
        assert_eq!(serde_json::from_str::<Price>(&json).unwrap(), tiered());
        let three = r#"{"long_prompts":[{},{},{}]}"#;
        assert!(serde_json::from_str::<Price>(three).is_err());
    }
}
