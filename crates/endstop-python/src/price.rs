//! Prices of models.

use crate::errors::{Exception, error};
use endstop_wire::catalog::prices::{ModelInfo, lookup, parse_price};
use pyo3::prelude::*;

/// The price of a model in US dollars per million tokens.
#[pyclass(frozen, eq, module = "endstop")]
#[derive(Clone, PartialEq)]
pub(crate) struct Price {
    pub(crate) price: endstop_core::Price,
    /// The catalogue's entry; `None` for a price of the caller's.
    info: Option<ModelInfo>,
}

#[pymethods]
impl Price {
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
        let price = endstop_guest::pricing::read_price(input, output, cached_input, cache_write)
            .map_err(|problem| error(py, Exception::Config, problem.to_string()))?;
        Ok(Price { price, info: None })
    }

    /// Dollars per million prompt tokens.
    #[getter]
    fn input(&self) -> f64 {
        self.price.input.to_usd()
    }

    /// Dollars per million generated tokens.
    #[getter]
    fn output(&self) -> f64 {
        self.price.output.to_usd()
    }

    /// Dollars per million prompt tokens read from a cache; None: as `input`.
    #[getter]
    fn cached_input(&self) -> Option<f64> {
        self.price.cached_input.map(endstop_core::NanoUsd::to_usd)
    }

    /// Dollars per million prompt tokens written to a cache; None: as `input`.
    #[getter]
    fn cache_write(&self) -> Option<f64> {
        self.price.cache_write.map(endstop_core::NanoUsd::to_usd)
    }

    /// True if every call has this price; False if it is the highest of several.
    #[getter]
    fn exact(&self) -> bool {
        // A price that the caller gave has no entry, and holds for every call.
        self.info.as_ref().is_none_or(|info| info.exact)
    }

    /// Tokens of prompt and answer together, if the catalogue knows them.
    #[getter]
    fn context_window(&self) -> Option<u64> {
        self.info.as_ref().and_then(|info| info.context_window)
    }

    /// Source of the price: the caller, or the entry of the catalogue.
    #[getter]
    fn source(&self) -> String {
        self.info.as_ref().map_or_else(|| "given by the user".to_owned(), |i| i.source.to_string())
    }

    /// Returns the cost in US dollars of this many tokens.
    #[pyo3(signature = (input_tokens, output_tokens, cached_input_tokens = 0))]
    fn cost(&self, input_tokens: u64, output_tokens: u64, cached_input_tokens: u64) -> f64 {
        let usage = endstop_core::Usage {
            input_tokens: Some(input_tokens),
            output_tokens: Some(output_tokens),
            cached_input_tokens: Some(cached_input_tokens),
            ..endstop_core::Usage::default()
        };
        self.price.cost(&usage).to_usd()
    }

    fn __repr__(&self) -> String {
        format!("Price(input={}, output={})", self.input(), self.output())
    }
}

/// Returns the price of a model from the catalogue, or None if it has none. `model` is
/// `provider/model`, for example `openai/gpt-4o`.
///
/// Prices are upper bounds: if a price depends on the size of the prompt or on the hour, the
/// highest is used.
#[pyfunction]
pub(crate) fn price(py: Python<'_>, model: &str) -> PyResult<Option<Price>> {
    // At the first slash only, because the ids of gateways contain others:
    // `openrouter/openai/gpt-4o`.
    let Some((provider, id)) = model.split_once('/') else {
        let message =
            format!("invalid model `{model}`: expected provider/model, such as openai/gpt-4o");
        return Err(error(py, Exception::Config, message));
    };
    Ok(lookup(provider, id).map(|info| Price { price: info.price, info: Some(info) }))
}

/// Reads the `price` argument: a [`Price`], or text such as `in=3,out=15`.
pub(crate) fn read_price(value: &Bound<'_, PyAny>) -> PyResult<endstop_core::Price> {
    let py = value.py();
    if let Ok(price) = value.cast::<Price>() {
        return Ok(price.get().price);
    }
    if let Ok(text) = value.extract::<String>() {
        return parse_price(&text)
            .map_err(|problem| error(py, Exception::Config, problem.to_string()));
    }
    let message = "invalid `price`: expected endstop.Price, or text such as \"in=3,out=15\"";
    Err(error(py, Exception::Config, message))
}
