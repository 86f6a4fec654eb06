//! A reply of the scripted server: chunks of bytes with pauses, and the faults between them.

use super::{Request, Turn};
use endstop_wire::WireFormat;
use endstop_wire::codec::request::Fields;
use endstop_wire::codec::request_reader;
use endstop_wire::route::{Call, Delivery, recognise};
use serde_json::Value;
use std::time::Duration;

/// A step in sending the body of a reply.
#[derive(Clone, Debug)]
pub(crate) enum Send {
    Bytes(Vec<u8>),
    Wait(Duration),
    /// Sends these bytes again and again, with this pause after each time, until the client disconnects.
    Repeat(Vec<u8>, Duration),
    /// Sends nothing more and leaves the connection open.
    Stall,
    /// Resets the connection.
    Reset,
    /// Closes the connection cleanly before the body is complete.
    Close,
    /// Ends the body as if it were complete.
    End,
}

/// A reply of the scripted server, with the faults to inject into it.
#[derive(Clone, Debug)]
pub struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<Send>,
    /// `true` if the head of the response never ends.
    pub(crate) endless_head: bool,
    /// Length that the head claims; if `None`, the body is sent in chunked encoding.
    pub(crate) claimed: Option<u64>,
}

impl Reply {
    /// Creates a reply with this status and body.
    pub fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Reply {
        Reply {
            status,
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            body: vec![Send::Bytes(body.into())],
            endless_head: false,
            claimed: None,
        }
    }

    /// Creates the reply for a scripted turn, in the format that the request asks for, streamed or
    /// not.
    pub fn turn(request: &Request, turn: &Turn) -> Reply {
        let reply = match &turn.error {
            Some((status, body)) => {
                // Proxies send their error pages as HTML, and clients must not read those as JSON.
                let page = body.trim_start().starts_with('<');
                let kind = if page { "text/html; charset=utf-8" } else { "application/json" };
                Reply::new(*status, kind, body.clone())
            }
            None => Reply::written(request, turn),
        };
        let headers = turn.headers.iter();
        headers.fold(reply, |reply, (name, value)| reply.header(name, value)).after(turn.delay)
    }

    /// Creates the reply for a turn. The path selects the format, because the bodies of two formats can be alike.
    fn written(request: &Request, turn: &Turn) -> Reply {
        let asked = match recognise("POST", &request.path).call {
            Call::Model { format, delivery } => Some((format, delivery)),
            // Most providers serve OpenAI's chat format under their own path.
            _ => None,
        };
        // No request is made in a format that is only read.
        let sent = asked.filter(|(format, _)| format.read_only().is_none());
        let (format, delivery) = sent.unwrap_or((WireFormat::OpenAiChat, None));
        let delivery = delivery.unwrap_or_else(|| {
            let text = std::str::from_utf8(&request.bytes).unwrap_or_default();
            let fields = Fields::of(text).unwrap_or_default();
            let reader = request_reader(format, &fields);
            reader.map_or(Delivery::Whole, |reader| reader.delivery(&reader.head(&fields)))
        });
        let chunks = turn.written(format, delivery).unwrap_or_default();
        Reply::pieces(delivery.content_type(), chunks, turn.pace)
    }

    /// Creates a reply with status 200 and a JSON body.
    pub fn json(body: &Value) -> Reply {
        Reply::new(200, "application/json", body.to_string())
    }

