//! The trait that reads the copy of a response, and decides about each of its chunks.

use super::decode::Unreadable;
use super::head::ResponseHead;
use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use std::time::Duration;

/// Reads a response while it passes. One value for each exchange that is forwarded.
///
/// The methods run on the path of the bytes, so they must not wait, and their cost is added to every
/// chunk. [`ResponseObserver::end`] is called exactly once, whatever happens.
pub trait ResponseObserver: Send {
    /// Receives the status and the headers before they are sent to the client.
    fn head(&mut self, head: &ResponseHead) {
        let _ = head;
    }

    /// Returns headers to add to the response, after its head was received. A header of the same name
    /// from the upstream is replaced.
    fn headers(&mut self) -> Vec<(HeaderName, HeaderValue)> {
        Vec::new()
    }

    /// Receives a chunk of the body, decompressed, and decides about it.
    fn bytes(&mut self, chunk: &[u8]) -> Flow {
        let _ = chunk;
        Flow::Pass
    }

    /// Reports that the body cannot be decompressed from here on. It still passes.
    fn unreadable(&mut self, reason: Unreadable) -> Flow {
        let _ = reason;
        Flow::Pass
    }

    /// Reports that the upstream has sent the whole body, before the client sees its end.
    fn before_end(&mut self) -> Flow {
        Flow::Pass
    }

    /// Reports that the client closed its connection, and returns how far the rest of the response
    /// is read. Some clients close when they have seen the event before the usage.
    fn client_gone(&mut self) -> ReadOn {
        ReadOn::default()
    }

    /// Reports how the exchange ended.
    fn end(self: Box<Self>, end: End);
}

/// A decision about a chunk of a response.
///
/// Bytes that are held back wait in front of the current chunk; "the rest" means both. A decision that
/// cannot be carried out aborts: changing or ending a body that is compressed, or whose length the
/// client already knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flow {
    /// Sends the rest to the client.
    Pass,
    /// Sends the first `pass` bytes of the rest, and holds back what remains, for example the
    /// arguments of a tool call until they are complete. In a compressed body all of it is held.
    /// Holding back more than the options allow aborts.
    Hold {
        /// The number of bytes to send.
        pass: usize,
    },
    /// Sends these bytes instead of the rest.
    Change(Bytes),
    /// Sends the first `pass` bytes of the rest, then `last`, and ends the response cleanly. The
    /// call to the upstream is aborted.
    End {
        /// The number of bytes to send.
        pass: usize,
        /// The last bytes of the response.
        last: Bytes,
    },
    /// Closes the client's connection without a clean end, and aborts the call to the upstream.
    Abort,
}

/// Limits for reading a response whose client is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadOn {
    /// The longest time. Zero aborts the call at once.
    pub time: Duration,
    /// The largest number of bytes.
    pub bytes: u64,
}

impl ReadOn {
    /// Aborts the call at once.
    pub const STOP: ReadOn = ReadOn { time: Duration::ZERO, bytes: 0 };
}

impl Default for ReadOn {
    /// Two seconds and one megabyte: enough for the end of a finished answer. A longer time would
    /// pay for an answer that has no reader.
    fn default() -> ReadOn {
        ReadOn { time: Duration::from_secs(2), bytes: 1 << 20 }
    }
}

/// The way an exchange ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// The upstream sent its whole response, and the client received it.
    Complete,
    /// The observer ended the response with [`Flow::End`].
    Ended,
    /// The observer or an [`AbortToken`](super::AbortToken) aborted the exchange.
    Aborted,
    /// The upstream broke off within its response: a closed connection, or invalid framing.
    Cut {
        /// The error, without credentials.
        error: String,
    },
    /// The upstream sent no response: it could not be reached, or it closed the connection.
    NoResponse {
        /// The error, without credentials.
        error: String,
        /// `false` if the upstream cannot have seen the request, so that it bills nothing.
        sent: bool,
    },
    /// The client closed its connection first.
    ClientGone {
        /// The response was still read to its end.
        whole: bool,
    },
}
