//! A real HTTP/1.1 server on loopback that answers as it is told, on a thread of its own; it
//! counts connections, and notes when each was closed by the client.

use super::Reply;
use super::reply::Send;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// A request that came.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its number, from 1.
    pub number: u64,
    /// The path.
    pub path: String,
    /// The headers, by lower-case name.
    pub headers: BTreeMap<String, String>,
    /// The body; null where it is no JSON.
    pub body: Value,
}

type Responder = dyn Fn(&Request) -> Reply + std::marker::Send + Sync;

struct Shared {
    respond: Box<Responder>,
    number: AtomicU64,
    open: AtomicUsize,
    accepted: AtomicU64,
    requests: Mutex<Vec<Request>>,
    hung_up: Mutex<Vec<Instant>>,
}

/// A scripted server; it goes with its value.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Starts a server that answers each request so.
    ///
    /// # Errors
    /// No port or thread was to be had.
    pub fn start(
        respond: impl Fn(&Request) -> Reply + std::marker::Send + Sync + 'static,
    ) -> io::Result<Server> {
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

    /// The base URL for clients: `http://127.0.0.1:PORT/v1`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Connections that are open now.
    pub fn open_connections(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// Connections that were ever accepted.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// When clients hung up while a reply was being sent.
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
        let _ = stream.set_nodelay(true);
        shared.accepted.fetch_add(1, Ordering::SeqCst);
        shared.open.fetch_add(1, Ordering::SeqCst);
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let _ = serve(stream, &shared).await;
            shared.open.fetch_sub(1, Ordering::SeqCst);
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        let Some(request) = read_request(&mut stream, &mut buffer, shared).await? else {
            return Ok(());
        };
        let reply = (shared.respond)(&request);
        shared.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        if !send(&mut stream, reply, shared).await? {
            return Ok(());
        }
    }
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
    let path = lines.next().and_then(|l| l.split(' ').nth(1)).unwrap_or_default().to_owned();
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.get("content-length").and_then(|n| n.parse().ok()).unwrap_or(0usize);
    let whole = head + 4 + length;
    while buffer.len() < whole {
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    let body = serde_json::from_slice(&buffer[head + 4..whole]).unwrap_or(Value::Null);
    buffer.drain(..whole);
    let number = shared.number.fetch_add(1, Ordering::SeqCst) + 1;
    Ok(Some(Request { number, path, headers, body }))
}

/// Sends a reply; `false` where the connection is over.
async fn send(stream: &mut TcpStream, reply: Reply, shared: &Shared) -> io::Result<bool> {
    let mut body = reply.body.into_iter().peekable();
    while let Some(Send::Wait(_)) = body.peek() {
        if let Some(Send::Wait(wait)) = body.next() {
            if !patient(stream, tokio::time::sleep(wait), shared).await {
                return Ok(false);
            }
        }
    }
    let mut head = format!("HTTP/1.1 {} Scripted\r\n", reply.status);
    for (name, value) in &reply.headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    if reply.endless_head {
        stream.write_all(head.as_bytes()).await?;
        loop {
            let line = stream.write_all(b"x-more: and more\r\n").await;
            if line.is_err()
                || !patient(stream, tokio::time::sleep(std::time::Duration::from_millis(5)), shared)
                    .await
            {
                return Ok(false);
            }
        }
    }
    head.push_str("transfer-encoding: chunked\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    for step in body {
        match step {
            Send::Bytes(bytes) if bytes.is_empty() => {}
            Send::Bytes(bytes) => {
                let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
                chunk.extend_from_slice(&bytes);
                chunk.extend_from_slice(b"\r\n");
                if stream.write_all(&chunk).await.is_err() {
                    note_hang_up(shared);
                    return Ok(false);
                }
            }
            Send::Wait(wait) => {
                if !patient(stream, tokio::time::sleep(wait), shared).await {
                    return Ok(false);
                }
            }
            Send::Stall => {
                patient(stream, std::future::pending(), shared).await;
                return Ok(false);
            }
            Send::Reset => {
                // Closing with unread or unsent data and no linger is a reset.
                stream.set_zero_linger()?;
                return Ok(false);
            }
            Send::End => break,
        }
    }
    stream.write_all(b"0\r\n\r\n").await?;
    Ok(true)
}

/// Waits, unless the client hangs up first; `false` where it did.
async fn patient(stream: &mut TcpStream, wait: impl Future<Output = ()>, shared: &Shared) -> bool {
    let mut byte = [0; 1];
    tokio::select! {
        () = wait => true,
        read = stream.peek(&mut byte) => match read {
            // Another request while this one is answered: nobody does that; go on waiting.
            Ok(n) if n > 0 => true,
            _ => {
                note_hang_up(shared);
                false
            }
        },
    }
}

fn note_hang_up(shared: &Shared) {
    shared.hung_up.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
}

use std::future::Future;
