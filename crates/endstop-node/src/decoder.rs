//! A streamed response, decoded while its bytes pass.

use crate::detection::{NativeDetection, ResponseFacts, bytes_of};
use crate::errors::Result;
use crate::slot::Slot;
use endstop_guest::stream::Stream;
use napi::Either;
use napi_derive::napi;

/// An increment of a streamed turn.
#[napi(object, use_nullable = true)]
pub struct Delta {
    /// Kind of the increment; `call` is the start of a call, and a hidden one is not part of the turn.
    #[napi(
        readonly,
        ts_type = "'text' | 'reasoning' | 'refusal' | 'call' | 'arguments' | 'hidden' | 'hidden_reasoning'"
    )]
    pub kind: String,
    /// The text; of a call that starts, the name of the tool.
    #[napi(readonly)]
    pub text: String,
    /// Position of the call among the turn's calls, from 0; null for text.
    #[napi(readonly)]
    pub index: Option<u32>,
    /// Id of the call that starts.
    #[napi(readonly)]
    pub id: Option<String>,
}

impl Delta {
    fn of(delta: endstop_wire::Delta<'_>) -> Option<Delta> {
        use endstop_wire::Delta as Wire;
        let of = |kind: &str, text: &str| Delta {
            kind: kind.to_owned(),
            text: text.to_owned(),
            index: None,
            id: None,
        };
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
                Delta { index: u32::try_from(index).ok(), id, ..of("call", name) }
            }
            Wire::ToolArguments { index, json } => {
                Delta { index: u32::try_from(index).ok(), ..of("arguments", json) }
            }
            // A kind of a later version has no meaning here.
            _ => return None,
        })
    }
}

/// Decodes a streamed response while its bytes pass.
#[napi]
pub struct NativeDecoder {
    stream: Slot<Stream>,
}

#[napi]
impl NativeDecoder {
    /// Creates a decoder.
    #[napi(constructor)]
    pub fn new(facts: ResponseFacts) -> Result<NativeDecoder> {
        let (dialect, status) = (facts.dialect()?, facts.status());
        let stream = Stream::new(dialect, status, facts.headers(), facts.request()?);
        Ok(NativeDecoder { stream: Slot::new(stream) })
    }

    /// Takes the next bytes, and returns what they add to the turn.
    #[napi(catch_unwind)]
    pub fn push(&self, chunk: Either<&[u8], String>) -> Result<Vec<Delta>> {
        let mut deltas = Vec::new();
        let on_delta = |delta: endstop_wire::Delta<'_>| deltas.extend(Delta::of(delta));
        self.stream.take("decoder")?.push(bytes_of(&chunk), on_delta);
        Ok(deltas)
    }

    /// Ends the body. `reset` is true if the connection broke.
    #[napi(catch_unwind)]
    pub fn finish(&self, reset: bool) -> Result<NativeDetection> {
        Ok(NativeDetection(self.stream.take("decoder")?.finish(reset)))
    }

    /// True if the protocol's end marker arrived, so that nothing more needs to be read.
    #[napi(getter)]
    pub fn complete(&self) -> Result<bool> {
        Ok(self.stream.take("decoder")?.is_complete())
    }

    /// The format, once it is known.
    #[napi(getter)]
    pub fn api(&self) -> Result<Option<String>> {
        Ok(self.stream.take("decoder")?.api().map(str::to_owned))
    }
}
