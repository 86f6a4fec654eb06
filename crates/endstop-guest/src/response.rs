//! One response: the recognition of its format, and its tool calls.

use endstop_core::{ModelTurn, SignalReason, ToolCall};
use endstop_wire::detect::DetectError;
use endstop_wire::dialect::{self, Dialect};
use endstop_wire::stream::sniff::formats;
use endstop_wire::{Decoded, Headers, RequestFacts, decode_body};

/// A response and the facts around it.
#[derive(Clone, Copy)]
pub struct Body<'b> {
    /// The bytes of the body.
    pub bytes: &'b [u8],
    /// The HTTP status; `None` if it is not known that a server sent the body.
    pub status: Option<u16>,
    /// The headers.
    pub headers: &'b Headers,
    /// The facts of the request that decoding needs.
    pub request: &'b RequestFacts,
}

impl Body<'_> {
    /// Decodes the body in this format, or in the format that is recognised. Also returns the name
    /// of the format.
    ///
    /// # Errors
    /// The format is unknown or ambiguous.
    pub fn decode(
        &self,
        format: Option<&'static Dialect>,
    ) -> Result<(Decoded, &'static str), DetectError> {
        let dialect = format.map_or_else(|| recognise(self.bytes, self.status), Ok)?;
        let Body { bytes, status, headers, request } = *self;
        let status = status.unwrap_or(200);
        Ok((decode_body(dialect, status, headers, bytes, request), dialect.name))
    }

    /// Decodes the body in the format of a run's last response, if that format fits.
    pub fn decode_as_last(&self, last: &str) -> Option<(Decoded, &'static str)> {
        // Before the first response `last` is empty, which is the name of no dialect.
        let (decoded, name) = self.decode(Some(dialect::dialect(last).ok()?)).ok()?;
        // In a wrong format nothing is found, least of all a finish value that it has.
        let is_known = !decoded.value_missing && decoded.signal.reason != SignalReason::Unknown;
        (decoded.error.is_none() && is_known).then_some((decoded, name))
    }
}

/// Recognises the format of a body.
///
/// # Errors
/// The format is unknown or ambiguous, the body is only a part of a response, or it is empty without a
/// status.
pub fn recognise(bytes: &[u8], status: Option<u16>) -> Result<&'static Dialect, DetectError> {
    let is_error = status.is_some_and(|status| status >= 300);
    match formats(bytes)[..] {
        [family] => Ok(family.dialect()),
        // The status of an error, and an empty body that a server sent, mean the same in every format.
        [] if is_error => Ok(dialect::OPENAI_CHAT),
        [] if bytes.trim_ascii().is_empty() => {
            status.map(|_| dialect::OPENAI_CHAT).ok_or(DetectError::Empty)
        }
        // Formats that share the shape of an error read it alike.
        [family, ..] if is_error => Ok(family.dialect()),
        ref several => Err(DetectError::unrecognised(bytes, several.to_vec())),
    }
}

/// `true` if the response asks for its tools: at any other end, its calls may be cut.
pub(crate) fn asks_for_tools(decoded: &Decoded) -> bool {
    decoded.error.is_none() && decoded.signal.reason == SignalReason::ToolUse
}

/// Returns the calls of a response that may run, and those that are cut or invalid.
pub fn split_calls(decoded: &Decoded) -> (Vec<ToolCall>, Vec<ToolCall>) {
    let whole = asks_for_tools(decoded);
    let calls = decoded.turn.iter().flat_map(ModelTurn::tool_calls).cloned();
    calls.partition(|call| whole && call.parsed_arguments().is_ok())
}
