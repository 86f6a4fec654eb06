//! Sends chunks together that have arrived together, because each part that is sent by itself takes a system call, and
//! wakes the client.
//!
//! The connection to the upstream hands over one chunk at a time, and is woken when that was taken. So if more has
//! arrived, a chunk waits until the task of the client's connection runs again, which is after the other one, and never
//! for what is not there yet.

use endstop_http::Received;
use std::task::Context;

/// Bytes from which on chunks do not wait any more.
const MOST: usize = 16 << 10;
/// Bytes that a chunk counts at least, so that at most 16 wait. An upstream can send one byte in each.
const LEAST: usize = 1024;

/// Decides whether the output of a response waits for chunks that arrived with it.
pub(crate) struct Gathering {
    /// `None` with HTTP/2, where nothing waits.
    received: Option<Received>,
    /// How much of it was handed over.
    taken: usize,
    /// How many bytes wait, with at least a kilobyte for each chunk.
    waiting: usize,
    /// The connection has its turn after the last of them.
    has_turn: bool,
}

impl Gathering {
    /// Begins at the end of the head. Chunks that came with it count as handed over, because its length is not known.
    pub(crate) fn new(received: Option<Received>) -> Gathering {
        let taken = received.as_ref().map_or(0, Received::bytes);
        Gathering { received, taken, waiting: 0, has_turn: false }
    }

    /// Records a chunk that was handed over, and decides whether the output waits.
    pub(crate) fn add(&mut self, chunk: usize) {
        let waiting = self.waiting + chunk.max(LEAST);
        self.waiting = if self.has_more_than(chunk) && waiting < MOST { waiting } else { 0 };
        self.has_turn = false;
    }

    /// Returns whether the output waits.
    pub(crate) fn waits(&self) -> bool {
        self.waiting > 0
    }

    /// Records that nothing is handed over in this turn of the client's task; called once in each. Returns `true` if the
    /// output waited, and does not any more. If it still waits, the task has another turn, after that of the connection.
    pub(crate) fn ends_waiting(&mut self, context: &Context<'_>) -> bool {
        if self.waits() && !self.has_turn {
            self.has_turn = true;
            context.waker().wake_by_ref();
            return false;
        }
        std::mem::take(&mut self.waiting) > 0
    }

    /// Returns whether more than this chunk has arrived. The rest can be a part of a chunk.
    fn has_more_than(&mut self, chunk: usize) -> bool {
        let Some(received) = &self.received else { return false };
        let received = received.bytes();
        let rest = received.wrapping_sub(self.taken).saturating_sub(framed(chunk));
        self.taken = received.wrapping_sub(rest);
        rest > 0
    }
}

/// Length of a chunk with its size and the ends of two lines. Source: RFC 9112, section 7.1.
fn framed(chunk: usize) -> usize {
    let digits = chunk.checked_ilog(16).unwrap_or(0) as usize + 1;
    chunk + digits + 4
}

#[cfg(test)]
mod tests {
    use super::{Gathering, LEAST, MOST, framed};
    use crate::proxy::abort::AbortToken;
    use crate::proxy::connection::Connection;
    use crate::proxy::observed::Observed;
    use crate::proxy::passing::Passing;
    use crate::proxy::reading_on::Background;
    use bytes::Bytes;
    use endstop_http::{Client, Full};
    use http_body::Body as _;
    use proptest::prelude::*;
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::Poll;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc::unbounded_channel;

    proptest! {
        #[test]
        fn frame_has_the_length_that_it_is_written_with(length in 0..100_000_usize) {
            let written = format!("{length:x}\r\n\r\n").len() + length;
            prop_assert_eq!(framed(length), written);
        }
    }

    /// Sends a response in these parts, each one when all before it was handed over. Returns the chunks that passed
    /// without a wait between them.
    async fn passed(parts: &[&str]) -> Vec<Vec<Bytes>> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (go, mut may_go) = unbounded_channel();
        let upstream = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(head).await.unwrap();
            for part in parts {
                may_go.recv().await.unwrap();
                stream.write_all(part.as_bytes()).await.unwrap();
            }
        };
        let reading = async {
            let client = Client::builder().no_proxy().build().unwrap();
            let request =
                http::Request::get(format!("http://{address}/")).body(Full::<Bytes>::default());
            let (mut head, body) = client.send(request.unwrap()).await.unwrap().into_parts();
            let gathering = Gathering::new(head.extensions.remove());
            assert!(gathering.received.is_some());
            let response = (Observed::ended(), AbortToken::new(), gathering);
            let connection = Arc::new(Connection::new(address, address));
            let (background, _) = Background::new();
            let shared = Arc::clone(&connection);
            let mut passing = Passing::new(body, response, shared, background, (MOST, false, true));
            let mut passed = vec![Vec::new()];
            go.send(()).unwrap();
            poll_fn(|context| {
                connection.begin_turn();
                // As hyper does.
                for _ in 0..2 {
                    while let Poll::Ready(frame) = Pin::new(&mut passing).poll_frame(context) {
                        let Some(frame) = frame else { return Poll::Ready(()) };
                        passed.last_mut().unwrap().push(frame.unwrap().into_data().unwrap());
                    }
                }
                if passed.last().is_some_and(|chunks: &Vec<Bytes>| !chunks.is_empty()) {
                    passed.push(Vec::new());
                    let _ = go.send(());
                }
                Poll::Pending
            })
            .await;
            passed
        };
        tokio::join!(upstream, reading).1
    }

    #[tokio::test]
    async fn chunks_that_arrive_together_pass_together() {
        let chunks =
            passed(&["3\r\nabc\r\n2\r\nde\r\n", "1\r\nf\r\n", "1\r\ng\r\n1\r\nh\r\n0\r\n\r\n"])
                .await;
        assert_eq!(chunks, [vec!["abc", "de"], vec!["f"], vec!["g", "h"]]);
    }

    #[tokio::test]
    async fn chunk_does_not_wait_for_what_has_not_arrived() {
        for (first, second, expected) in [
            ("3\r\nabc\r\n5", "\r\ndefgh\r\n0\r\n\r\n", [vec!["abc"], vec!["defgh"]]),
            ("3\r\nabc\r\n5\r\nde", "fgh\r\n0\r\n\r\n", [vec!["abc", "de"], vec!["fgh"]]),
            ("3\r\nabc\r", "\n5\r\ndefgh\r\n0\r\n\r\n", [vec!["abc"], vec!["defgh"]]),
        ] {
            assert_eq!(passed(&[first, second]).await, expected, "{first:?}");
        }
    }

    #[tokio::test]
    async fn many_do_not_wait() {
        let part = format!("{}0\r\n\r\n", "1\r\nx\r\n".repeat(1000));
        let chunks = passed(&[&part]).await;
        let counts: Vec<usize> = chunks.iter().map(Vec::len).collect();
        assert_eq!(counts.iter().sum::<usize>(), 1000);
        assert!(counts.iter().all(|count| *count <= MOST / LEAST), "{counts:?}");
        assert!(counts.contains(&(MOST / LEAST)), "{counts:?}");
    }

    #[tokio::test]
    async fn much_does_not_wait() {
        let large = "x".repeat(MOST - 1);
        let part = format!("{:x}\r\n{large}\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n", large.len());
        let chunks = passed(&[&part]).await;
        let bytes: Vec<usize> = chunks.iter().flatten().map(Bytes::len).collect();
        assert_eq!(bytes.iter().sum::<usize>(), large.len() + 2);
        assert!(chunks.len() > 1, "{bytes:?}");
    }
}
