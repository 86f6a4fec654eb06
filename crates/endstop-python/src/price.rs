//! Prices of models.

use crate::errors::{Exception, error};
use crate::fields::class;
use endstop_guest::price_fields;
use endstop_guest::pricing::Quote;
use endstop_wire::catalog::prices::parse_price;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The price of a model in US dollars per million tokens.
#[pyclass(frozen, eq, module = "endstop")]
#[derive(Clone, PartialEq)]
pub(crate) struct Price(pub(crate) Quote);

price_fields! { class Price, "price", {
    /// Creates a price from US dollars per million tokens. Without prices of its own, the use of a
    /// cache is billed as input.
    #[new]
    #[pyo3(signature = (input, output, *, cached_input = None, cache_write = None))]
    fn new(
        py: Python<'_>,
        input: f64,
        output: f64,
        cached_input: Option<f64>,
        cache_write: Option<f64>,
    ) -> PyResult<Price> {
        endstop_guest::pricing::read_price(input, output, cached_input, cache_write)
            .map(|price| Price(Quote::given(price)))
            .map_err(|problem| error(py, Exception::Config, problem.to_string()))
    }

    /// Returns the cost in US dollars of this many tokens.
    #[pyo3(signature = (input_tokens, output_tokens, cached_input_tokens = 0))]
    fn cost(&self, input_tokens: u64, output_tokens: u64, cached_input_tokens: u64) -> f64 {
        self.0.cost(input_tokens, output_tokens, cached_input_tokens)
    }

    /// Returns the prices as a dict, in US dollars per million tokens.
    fn to_dict<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let fields = PyDict::new(slf.py());
        // The arguments of the constructor, so that the dict makes the price again.
        for name in ["input", "output", "cached_input", "cache_write"] {
            fields.set_item(name, slf.getattr(name)?)?;
        }
        Ok(fields)
    }

    fn __repr__(&self) -> String {
        let endstop_core::Price { input, output, .. } = self.0.price;
        format!("Price(input={}, output={})", input.to_usd(), output.to_usd())
    }
} }

/// Returns the price of a model from the catalogue, or None if it has none. `model` is
/// `provider/model`, for example `openai/gpt-4o`.
///
/// Prices are upper bounds: if a price depends on the size of the prompt or on the hour, the
/// highest is used.
#[pyfunction]
pub(crate) fn price(py: Python<'_>, model: &str) -> PyResult<Option<Price>> {
    let found = Quote::find(model);
    found
        .map(|quote| quote.map(Price))
        .map_err(|problem| error(py, Exception::Config, problem.to_string()))
}

/// Reads the `price` argument: a [`Price`], or text such as `in=3,out=15`.
pub(crate) fn read_price(value: &Bound<'_, PyAny>) -> PyResult<endstop_core::Price> {
    let py = value.py();
    if let Ok(price) = value.cast::<Price>() {
        return Ok(price.get().0.price);
    }
    if let Ok(text) = value.extract::<String>() {
        return parse_price(&text)
            .map_err(|problem| error(py, Exception::Config, problem.to_string()));
    }
    let message = "invalid `price`: expected endstop.Price, or text such as \"in=3,out=15\"";
    Err(error(py, Exception::Config, message))
}
