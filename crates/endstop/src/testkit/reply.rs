//! A reply of the scripted server: bytes in pieces, with waits, and what goes wrong between them.

use super::{Request, Turn, formats};
use serde_json::Value;
use std::time::Duration;

/// A step of sending a reply's body.
#[derive(Clone, Debug)]
pub(crate) enum Send {
    Bytes(Vec<u8>),
    Wait(Duration),
    /// Nothing more comes, and the connection stays open.
    Stall,
    /// The connection is reset.
    Reset,
    /// The connection is closed in good order, the body is not whole.
    Close,
    /// The body ends as if it were whole.
    End,
}

/// A reply of the scripted server.
#[derive(Clone, Debug)]
pub struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<Send>,
    /// The head of the response never ends.
    pub(crate) endless_head: bool,
    /// The length that the head claims; without it the body goes in chunks.
    pub(crate) claimed: Option<u64>,
}

impl Reply {
    /// A reply of this status and body.
    pub fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Reply {
        Reply {
            status,
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            body: vec![Send::Bytes(body.into())],
            endless_head: false,
            claimed: None,
        }
    }

    /// A scripted turn, in the format and the way (stream or not) that the request asks for.
    pub fn turn(request: &Request, turn: &Turn) -> Reply {
        let headed = |reply: Reply| {
            let headers = turn.headers.iter();
            headers.fold(reply, |reply, (name, value)| reply.header(name, value)).after(turn.delay)
        };
        if let Some((status, body)) = &turn.error {
            let page = body.trim_start().starts_with('<');
            let kind = if page { "text/html; charset=utf-8" } else { "application/json" };
            return headed(Reply::new(*status, kind, body.clone()));
        }
        headed(formats::reply(request, turn))
    }

    /// A JSON body.
    pub fn json(body: &Value) -> Reply {
        Reply::new(200, "application/json", body.to_string())
    }

    pub(super) fn events(events: &[String], pace: Duration) -> Reply {
        let events = events.iter().map(|event| event.clone().into_bytes());
        Reply::pieces("text/event-stream", events, pace)
    }

    /// Objects, a line each.
    pub(super) fn lines(lines: &[String], pace: Duration) -> Reply {
        let lines = lines.iter().map(|line| line.clone().into_bytes());
        Reply::pieces("application/x-ndjson", lines, pace)
    }

    /// Binary frames.
    pub(super) fn frames(frames: Vec<Vec<u8>>, pace: Duration) -> Reply {
        Reply::pieces("application/vnd.amazon.eventstream", frames, pace)
    }

    fn pieces(kind: &str, pieces: impl IntoIterator<Item = Vec<u8>>, pace: Duration) -> Reply {
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

    /// Sends the head after this long.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Reply {
        if !delay.is_zero() {
            self.body.insert(0, Send::Wait(delay));
        }
        self
    }

    /// Cuts the body into pieces of `n` bytes.
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

    /// Sends a byte at a time, with this long between two.
    #[must_use]
    pub fn drip(self, between: Duration) -> Reply {
        let mut reply = self.split(1);
        reply.body = reply.body.into_iter().flat_map(|send| [send, Send::Wait(between)]).collect();
        reply
    }

    /// After `bytes` of the body nothing more comes.
    #[must_use]
    pub fn stall_after(self, bytes: usize) -> Reply {
        self.end_after(bytes, Send::Stall)
    }

    /// After `bytes` of the body the connection is reset.
    #[must_use]
    pub fn reset_after(self, bytes: usize) -> Reply {
        self.end_after(bytes, Send::Reset)
    }

    /// After `bytes` of the body it ends, as if it were whole.
    #[must_use]
    pub fn cut_after(self, bytes: usize) -> Reply {
        self.end_after(bytes, Send::End)
    }

    /// After `bytes` of the body the connection is closed in good order; that the body is not
    /// whole shows only in that it was not ended.
    #[must_use]
    pub fn close_after(self, bytes: usize) -> Reply {
        self.end_after(bytes, Send::Close)
    }

    /// The head claims that the body has `more` bytes than it has (or fewer), instead of sending
    /// it in chunks; after the body nothing more comes.
    #[must_use]
    pub fn claim_length(mut self, more: i64) -> Reply {
        let bytes =
            |send: &Send| if let Send::Bytes(bytes) = send { bytes.len() as u64 } else { 0 };
        let length: u64 = self.body.iter().map(bytes).sum();
        self.claimed = Some(length.saturating_add_signed(more));
        self
    }

    /// A proxy's error page in place of an answer.
    pub fn html(status: u16) -> Reply {
        let page = format!("<html><head><title>{status}</title></head><body>Oops</body></html>");
        Reply::new(status, "text/html; charset=utf-8", page)
    }

    /// The head of the response never ends: a header follows the other.
    #[must_use]
    pub fn endless_head(mut self) -> Reply {
        self.endless_head = true;
        self
    }

    fn end_after(mut self, bytes: usize, end: Send) -> Reply {
        let mut left = bytes;
        let mut body = Vec::new();
        for send in std::mem::take(&mut self.body) {
            match send {
                Send::Bytes(mut part) => {
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
