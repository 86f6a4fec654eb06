//! The incremental decoder of a streamed response.

use crate::body::{DETACH_FROM, read_headers};
use crate::detection::{Detection, read_api, read_request, recognise};
use crate::errors::{Exception, error};
use crate::exit::enter;
use crate::slot::Slot;
use endstop_wire::dialect::Dialect;
use endstop_wire::{Eof, Headers, RequestFacts};
use pyo3::prelude::*;

/// Bytes that are stored at most until the format is recognised.
const MOST_HELD: usize = 64 * 1024;

/// An increment of a streamed turn.
#[pyclass(frozen, eq, module = "endstop")]
#[derive(Clone, PartialEq)]
pub(crate) struct Delta {
    /// `text`, `reasoning`, `refusal`, `call` (a call starts) or `arguments`.
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
/// >>> for chunk in response.iter_raw():
/// ...     for delta in decoder.push(chunk):
/// ...         print(delta.text, end="")
/// >>> decoder.finish().reason
/// <SignalReason.NATURAL_COMPLETION: 'natural_completion'>
#[pyclass(frozen, module = "endstop")]
pub(crate) struct StreamDecoder {
    state: Slot<State>,
    status: u16,
}

struct State {
    decoder: Option<endstop_wire::StreamDecoder>,
    dialect: Option<&'static Dialect>,
    headers: Headers,
    facts: RequestFacts,
    /// The bytes from before the format was known.
    held: Vec<u8>,
    /// `true` if the body exceeded a limit, or a frame could not be read.
    broken: bool,
    finished: Option<Detection>,
}

impl State {
    /// Takes a chunk, and appends what it adds to the turn.
    fn push(&mut self, status: u16, chunk: &[u8], deltas: &mut Vec<Delta>) {
        if self.broken || self.finished.is_some() {
            return;
        }
        if self.decoder.is_none() && !self.begin(status, chunk) {
            return;
        }
        let held = std::mem::take(&mut self.held);
        let Some(decoder) = &mut self.decoder else { return };
        let mut sink = |delta: endstop_wire::Delta<'_>| deltas.extend(Delta::of(delta));
        let mut taken = Ok(());
        for piece in [held.as_slice(), chunk].into_iter().filter(|piece| !piece.is_empty()) {
            taken = taken.and_then(|()| decoder.push(piece, &mut sink));
        }
        self.broken = taken.is_err();
    }

    /// Creates the decoder once the format is known. `false` if it is not known yet; the chunk is
    /// then stored.
    fn begin(&mut self, status: u16, chunk: &[u8]) -> bool {
        if self.dialect.is_none() {
            let all = [&self.held[..], chunk].concat();
            let known = recognise(&all, status).ok();
            let blank = all.trim_ascii().is_empty();
            if blank || known.is_none() && all.len() <= MOST_HELD {
                // Blank bytes are dropped, because a server may send any number of them to keep a
                // connection open.
                self.held = if blank { Vec::new() } else { all };
                return false;
            }
            // Still undecided after `MOST_HELD` bytes: the errors of all formats read alike.
            self.dialect = known.or(Some(endstop_wire::dialect::OPENAI_CHAT));
        }
        let Some(dialect) = self.dialect else { return false };
        let headers = std::mem::take(&mut self.headers);
        let decoder = endstop_wire::StreamDecoder::new(dialect, status, headers, self.facts);
        self.decoder = Some(decoder);
        true
    }

    fn finish(&mut self, status: u16, reset: bool) -> Detection {
        // A run finishes a decoder that its caller may have finished before.
        if let Some(done) = &self.finished {
            return done.clone();
        }
        if self.decoder.is_none() {
            // The whole body may be one that is recognised only now, or not at all.
            let held = std::mem::take(&mut self.held);
            let known = self.dialect.or_else(|| recognise(&held, status).ok());
            self.dialect = known.or(Some(endstop_wire::dialect::OPENAI_CHAT));
            // Its increments are not needed: the caller gets the whole turn.
            self.push(status, &held, &mut Vec::new());
        }
        let dialect = self.dialect.unwrap_or(endstop_wire::dialect::OPENAI_CHAT);
        // There is still none if the body is empty, which is the error of a new decoder at its end.
        let decoder = self.decoder.take().unwrap_or_else(|| {
            endstop_wire::StreamDecoder::new(dialect, status, Headers::new(), self.facts)
        });
        let decoded = decoder.finish(if reset { Eof::Reset } else { Eof::Clean });
        let done = Detection { decoded, api: dialect.name };
        self.finished = Some(done.clone());
        done
    }
}

impl StreamDecoder {
    /// Ends the body, if it has not ended.
    pub(crate) fn end(&self, py: Python<'_>, reset: bool) -> PyResult<Detection> {
        let _inside = enter(py);
        let mut state = self.state.take(py, "decoder")?;
        let status = self.status;
        Ok(py.detach(|| state.finish(status, reset)))
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
        let state = State {
            decoder: None,
            dialect: api.map(|name| read_api(py, name)).transpose()?,
            headers: headers.map(read_headers).transpose()?.unwrap_or_default(),
            facts: request.map(read_request).transpose()?.unwrap_or_default(),
            held: Vec::new(),
            broken: false,
            finished: None,
        };
        Ok(StreamDecoder { state: Slot::new(state), status })
    }

    /// Takes the next bytes, and returns what they add to the turn. Nothing is added by a body that
    /// is not a stream: it is decoded at the end. After `finish`, bytes are ignored.
    fn push(&self, py: Python<'_>, chunk: &[u8]) -> PyResult<Vec<Delta>> {
        let _inside = enter(py);
        let mut state = self.state.take(py, "decoder")?;
        let mut deltas = Vec::new();
        if chunk.len() < DETACH_FROM {
            state.push(self.status, chunk, &mut deltas);
        } else {
            py.detach(|| state.push(self.status, chunk, &mut deltas));
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
        let mut state = self.state.take(py, "decoder")?;
        let done = state.finished.as_ref().map(|done| done.decoded.complete);
        Ok(done.unwrap_or_else(|| {
            state.decoder.as_mut().is_some_and(endstop_wire::StreamDecoder::is_complete)
        }))
    }

    /// The format, once it is known.
    #[getter]
    fn api(&self, py: Python<'_>) -> PyResult<Option<&'static str>> {
        Ok(self.state.take(py, "decoder")?.dialect.map(|dialect| dialect.name))
    }

    #[expect(clippy::unused_self, reason = "a method of Python")]
    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        let message = "a StreamDecoder cannot be pickled; pickle the result of finish()";
        Err(error(py, Exception::Config, message))
    }
}
