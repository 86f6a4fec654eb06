//! A raw client, a raw upstream, and a gatekeeper that records.

use bytes::Bytes;
use endstop_guard::proxy::{
    AbortToken, BodyMode, Disposition, End, Flow, Forward, Gatekeeper, Notice, Proxy, ProxyOptions,
    ReadOn, RequestBody, RequestHead, ResponseHead, ResponseObserver, Routed, Unreadable, Upstream,
    UpstreamMap,
};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

/// Runs a test on two threads, and fails if it hangs.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    run_within(Duration::from_secs(60), test)
}

/// Runs a test that fails if it takes longer.
pub(crate) fn run_within<T>(limit: Duration, test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(limit, test).await.expect("the test hangs") })
}

/// One end of a connection.
pub(crate) struct Conn {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
}

impl Conn {
    pub(crate) async fn to(address: SocketAddr) -> Conn {
        Conn::of(TcpStream::connect(address).await.expect("a connection"))
    }

    pub(crate) fn of(stream: TcpStream) -> Conn {
        stream.set_nodelay(true).expect("an option");
        Conn { stream, buffer: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.expect("a write");
    }

    async fn more(&mut self) -> io::Result<usize> {
        self.stream.read_buf(&mut self.buffer).await
    }

    /// Reads until these bytes, or returns what came before the end.
    pub(crate) async fn until(&mut self, end: &[u8]) -> Result<Vec<u8>, Vec<u8>> {
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|window| window == end) {
                return Ok(self.buffer.drain(..at + end.len()).collect());
            }
            if !matches!(self.more().await, Ok(1..)) {
                return Err(std::mem::take(&mut self.buffer));
            }
        }
    }

    /// Reads the head of a message.
    pub(crate) async fn head(&mut self) -> String {
        let head = self.until(b"\r\n\r\n").await.expect("a head");
        String::from_utf8(head).expect("text")
    }

    /// Reads this number of bytes, or returns what came before the end.
    pub(crate) async fn exact(&mut self, length: usize) -> Result<Vec<u8>, Vec<u8>> {
        while self.buffer.len() < length {
            if !matches!(self.more().await, Ok(1..)) {
                return Err(std::mem::take(&mut self.buffer));
            }
        }
        Ok(self.buffer.drain(..length).collect())
    }

    /// Reads one chunk of a chunked body; an empty one is the last.
    pub(crate) async fn chunk(&mut self) -> Result<Vec<u8>, Vec<u8>> {
        let size = self.until(b"\r\n").await?;
        let size = String::from_utf8_lossy(&size).trim().to_owned();
        let size = usize::from_str_radix(&size, 16).expect("the size of a chunk");
        if size == 0 {
            return Ok(Vec::new());
        }
        let chunk = self.exact(size).await?;
        self.exact(2).await?;
        Ok(chunk)
    }

    /// Reads a chunked body with its trailers.
    pub(crate) async fn chunked(&mut self) -> Result<(Vec<u8>, String), Vec<u8>> {
        let mut body = Vec::new();
        loop {
            match self.chunk().await {
                Ok(chunk) if chunk.is_empty() => break,
                Ok(chunk) => body.extend(chunk),
                Err(part) => {
                    body.extend(part);
                    return Err(body);
                }
            }
        }
        let mut trailers = String::new();
        loop {
            let line = self.until(b"\r\n").await?;
            if line == b"\r\n" {
                return Ok((body, trailers));
            }
            trailers += &String::from_utf8(line).expect("text");
        }
    }

    /// Reads a message whose body has a length or chunks. The error is a body that was cut.
    pub(crate) async fn message(&mut self) -> (String, Result<Vec<u8>, Vec<u8>>) {
        let head = self.head().await;
        let body = if let Some(length) = header(&head, "content-length") {
            self.exact(length.parse().expect("a length")).await
        } else if header(&head, "transfer-encoding").is_some() {
            self.chunked().await.map(|(body, _)| body)
        } else {
            Ok(Vec::new())
        };
        (head, body)
    }

    /// Reads until the end of the connection. The error is a reset.
    pub(crate) async fn rest(&mut self) -> (Vec<u8>, io::Result<()>) {
        loop {
            match self.more().await {
                Ok(0) => return (std::mem::take(&mut self.buffer), Ok(())),
                Ok(_) => {}
                Err(error) => return (std::mem::take(&mut self.buffer), Err(error)),
            }
        }
    }
}

/// Returns a header of a raw head.
pub(crate) fn header(head: &str, name: &str) -> Option<String> {
    head.lines().skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    })
}

/// Starts an upstream that serves each connection with this function.
pub(crate) async fn upstream<F>(serve: impl Fn(Conn) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    background(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            connections.spawn(serve(Conn::of(stream)));
        }
    });
    address
}

/// Runs a task until the test ends with its runtime.
#[expect(clippy::disallowed_methods, reason = "the runtime of the test ends it")]
pub(crate) fn background(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}

/// An event that the gatekeeper or an observer received.
#[derive(Debug)]
pub(crate) enum Event {
    Request(Arc<RequestHead>, RequestBody),
    Notice(Notice),
    Head(ResponseHead),
    Unreadable(Unreadable),
    ClientGone,
    End(End),
}

type Decide = dyn Fn(&RequestHead, Forward) -> Disposition + Send + Sync;
type React = dyn Fn(&[u8]) -> Flow + Send + Sync;

/// A gatekeeper that records everything.
pub(crate) struct Gate {
    map: UpstreamMap,
    route: BodyMode,
    decide: Box<Decide>,
    react: Arc<React>,
    before_end: Flow,
    read_on: ReadOn,
    events: mpsc::UnboundedSender<Event>,
    copies: mpsc::UnboundedSender<Vec<u8>>,
    aborts: mpsc::UnboundedSender<AbortToken>,
}

