//! The client: bare keep-alive sockets, so that its own cost is small.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

type Failure = Box<dyn Error>;

/// The end of a whole response.
pub(crate) const END: &[u8] = b"\"end\":true}";

/// The client's key. Guard redacts a key that could be a real one, and ignores a short word.
const KEY: &str = "key-7c1e90d2b4f86a35e9d70c1b52fa48";

/// The response that a call asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A JSON body with its length.
    Whole,
    /// Twenty server-sent events without pauses.
    Stream,
    /// Twenty server-sent events in half a second.
    Slow,
}

/// The times of a call, in milliseconds.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    /// Until the first byte of the body.
    pub(crate) first: f64,
    /// Until its last one.
    pub(crate) total: f64,
}

/// Returns the next turn of a run, whose conversation is about a text of 40 kB: the result of one more tool call.
fn request(kind: Kind, run: usize) -> Vec<u8> {
    static TURN: AtomicU64 = AtomicU64::new(0);
    let turn = TURN.fetch_add(1, Ordering::Relaxed);
    let name = match kind {
        Kind::Whole => "whole",
        Kind::Stream => "stream",
        Kind::Slow => "slow",
    };
    let streamed = kind != Kind::Whole;
    let text = "x".repeat(40 << 10);
    let body = format!(
        "{{\"model\":\"m\",\"stream\":{streamed},\"stream_options\":{{\"include_usage\":true}},\
         \"tools\":[{{\"type\":\"function\",\"function\":{{\"name\":\"read\",\"parameters\":{{}}}}}}],\
         \"messages\":[{{\"role\":\"user\",\"content\":\"{text}\"}},{{\"role\":\"assistant\",\"content\":null,\
         \"tool_calls\":[{{\"id\":\"c{turn}\",\"type\":\"function\",\"function\":{{\"name\":\"read\",\
         \"arguments\":\"{{}}\"}}}}]}},{{\"role\":\"tool\",\"tool_call_id\":\"c{turn}\",\"content\":\"{turn}\"}}]}}"
    );
    format!(
        "POST /run/{run}/v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-kind: {name}\r\ncontent-type: application/json\r\n\
         authorization: Bearer {KEY}\r\nx-api-key: {KEY}\r\nanthropic-version: 2023-06-01\r\n\
         accept: */*\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

async fn connect(port: u16) -> Result<TcpStream, Failure> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Makes a number of calls one after the other, all of one run.
pub(crate) async fn one_by_one(
    port: u16,
    kind: Kind,
    calls: usize,
) -> Result<Vec<Sample>, Failure> {
    let mut stream = connect(port).await?;
    let mut samples = Vec::with_capacity(calls);
    for _ in 0..calls {
        samples.push(call(&mut stream, &request(kind, 0)).await?);
    }
    Ok(samples)
}

/// Makes a number of streamed calls at once, each of a run of its own, because a journal has only the main conversation
/// of a run.
pub(crate) async fn together(port: u16, calls: usize) -> Result<Vec<Sample>, Failure> {
    let mut tasks = tokio::task::JoinSet::new();
    for run in 1..=calls {
        let mut stream = connect(port).await?;
        let request = request(Kind::Slow, run);
        tasks.spawn(async move { call(&mut stream, &request).await.map_err(|e| e.to_string()) });
    }
    let mut samples = Vec::with_capacity(calls);
    while let Some(sample) = tasks.join_next().await {
        samples.push(sample??);
    }
    Ok(samples)
}

async fn call(stream: &mut TcpStream, request: &[u8]) -> Result<Sample, Failure> {
    let began = Instant::now();
    stream.write_all(request).await?;
    let mut buffer = Vec::with_capacity(8 << 10);
    let mut body_at = None;
    let mut first = None;
    loop {
        if stream.read_buf(&mut buffer).await? == 0 {
            return Err("the connection was closed".into());
        }
        let now = began.elapsed().as_secs_f64() * 1e3;
        if body_at.is_none() {
            body_at = buffer.windows(4).position(|end| end == b"\r\n\r\n").map(|at| at + 4);
            if body_at.is_some() && !buffer.starts_with(b"HTTP/1.1 200 ") {
                return Err(String::from_utf8_lossy(&buffer).into_owned().into());
            }
        }
        let Some(at) = body_at else { continue };
        if buffer.len() > at {
            let first = *first.get_or_insert(now);
            // The upstream marks the end of both kinds of bodies.
            if buffer.ends_with(END) || buffer.ends_with(b"\r\n0\r\n\r\n") {
                return Ok(Sample { first, total: now });
            }
        }
    }
}
