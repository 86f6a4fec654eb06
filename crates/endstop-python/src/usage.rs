//! Token usage as a provider reported it.

use crate::json;
use pyo3::prelude::*;

/// Token usage of a response or of a run. None stands for a count that was not reported.
#[pyclass(frozen, eq, module = "endstop")]
#[derive(Clone, PartialEq)]
pub(crate) struct Usage(pub(crate) endstop_core::Usage);

#[pymethods]
impl Usage {
    /// Prompt tokens, as the provider counts them.
    #[getter]
    fn input_tokens(&self) -> Option<u64> {
        self.0.input_tokens
    }

    /// Generated tokens, as the provider counts them.
    #[getter]
    fn output_tokens(&self) -> Option<u64> {
        self.0.output_tokens
    }

    /// Prompt tokens read from a cache.
    #[getter]
    fn cached_input_tokens(&self) -> Option<u64> {
        self.0.cached_input_tokens
    }

    /// Prompt tokens written to a cache.
    #[getter]
    fn cache_write_tokens(&self) -> Option<u64> {
        self.0.cache_write_tokens
    }

    /// Generated tokens spent on reasoning.
    #[getter]
    fn reasoning_tokens(&self) -> Option<u64> {
        self.0.reasoning_tokens
    }

    /// Prompt and generated tokens together, including cached ones.
    #[getter]
    fn total_tokens(&self) -> u64 {
        self.0.total_tokens()
    }

    /// True if Endstop estimated the numbers, because the provider did not count.
    #[getter]
    fn estimated(&self) -> bool {
        self.0.estimated
    }

    /// Returns the fields as a dict.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.0)
    }

    /// Reads what `to_dict` returned, as JSON text.
    #[staticmethod]
    fn _from_json(py: Python<'_>, text: &str) -> PyResult<Usage> {
        json::from_json(py, text, "usage").map(Usage)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let py = slf.py();
        let make = py.get_type::<Usage>().getattr("_from_json")?;
        Ok((make, (json::to_json(py, &slf.get().0)?,)))
    }

    fn __repr__(&self) -> String {
        let count = |tokens: Option<u64>| tokens.map_or("None".to_owned(), |n| n.to_string());
        let (input, output) = (count(self.0.input_tokens), count(self.0.output_tokens));
        format!("Usage(input_tokens={input}, output_tokens={output})")
    }
}
