//! The processes that are measured: the upstream, the byte pump, the proxy.

use crate::usage;
use endstop_guard::proxy::{ForwardAll, Proxy, ProxyOptions, Upstream, UpstreamMap};
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

type Failure = Box<dyn Error>;

/// A process of this program that serves. It ends with this value.
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

    pub(crate) fn memory_mb(&self) -> (f64, f64) {
        usage::memory_mb(self.child.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
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
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::abort();
    });
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut output = std::io::stdout();
        writeln!(output, "{}", listener.local_addr()?.port())?;
        output.flush()?;
        match what {
            "upstream" => upstream(listener).await,
            "pump" => pump(listener, target.to_owned()).await,
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
    })
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

/// Answers the requests of a connection by their path.
async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let event = format!("data: {{\"delta\":\"{}\"}}\n\n", "word ".repeat(20));
    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
    let body = format!("{{\"text\":\"{}\"}}[END]", "word ".repeat(400));
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
        if head.starts_with("post /v1/whole") {
            stream.write_all(whole.as_bytes()).await?;
            continue;
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await?;
        for _ in 0..20 {
            stream.write_all(chunk.as_bytes()).await?;
            if head.starts_with("post /v1/slow") {
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
        }
        stream.write_all(b"0\r\n\r\n").await?;
    }
}
