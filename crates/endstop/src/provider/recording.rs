//! The file format of a recorded run: a line of JSON for the request settings, one for each HTTP
//! exchange, and one for the end of the run.
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
//! `endstop detect --jsonl` reads the same exchange lines. [`Recorder`](super::record::Recorder)
//! writes the file, [`RecordingReplay`](super::replay::RecordingReplay) replays it.

use super::network::web_address;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use endstop_core::decide::parse_json;
use endstop_core::{ModelError, Price, Termination};
use endstop_wire::Headers;
use endstop_wire::catalog::providers;
use endstop_wire::dialect::{Dialect, UnknownApi, dialect};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::io::Read as _;
use std::path::Path;

/// The version of the format that is written and read.
pub const VERSION: u64 = 1;

/// Maximum size of a recording, in bytes. A device such as `/dev/zero` has no end.
const LONGEST: u64 = 1 << 30;

const WHERE_FROM: &str = "give a file that a `Recorder` wrote";

/// The first line: the provider, the model and their settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The provider's id.
    pub provider: String,
    /// The model's name at the provider.
    pub model: String,
    /// The wire format in the provider's dialect, as accepted by `endstop detect --api`.
    pub api: String,
    /// The URL of calls, without credentials.
    pub url: String,
    /// The URL of streaming calls, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_url: Option<String>,
    /// The model's price in nano-dollars per million tokens, if known.
    #[serde(default)]
    pub price: Option<Price>,
    /// The context window in tokens, if known.
    #[serde(default)]
    pub context_window: Option<u64>,
    /// The maximum number of output tokens, if known.
    #[serde(default)]
    pub max_output: Option<u64>,
    /// The seed of the waits between attempts, if known.
    #[serde(default)]
    pub seed: Option<u64>,
    /// The task, if the recorder was given it.
    #[serde(default)]
    pub task: Option<String>,
}

/// The end of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The body ended, or the end of the protocol's message was seen.
    Clean,
    /// The connection was reset.
    Reset,
    /// The run closed the connection early because of a cancel, a limit or a policy.
    Aborted,
    /// There was no response.
    Failed,
}

/// A request and its response.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    /// The address, without credentials.
    pub url: String,
    /// The body of the request.
    pub request: Value,
    /// The HTTP status; 0 if there was no response.
    pub status: u16,
    /// The headers of the response.
    pub headers: Headers,
    /// The body of the response, up to the point where reading stopped.
    pub body: Bytes,
    /// The end of the exchange.
    pub ended: Ended,
    /// The error, if there was no response.
    pub error: Option<ModelError>,
}

/// A recorded run.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// The first line: the provider, the model and their settings.
    pub header: Header,
    /// The exchanges, in order. Each retry is a separate exchange.
    pub exchanges: Vec<Exchange>,
    /// The run's termination; `None` if the recording stops before the run did.
    pub ended: Option<Termination>,
    /// The parse error of an incomplete last line, for example after the run was killed.
    pub torn: Option<RecordingError>,
}

/// A file that is not a valid recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", place(.file, *.line))]
pub struct RecordingError {
    /// The file's name.
    pub file: String,
    /// The line number, from 1; `None` if the error concerns the whole file.
    pub line: Option<u64>,
    /// The problem with the name of the field, and the fix.
    pub problem: String,
}

/// Returns the file's name with the line.
fn place(file: &str, line: Option<u64>) -> String {
    line.map_or_else(|| file.to_owned(), |line| format!("{file}: line {line}"))
}

impl Recording {
    /// Reads a recording from a file.
    ///
    /// # Errors
    /// The file cannot be read or is not a valid recording. The error names the line and the field.
    pub fn read(path: impl AsRef<Path>) -> Result<Recording, RecordingError> {
        let file = path.as_ref().display().to_string();
        let wrong = |problem: String| RecordingError { file: file.clone(), line: None, problem };
        let mut bytes = Vec::new();
        // The file may be a pipe, so its length is known only after reading.
        let opened = std::fs::File::open(path).map_err(|error| wrong(error.to_string()))?;
        let read = opened.take(LONGEST + 1).read_to_end(&mut bytes);
        if read.map_err(|error| wrong(error.to_string()))? as u64 > LONGEST {
            return Err(wrong(format!(
                "the file is longer than {} MiB, the maximum",
                LONGEST >> 20
            )));
        }
        Recording::parse(&file, &bytes)
    }

    /// Parses the bytes of a recording; `file` is its name in errors.
    ///
    /// # Errors
    /// The same as [`read`](Recording::read).
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
            let value = match parse_json(text).map_err(|error| error.to_string()) {
                Ok(value) => value,
                // Only the last line can be incomplete, because nothing was written after it.
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

    /// `true` if the recorded run requested streams.
    pub fn streamed(&self) -> bool {
        self.exchanges.first().is_none_or(|first| {
            // Some formats select streaming by the URL, the others in the body.
            first.request["stream"] == true || self.header.stream_url.as_ref() == Some(&first.url)
        })
    }

    /// Returns the dialect of the recorded exchanges.
    pub(super) fn dialect(&self) -> Result<&'static Dialect, UnknownApi> {
        dialect(&self.header.api)
    }

    fn line(&mut self, value: Value) -> Result<(), String> {
        match value["type"].as_str() {
            Some("exchange") => {
                self.exchanges.push(exchange(value)?);
                // A recorder may serve several runs; only the end after the last exchange counts.
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

/// An exchange as stored in the file.
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

/// Deserializes a line. The error names the invalid field.
fn fields<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        match path.as_str() {
            // The path `.` stands for the line itself.
            "." => error.inner().to_string(),
            path => format!("`{path}`: {}", error.inner()),
        }
    })
}

fn header(value: Value) -> Result<Header, String> {
    if value["type"] != "recording" {
        return Err(format!("not a recording: `type` must be \"recording\"; {WHERE_FROM}"));
    }
    match value["version"].as_u64() {
        Some(VERSION) => {}
        Some(other) => {
            return Err(format!("unsupported `version` `{other}`: expected {VERSION}"));
        }
        None => return Err(format!("`version` must be a number, such as {VERSION}")),
    }
    let header: Header = fields(value)?;
    let asked = dialect(&header.api).map_err(|error| format!("`api`: {error}"))?;
    if asked.family.read_only().is_some() {
        return Err(format!("`api`: {} can be decoded, but not sent by a run", header.api));
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
        let wrong = || format!("`headers.{name}`: expected a string or a list of strings");
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
        return Err("`error` is missing: required because `ended` is \"failed\"".to_owned());
    }
    if line.status == 0 && !matches!(line.ended, Ended::Failed | Ended::Aborted) {
        return Err("invalid `status` `0`: expected an HTTP status because `ended` is neither \"failed\" nor \"aborted\"".to_owned());
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

/// Returns the first line.
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

/// Returns the line of an exchange; `more` has fields that a replay does not need.
pub(super) fn exchange_line(id: u64, api: &str, exchange: &Exchange, more: Value) -> Value {
    let mut headers = Map::new();
    for (name, value) in exchange.headers.iter() {
        // A repeated header becomes a list, because JSON objects cannot repeat a key.
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

/// Returns the last line.
pub(super) fn end_line(termination: Termination, exchanges: u64) -> Value {
    json!({"type": "ended", "termination": termination, "exchanges": exchanges})
}
