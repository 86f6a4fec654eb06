//! A response in any of the forms that programs have, and the detection of why it ended.

pub(crate) mod body;
pub(crate) mod decoder;
pub(crate) mod detection;

use body::{Body, read_headers};
use decoder::StreamDecoder;
use detection::{Detection, decode, read_request};
use endstop_wire::RequestFacts;
use pyo3::prelude::*;

/// A response in any of the forms that a run takes.
pub(crate) enum Response<'py> {
    Decoded(Box<Detection>),
    Body(Body<'py>),
}

impl<'py> Response<'py> {
    /// Reads a response: a detection, a decoder at its end, or whatever `detect` reads.
    pub(crate) fn of(given: &Bound<'py, PyAny>) -> PyResult<Response<'py>> {
        if let Ok(detection) = given.cast::<Detection>() {
            return Ok(Response::Decoded(Box::new(detection.get().clone())));
        }
        if let Ok(decoder) = given.cast::<StreamDecoder>() {
            return decoder
                .get()
                .end(given.py(), false)
                .map(|done| Response::Decoded(Box::new(done)));
        }
        Body::of(given).map(Response::Body)
    }

    /// Decodes the response. `api` is the format that the caller names, and the format of the run's
    /// last response, which is tried before the format is recognised anew.
    pub(crate) fn decode(
        self,
        py: Python<'py>,
        (api, last): (Option<&str>, &str),
        status: Option<u16>,
        facts: &RequestFacts,
    ) -> PyResult<Detection> {
        match self {
            Response::Decoded(detection) => Ok(*detection),
            Response::Body(mut body) => {
                // A run gets what servers send, which may be nothing at all.
                body.status = status.or(body.status).or(Some(200));
                decode(py, &body, (api, last), facts)
            }
        }
    }
}

/// Detects why a model's turn ended.
///
/// `response` is the body as bytes or text, a dict, an object of an SDK, a stream or the list of its
/// chunks, or the response of an HTTP client. A stream is read to its end; one of asyncio is read by its
/// program, and passed as a list. `api` names the format, for example `openai-chat`; if
/// it is missing, the format is recognised. `request` is the request that was sent, as bytes or a
/// dict; it tells a cut at the output cap and a stop string from other ends.
///
/// Raises FormatError if the format is not recognised, or ambiguous, or if this is only a part of a
/// response, for example a choice or a message.
///
/// >>> endstop.detect(b'{"choices":[{"message":{"content":"Hi"},"finish_reason":"length"}]}').reason
/// <SignalReason.TOKEN_LIMIT_REACHED: 'token_limit_reached'>
#[pyfunction]
#[pyo3(signature = (response, *, api = None, status = None, headers = None, request = None))]
pub(crate) fn detect(
    py: Python<'_>,
    response: &Bound<'_, PyAny>,
    api: Option<&str>,
    status: Option<u16>,
    headers: Option<&Bound<'_, PyAny>>,
    request: Option<&Bound<'_, PyAny>>,
) -> PyResult<Detection> {
    let mut body = match Response::of(response)? {
        Response::Decoded(done) => return Ok(*done),
        Response::Body(body) => body,
    };
    // The argument takes precedence, because a saved body may have lost its status.
    body.status = status.or(body.status);
    if let Some(headers) = headers {
        body.headers = read_headers(headers)?;
    }
    let facts = request.map(read_request).transpose()?.unwrap_or_default();
    decode(py, &body, (api, ""), &facts)
}
