//! Detection of why a model's turn ended, from one response.

use crate::errors::{Code, Result, config, from_json, to_json};
use crate::fields::object;
use crate::response::{Call, ModelError, Signal, Usage};
use endstop_guest::detection_fields;
use endstop_guest::response::{Body, Chunks, Detection};
use endstop_wire::detect::{DetectError, request_facts};
use endstop_wire::dialect::{self, Dialect};
use endstop_wire::{Headers, RequestFacts};
use napi::Either;
use napi_derive::napi;

/// The facts around a response.
#[napi(object)]
#[derive(Default)]
pub struct ResponseFacts {
    /// Name of the format; if it is missing, the format is recognised.
    pub api: Option<String>,
    /// HTTP status.
    pub status: Option<u16>,
    /// Names and values of the headers, by turns.
    pub headers: Option<Vec<String>>,
    /// The request that was sent, as JSON.
    pub request: Option<String>,
}

impl ResponseFacts {
    pub(crate) fn headers(&self) -> Headers {
        let mut headers = Headers::new();
        for pair in self.headers.as_deref().unwrap_or_default().chunks_exact(2) {
            headers.push(&pair[0], &pair[1]);
        }
        headers
    }

    pub(crate) fn status(&self) -> u16 {
        self.status.unwrap_or(200)
    }

    pub(crate) fn dialect(&self) -> Result<Option<&'static Dialect>> {
        self.api.as_deref().map(|name| dialect::dialect(name).map_err(config)).transpose()
    }

    /// Returns the facts that decoding needs from the request.
    pub(crate) fn request(&self) -> Result<RequestFacts> {
        let Some(json) = &self.request else { return Ok(RequestFacts::default()) };
        from_json::<serde_json::Value>(json, "request").map(|value| request_facts(&value))
    }
}

detection_fields! { object
    /// A decoded response: its content, and why the model stopped.
    DetectionFields(Detection);
}

/// A decoded response as the kernel has it, which a run reads.
#[napi]
#[derive(Clone)]
pub struct NativeDetection(pub(crate) Detection);

#[napi]
impl NativeDetection {
    /// Returns the content as a plain object.
    #[napi(catch_unwind)]
    pub fn fields(&self) -> Result<DetectionFields> {
        DetectionFields::of(&self.0)
    }

    /// Returns the object that `endstop detect` prints, as JSON.
    #[napi(catch_unwind)]
    pub fn printed(&self) -> Result<String> {
        to_json(&self.0.printed())
    }
}

/// Returns the format of the responses to a request, by its method and its path; null if it is not a model
/// call.
#[napi(catch_unwind)]
pub fn api_of(method: String, path: String) -> Option<&'static str> {
    Some(endstop_wire::route::recognise(&method, &path).format()?.as_str())
}

/// Detects why a model's turn ended, from the body of a response.
#[napi(catch_unwind)]
pub fn detect(
    body: Either<&[u8], String>,
    facts: Option<ResponseFacts>,
) -> Result<NativeDetection> {
    let facts = facts.unwrap_or_default();
    decode_sent(bytes_of(&body), &facts, "", facts.status)
}

/// Returns the bytes of a body.
pub(crate) fn bytes_of<'a>(body: &'a Either<&'a [u8], String>) -> &'a [u8] {
    match body {
        // Not copied, because no JavaScript runs while the bytes are read.
        Either::A(bytes) => bytes,
        Either::B(text) => text.as_bytes(),
    }
}

/// Decodes a body that a server sent, in this format, or in the format that is recognised. `last` is the
/// format of a run's last response, which is tried before.
pub(crate) fn decode(bytes: &[u8], facts: &ResponseFacts, last: &str) -> Result<NativeDetection> {
    decode_sent(bytes, facts, last, Some(facts.status()))
}

/// Decodes a body. Without a status, an empty one is a mistake of the caller.
fn decode_sent(
    bytes: &[u8],
    facts: &ResponseFacts,
    last: &str,
    status: Option<u16>,
) -> Result<NativeDetection> {
    let (given, headers, request) = (facts.dialect()?, facts.headers(), facts.request()?);
    let body = Body { bytes, status, headers: &headers, request: &request };
    body.detect(given, last).map(NativeDetection).map_err(format_problem)
}

fn format_problem(problem: DetectError) -> napi::Error<Code> {
    napi::Error::new(Code::Format, problem.to_string())
}

/// Checks that the chunks of a stream, as text, are those of one response.
#[napi(catch_unwind)]
pub fn check_chunks(chunks: Vec<String>) -> Result<()> {
    let mut seen = Chunks::default();
    chunks.iter().try_for_each(|chunk| seen.add(chunk.as_bytes())).map_err(format_problem)
}
