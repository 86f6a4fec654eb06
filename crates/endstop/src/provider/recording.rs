//! The file of a recorded run: a line of JSON for what was asked, one for each exchange over HTTP, and
//! one for the end of the run.
//!
//! ```
//! use endstop::provider::recording::Recording;
//! let file = br#"{"type":"recording","version":1,"provider":"openai","model":"m","api":"openai-chat","url":"http://h/v1"}
//! {"type":"exchange","request":{},"status":200,"headers":{},"body":"{}","ended":"clean"}
//! "#;
//! let recording = Recording::parse("run.jsonl", file)?;
//! assert_eq!((recording.exchanges.len(), recording.ended), (1, None));
//! let error = Recording::parse("run.jsonl", b"{}\n").unwrap_err();
//! assert!(error.to_string().starts_with("run.jsonl: line 1: "));
//! # Ok::<(), endstop::provider::recording::RecordingError>(())
//! ```
//!
//! An exchange is what `endstop detect --jsonl` reads. [`Recorder`](super::record::Recorder) writes
//! such a file, [`Replay`](super::replay::Replay) plays it.

use super::http::web_address;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use endstop_core::decide::parse_json;
use endstop_core::{ModelError, Price, Termination};
use endstop_wire::Headers;
use endstop_wire::catalog::providers;
use endstop_wire::dialect::{Dialect, dialect};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::fmt;
use std::io::Read as _;
use std::path::Path;

/// The version of the format that is written and read.
pub const VERSION: u64 = 1;

/// The longest recording that is read. A device such as `/dev/zero` has no end.
const LONGEST: u64 = 1 << 30;

const WHERE_FROM: &str = "give a file that `endstop run --record` wrote";

/// What was asked, and whom: the first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The provider's id.
    pub provider: String,
    /// The model, as the provider takes it.
    pub model: String,
    /// The wire format in the provider's dialect, as `endstop detect --api` takes it.
    pub api: String,
    /// Where a call went, without credentials.
    pub url: String,
    /// Where a call that streams went, where that is another address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_url: Option<String>,
    /// What the model cost, in nano-dollars per million tokens, where it was known.
    #[serde(default)]
    pub price: Option<Price>,
    /// The context window in tokens, where it was known.
    #[serde(default)]
    pub context_window: Option<u64>,
    /// The largest answer in tokens, where it was known.
    #[serde(default)]
    pub max_output: Option<u64>,
    /// The task, where the recorder was told of it.
    #[serde(default)]
    pub task: Option<String>,
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The body ended, or the protocol's own end was seen.
    Clean,
    /// The connection broke.
    Reset,
    /// The run hung up before the end: a cancel, a limit, a policy.
    Aborted,
    /// No response came.
    Failed,
}

/// A request, and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    /// The address, without credentials.
    pub url: String,
    /// The body of the request.
    pub request: Value,
    /// The HTTP status; 0: no response came.
    pub status: u16,
    /// The headers of the response.
    pub headers: Headers,
    /// The body of the response, as far as it was read.
    pub body: Bytes,
    /// How it ended.
    pub ended: Ended,
    /// Why no response came.
    pub error: Option<ModelError>,
}

/// A run that was recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// What was asked, and whom.
    pub header: Header,
    /// The exchanges, in order; retries are exchanges of their own.
    pub exchanges: Vec<Exchange>,
    /// How the run ended; `None`: the recording stops before the run did.
    pub ended: Option<Termination>,
    /// What is wrong with a last line that is not whole, as of a run that was killed.
    pub torn: Option<RecordingError>,
}

/// A file that is no recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingError {
    /// The file's name.
    pub file: String,
    /// The line, from 1; `None`: the file as a whole.
    pub line: Option<u64>,
    /// What is wrong with it, with the field's name, and what to do.
    pub problem: String,
}

impl fmt::Display for RecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}: line {line}: {}", self.file, self.problem),
            None => write!(f, "{}: {}", self.file, self.problem),
        }
    }
}

impl std::error::Error for RecordingError {}

