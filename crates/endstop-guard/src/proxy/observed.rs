//! Gives an observer the decompressed copy of a response, and exactly one end.

use super::decode::Decoder;
use super::head::ResponseHead;
use super::observer::{End, Flow, ReadOn, ResponseObserver};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

/// The limit for the decompressed copy of a response, in bytes.
const LARGEST_COPY: u64 = 256 << 20;

/// An observer whose exchange has not ended.
pub(crate) struct Observed {
    observer: Option<Box<dyn ResponseObserver>>,
    decoder: Option<Decoder>,
    holding: bool,
}

impl Observed {
    pub(crate) fn new(observer: Box<dyn ResponseObserver>) -> Observed {
        Observed { observer: Some(observer), decoder: None, holding: false }
    }

    /// Returns a value that has no observer any more.
    pub(crate) fn ended() -> Observed {
        Observed { observer: None, decoder: None, holding: false }
    }

    /// Reports the head of the response.
    pub(crate) fn head(&mut self, status: StatusCode, headers: HeaderMap) {
        let decoder = Decoder::of(&headers, LARGEST_COPY);
        let encoded = decoder.is_encoded();
        self.decoder = encoded.then_some(decoder);
        if let Some(observer) = &mut self.observer {
            observer.head(&ResponseHead { status, headers, encoded });
        }
    }

    /// Returns the headers that the observer adds to the response.
    pub(crate) fn headers(&mut self) -> Vec<(HeaderName, HeaderValue)> {
        self.observer.as_mut().map(|observer| observer.headers()).unwrap_or_default()
    }

    /// Returns whether the observer reads other bytes than those that pass.
    pub(crate) fn is_encoded(&self) -> bool {
        self.decoder.is_some()
    }

    /// Reports a chunk and returns the decision about it.
    pub(crate) fn bytes(&mut self, chunk: &[u8]) -> Flow {
        match &mut self.observer {
            None => Flow::Pass,
            Some(observer) if self.decoder.is_none() => observer.bytes(chunk),
            Some(_) => self.encoded(chunk),
        }
    }

    /// Reports a chunk of a compressed body. Apart, because the decoders need kilobytes of stack for each call.
    #[inline(never)]
    fn encoded(&mut self, chunk: &[u8]) -> Flow {
        let (Some(observer), Some(decoder)) = (&mut self.observer, &mut self.decoder) else {
            return Flow::Pass;
        };
        let mut flow = if self.holding { Flow::Hold { pass: 0 } } else { Flow::Pass };
        let result = decoder.feed(chunk, &mut |part| {
            if flow != Flow::Abort {
                flow = for_encoded(&observer.bytes(part));
            }
        });
        if let Err(reason) = result
            && flow != Flow::Abort
        {
            flow = for_encoded(&observer.unreadable(reason));
        }
        self.holding = flow != Flow::Pass;
        flow
    }

    /// Reports that the upstream has sent everything.
    pub(crate) fn before_end(&mut self) -> Flow {
        let encoded = self.is_encoded();
        match &mut self.observer {
            Some(observer) if encoded => for_encoded(&observer.before_end()),
            Some(observer) => observer.before_end(),
            None => Flow::Pass,
        }
    }

    /// Reports that the client is gone.
    pub(crate) fn client_gone(&mut self) -> ReadOn {
        self.observer.as_mut().map_or(ReadOn::STOP, |observer| observer.client_gone())
    }

    /// Reports the end. Later calls change nothing.
    pub(crate) fn end(&mut self, end: End) {
        if let Some(observer) = self.observer.take() {
            observer.end(end);
        }
    }

    /// Returns whether the end was reported.
    pub(crate) fn is_ended(&self) -> bool {
        self.observer.is_none()
    }
}

impl Drop for Observed {
    // The exchange was dropped with its connection.
    fn drop(&mut self) {
        self.end(End::ClientGone { whole: false });
    }
}

/// For a compressed body, of which the observer sees other bytes than the client: a decision can only pass, hold
/// or abort.
fn for_encoded(flow: &Flow) -> Flow {
    match flow {
        Flow::Pass => Flow::Pass,
        Flow::Hold { .. } => Flow::Hold { pass: 0 },
        Flow::Change(_) | Flow::End { .. } | Flow::Abort => Flow::Abort,
    }
}
