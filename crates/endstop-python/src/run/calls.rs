//! The calls of a run: those of the run itself, and those of a handle.

use super::input::{call_id, failure, read_input, report};
use super::steps::Steps;
use crate::errors::{Exception, error};
use crate::response::Response;
use crate::response::detection::{Detection, read_request};
use crate::turn::Turn;
use endstop_core::{ErrorClass, ModelError};
use endstop_guest::choice;
use endstop_guest::run_state::{Ask, Handle, Reported};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;

/// The methods that a run and a call of it have in common.
#[pyclass(frozen, subclass, name = "_Calls", module = "endstop._endstop")]
pub(crate) struct Calls {
    steps: Arc<Steps>,
    handle: Handle,
}

impl Calls {
    pub(super) fn new(steps: &Arc<Steps>, handle: Handle) -> PyClassInitializer<Calls> {
        PyClassInitializer::from(Calls { steps: Arc::clone(steps), handle })
    }
}

#[pymethods]
impl Calls {
    /// Reports that a framework is about to call the model. False: it must not, because the run has
    /// ended. Unlike `Run.go`, this continues after an answer, because the framework decides about that. A
    /// call that has no response yet counts as a failed attempt.
    #[pyo3(signature = (input = None, *, retry = false, prompt_bytes = None, output_cap = None,
                        streaming = false))]
    fn ask(
        &self,
        py: Python<'_>,
        input: Option<&Bound<'_, PyAny>>,
        retry: bool,
        prompt_bytes: Option<u64>,
        output_cap: Option<u64>,
        streaming: bool,
    ) -> PyResult<bool> {
        let input = read_input(input)?;
        let ask = Ask { input, prompt_bytes, output_cap, streaming, retry };
        self.steps.step(py, |state, at| state.ask(at, &self.handle, ask))
    }

    /// Feeds the model's response, and returns the calls that may run.
    ///
    /// `response` is anything that `detect` reads, a Detection, or a StreamDecoder, which is then
    /// finished. `request` is the request that was sent.
    #[pyo3(signature = (response, *, api = None, status = None, request = None))]
    fn turn(
        &self,
        py: Python<'_>,
        response: &Bound<'_, PyAny>,
        api: Option<&str>,
        status: Option<u16>,
        request: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Turn> {
        let facts = request.map(read_request).transpose()?.unwrap_or_default();
        // Put back at once, because reading the response runs code of an SDK, which may use this
        // run.
        let last = self.steps.peek(py)?.api();
        let Detection(found) = Response::of(response)?.decode(py, (api, last), status, &facts)?;
        self.steps.step(py, |state, at| state.turn(at, &self.handle, found)).map(Turn)
    }

    /// Feeds streamed text while it arrives. False: stop reading, the run has ended.
    #[pyo3(signature = (text, *, kind = "text"))]
    fn delta(&self, py: Python<'_>, text: String, kind: &str) -> PyResult<bool> {
        let delta = choice::delta(text, kind)
            .map_err(|problem| error(py, Exception::Config, problem.to_string()))?;
        self.steps.step(py, |state, at| {
            state.delta(at, &self.handle, delta);
            state.is_running()
        })
    }

    /// Feeds the failure of a model call: an exception of the SDK, a ModelError, or a message with
    /// its `kind`, an ErrorClass. The loop may retry it. False: the run has ended.
    #[pyo3(signature = (problem, *, kind = None))]
    fn failed(
        &self,
        py: Python<'_>,
        problem: &Bound<'_, PyAny>,
        kind: Option<&str>,
    ) -> PyResult<bool> {
        let problem = failure(problem, kind)?;
        self.steps.step(py, |state, at| {
            state.failed(at, &self.handle, problem);
            state.is_running()
        })
    }

    /// Feeds the result of a tool call. `call` is a Call or its id. An `output` other than text is
    /// written as JSON; an exception is an error. `halt` is a reason to end the run as `error_halted`.
    /// False: the run has ended.
    ///
    /// A result given to a ModelCall belongs to its conversation; given to the Run, to the Run's own if that
    /// waits for the id, else to the one that waits longest. A second result of a call is ignored, and so is
    /// one of a call that was held back. Raises ConfigError for the id of a call that no response has asked for.
    #[pyo3(signature = (call, output, *, status = "ok", variables = None, metrics = None,
                        halt = None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a Python function")]
    fn result(
        &self,
        py: Python<'_>,
        call: &Bound<'_, PyAny>,
        output: &Bound<'_, PyAny>,
        status: &str,
        variables: Option<&Bound<'_, PyDict>>,
        metrics: Option<&Bound<'_, PyDict>>,
        halt: Option<String>,
    ) -> PyResult<bool> {
        let id = call_id(call)?;
        let report = report(output, status, variables, metrics, halt)?;
        let (reported, running) = self.steps.step(py, |state, at| {
            let reported = state.result(at, &self.handle, &id, report);
            (reported, state.is_running())
        })?;
        let problem = match reported {
            Reported::Taken | Reported::Ignored => return Ok(running),
            Reported::Unknown => {
                "no response here has asked for it; pass the Call of a Turn, or its id"
            }
        };
        Err(error(py, Exception::Config, format!("invalid call `{id}`: {problem}")))
    }
}

/// A model call of a run, one at a time: `ask`, then `turn` or `failed`. Made by `Run.call`.
///
/// >>> from openai import OpenAI
/// >>> client, run = OpenAI(), endstop.Run(max_turns=25)
/// >>> with run.call("researcher") as call:
/// ...     if call.ask():
/// ...         turn = call.turn(client.chat.completions.create(model="gpt-4o", messages=[]))
/// >>> run.close().termination
/// <Termination.STOP: 'stop'>
#[pyclass(frozen, extends = Calls, module = "endstop")]
pub(crate) struct ModelCall;

impl ModelCall {
    pub(super) fn new(
        py: Python<'_>,
        steps: &Arc<Steps>,
        handle: Handle,
    ) -> PyResult<Py<ModelCall>> {
        Py::new(py, Calls::new(steps, handle).add_subclass(ModelCall))
    }
}

#[pymethods]
impl ModelCall {
    /// True if the call waits for its response.
    #[getter]
    fn open(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let Calls { steps, handle } = slf.as_super().get();
        steps.step(slf.py(), |state, _| state.is_open(handle))
    }

    /// Reports that no response comes. A call that is open has failed, and may have been billed.
    fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, Calls { steps, handle }) = (slf.py(), slf.as_super().get());
        // Of a parked run no call is open.
        if steps.is_parked(py)? {
            return Ok(());
        }
        steps.step(py, |state, at| {
            if state.is_open(handle) {
                let problem = "the call was closed before its response was fed";
                let problem = ModelError::new(ErrorClass::IncompleteStream, problem);
                state.failed(at, handle, problem);
            }
        })
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Closes the call. The exception is raised again.
    #[pyo3(signature = (kind, problem, traceback))]
    fn __exit__(
        slf: &Bound<'_, Self>,
        kind: &Bound<'_, PyAny>,
        problem: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let _ = (kind, problem, traceback);
        ModelCall::close(slf)?;
        Ok(false)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> String {
        let open = ModelCall::open(slf).unwrap_or(false);
        format!("<endstop.ModelCall, {}>", if open { "open" } else { "not open" })
    }
}