impl Recording {
    /// Reads the recording in a file.
    ///
    /// # Errors
    /// A file that cannot be read or is no recording; the line and the field are named.
    pub fn read(path: impl AsRef<Path>) -> Result<Recording, RecordingError> {
        let file = path.as_ref().display().to_string();
        let wrong = |problem: String| RecordingError { file: file.clone(), line: None, problem };
        let mut bytes = Vec::new();
        // A pipe is read as well, so the length is only known after reading.
        let opened = std::fs::File::open(path).map_err(|error| wrong(error.to_string()))?;
        let read = opened.take(LONGEST + 1).read_to_end(&mut bytes);
        if read.map_err(|error| wrong(error.to_string()))? as u64 > LONGEST {
            return Err(wrong(format!("longer than {} MiB, which is not read", LONGEST >> 20)));
        }
        Recording::parse(&file, &bytes)
    }

    /// As [`read`](Recording::read), from the bytes of a file of this name.
    ///
    /// # Errors
    /// As [`read`](Recording::read).
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Recording, RecordingError> {
        let wrong = |line: Option<u64>, problem: String| RecordingError {
            file: file.to_owned(),
            line,
            problem,
        };
        let mut recording: Option<Recording> = None;
        for (number, line) in (1..).zip(bytes.split_inclusive(|byte| *byte == b'\n')) {
            let text = line.trim_ascii();
            if text.is_empty() {
                continue;
            }
            let value = match parse_json(text) {
                Ok(value) => value,
                // Only a last line can be torn: behind it nothing was written.
                Err(problem) if !line.ends_with(b"\n") => {
                    let problem = format!("it is torn: {problem}");
                    match &mut recording {
                        Some(recording) => recording.torn = Some(wrong(Some(number), problem)),
                        None => {
                            return Err(wrong(Some(number), format!("{problem}; {WHERE_FROM}")));
                        }
                    }
                    break;
                }
                Err(problem) => return Err(wrong(Some(number), problem)),
            };
            let read = match &mut recording {
                Some(recording) => recording.line(value),
                None => header(value).map(|header| {
                    let new = Recording { header, exchanges: Vec::new(), ended: None, torn: None };
                    recording = Some(new);
                }),
            };
            read.map_err(|problem| wrong(Some(number), problem))?;
        }
        recording.ok_or_else(|| wrong(None, format!("it is empty; {WHERE_FROM}")))
    }

    /// Whether the recorded run asked for streams.
    pub fn streamed(&self) -> bool {
        self.exchanges.first().is_none_or(|first| {
            // Some formats say it in the address, the others in the body.
            first.request["stream"] == true || self.header.stream_url.as_ref() == Some(&first.url)
        })
    }

    /// The dialect that it is in.
    pub(super) fn dialect(&self) -> Result<&'static Dialect, String> {
        dialect(&self.header.api).map_err(|error| format!("`api`: {error}"))
    }

    fn line(&mut self, value: Value) -> Result<(), String> {
        match value["type"].as_str() {
            Some("exchange") => {
                self.exchanges.push(exchange(value)?);
                self.ended = None;
            }
            Some("ended") => self.ended = Some(fields::<End>(value)?.termination),
            _ => return Err("`type` must be \"exchange\" or \"ended\"".to_owned()),
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct End {
    termination: Termination,
}

/// An exchange as it stands in the file.
#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    url: String,
    request: Value,
    status: u16,
    headers: Map<String, Value>,
    body: String,
    #[serde(default)]
    body_encoding: Encoding,
    ended: Ended,
    #[serde(default)]
    error: Option<ModelError>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Encoding {
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "base64")]
    Base64,
}

/// The fields of a line; the one that is wrong is named.
fn fields<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        match path.as_str() {
            "." => error.inner().to_string(),
            path => format!("`{path}`: {}", error.inner()),
        }
    })
}

