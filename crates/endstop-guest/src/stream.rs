//! A streamed response, decoded while its bytes pass, in a format that is recognised on the way.

use crate::response::{Detection, recognise};
use endstop_wire::dialect::{self, Dialect};
use endstop_wire::{Delta, Eof, Headers, RequestFacts, StreamDecoder};

/// Bytes that are stored at most until the format is recognised.
const MOST_HELD: usize = 64 * 1024;

/// Decodes a streamed response while its bytes pass.
pub struct Stream {
    decoder: Option<StreamDecoder>,
    dialect: Option<&'static Dialect>,
    status: u16,
    headers: Headers,
    facts: RequestFacts,
    /// The bytes from before the format was known.
    held: Vec<u8>,
    /// `true` if the body exceeded a limit, or a frame could not be read.
    broken: bool,
    finished: Option<Detection>,
}

impl Stream {
    /// Starts a response. Without a format, the first bytes decide.
    pub fn new(
        dialect: Option<&'static Dialect>,
        status: u16,
        headers: Headers,
        facts: RequestFacts,
    ) -> Stream {
        let (held, broken, finished) = (Vec::new(), false, None);
        Stream { decoder: None, dialect, status, headers, facts, held, broken, finished }
    }

    /// Takes a chunk, and reports what it adds to the turn. After the end, chunks are ignored.
    pub fn push(&mut self, chunk: &[u8], mut on_delta: impl FnMut(Delta<'_>)) {
        if self.broken || self.finished.is_some() {
            return;
        }
        if self.decoder.is_none() && !self.begin(chunk) {
            return;
        }
        let held = std::mem::take(&mut self.held);
        let Some(decoder) = &mut self.decoder else { return };
        let mut taken = Ok(());
        for piece in [held.as_slice(), chunk].into_iter().filter(|piece| !piece.is_empty()) {
            taken = taken.and_then(|()| decoder.push(piece, &mut on_delta));
        }
        self.broken = taken.is_err();
    }

    /// Creates the decoder once the format is known. `false` if it is not known yet; the chunk is
    /// then stored.
    fn begin(&mut self, chunk: &[u8]) -> bool {
        if self.dialect.is_none() {
            let all = [&self.held[..], chunk].concat();
            let known = recognise(&all, Some(self.status)).ok();
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
        self.decoder = Some(StreamDecoder::new(dialect, self.status, headers, self.facts));
        true
    }

    /// Ends the body, and returns the response. `reset` is `true` if the
    /// connection broke. Another call returns the same.
    pub fn finish(&mut self, reset: bool) -> Detection {
        // A run finishes a decoder that its caller may have finished before.
        if let Some(done) = &self.finished {
            return done.clone();
        }
        if self.decoder.is_none() {
            // The whole body may be one that is recognised only now, or not at all.
            let held = std::mem::take(&mut self.held);
            let known = self.dialect.or_else(|| recognise(&held, Some(self.status)).ok());
            self.dialect = known.or(Some(dialect::OPENAI_CHAT));
            // Its increments are not needed: the caller gets the whole turn.
            self.push(&held, |_| ());
        }
        let dialect = self.dialect.unwrap_or(dialect::OPENAI_CHAT);
        // There is still no decoder if the body is empty, which is the error of a new one at its end.
        let decoder = self.decoder.take().unwrap_or_else(|| {
            StreamDecoder::new(dialect, self.status, Headers::new(), self.facts)
        });
        let decoded = decoder.finish(if reset { Eof::Reset } else { Eof::Clean });
        self.finished.insert(Detection { api: dialect.name, decoded }).clone()
    }

    /// `true` if the protocol's end marker arrived, so that nothing more needs to be read.
    pub fn is_complete(&mut self) -> bool {
        match &self.finished {
            Some(done) => done.decoded.complete,
            None => self.decoder.as_mut().is_some_and(StreamDecoder::is_complete),
        }
    }

    /// Returns the name of the format, once it is known.
    pub fn api(&self) -> Option<&'static str> {
        self.dialect.map(|dialect| dialect.name)
    }
}
