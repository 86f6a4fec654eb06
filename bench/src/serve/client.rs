//! A client of `endstop serve`: starts a run, and reads its events.

use crate::Result;
use crate::model::MARK;
use crate::process::{now_ns, quantile};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// The delays of chunks from the model's server to a reader, in milliseconds, and the number of
/// events of any kind.
#[derive(Default)]
pub(crate) struct Delays {
    pub(crate) all: Vec<f64>,
    pub(crate) events: usize,
}

impl Delays {
    pub(crate) fn add(&mut self, other: Delays) {
        self.all.extend(other.all);
        self.events += other.events;
    }

    /// Returns p50 and p99.
    pub(crate) fn quantiles(&mut self) -> (f64, f64) {
        (quantile(&mut self.all, 0.5), quantile(&mut self.all, 0.99))
    }
}

/// Returns the delay of a chunk, from the time in its text.
pub(crate) fn delay_of(text: &str) -> Option<f64> {
    // First, so that the search in the text is not part of the delay.
    let now = now_ns();
    let digits = text.split(MARK).nth(1)?;
    let end = digits.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(digits.len());
    let sent: u64 = digits[..end].parse().ok()?;
    Some(now.saturating_sub(sent) as f64 / 1e6)
}

/// A connection to the server, which is used for one request after the other, as HTTP clients do.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    address: String,
    line: String,
}

impl Connection {
    pub(crate) async fn open(address: &str) -> Result<Connection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        // A small buffer, because thousands of readers are open at once.
        let stream = BufReader::with_capacity(2048, stream);
        Ok(Connection { stream, address: address.to_owned(), line: String::new() })
    }

    /// Sends a request, and returns the length of the answer's body; `None` if it is chunked.
    async fn send(&mut self, method: &str, path: &str, body: &str) -> Result<Option<usize>> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await?;
        let status = self.line().await?;
        if !status.starts_with("HTTP/1.1 2") {
            return Err(format!("{method} {path}: {status}").into());
        }
        let mut length = None;
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                return Ok(length);
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = Some(value.parse()?);
            }
        }
    }

    /// Reads a line of the head, or of the frame of a chunk.
    async fn line(&mut self) -> Result<&str> {
        self.line.clear();
        if self.stream.read_line(&mut self.line).await? == 0 {
            return Err("the server closed the connection".into());
        }
        Ok(self.line.trim_end())
    }

    /// Sends a request, and returns the body of the answer.
    pub(crate) async fn ask(&mut self, method: &str, path: &str, body: &str) -> Result<String> {
        let length = self.send(method, path, body).await?.ok_or("an answer without a length")?;
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer).await?;
        Ok(String::from_utf8(answer)?)
    }

    /// Starts a run, and returns its id.
    pub(crate) async fn begin(&mut self, task: &str) -> Result<String> {
        let body = json!({"agent": "load", "task": task}).to_string();
        let run: Value = serde_json::from_str(&self.ask("POST", "/v1/runs", &body).await?)?;
        Ok(run["run_id"].as_str().ok_or("no id")?.to_owned())
    }
}

/// The event stream of a run.
pub(crate) struct Events {
    connection: Connection,
    /// Bytes of the body from the beginning of a line, of which those before `at` were returned.
    body: Vec<u8>,
    at: usize,
}

impl Events {
    pub(crate) async fn open(mut connection: Connection, run: &str) -> Result<Events> {
        let length = connection.send("GET", &format!("/v1/runs/{run}/events"), "").await?;
        if length.is_some() {
            return Err("an event stream with a length".into());
        }
        Ok(Events { connection, body: Vec::new(), at: 0 })
    }

    /// Returns the data of the next event; `None` after the last one.
    pub(crate) async fn next(&mut self) -> Result<Option<&str>> {
        loop {
            let rest = &self.body[self.at..];
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
                self.body.drain(..std::mem::take(&mut self.at));
                if self.chunk().await? == 0 {
                    return Ok(None);
                }
                continue;
            };
            let line = self.at..self.at + end;
            self.at = line.end + 1;
            // The lines between are the other fields of events.
            if self.body[line.clone()].starts_with(b"data: ") {
                return Ok(Some(std::str::from_utf8(&self.body[line.start + 6..line.end])?));
            }
        }
    }

    /// Appends the next chunk of the body, and returns its length.
    async fn chunk(&mut self) -> Result<usize> {
        let length = usize::from_str_radix(self.connection.line().await?, 16)?;
        let begin = self.body.len();
        self.body.resize(begin + length, 0);
        self.connection.stream.read_exact(&mut self.body[begin..]).await?;
        // The line break after the chunk.
        self.connection.line().await?;
        Ok(length)
    }

    /// Returns the connection, after the last event.
    pub(crate) fn into_connection(self) -> Connection {
        self.connection
    }
}

/// Starts a run, reads it to its end, and checks that it succeeded.
pub(crate) async fn run(
    mut connection: Connection,
    task: &str,
    delays: &mut Delays,
) -> Result<Connection> {
    let id = connection.begin(task).await?;
    let mut events = Events::open(connection, &id).await?;
    let mut ended = false;
    while let Some(event) = events.next().await? {
        delays.events += 1;
        if event.starts_with(r#"{"type":"text_delta""#) {
            delays.all.extend(delay_of(event));
        } else if event.starts_with(r#"{"type":"finished""#) {
            let event: Value = serde_json::from_str(event)?;
            ended =
                event["outcome"]["termination"] == "stop" && event["outcome"]["tool_calls"] == 9;
        }
    }
    if ended {
        Ok(events.into_connection())
    } else {
        Err(format!("the run {id} did not succeed").into())
    }
}
