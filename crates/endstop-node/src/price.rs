//! Prices of models.

use crate::errors::{Result, config};
use crate::fields::object;
use crate::response::count;
use endstop_guest::price_fields;
use endstop_guest::pricing::Quote;
use endstop_wire::catalog::prices::parse_price;
use napi_derive::napi;

price_fields! { object
    /// The price of a model in US dollars per million tokens.
    PriceFields(Quote);
}

impl PriceFields {
    /// Returns the price of the kernel.
    pub(crate) fn read(&self) -> Result<endstop_core::Price> {
        let (cached, written) = (self.cached_input, self.cache_write);
        endstop_guest::pricing::read_price(self.input, self.output, cached, written).map_err(config)
    }
}

/// Returns the price of a model (`provider/model`) from the catalogue, or null if it has none.
#[napi(catch_unwind)]
pub fn price_of(model: String) -> Result<Option<PriceFields>> {
    Quote::find(&model).map_err(config)?.as_ref().map(PriceFields::of).transpose()
}

/// Reads a price from text such as `in=3,out=15`.
#[napi(catch_unwind)]
pub fn read_price(text: String) -> Result<PriceFields> {
    PriceFields::of(&Quote::given(parse_price(&text).map_err(config)?))
}

/// Checks a price, and returns the cost in US dollars of this many tokens.
#[napi(catch_unwind)]
pub fn cost_of(price: PriceFields, input: f64, output: f64, cached: f64) -> Result<f64> {
    Ok(Quote::given(price.read()?).cost(count(input), count(output), count(cached)))
}
