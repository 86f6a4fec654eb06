//! The fingerprints of a request: of each message, and of the whole body, from one pass over its bytes.

use crate::exchange::digest::{Fingerprint, Mixer, Salt};
use crate::exchange::read::Request;

/// The marks of one request: fingerprints of its bytes.
pub(super) struct Marks {
    pub(super) messages: Vec<Fingerprint>,
    pub(super) body: Fingerprint,
}

impl Marks {
    /// Reads the bytes of a request.
    pub(super) fn of(request: &Request<'_>, salt: &Salt) -> Marks {
        let body = request.body().as_bytes();
        let mut messages = Vec::with_capacity(request.message_count());
        let mut whole = Mixer::new(salt, "body");
        let mut from = 0;
        for span in request.message_spans() {
            // The same bytes at another place are the same message.
            let mark = Mixer::new(salt, "raw message").add(&body[span.clone()]).done();
            whole = whole.add(&body[from..span.start]).add(mark.as_bytes());
            from = span.end;
            messages.push(mark);
        }
        Marks { messages, body: whole.add(&body[from..]).done() }
    }

    /// Returns the mark of the first messages together, up to the one at this position.
    pub(super) fn up_to(&self, last: usize, salt: &Salt) -> Option<Fingerprint> {
        let first = self.messages.get(..=last)?;
        let start = Mixer::new(salt, "first messages");
        Some(first.iter().fold(start, |mark, one| mark.add(one.as_bytes())).done())
    }
}