/// The record of a [`Gate`].
pub(crate) struct Seen {
    pub(crate) events: mpsc::UnboundedReceiver<Event>,
    /// Chunks of responses as observers received them.
    pub(crate) copies: mpsc::UnboundedReceiver<Vec<u8>>,
    pub(crate) aborts: mpsc::UnboundedReceiver<AbortToken>,
}

impl Seen {
    /// Returns the end of the next exchange that ends.
    pub(crate) async fn end(&mut self) -> End {
        loop {
            if let Event::End(end) = self.events.recv().await.expect("an event") {
                return end;
            }
        }
    }

    /// Returns the next request.
    pub(crate) async fn request(&mut self) -> (Arc<RequestHead>, RequestBody) {
        loop {
            if let Event::Request(head, body) = self.events.recv().await.expect("an event") {
                return (head, body);
            }
        }
    }

    /// Returns the copy of everything that came so far.
    pub(crate) fn copy(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        while let Ok(part) = self.copies.try_recv() {
            all.extend(part);
        }
        all
    }
}

impl Gate {
    /// Returns a gatekeeper that forwards everything to this upstream and streams bodies.
    pub(crate) fn new(upstream: SocketAddr) -> (Gate, Seen) {
        let (events, seen_events) = mpsc::unbounded_channel();
        let (copies, seen_copies) = mpsc::unbounded_channel();
        let (aborts, seen_aborts) = mpsc::unbounded_channel();
        let upstream = Upstream::parse(&format!("http://{upstream}")).expect("a URL");
        let gate = Gate {
            map: UpstreamMap::new(upstream),
            route: BodyMode::Stream,
            decide: Box::new(|_, forward| Disposition::Forward(forward)),
            react: Arc::new(|_| Flow::Pass),
            before_end: Flow::Pass,
            read_on: ReadOn::default(),
            events,
            copies,
            aborts,
        };
        (gate, Seen { events: seen_events, copies: seen_copies, aborts: seen_aborts })
    }

    /// Reads bodies before the decision.
    pub(crate) fn reading(self) -> Gate {
        Gate { route: BodyMode::Read, ..self }
    }

    pub(crate) fn deciding(
        self,
        decide: impl Fn(&RequestHead, Forward) -> Disposition + Send + Sync + 'static,
    ) -> Gate {
        Gate { decide: Box::new(decide), ..self }
    }

    pub(crate) fn reacting(self, react: impl Fn(&[u8]) -> Flow + Send + Sync + 'static) -> Gate {
        Gate { react: Arc::new(react), ..self }
    }

    pub(crate) fn ending(self, before_end: Flow) -> Gate {
        Gate { before_end, ..self }
    }

    pub(crate) fn reading_on(self, read_on: ReadOn) -> Gate {
        Gate { read_on, ..self }
    }

    /// Starts a proxy with this gatekeeper.
    pub(crate) async fn start(self) -> Running {
        self.start_with(ProxyOptions::default()).await
    }

    pub(crate) async fn start_with(self, options: ProxyOptions) -> Running {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel::<()>();
        let (over, is_over) = oneshot::channel();
        background(async move {
            Proxy::new(self, options).run(listener, async { drop(stopped.await) }).await;
            let _ = over.send(());
        });
        Running { address, stop, is_over }
    }
}

/// A proxy that serves.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) is_over: oneshot::Receiver<()>,
}

impl Running {
    pub(crate) async fn client(&self) -> Conn {
        Conn::to(self.address).await
    }
}

impl Gatekeeper for Gate {
    type Line = ();

    fn route(&self, _head: &RequestHead) -> Routed<()> {
        Routed { route: self.route, line: () }
    }

    async fn decide(&self, head: Arc<RequestHead>, (): (), body: RequestBody) -> Disposition {
        let _ = self.events.send(Event::Request(Arc::clone(&head), body));
        let observer = Recorder {
            react: Arc::clone(&self.react),
            before_end: self.before_end.clone(),
            read_on: self.read_on,
            events: self.events.clone(),
            copies: self.copies.clone(),
        };
        let url = self.map.url(None, head.path(), head.query()).expect("a URL");
        let forward = Forward::unchanged(url, Box::new(observer));
        let _ = self.aborts.send(forward.abort.clone());
        (self.decide)(&head, forward)
    }

    fn notice(&self, notice: Notice) {
        let _ = self.events.send(Event::Notice(notice));
    }
}

struct Recorder {
    react: Arc<React>,
    before_end: Flow,
    read_on: ReadOn,
    events: mpsc::UnboundedSender<Event>,
    copies: mpsc::UnboundedSender<Vec<u8>>,
}

impl ResponseObserver for Recorder {
    fn head(&mut self, head: &ResponseHead) {
        let _ = self.events.send(Event::Head(head.clone()));
    }

    fn bytes(&mut self, chunk: &[u8]) -> Flow {
        let _ = self.copies.send(chunk.to_vec());
        (self.react)(chunk)
    }

    fn unreadable(&mut self, reason: Unreadable) -> Flow {
        let _ = self.events.send(Event::Unreadable(reason));
        Flow::Pass
    }

    fn before_end(&mut self) -> Flow {
        self.before_end.clone()
    }

    fn client_gone(&mut self) -> ReadOn {
        let _ = self.events.send(Event::ClientGone);
        self.read_on
    }

    fn end(self: Box<Self>, end: End) {
        let _ = self.events.send(Event::End(end));
    }
}

/// An ordinary request with this body.
pub(crate) fn post(path: &str, body: &[u8]) -> Vec<u8> {
    let mut request =
        format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len())
            .into_bytes();
    request.extend_from_slice(body);
    request
}

pub(crate) const GET: &str = "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n";

pub(crate) fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}
