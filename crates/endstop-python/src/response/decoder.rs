//! The incremental decoder of a streamed response.

use super::body::{DETACH_FROM, read_headers};
use super::detection::{Detection, read_api, read_request};
use crate::errors::{Exception, error};
use crate::exit::enter;
use crate::json;
use crate::slot::Slot;
use endstop_guest::stream::Stream;
use pyo3::prelude::*;
use serde::Serialize;

/// An increment of a streamed turn.
#[pyclass(frozen, eq, module = "endstop")]
#[derive(Clone, PartialEq, Serialize)]
pub(crate) struct Delta {
    /// `text`, `reasoning`, `refusal`, `call` (a call starts), `arguments`; `hidden` or
    /// `hidden_reasoning` for output that is not part of the turn.
    #[pyo3(get)]
    pub(crate) kind: &'static str,
    /// The text; of a call that starts, the name of the tool.
    #[pyo3(get)]
    pub(crate) text: String,
    /// Position of the call among the turn's calls, from 0; None for text.
    #[pyo3(get)]
    index: Option<usize>,
    /// Id of the call that starts.
    #[pyo3(get)]
    id: Option<String>,
}

#[pymethods]
impl Delta {
    /// Returns the fields as a dict.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, self)
    }

    fn __repr__(&self) -> String {
        format!("Delta({}, {:?})", self.kind, self.text)
    }
}

impl Delta {
    fn of(delta: endstop_wire::Delta<'_>) -> Option<Delta> {
        use endstop_wire::Delta as Wire;
        let of = |kind, text: &str| Delta { kind, text: text.to_owned(), index: None, id: None };
        Some(match delta {
            Wire::Text(text) => of("text", text),
            Wire::Reasoning(text) => of("reasoning", text),
            Wire::Refusal(text) => of("refusal", text),
            Wire::Hidden(text) => of("hidden", text),
            Wire::HiddenReasoning(text) => of("hidden_reasoning", text),
            Wire::ToolCallStarted { index, id, name } => {
                // Formats without ids for calls have an empty one here, which must not look like an
                // id.
                let id = Some(id.to_owned()).filter(|id| !id.is_empty());
                Delta { index: Some(index), id, ..of("call", name) }
            }
            Wire::ToolArguments { index, json } => {
                Delta { index: Some(index), ..of("arguments", json) }
            }
            // A kind of a later version has no meaning here.
            _ => return None,
        })
    }
}

/// Decodes a streamed response while its bytes pass.
///
/// >>> decoder = endstop.StreamDecoder()
/// >>> for chunk in [b'data: {"choices":[{"delta":{"content":"Hi"},', b'"finish_reason":"stop"}]}\n\n']:
/// ...     for delta in decoder.push(chunk):
/// ...         print(delta.text)
/// Hi
/// >>> decoder.finish().reason
/// <SignalReason.NATURAL_COMPLETION: 'natural_completion'>
#[pyclass(frozen, module = "endstop")]
pub(crate) struct StreamDecoder {
    stream: Slot<Stream>,
}

impl StreamDecoder {
    /// Ends the body, if it has not ended.
    pub(crate) fn end(&self, py: Python<'_>, reset: bool) -> PyResult<Detection> {
        let _inside = enter(py);
        let mut stream = self.stream.take(py, "decoder")?;
        Ok(Detection(py.detach(|| stream.finish(reset))))
    }
}

#[pymethods]
impl StreamDecoder {
    /// Creates a decoder. `api` names the format; if it is missing, the first bytes decide.
    #[new]
    #[pyo3(signature = (api = None, *, status = 200, headers = None, request = None))]
    fn new(
        py: Python<'_>,
        api: Option<&str>,
        status: u16,
        headers: Option<&Bound<'_, PyAny>>,
        request: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<StreamDecoder> {
        let dialect = api.map(|name| read_api(py, name)).transpose()?;
        let headers = headers.map(read_headers).transpose()?.unwrap_or_default();
        let facts = request.map(read_request).transpose()?.unwrap_or_default();
        Ok(StreamDecoder { stream: Slot::new(Stream::new(dialect, status, headers, facts)) })
    }

    /// Takes the next bytes, and returns what they add to the turn. Nothing is added by a body that
    /// is not a stream: it is decoded at the end. After `finish`, bytes are ignored.
    fn push(&self, py: Python<'_>, chunk: &[u8]) -> PyResult<Vec<Delta>> {
        let _inside = enter(py);
        let mut stream = self.stream.take(py, "decoder")?;
        let mut deltas = Vec::new();
        let on_delta = |delta: endstop_wire::Delta<'_>| deltas.extend(Delta::of(delta));
        if chunk.len() < DETACH_FROM {
            stream.push(chunk, on_delta);
        } else {
            py.detach(|| stream.push(chunk, on_delta));
        }
        Ok(deltas)
    }

    /// Ends the body. `reset` is True if the connection broke. Bytes that cannot be understood give
    /// an error in the result, never a success.
    #[pyo3(signature = (*, reset = false))]
    fn finish(&self, py: Python<'_>, reset: bool) -> PyResult<Detection> {
        self.end(py, reset)
    }

    /// True if the protocol's end marker arrived, so that nothing more needs to be read.
    #[getter]
    fn complete(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.stream.take(py, "decoder")?.is_complete())
    }

    /// The format, once it is known.
    #[getter]
    fn api(&self, py: Python<'_>) -> PyResult<Option<&'static str>> {
        Ok(self.stream.take(py, "decoder")?.api())
    }

    #[expect(clippy::unused_self, reason = "a method of Python")]
    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        let message = "a StreamDecoder cannot be pickled; pickle the result of finish()";
        Err(error(py, Exception::Config, message))
    }
}
