//! The view of a policy: a step, and the state of the run around it.

use crate::json;
use crate::turn::Call;
use endstop_core::{NanoUsd, StepCall, StepContext, StepResult, ToolCall};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The outcome of a step: a turn of the model with its tools.
#[pyclass(frozen, eq, module = "endstop")]
#[derive(Clone, PartialEq)]
pub(crate) struct Step(pub(crate) StepResult);

#[pymethods]
impl Step {
    #[new]
    #[pyo3(signature = (output = None, *, action_type = "message", success = true, metadata = None))]
    fn new(
        output: Option<String>,
        action_type: &str,
        success: bool,
        metadata: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Step> {
        let metadata =
            metadata.map(|given| json::from_python(given.as_any(), "metadata")).transpose()?;
        Ok(Step(StepResult {
            action_type: action_type.to_owned(),
            success,
            output,
            metadata: metadata.unwrap_or_default(),
            ..StepResult::default()
        }))
    }

    /// Kind of the step: `message`, `final`, `tool` or `code`.
    #[getter]
    fn action_type(&self) -> &str {
        &self.0.action_type
    }

    /// True if the step succeeded.
    #[getter]
    fn success(&self) -> bool {
        self.0.success
    }

    /// Text of the step; None if it has none.
    #[getter]
    fn output(&self) -> Option<&str> {
        self.0.output.as_deref()
    }

    /// Metadata of the step.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.0.metadata)
    }

    /// The tool calls of the step, in order. Their ids are blank.
    #[getter]
    fn calls(&self) -> Vec<Call> {
        let calls = self.0.calls.iter().map(|call| ToolCall {
            // Blank, because ids differ between runs, so that a policy should not depend on them.
            id: String::new(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
        });
        calls.map(Call::of).collect()
    }

    /// The results of the step's tools, in call order: dicts with `name`, `success` and `result`.
    #[getter]
    fn results<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let known = self.0.calls.iter().filter(|call| call.success.is_some());
        let result = |call: &StepCall| serde_json::json!({"name": call.name, "success": call.success, "result": call.result});
        json::to_python(py, &known.map(result).collect::<Vec<_>>())
    }

    /// The outputs of the step's own code, in call order: dicts with `name`, `action_type`, `success`
    /// and `output`.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.0.outputs)
    }

    fn __repr__(&self) -> String {
        format!("Step({:?}, action_type={:?})", self.0.output, self.0.action_type)
    }
}

/// The state of a run around a step.
#[pyclass(frozen, eq, module = "endstop")]
#[derive(Clone, PartialEq)]
pub(crate) struct Context(pub(crate) StepContext);

#[pymethods]
impl Context {
    #[new]
    #[pyo3(signature = (*, task = "", step = 0, variables = None, metrics = None, cost_usd = None))]
    fn new(
        task: &str,
        step: i64,
        variables: Option<&Bound<'_, PyDict>>,
        metrics: Option<&Bound<'_, PyDict>>,
        cost_usd: Option<f64>,
    ) -> PyResult<Context> {
        let read = |given: Option<&Bound<'_, PyDict>>, name| {
            given.map(|dict| json::from_python(dict.as_any(), name)).transpose()
        };
        Ok(Context(StepContext {
            task: task.to_owned(),
            step,
            variables: read(variables, "variables")?.unwrap_or_default(),
            metrics: read(metrics, "metrics")?.unwrap_or_default(),
            cost: cost_usd.map(NanoUsd::from_usd),
            // Only a run knows of messages from outside.
            message_arrived: false,
        }))
    }

    /// The run's task.
    #[getter]
    fn task(&self) -> &str {
        &self.0.task
    }

    /// Number of turns completed before this one, from 0.
    #[getter]
    fn step(&self) -> i64 {
        self.0.step
    }

    /// Named values, set by tools or by the caller.
    #[getter]
    fn variables<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.0.variables)
    }

    /// Measurements, such as `last_reward`.
    #[getter]
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.0.metrics)
    }

    /// Cost of the run so far in US dollars, if the price is known.
    #[getter]
    fn cost_usd(&self) -> Option<f64> {
        self.0.cost.map(NanoUsd::to_usd)
    }

    /// True if a message that the model did not write arrived since the previous step.
    #[getter]
    fn message_arrived(&self) -> bool {
        self.0.message_arrived
    }

    fn __repr__(&self) -> String {
        format!("Context(step={}, task={:?})", self.0.step, self.0.task)
    }
}
