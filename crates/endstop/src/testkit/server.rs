//! A scripted HTTP/1.1 server on the loopback interface. It counts connections and records the
//! times at which clients disconnected during a reply.
//!
//! ```
//! use endstop::testkit::{Server, Turn};
//! let server = Server::script([
//!     Turn::error(429, "{}").header("retry-after", "1"),
//!     Turn::text("the answer"),
//! ])?;
//! assert!(server.requests().is_empty() && server.open_connections() == 0);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! The server runs on its own thread in real time, so that tests with a paused clock can use it.

use super::reply::{Reply, Send};
use super::request::Request;
use super::turn::Turn;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

type Responder = dyn Fn(&Request) -> Reply + std::marker::Send + Sync;

struct Shared {
    respond: Box<Responder>,
    number: AtomicU64,
    open: AtomicUsize,
    accepted: AtomicU64,
    requests: Mutex<Vec<Request>>,
    hung_up: Mutex<Vec<Instant>>,
}

/// A scripted server, which stops when the value is dropped.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Starts a server that answers each request with the result of `respond`.
    ///
    /// # Errors
    /// No port or no thread is available.
    pub fn start(
        respond: impl Fn(&Request) -> Reply + std::marker::Send + Sync + 'static,
    ) -> io::Result<Server> {
        // Bound here and not in the thread, so that clients can connect as soon as this returns.
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            respond: Box::new(respond),
            number: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            accepted: AtomicU64::new(0),
            requests: Mutex::default(),
            hung_up: Mutex::default(),
        });
        let stop = CancellationToken::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (served, stopped) = (Arc::clone(&shared), stop.clone());
        let thread =
            std::thread::Builder::new().name("scripted-server".to_owned()).spawn(move || {
                runtime.block_on(async move {
                    let Ok(listener) = TcpListener::from_std(listener) else { return };
                    tokio::select! {
                        () = stopped.cancelled() => {}
                        () = accept(&listener, served) => {}
                    }
                });
            })?;
        Ok(Server { address, shared, stop, thread: Some(thread) })
    }

    /// Starts a server that answers with these turns in order, in the format that each request asks
    /// for. A request after the last turn gets an error that names its number.
    ///
    /// # Errors
    /// As [`start`](Server::start).
    pub fn script(turns: impl IntoIterator<Item = Turn>) -> io::Result<Server> {
        let turns: Vec<Turn> = turns.into_iter().collect();
        Server::start(move |request| {
            let at = usize::try_from(request.number - 1).unwrap_or(usize::MAX);
            if let Some(turn) = turns.get(at) {
                return Reply::turn(request, turn);
            }
            let problem = format!("the script has no turn {}", request.number);
            let body = json!({"error": {"type": "script_error", "message": problem}});
            Reply::new(500, "application/json", body.to_string())
        })
    }

    /// Waits until the condition is true; returns `false` if it is not within a minute.
    ///
    /// A paused clock advances by these waits.
    pub async fn until(&self, so: impl Fn(&Server) -> bool) -> bool {
        // Real time, because a minute of a paused clock passes at once.
        let end = Instant::now() + Duration::from_secs(60);
        while !so(self) {
            if Instant::now() > end {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        true
    }

    /// Returns the base URL for clients: `http://127.0.0.1:PORT/v1`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Returns the requests received so far.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of open connections.
    pub fn open_connections(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// Returns the number of connections accepted since the start.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Returns the times at which clients disconnected while a reply was being sent.
    pub fn hung_up(&self) -> Vec<Instant> {
        self.shared.hung_up.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(listener: &TcpListener, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        // Without this the system would join small chunks, and tests of split replies need them
        // apart.
        let _ = stream.set_nodelay(true);
        shared.accepted.fetch_add(1, Ordering::SeqCst);
        shared.open.fetch_add(1, Ordering::SeqCst);
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let _ = serve(stream, &shared).await;
            shared.open.fetch_sub(1, Ordering::SeqCst);
        });
        // Removes finished tasks, so that a long test does not collect them.
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut stream, &mut buffer, shared).await? {
        let reply = (shared.respond)(&request);
        let closes = request
            .headers
            .get("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"));
        shared.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        let (mut reading, mut writing) = stream.split();
        // Reading while sending detects a disconnect at once, even during a pause.
        let sent = tokio::select! {
            sent = send(&mut writing, reply) => sent,
            () = end_of(&mut reading, &mut buffer) => Err(io::ErrorKind::ConnectionReset.into()),
        };
        match sent {
            Ok(After::Reuse) if !closes => {}
            Ok(After::Reuse | After::Close) => break,
            Ok(After::Reset) => {
                // With a linger time of zero, dropping the socket sends RST instead of FIN.
                stream.set_zero_linger()?;
                break;
            }
            Err(error) => {
                let mut hung_up = shared.hung_up.lock().unwrap_or_else(PoisonError::into_inner);
                hung_up.push(Instant::now());
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Returns when the client has closed the connection. Bytes that arrive before that are the
/// beginning of the next request and stay in the buffer.
async fn end_of(reading: &mut ReadHalf<'_>, buffer: &mut Vec<u8>) {
    while matches!(reading.read_buf(buffer).await, Ok(1..)) {}
}

async fn read_request(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
    shared: &Shared,
) -> io::Result<Option<Request>> {
    let head = loop {
        if let Some(at) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let text = String::from_utf8_lossy(&buffer[..head]).into_owned();
    let mut lines = text.lines();
    let mut words = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    // The clients under test always send a length, so chunked requests are not supported.
    let length = headers.get("content-length").and_then(|n| n.parse().ok()).unwrap_or(0usize);
    let whole = head + 4 + length;
    while buffer.len() < whole {
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    let bytes = buffer[head + 4..whole].to_vec();
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    // The rest of the buffer is the beginning of the next request on this connection.
    buffer.drain(..whole);
    let number = shared.number.fetch_add(1, Ordering::SeqCst) + 1;
    Ok(Some(Request { number, at: Instant::now(), method, path, headers, body, bytes }))
}

/// The use of a connection after a reply.
enum After {
    Reuse,
    Close,
    Reset,
}

/// Sends a reply; an error means that the client disconnected.
async fn send(writing: &mut WriteHalf<'_>, reply: Reply) -> io::Result<After> {
    let mut body = reply.body.into_iter().peekable();
    // Pauses at the beginning of the body come before the head.
    while let Some(Send::Wait(wait)) = body.next_if(|step| matches!(step, Send::Wait(_))) {
        tokio::time::sleep(wait).await;
    }
    let mut head = format!("HTTP/1.1 {} Scripted\r\n", reply.status);
    for (name, value) in &reply.headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    if reply.endless_head {
        writing.write_all(head.as_bytes()).await?;
        loop {
            writing.write_all(b"x-more: and more\r\n").await?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    match reply.claimed {
        Some(length) => {
            let _ = write!(head, "content-length: {length}\r\n\r\n");
        }
        None => head.push_str("transfer-encoding: chunked\r\n\r\n"),
    }
    writing.write_all(head.as_bytes()).await?;
    for step in body {
        match step {
            // In chunked encoding an empty chunk would end the body.
            Send::Bytes(bytes) if bytes.is_empty() => {}
            Send::Bytes(bytes) => write_chunk(writing, &bytes, reply.claimed).await?,
            Send::Repeat(bytes, between) => loop {
                write_chunk(writing, &bytes, reply.claimed).await?;
                tokio::time::sleep(between).await;
            },
            Send::Wait(wait) => tokio::time::sleep(wait).await,
            Send::Stall => std::future::pending().await,
            Send::Reset => {
                // Waits for the bytes in flight, because a reset discards them.
                tokio::time::sleep(Duration::from_millis(20)).await;
                return Ok(After::Reset);
            }
            Send::Close => return Ok(After::Close),
            Send::End => break,
        }
    }
    // The claimed length is wrong, so that the connection cannot be reused.
    if reply.claimed.is_some() {
        return Ok(After::Close);
    }
    writing.write_all(b"0\r\n\r\n").await?;
    Ok(After::Reuse)
}

/// Sends a part of a body: framed, unless the head claims a length.
async fn write_chunk(
    writing: &mut WriteHalf<'_>,
    bytes: &[u8],
    claimed: Option<u64>,
) -> io::Result<()> {
    if claimed.is_some() {
        return writing.write_all(bytes).await;
    }
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    writing.write_all(&chunk).await
}
