//! The processes that are measured: the upstream, the byte pump, the proxy.

use crate::usage;
use endstop::agent::GuestJournal;
use endstop::journal::SqliteJournal;
use endstop_core::{Limits, Price};
use endstop_guard::proxy::{ForwardAll, Proxy, ProxyOptions, Upstream, UpstreamMap};
use endstop_guard::run::{Gate, JournalSettings, Settings};
use endstop_wire::redact::KnownKeys;
use serde_json::Value;
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

type Failure = Box<dyn Error>;

/// The time in which a process without work is seen to have none: several times that between two writes of a
/// journal.
const REST: Duration = Duration::from_millis(200);
/// The processor time of a process without work in that time, in milliseconds: that of its timers.
const AT_REST: f64 = 0.2;
/// The most times that are waited for.
const MOST_RESTS: usize = 100;

/// A process of this program that serves, until this value is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
}

impl Server {
    /// Starts a process and waits for its port.
    pub(crate) fn start(what: &str, target: &str) -> Result<Server, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", what, target])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let output = child.stdout.take().ok_or("no output")?;
        BufReader::new(output).read_line(&mut line)?;
        let port = line.trim().parse().map_err(|_| format!("{what} did not start"))?;
        Ok(Server { child, port })
    }

    pub(crate) fn processor_ms(&self) -> f64 {
        usage::processor_ms(self.child.id())
    }

    /// Waits until the process has nothing left to do: a journal is written after the calls that it is of, and
    /// would count for those that follow.
    ///
    /// # Errors
    /// The process works on.
    pub(crate) async fn at_rest(&self) -> Result<f64, Failure> {
        for _ in 0..MOST_RESTS {
            let before = self.processor_ms();
            tokio::time::sleep(REST).await;
            let after = self.processor_ms();
            if after - before < AT_REST {
                return Ok(after);
            }
        }
        Err("a server works although it has no calls".into())
    }

    pub(crate) fn memory_mb(&self) -> (f64, f64) {
        usage::memory_mb(self.child.id())
    }
}

impl Drop for Server {
    // Ends by itself, so that a build with instrumentation writes what it has counted.
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Serves until the standard input closes, which it does if the parent is killed.
pub(crate) fn serve(what: &str, target: &str) -> Result<(), Failure> {
    let runtime = if what == "threads" {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?
    } else {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?
    };
    let (close, closed) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        drop(close);
    });
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut output = std::io::stdout();
        writeln!(output, "{}", listener.local_addr()?.port())?;
        output.flush()?;
        tokio::select! {
            done = server(listener, what, target) => done,
            _ = closed => Ok(()),
        }
    })
}

async fn server(listener: TcpListener, what: &str, target: &str) -> Result<(), Failure> {
    match what {
        "upstream" => upstream(listener).await,
        "pump" => pump(listener, target.to_owned()).await,
        "gate" | "recorded" => guard(listener, target, what == "recorded").await,
        _ => {
            let base = Upstream::parse(&format!("http://{target}"))?;
            let gatekeeper = ForwardAll::new(UpstreamMap::new(base));
            let reading = what == "reading";
            let gatekeeper = if reading { gatekeeper.reading() } else { gatekeeper };
            let proxy = Proxy::new(gatekeeper, ProxyOptions::default());
            proxy.run(listener, std::future::pending()).await;
            Ok(())
        }
    }
}

/// Guards the calls, each in the run that its path names, with limits that none reaches.
async fn guard(listener: TcpListener, target: &str, recorded: bool) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let limits = Limits { max_turns: Some(u32::MAX), max_budget_usd: Some(1e6), ..Limits::none() };
    let price = Some(Price::usd_per_million_tokens(3.0, 15.0));
    let mut settings = Settings { limits, price, ..Settings::default() };
    if recorded {
        let journal = SqliteJournal::open(folder.path().join("journal.db"))?;
        settings.journal = Some(JournalSettings {
            journal: GuestJournal::start(Arc::new(journal))?,
            task: "measured".to_owned(),
            policy: None,
            settings: Value::Null,
            keys: KnownKeys::default(),
            report: Arc::new(|problem| drop(writeln!(std::io::stderr(), "{problem}"))),
            many: None,
        });
    }
    let base = Upstream::parse(&format!("http://{target}"))?;
    let gate = Gate::new(settings, UpstreamMap::new(base), [7; 16], Arc::new(|_| {}));
    // As in the command.
    Proxy::new(gate, ProxyOptions::default()).run(listener, std::future::pending()).await;
    Ok(())
}

/// Copies bytes in both directions.
async fn pump(listener: TcpListener, target: String) -> Result<(), Failure> {
    let mut connections = JoinSet::new();
    loop {
        let (mut client, _) = listener.accept().await?;
        client.set_nodelay(true)?;
        let target = target.clone();
        connections.spawn(async move {
            let mut upstream = TcpStream::connect(target).await?;
            upstream.set_nodelay(true)?;
            tokio::io::copy_bidirectional(&mut client, &mut upstream).await
        });
    }
}

async fn upstream(listener: TcpListener) -> Result<(), Failure> {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        connections.spawn(answer(stream));
    }
}

/// Frames a part of a chunked body.
fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// Answers the requests of a connection by their kind.
async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let words = "word ".repeat(20);
    let chunk = chunk(&format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{words}\"}}}}]}}\n\n"
    ));
    let usage = "\"usage\":{\"prompt_tokens\":10000,\"completion_tokens\":400}";
    let last = self::chunk(&format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"stop\"}}],{usage}}}\n\n\
         data: [DONE]\n\n"
    ));
    let body = format!(
        "{{\"choices\":[{{\"index\":0,\"message\":{{\"role\":\"assistant\",\"content\":\"{}\"}},\
         \"finish_reason\":\"stop\"}}],{usage},\"end\":true}}",
        "word ".repeat(400)
    );
    let whole = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let mut buffer = Vec::with_capacity(64 << 10);
    loop {
        let (head, length) = loop {
            if let Some(end) = buffer.windows(4).position(|end| end == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
                let length = head.split("content-length: ").nth(1).unwrap_or("0");
                let length = length.lines().next().and_then(|length| length.parse().ok());
                break (head, end + 4 + length.unwrap_or(0));
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        };
        while buffer.len() < length {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
        buffer.drain(..length);
        if head.contains("x-kind: whole") {
            stream.write_all(whole.as_bytes()).await?;
            continue;
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await?;
        for _ in 0..20 {
            stream.write_all(chunk.as_bytes()).await?;
            if head.contains("x-kind: slow") {
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
        }
        stream.write_all(last.as_bytes()).await?;
        stream.write_all(b"0\r\n\r\n").await?;
    }
}
