//! Prices of models.

use crate::errors::{Exception, error};
use crate::json;
use endstop_wire::catalog::prices::{ModelInfo, lookup, parse_price};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::{Deserialize, Serialize};

/// The price of a model in US dollars per million tokens.
#[pyclass(frozen, eq, module = "endstop")]
#[derive(Clone, PartialEq)]
pub(crate) struct Price {
    pub(crate) price: endstop_core::Price,
    /// The catalogue's entry with the name by which it was found; `None` for a price of the caller's.
    entry: Option<(String, ModelInfo)>,
}

/// The JSON form of a price, for pickling.
#[derive(Serialize, Deserialize)]
struct Stored {
    price: endstop_core::Price,
    model: Option<String>,
}

impl Price {
    fn info(&self) -> Option<&ModelInfo> {
        self.entry.as_ref().map(|(_, info)| info)
    }

    /// Looks a model up, by `provider/model`.
    fn of_model(model: &str) -> Option<Price> {
        // At the first slash only, because the ids of gateways contain others:
        // `openrouter/openai/gpt-4o`.
        let (provider, id) = model.split_once('/')?;
        let info = lookup(provider, id)?;
        Some(Price { price: info.price, entry: Some((model.to_owned(), info)) })
    }
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
        Ok(Price { price, entry: None })
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
        self.info().is_none_or(|info| info.exact)
    }

    /// Tokens of prompt and answer together, if the catalogue knows them.
    #[getter]
    fn context_window(&self) -> Option<u64> {
        self.info().and_then(|info| info.context_window)
    }

    /// Source of the price: the caller, or the entry of the catalogue.
    #[getter]
    fn source(&self) -> String {
        self.info().map_or_else(|| "given by the user".to_owned(), |i| i.source.to_string())
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

    /// Returns the prices as a dict, in US dollars per million tokens.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let fields = PyDict::new(py);
        fields.set_item("input", self.input())?;
        fields.set_item("output", self.output())?;
        fields.set_item("cached_input", self.cached_input())?;
        fields.set_item("cache_write", self.cache_write())?;
        Ok(fields)
    }

    /// Reads what pickling wrote.
    #[staticmethod]
    fn _from_json(py: Python<'_>, text: &str) -> PyResult<Price> {
        let Stored { price, model } = json::from_json(py, text, "price")?;
        // The catalogue of another version may have another price; that of the original stands.
        let same = model.as_deref().and_then(Price::of_model).filter(|found| found.price == price);
        Ok(same.unwrap_or(Price { price, entry: None }))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let (py, this) = (slf.py(), slf.get());
        let make = py.get_type::<Price>().getattr("_from_json")?;
        let stored = Stored {
            price: this.price,
            model: this.entry.as_ref().map(|(model, _)| model.clone()),
        };
        Ok((make, (json::to_json(py, &stored)?,)))
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
    if !model.contains('/') {
        let message =
            format!("invalid model `{model}`: expected provider/model, such as openai/gpt-4o");
        return Err(error(py, Exception::Config, message));
    }
    Ok(Price::of_model(model))
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
