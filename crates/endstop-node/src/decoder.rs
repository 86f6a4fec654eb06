//! A streamed response, decoded while its bytes pass.

use crate::detection::{NativeDetection, ResponseFacts, bytes_of, recognise};
use crate::errors::Result;
use crate::slot::Slot;
use endstop_wire::dialect::{self, Dialect};
use endstop_wire::{Eof, Headers, RequestFacts, StreamDecoder};
use napi::Either;
use napi_derive::napi;

/// Bytes that are stored at most until the format is recognised.
const MOST_HELD: usize = 64 * 1024;

/// An increment of a streamed turn.
#[napi(object, use_nullable = true)]
pub struct Delta {
    /// Kind of the increment; `call` is the start of a call.
    #[napi(readonly, ts_type = "'text' | 'reasoning' | 'refusal' | 'call' | 'arguments'")]
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
    state: Slot<State>,
    status: u16,
}

struct State {
    decoder: Option<StreamDecoder>,
    dialect: Option<&'static Dialect>,
    headers: Headers,
    facts: RequestFacts,
    /// The bytes from before the format was known.
    held: Vec<u8>,
    /// `true` if the body exceeded a limit, or a frame could not be read.
    broken: bool,
    finished: Option<NativeDetection>,
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
            self.dialect = known.or(Some(dialect::OPENAI_CHAT));
        }
        let Some(dialect) = self.dialect else { return false };
        let headers = std::mem::take(&mut self.headers);
        self.decoder = Some(StreamDecoder::new(dialect, status, headers, self.facts));
        true
    }

    fn finish(&mut self, status: u16, reset: bool) -> NativeDetection {
        // A run finishes a decoder that its caller may have finished before.
        if let Some(done) = &self.finished {
            return done.clone();
        }
        if self.decoder.is_none() {
            // The whole body may be one that is recognised only now, or not at all.
            let held = std::mem::take(&mut self.held);
            let known = self.dialect.or_else(|| recognise(&held, status).ok());
            self.dialect = known.or(Some(dialect::OPENAI_CHAT));
            // Its increments are not needed: the caller gets the whole turn.
            self.push(status, &held, &mut Vec::new());
        }
        let dialect = self.dialect.unwrap_or(dialect::OPENAI_CHAT);
        // There is still none if the body is empty, which is the error of a new decoder at its end.
        let decoder = self
            .decoder
            .take()
            .unwrap_or_else(|| StreamDecoder::new(dialect, status, Headers::new(), self.facts));
        let decoded = decoder.finish(if reset { Eof::Reset } else { Eof::Clean });
        let done = NativeDetection { decoded, api: dialect.name };
        self.finished = Some(done.clone());
        done
    }
}

#[napi]
impl NativeDecoder {
    /// Creates a decoder.
    #[napi(constructor)]
    pub fn new(facts: ResponseFacts) -> Result<NativeDecoder> {
        let state = State {
            decoder: None,
            dialect: facts.dialect()?,
            headers: facts.headers(),
            facts: facts.request()?,
            held: Vec::new(),
            broken: false,
            finished: None,
        };
        Ok(NativeDecoder { state: Slot::new(state), status: facts.status.unwrap_or(200) })
    }

    /// Takes the next bytes, and returns what they add to the turn.
    #[napi(catch_unwind)]
    pub fn push(&self, chunk: Either<&[u8], String>) -> Result<Vec<Delta>> {
        let mut deltas = Vec::new();
        self.state.take("decoder")?.push(self.status, bytes_of(&chunk), &mut deltas);
        Ok(deltas)
    }

    /// Ends the body. `reset` is true if the connection broke.
    #[napi(catch_unwind)]
    pub fn finish(&self, reset: bool) -> Result<NativeDetection> {
        Ok(self.state.take("decoder")?.finish(self.status, reset))
    }

    /// True if the protocol's end marker arrived, so that nothing more needs to be read.
    #[napi(getter)]
    pub fn complete(&self) -> Result<bool> {
        let mut state = self.state.take("decoder")?;
        let done = state.finished.as_ref().map(|done| done.decoded.complete);
        Ok(done.unwrap_or_else(|| state.decoder.as_mut().is_some_and(StreamDecoder::is_complete)))
    }

    /// The format, once it is known.
    #[napi(getter)]
    pub fn api(&self) -> Result<Option<String>> {
        Ok(self.state.take("decoder")?.dialect.map(|dialect| dialect.name.to_owned()))
    }
}
