//! The catalogue's column of variants: prices of long prompts and of service tiers.
//!
//! ```text
//! >200000=2.5|15|0.25|        prompts of more than 200,000 tokens
//! flex=0.625|5|0.0625|        the service tier `flex`
//! flex>272000=2.5|11.25|0.25| long prompts in that tier
//! ```
//!
//! The four prices are those of input, output, cached input and cache writes.

use super::argument::nano_usd;
use endstop_core::{LongPrompt, LongPrompts, NanoUsd, Price};

/// Returns the prices of long prompts in a service tier; the ordinary tier is `""`.
pub(super) fn long_prompts(column: &str, tier: &str) -> LongPrompts {
    let found: Vec<LongPrompt> = variants(column)
        .filter(|variant| variant.tier == tier)
        .filter_map(|variant| {
            let [input, output, cached_input, cache_write] = variant.prices;
            let (input, output) = (input?, output?);
            Some(LongPrompt { above: variant.above?, input, output, cached_input, cache_write })
        })
        .collect();
    // The table's test reads all of its prices, so the list is never too long.
    LongPrompts::new(&found).unwrap_or_default()
}

/// Returns the price of a service tier.
pub(super) fn price(column: &str, tier: &str) -> Option<Price> {
    let found = variants(column).find(|variant| variant.tier == tier && variant.above.is_none())?;
    let [input, output, cached_input, cache_write] = found.prices;
    let (input, output) = (input?, output?);
    let long_prompts = long_prompts(column, tier);
    Some(Price { input, output, cached_input, cache_write, long_prompts, ..Price::default() })
}

struct Variant<'a> {
    tier: &'a str,
    above: Option<u64>,
    prices: [Option<NanoUsd>; 4],
}

fn variants(column: &str) -> impl Iterator<Item = Variant<'_>> {
    column.split(' ').filter_map(|text| {
        let (name, prices) = text.split_once('=')?;
        let (tier, above) = match name.split_once('>') {
            Some((tier, above)) => (tier, Some(above.parse().ok()?)),
            None => (name, None),
        };
        let mut fields = prices.split('|').map(|price| nano_usd(price).ok());
        let prices = std::array::from_fn(|_| fields.next().flatten());
        Some(Variant { tier, above, prices })
    })
}