    /// Creates a reply with status 200 whose body has these chunks, with a pause of `pace` after each.
    pub fn pieces(kind: &str, pieces: impl IntoIterator<Item = Vec<u8>>, pace: Duration) -> Reply {
        let mut reply = Reply::new(200, kind, Vec::new());
        reply.body.clear();
        for piece in pieces {
            reply.body.push(Send::Bytes(piece));
            if !pace.is_zero() {
                reply.body.push(Send::Wait(pace));
            }
        }
        reply
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Reply {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Delays the head by this long.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Reply {
        // The sender performs pauses at the front of the body before it sends the head.
        if !delay.is_zero() {
            self.body.insert(0, Send::Wait(delay));
        }
        self
    }

    /// Adds a pause to the end of the body.
    #[must_use]
    pub fn and_wait(mut self, wait: Duration) -> Reply {
        self.body.push(Send::Wait(wait));
        self
    }

    /// Adds a chunk to the end of the body.
    #[must_use]
    pub fn and_bytes(mut self, bytes: impl Into<Vec<u8>>) -> Reply {
        self.body.push(Send::Bytes(bytes.into()));
        self
    }

    /// Ends the body with a chunk that is sent again and again, with this pause after each time: pings, or reasoning
    /// without end.
    #[must_use]
    pub fn and_for_ever(mut self, chunk: impl Into<Vec<u8>>, between: Duration) -> Reply {
        self.body.push(Send::Repeat(chunk.into(), between));
        self
    }

    /// Splits the body into chunks of `n` bytes.
    #[must_use]
    pub fn split(mut self, n: usize) -> Reply {
        let mut body = Vec::new();
        for send in std::mem::take(&mut self.body) {
            match send {
                Send::Bytes(bytes) => {
                    body.extend(bytes.chunks(n.max(1)).map(|part| Send::Bytes(part.to_vec())));
                }
                other => body.push(other),
            }
        }
        self.body = body;
        self
    }

    /// Sends one byte at a time, with this pause after each.
    #[must_use]
    pub fn drip(self, between: Duration) -> Reply {
        let mut reply = self.split(1);
        reply.body = reply.body.into_iter().flat_map(|send| [send, Send::Wait(between)]).collect();
        reply
    }

    /// Stalls after `bytes` of the body: nothing more is sent, and the connection stays open.
    #[must_use]
    pub fn stall_after(self, bytes: usize) -> Reply {
        self.end_after(bytes, Send::Stall)
    }

    /// Resets the connection after `bytes` of the body.
    #[must_use]
    pub fn reset_after(self, bytes: usize) -> Reply {
        self.end_after(bytes, Send::Reset)
    }

    /// Ends the body after `bytes`, as if it were complete.
    #[must_use]
    pub fn cut_after(self, bytes: usize) -> Reply {
        self.end_after(bytes, Send::End)
    }

    /// Closes the connection cleanly after `bytes` of the body. A client can recognise the
    /// truncation only because the last chunk of the chunked encoding is missing.
    #[must_use]
    pub fn close_after(self, bytes: usize) -> Reply {
        self.end_after(bytes, Send::Close)
    }

    /// Sends a `content-length` that is `more` bytes too large (or too small, if negative), instead
    /// of chunked encoding; the connection is closed after the body.
    #[must_use]
    pub fn claim_length(mut self, more: i64) -> Reply {
        let bytes =
            |send: &Send| if let Send::Bytes(bytes) = send { bytes.len() as u64 } else { 0 };
        let length: u64 = self.body.iter().map(bytes).sum();
        self.claimed = Some(length.saturating_add_signed(more));
        self
    }

    /// Creates the HTML error page of a proxy.
    pub fn html(status: u16) -> Reply {
        let page = format!("<html><head><title>{status}</title></head><body>Oops</body></html>");
        Reply::new(status, "text/html; charset=utf-8", page)
    }

    /// Sends headers without end, so that the head of the response is never complete.
    #[must_use]
    pub fn endless_head(mut self) -> Reply {
        self.endless_head = true;
        self
    }

    /// Truncates the body after `bytes` and ends it with `end`.
    fn end_after(mut self, bytes: usize, end: Send) -> Reply {
        let mut left = bytes;
        let mut body = Vec::new();
        for send in std::mem::take(&mut self.body) {
            match send {
                Send::Bytes(mut part) => {
                    // `left` cannot underflow, because the chunk is not longer than it any more.
                    part.truncate(left);
                    left -= part.len();
                    body.push(Send::Bytes(part));
                    if left == 0 {
                        break;
                    }
                }
                other => body.push(other),
            }
        }
        body.push(end);
        self.body = body;
        self
    }
}
