//! The effect of prompt caching on a run: tokens read and written, and the money that it saved or cost.
//!
//! ```
//! use endstop_core::{CacheUse, NanoUsd, Price, Usage};
//! let price = Price {
//!     input: NanoUsd::from_usd(3.0),
//!     cached_input: Some(NanoUsd::from_usd(0.3)),
//!     cache_write: Some(NanoUsd::from_usd(3.75)),
//!     ..Price::default()
//! };
//! let usage = Usage { cache_write_tokens: Some(1_000_000), ..Usage::default() };
//! assert_eq!(price.saved_by_cache(&usage).to_string(), "-$0.75");
//! ```

use crate::price::Price;
use crate::usage::{NanoUsd, Usage};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A difference of two amounts of money, in nano-dollars: negative if more was paid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NanoUsdChange(
    /// The difference in nano-dollars.
    pub i64,
);

impl NanoUsdChange {
    /// The difference in dollars, for display only: do not compute with it.
    pub fn to_usd(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl fmt::Display for NanoUsdChange {
    /// Formats dollars with two to six decimals, for example `-$0.0045`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}{}", NanoUsd(self.0.unsigned_abs()))
    }
}

/// Written and read as a number of dollars, as all money in an outcome.
impl Serialize for NanoUsdChange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_usd().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for NanoUsdChange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NanoUsdChange, D::Error> {
        let nanos = (f64::deserialize(deserializer)? * 1e9).round();
        if !(i64::MIN as f64..=i64::MAX as f64).contains(&nanos) {
            return Err(serde::de::Error::custom("expected an amount of dollars"));
        }
        Ok(NanoUsdChange(nanos as i64))
    }
}

/// The use of prompt caches by a run's own model calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheUse {
    /// Prompt tokens that were read from a cache.
    pub read_tokens: u64,
    /// Prompt tokens that were written to a cache.
    pub write_tokens: u64,
    /// Price of these tokens as plain input, minus their price. Negative if what was written was
    /// never read. `None`: no price is known.
    #[serde(rename = "saved_usd", default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<NanoUsdChange>,
}

impl CacheUse {
    /// Returns the use of caches in `usage`; `None` if no cache was used.
    pub fn of(usage: &Usage, price: Option<Price>) -> Option<CacheUse> {
        let read_tokens = usage.cached_input_tokens.unwrap_or(0);
        let write_tokens = usage.cache_write_tokens.unwrap_or(0);
        (read_tokens > 0 || write_tokens > 0).then(|| CacheUse {
            read_tokens,
            write_tokens,
            saved: price.map(|price| price.saved_by_cache(usage)),
        })
    }
}

impl Price {
    /// Returns the price of the cached tokens of one call as plain input, minus their price.
    pub fn saved_by_cache(&self, usage: &Usage) -> NanoUsdChange {
        let price = self.for_prompt(usage.prompt_tokens());
        let (read, written, for_hour) = usage.cache_tokens();
        let part = |tokens: u64, rate: NanoUsd| {
            // Saturating: a server may report any number of tokens.
            i128::from(tokens).saturating_mul(i128::from(price.input.0) - i128::from(rate.0))
        };
        let micro = part(read, price.cached_input.unwrap_or(price.input))
            .saturating_add(part(written, price.cache_write.unwrap_or(price.input)))
            .saturating_add(part(for_hour, price.hour_write()));
        // Rounded down, so that no saving is overstated.
        let nanos = micro.div_euclid(1_000_000);
        let bounded = nanos.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
        NanoUsdChange(i64::try_from(bounded).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price() -> Price {
        Price {
            input: NanoUsd::from_usd(3.0),
            output: NanoUsd::from_usd(15.0),
            cached_input: Some(NanoUsd::from_usd(0.3)),
            cache_write: Some(NanoUsd::from_usd(3.75)),
            ..Price::default()
        }
    }

    #[test]
    fn saved_is_difference_to_plain_input() {
        let cached = Usage {
            input_tokens: Some(500),
            output_tokens: Some(70),
            cached_input_tokens: Some(40_000),
            cache_write_tokens: Some(3_000),
            cache_write_1h_tokens: Some(1_000),
            cache_apart: true,
            ..Usage::default()
        };
        let plain = Usage {
            input_tokens: Some(43_500),
            output_tokens: Some(70),
            cache_apart: true,
            ..Usage::default()
        };
        let (with, without) = (price().cost(&cached).0, price().cost(&plain).0);
        let change = price().saved_by_cache(&cached);
        assert_eq!(change.0, without as i64 - with as i64);
        assert!(change.0 > 0);
    }

    #[test]
    fn unread_writes_cost_money() {
        let usage = Usage { cache_write_tokens: Some(1_000), ..Usage::default() };
        let used = CacheUse::of(&usage, Some(price())).unwrap();
        assert_eq!(used.saved.unwrap().to_string(), "-$0.00075");
        let json = serde_json::to_string(&used).unwrap();
        assert_eq!(json, r#"{"read_tokens":0,"write_tokens":1000,"saved_usd":-0.00075}"#);
        assert_eq!(serde_json::from_str::<CacheUse>(&json).unwrap(), used);
        assert_eq!(CacheUse::of(&usage, None).unwrap().saved, None);
        assert_eq!(CacheUse::of(&Usage::default(), Some(price())), None);
    }
}
