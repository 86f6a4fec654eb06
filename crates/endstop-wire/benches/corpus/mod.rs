//! The recorded streams that the benchmarks read, grouped by format.
//!
//! ```text
//! for format in corpus::load(&corpus::folder())? {
//!     for stream in &format.streams { … stream.body … stream.payloads … }
//! }
//! ```
//!
//! A stream is included if its status is 200, it consists of events (or array elements, JSON lines
//! or binary frames), and both contestants can read all of it: each payload is JSON, and the turn
//! is not an error.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use endstop_wire::detect::request_facts;
use endstop_wire::dialect::{Dialect, dialect};
use endstop_wire::stream::eventstream;
use endstop_wire::stream::sse::{self, Item};
use endstop_wire::{Delta, Eof, Headers, RequestFacts, StreamDecoder};
use flate2::read::GzDecoder;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use std::error::Error;
use std::hint::black_box;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The formats and the files with their recordings. A new format takes one line.
const FORMATS: [(&str, &[&str]); 8] = [
    ("openai-chat", &["openai-chat"]),
    ("openai-responses", &["openai-responses", "xai-responses"]),
    ("anthropic-messages", &["anthropic-messages"]),
    ("gemini", &["gemini", "vertex-gemini"]),
    ("bedrock-converse", &["bedrock-converse"]),
    ("bedrock-invoke", &["bedrock-invoke"]),
    ("cohere-v2", &["cohere-v2"]),
    ("ollama", &["ollama"]),
];

/// The streams of one format.
pub(crate) struct Format {
    pub(crate) name: &'static str,
    pub(crate) streams: Vec<Stream>,
    /// Number of streams left out because one of the contestants cannot read all of them.
    pub(crate) left_out: usize,
}

/// A recorded stream.
pub(crate) struct Stream {
    dialect: &'static Dialect,
    facts: RequestFacts,
    /// The original bytes.
    pub(crate) body: Vec<u8>,
    /// The JSON payloads: the data of every event.
    pub(crate) payloads: Vec<String>,
}

impl Stream {
    /// Pushes the stream in chunks of at most `piece` bytes. Returns the decoder before its end,
    /// and the number of deltas.
    pub(crate) fn push(&self, piece: usize) -> (StreamDecoder, usize) {
        let mut deltas = 0;
        let mut stream = StreamDecoder::new(self.dialect, 200, Headers::new(), self.facts);
        let mut sink = |delta: Delta<'_>| {
            black_box(&delta);
            deltas += 1;
        };
        // `finish` reports a stream that cannot be pushed.
        let _ = self.body.chunks(piece).try_for_each(|piece| stream.push(piece, &mut sink));
        (stream, deltas)
    }
}

/// Returns the folder of the recordings, which `--recordings DIR` can change.
pub(crate) fn folder() -> PathBuf {
    let mut words = std::env::args().skip_while(|word| word != "--recordings").skip(1);
    words.next().map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/recordings"),
        PathBuf::from,
    )
}

/// Reads all formats.
pub(crate) fn load(folder: &Path) -> Result<Vec<Format>, Box<dyn Error>> {
    FORMATS.iter().map(|(name, files)| format(name, files, folder)).collect()
}

fn format(name: &'static str, files: &[&str], folder: &Path) -> Result<Format, Box<dyn Error>> {
    let mut format = Format { name, streams: Vec::new(), left_out: 0 };
    for file in files {
        let path = folder.join(file).with_extension("jsonl.gz");
        let opened = std::fs::File::open(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut text = String::new();
        GzDecoder::new(opened).read_to_string(&mut text)?;
        for line in text.lines() {
            let row: Value = serde_json::from_str(line)?;
            if row["streaming"] != true || row["status"] != 200 {
                continue;
            }
            match stream(&row) {
                Some(stream) => format.streams.push(stream),
                None => format.left_out += 1,
            }
        }
    }
    Ok(format)
}

fn stream(row: &Value) -> Option<Stream> {
    let text = row["body"].as_str()?;
    let (body, payloads) = if row["body_encoding"] == "base64" {
        let body = STANDARD.decode(text).ok()?;
        let payloads = framed(&body)?;
        (body, payloads)
    } else {
        (text.as_bytes().to_vec(), payloads(text)?)
    };
    let stream = Stream {
        dialect: dialect(row["api"].as_str()?).ok()?,
        facts: request_facts(&row["request"]),
        body,
        payloads,
    };
    let decoded = stream.push(usize::MAX).0.finish(Eof::Clean);
    (decoded.error.is_none() && decoded.turn.is_some()).then_some(stream)
}

/// Returns the data of every event with JSON, the array elements or the JSON lines, or `None` if
/// one of them is not JSON.
fn payloads(body: &str) -> Option<Vec<String>> {
    let mut found = Vec::new();
    if body.trim_start().starts_with('{') {
        found.extend(body.lines().filter(|l| !l.trim().is_empty()).map(str::to_owned));
    } else if body.trim_start().starts_with('[') {
        let elements: Vec<&RawValue> = serde_json::from_str(body).ok()?;
        found.extend(elements.iter().map(|element| element.get().to_owned()));
    } else {
        let mut keep = |item: Item<'_>| {
            if let Item::Event { data, .. } = item {
                if data.trim_start().starts_with('{') {
                    found.push(data.to_owned());
                }
            }
        };
        let mut sse = sse::SseDecoder::new();
        sse.push(body.as_bytes(), &mut keep).ok()?;
        sse.finish(&mut keep).ok()?;
    }
    all_json(found)
}

/// Returns the payloads of binary frames. If a payload wraps another in Base64, as in Bedrock's
/// InvokeModel, both are included, because a program without a decoder must parse both.
fn framed(body: &[u8]) -> Option<Vec<String>> {
    #[derive(serde::Deserialize)]
    struct Packed<'a> {
        bytes: &'a str,
    }
    let mut found = Vec::new();
    let mut frames = eventstream::EventStreamDecoder::new();
    let taken = frames.push(body, &mut |message| {
        let outer = message.payload.to_vec();
        if let Ok(packed) = serde_json::from_slice::<Packed<'_>>(&outer) {
            found.extend(STANDARD.decode(packed.bytes).map(String::from_utf8));
        }
        found.push(String::from_utf8(outer));
    });
    taken.ok()?;
    all_json(found.into_iter().collect::<Result<_, _>>().ok()?)
}

/// Returns the payloads, unless there are none or one of them is not JSON.
fn all_json(found: Vec<String>) -> Option<Vec<String>> {
    let json = |text: &String| serde_json::from_str::<IgnoredAny>(text).is_ok();
    (!found.is_empty() && found.iter().all(json)).then_some(found)
}
