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

/// Sends a request on a connection of its own, and returns the body of the answer.
pub(crate) async fn ask(address: &str, method: &str, path: &str, body: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
    if !head.starts_with("HTTP/1.1 2") {
        return Err(format!("{method} {path}: {answer}").into());
    }
    Ok(body.to_owned())
}

/// Starts a run, and returns its id.
pub(crate) async fn begin(address: &str, task: &str) -> Result<String> {
    let body = json!({"agent": "load", "task": task}).to_string();
    let run: Value = serde_json::from_str(&ask(address, "POST", "/v1/runs", &body).await?)?;
    Ok(run["id"].as_str().ok_or("no id")?.to_owned())
}

/// The event stream of a run.
pub(crate) struct Events {
    stream: BufReader<TcpStream>,
    line: String,
}

impl Events {
    pub(crate) async fn open(address: &str, run: &str) -> Result<Events> {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let request = format!(
            "GET /v1/runs/{run}/events HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        // A small buffer, because thousands of readers are open at once.
        Ok(Events { stream: BufReader::with_capacity(2048, stream), line: String::new() })
    }

    /// Returns the data of the next event; `None` after the last one.
    pub(crate) async fn next(&mut self) -> Result<Option<&str>> {
        loop {
            self.line.clear();
            if self.stream.read_line(&mut self.line).await? == 0 {
                return Ok(None);
            }
            // The lines between are the frames of the body, and the other fields of events.
            if self.line.starts_with("data: ") {
                return Ok(self.line.strip_prefix("data: "));
            }
        }
    }
}

/// Starts a run, reads it to its end, and checks that it succeeded.
pub(crate) async fn run(address: &str, task: &str, delays: &mut Delays) -> Result<()> {
    let id = begin(address, task).await?;
    let mut events = Events::open(address, &id).await?;
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
    if ended { Ok(()) } else { Err(format!("the run {id} did not succeed").into()) }
}
