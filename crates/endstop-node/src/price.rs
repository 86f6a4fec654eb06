//! Prices of models.

use crate::errors::{Result, config};
use crate::usage::count;
use endstop_core::NanoUsd;
use endstop_wire::catalog::prices::{lookup, parse_price};
use napi_derive::napi;

/// The price of a model in US dollars per million tokens.
#[napi(object, use_nullable = true)]
pub struct PriceFields {
    /// Dollars per million prompt tokens.
    #[napi(readonly)]
    pub input: f64,
    /// Dollars per million generated tokens.
    #[napi(readonly)]
    pub output: f64,
    /// Dollars per million prompt tokens read from a cache; null: as `input`.
    #[napi(readonly)]
    pub cached_input: Option<f64>,
    /// Dollars per million prompt tokens written to a cache; null: as `input`.
    #[napi(readonly)]
    pub cache_write: Option<f64>,
    /// True if every call has this price; false if it is the highest of several.
    #[napi(readonly)]
    pub exact: bool,
    /// Tokens of prompt and answer together, if the catalogue knows them.
    #[napi(readonly)]
    pub context_window: Option<f64>,
    /// Source of the price: the caller, or the entry of the catalogue.
    #[napi(readonly)]
    pub source: String,
}

impl PriceFields {
    fn of(price: &endstop_core::Price) -> PriceFields {
        PriceFields {
            input: price.input.to_usd(),
            output: price.output.to_usd(),
            cached_input: price.cached_input.map(NanoUsd::to_usd),
            cache_write: price.cache_write.map(NanoUsd::to_usd),
            // The caller's price is taken as it is, for every call.
            exact: true,
            context_window: None,
            source: "given by the user".to_owned(),
        }
    }

    /// Returns the price of the kernel.
    pub(crate) fn read(&self) -> Result<endstop_core::Price> {
        let (cached, written) = (self.cached_input, self.cache_write);
        endstop_guest::pricing::read_price(self.input, self.output, cached, written).map_err(config)
    }
}

/// Returns the price of a model (`provider/model`) from the catalogue, or null if it has none.
#[napi(catch_unwind)]
pub fn price_of(model: String) -> Result<Option<PriceFields>> {
    // At the first slash only, because the ids of gateways contain others:
    // `openrouter/openai/gpt-4o`.
    let Some((provider, id)) = model.split_once('/') else {
        return Err(config(format!(
            "invalid model `{model}`: expected provider/model, such as openai/gpt-4o"
        )));
    };
    Ok(lookup(provider, id).map(|info| PriceFields {
        exact: info.exact,
        context_window: info.context_window.map(|tokens| tokens as f64),
        source: info.source.to_string(),
        ..PriceFields::of(&info.price)
    }))
}

/// Reads a price from text such as `in=3,out=15`.
#[napi(catch_unwind)]
pub fn read_price(text: String) -> Result<PriceFields> {
    parse_price(&text).map(|price| PriceFields::of(&price)).map_err(config)
}

/// Checks a price, and returns the cost in US dollars of this many tokens.
#[napi(catch_unwind)]
pub fn cost_of(price: PriceFields, input: f64, output: f64, cached: f64) -> Result<f64> {
    let usage = endstop_core::Usage {
        input_tokens: Some(count(input)),
        output_tokens: Some(count(output)),
        cached_input_tokens: Some(count(cached)),
        ..endstop_core::Usage::default()
    };
    Ok(price.read()?.cost(&usage).to_usd())
}