fn header(value: Value) -> Result<Header, String> {
    if value["type"] != "recording" {
        return Err(format!("no recording begins so: `type` must be \"recording\"; {WHERE_FROM}"));
    }
    match value["version"].as_u64() {
        Some(VERSION) => {}
        Some(other) => {
            return Err(format!("`version` is {other}, and this endstop reads {VERSION}"));
        }
        None => return Err(format!("`version` must be a number, such as {VERSION}")),
    }
    let header: Header = fields(value)?;
    let asked = dialect(&header.api).map_err(|error| format!("`api`: {error}"))?;
    if asked.family.read_only().is_some() {
        return Err(format!("`api`: {} is only read, and no run asks in it", header.api));
    }
    web_address(&header.url).map_err(|problem| format!("`url`: {problem}"))?;
    if let Some(url) = &header.stream_url {
        web_address(url).map_err(|problem| format!("`stream_url`: {problem}"))?;
    }
    if providers::provider(&header.provider).is_none() {
        return Err(format!(
            "`provider`: `{}` is not known; `endstop providers` lists them",
            header.provider
        ));
    }
    Ok(header)
}

fn exchange(value: Value) -> Result<Exchange, String> {
    let line: Line = fields(value)?;
    let mut headers = Headers::new();
    for (name, value) in line.headers {
        let wrong = || format!("`headers.{name}`: wants a text, or a list of texts");
        match value {
            Value::String(text) => headers.push(&name, text),
            Value::Array(list) => {
                for text in &list {
                    headers.push(&name, text.as_str().ok_or_else(wrong)?);
                }
            }
            _ => return Err(wrong()),
        }
    }
    let body = match line.body_encoding {
        Encoding::Utf8 => line.body.into_bytes(),
        Encoding::Base64 => {
            STANDARD.decode(line.body.trim()).map_err(|error| format!("`body`: {error}"))?
        }
    };
    if line.ended == Ended::Failed && line.error.is_none() {
        return Err("`error` is missing: `ended` says that no response came".to_owned());
    }
    if line.status == 0 && !matches!(line.ended, Ended::Failed | Ended::Aborted) {
        return Err("`status` is 0, and `ended` says that a response came".to_owned());
    }
    Ok(Exchange {
        url: line.url,
        request: line.request,
        status: line.status,
        headers,
        body: body.into(),
        ended: line.ended,
        error: line.error,
    })
}

/// The first line.
pub(super) fn header_line(header: &Header) -> Value {
    let mut line =
        json!({"type": "recording", "version": VERSION, "endstop": env!("CARGO_PKG_VERSION")});
    if let (Value::Object(line), Ok(Value::Object(fields))) =
        (&mut line, serde_json::to_value(header))
    {
        line.extend(fields);
    }
    line
}

/// The line of an exchange; `more` is what replay does not need.
pub(super) fn exchange_line(id: u64, api: &str, exchange: &Exchange, more: Value) -> Value {
    let mut headers = Map::new();
    for (name, value) in exchange.headers.iter() {
        match headers.get_mut(name) {
            None => {
                headers.insert(name.to_owned(), value.into());
            }
            Some(Value::Array(list)) => list.push(value.into()),
            Some(first) => *first = json!([first.take(), value]),
        }
    }
    let (body, encoding) = match std::str::from_utf8(&exchange.body) {
        Ok(text) => (text.to_owned(), Encoding::Utf8),
        Err(_) => (STANDARD.encode(&exchange.body), Encoding::Base64),
    };
    let mut line = json!({"type": "exchange", "id": id.to_string(), "api": api});
    if let (Value::Object(line), Value::Object(more)) = (&mut line, more) {
        line.extend(more);
    }
    line["url"] = exchange.url.as_str().into();
    line["request"] = exchange.request.clone();
    line["status"] = exchange.status.into();
    line["headers"] = headers.into();
    line["body"] = body.into();
    line["body_encoding"] = json!(encoding);
    line["ended"] = json!(exchange.ended);
    if let Some(error) = &exchange.error {
        line["error"] = json!(error);
    }
    line
}

/// The last line.
pub(super) fn end_line(termination: Termination, exchanges: u64) -> Value {
    json!({"type": "ended", "termination": termination, "exchanges": exchanges})
}
