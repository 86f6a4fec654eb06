//! Recording: what a provider over HTTP asks and is answered, kept in a file as it happens.
//!
//! ```no_run
//! use endstop::AgentLoop;
//! use endstop::provider::http::{HttpOptions, HttpProvider};
//! use endstop::provider::record::Recorder;
//! # async fn record() -> Result<(), Box<dyn std::error::Error>> {
//! let options = HttpOptions { model: "openai/gpt-4.1-mini".into(), ..HttpOptions::default() };
//! let recorder = Recorder::create("run.jsonl")?;
//! let provider = HttpProvider::from_env(&options)?.record(&recorder)?;
//! let outcome = AgentLoop::builder(provider).build()?.run("Hello.")?.outcome().await;
//! recorder.ended(&outcome);
//! if let Some(problem) = recorder.problem() {
//!     eprintln!("the recording is not whole: {problem}");
//! }
//! # Ok(()) }
//! ```
//!
//! Each exchange is written when it ends, so that a run that is killed leaves what was whole. The keys
//! in use never come to the file, nor does what [`Recorder::hide`] is given: see [`KnownKeys`]. A recorder keeps the runs of one loop.

use super::recording::{Ended, Exchange, Header, end_line, exchange_line, header_line};
use base64::Engine as _;
use bytes::Bytes;
use endstop_core::{ModelError, Outcome};
use endstop_wire::Headers;
use endstop_wire::redact::{KnownKeys, REDACTED, address, is_secret_header, is_secret_parameter};
use reqwest::Url;
use reqwest::header::HeaderMap;
use serde_json::{Map, Value, json};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Keeps the exchanges of a run in a file. Cheap to clone; clones write to the same file.
#[derive(Clone)]
pub struct Recorder(Arc<Mutex<Inner>>);

struct Inner {
    /// `None` once a line could not be written: a recording has no holes.
    out: Option<Box<dyn Write + Send>>,
    header: Option<Header>,
    /// What must not come to the file, and the same as it is looked for.
    secrets: Vec<Vec<u8>>,
    /// Of the surroundings: see [`Recorder::hide`].
    hidden: KnownKeys,
    keys: Arc<KnownKeys>,
    task: Option<String>,
    begun: bool,
    calls: u64,
    written: u64,
    problem: Option<String>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("written", &self.lock().written).finish_non_exhaustive()
    }
}

impl Recorder {
    /// A recorder into a new file, which on Unix only its owner may read. The file stays empty until
    /// the first exchange has ended.
    ///
    /// # Errors
    /// The file cannot be written, or is there and not empty: a recording was paid for, and is not
    /// written over.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Recorder> {
        let mut options = OpenOptions::new();
        options.write(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt as _;
            options.mode(0o600);
        }
        let file = match options.clone().create_new(true).open(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => present(&options, &path)?,
            opened => opened?,
        };
        Ok(Recorder::new(file))
    }

    /// A recorder into anything that can be written to. A line is one `write_all`, and a `flush`.
    pub fn new(out: impl Write + Send + 'static) -> Recorder {
        Recorder(Arc::new(Mutex::new(Inner {
            out: Some(Box::new(out)),
            header: None,
            secrets: Vec::new(),
            hidden: KnownKeys::default(),
            keys: Arc::default(),
            task: None,
            begun: false,
            calls: 0,
            written: 0,
            problem: None,
        })))
    }

    /// Keeps the task with the recording, so that a replay needs none. To be told before the run.
    pub fn task(&self, task: impl Into<String>) {
        self.lock().task = Some(task.into());
    }

    /// These must not come to the file either. The keys of the provider are known without it.
    pub fn hide(&self, keys: &KnownKeys) {
        let mut inner = self.lock();
        inner.hidden = inner.hidden.and(keys);
        inner.keys = Arc::new(inner.keys.and(keys));
    }

    /// The run has ended: writes the last line. A recording without it stops before its run did.
    pub fn ended(&self, outcome: &Outcome) {
        let mut inner = self.lock();
        let exchanges = inner.written;
        inner.line(&end_line(outcome.termination, exchanges));
    }

    /// The first line that could not be written; nothing was written after it.
    pub fn problem(&self) -> Option<String> {
        self.lock().problem.clone()
    }

    /// What is recorded, and whom by; `secrets` must not come to the file.
    pub(super) fn attach(&self, header: Header, secrets: Vec<Vec<u8>>) -> Result<(), String> {
        let mut inner = self.lock();
        if inner.header.is_some() {
            return Err("the recorder already keeps the calls of another provider".to_owned());
        }
        inner.header = Some(header);
        inner.hide(secrets);
        Ok(())
    }

    /// A call begins.
    pub(super) fn call(&self, url: &Url, headers: &HeaderMap, body: Bytes) -> Tap {
        let mut inner = self.lock();
        // A key may be another for each call.
        inner.hide(secrets(headers, url));
        inner.calls += 1;
        let draft = Draft {
            id: inner.calls,
            url: url.as_str().to_owned(),
            sent: headers.clone(),
            request: body,
            status: 0,
            headers: Headers::new(),
            body: Vec::new(),
        };
        drop(inner);
        Tap { recorder: self.clone(), draft: Some(draft) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that is there already: it must be empty, as a temporary file or a pipe is.
fn present(options: &OpenOptions, path: impl AsRef<Path>) -> io::Result<File> {
    let file = options.open(path)?;
    if file.metadata()?.len() > 0 {
        let words = "the file is there and not empty; a recording is not written over: give another name, or remove it";
        return Err(io::Error::new(ErrorKind::AlreadyExists, words));
    }
    Ok(file)
}

impl Inner {
    /// These must not come to the file either.
    fn hide(&mut self, mut secrets: Vec<Vec<u8>>) {
        secrets.retain(|secret| !self.secrets.contains(secret));
        if !secrets.is_empty() {
            self.secrets.append(&mut secrets);
            self.keys = Arc::new(KnownKeys::new(&self.secrets).and(&self.hidden));
        }
    }

    fn line(&mut self, line: &Value) {
        let mut text = String::new();
        if !std::mem::replace(&mut self.begun, true) {
            let Some(header) = &self.header else { return };
            let clean = |text: &String| self.keys.out_of_text(text).into_owned();
            let header = Header {
                url: clean(&header.url),
                stream_url: header.stream_url.as_ref().map(clean),
                task: self.task.as_ref().map(clean),
                ..header.clone()
            };
            text = format!("{}\n", header_line(&header));
        }
        text.push_str(&line.to_string());
        text.push('\n');
        let Some(out) = &mut self.out else { return };
        if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            self.problem = Some(error.to_string());
            self.out = None;
        }
    }

    fn exchange(&mut self, draft: Draft, ended: Ended, error: Option<ModelError>) {
        let api = self.header.as_ref().map(|header| header.api.clone()).unwrap_or_default();
        let (id, sent) = (draft.id, draft.request_headers(&self.keys));
        let exchange = draft.exchange(&self.keys, ended, error);
        let more = json!({"method": "POST", "request_headers": sent});
        self.line(&exchange_line(id, &api, &exchange, more));
        self.written += 1;
    }
}

/// An exchange under way.
struct Draft {
    id: u64,
    url: String,
    sent: HeaderMap,
    request: Bytes,
    status: u16,
    headers: Headers,
    body: Vec<u8>,
}

impl Draft {
    fn request_headers(&self, keys: &KnownKeys) -> Map<String, Value> {
        let shown =
            |(name, value): (&reqwest::header::HeaderName, &reqwest::header::HeaderValue)| {
                let value = value.to_str().ok().filter(|_| !value.is_sensitive());
                let value =
                    value.map_or(REDACTED.to_owned(), |value| header(keys, name.as_str(), value));
                (name.as_str().to_owned(), value.into())
            };
        self.sent.iter().map(shown).collect()
    }

    /// The exchange as it may be kept.
    fn exchange(self, keys: &KnownKeys, ended: Ended, error: Option<ModelError>) -> Exchange {
        let mut request = serde_json::from_slice(&self.request)
            .unwrap_or_else(|_| String::from_utf8_lossy(&self.request).into_owned().into());
        keys.cut(&mut request);
        let body = keys.out_of_body(&self.body).into_owned();
        let kept = |text: &str| keys.out_of_text(text).into_owned();
        Exchange {
            url: keys.out_of_text(&address(&self.url)).into_owned(),
            request,
            status: self.status,
            headers: self
                .headers
                .iter()
                .map(|(name, value)| (name, header(keys, name, value)))
                .collect(),
            body: body.into(),
            ended,
            error: error.map(|error| ModelError { message: kept(&error.message), ..error }),
        }
    }
}

/// The value of a header as it may be kept.
fn header(keys: &KnownKeys, name: &str, value: &str) -> String {
    if is_secret_header(name) {
        return REDACTED.to_owned();
    }
    keys.out_of_text(value).into_owned()
}

/// What must not come to a file: the values of headers that are marked, and the credentials in an
/// address.
pub(super) fn secrets(headers: &HeaderMap, url: &Url) -> Vec<Vec<u8>> {
    let mut secrets: Vec<Vec<u8>> = Vec::new();
    for value in headers.values().filter(|value| value.is_sensitive()) {
        let value = value.as_bytes();
        secrets.push(credential(value).to_vec());
    }
    let password = url.password().unwrap_or_default();
    if !password.is_empty() {
        secrets.push(password.as_bytes().to_vec());
    }
    if !password.is_empty() || !url.username().is_empty() {
        let basic = format!("{}:{password}", url.username());
        secrets.push(base64::engine::general_purpose::STANDARD.encode(basic).into_bytes());
    }
    let parameters = url.query_pairs().filter(|(name, _)| is_secret_parameter(name));
    secrets.extend(parameters.map(|(_, value)| value.into_owned().into_bytes()));
    secrets
}

/// What of a marked header is the credential. Of a signed request it is the signature: what stands
/// before it names headers and a day, which stand elsewhere too.
fn credential(value: &[u8]) -> &[u8] {
    const SIGNATURE: &[u8] = b"Signature=";
    if value.starts_with(b"AWS4-HMAC-SHA256 ") {
        let at = value.windows(SIGNATURE.len()).position(|window| window == SIGNATURE);
        return at.map_or(value, |at| &value[at + SIGNATURE.len()..]);
    }
    value.strip_prefix(b"Bearer ").unwrap_or(value)
}

/// Hears one call, and writes it down when it ends; dropped before, the run hung up.
pub(super) struct Tap {
    recorder: Recorder,
    draft: Option<Draft>,
}

impl Tap {
    /// The request has got its key, and with it these headers.
    pub(super) fn keyed(&mut self, url: &Url, headers: &HeaderMap) {
        self.recorder.lock().hide(secrets(headers, url));
        if let Some(draft) = &mut self.draft {
            draft.sent = headers.clone();
        }
    }

    /// The head of the response is there.
    pub(super) fn head(&mut self, status: u16, headers: &Headers) {
        if let Some(draft) = &mut self.draft {
            draft.status = status;
            draft.headers = headers.clone();
        }
    }

    /// More of its body.
    pub(super) fn chunk(&mut self, chunk: &[u8]) {
        if let Some(draft) = &mut self.draft {
            draft.body.extend_from_slice(chunk);
        }
    }

    /// The response ended so.
    pub(super) fn ended(mut self, ended: Ended) {
        self.write(ended, None);
    }

    /// No response came.
    pub(super) fn failed(mut self, error: &ModelError) {
        self.write(Ended::Failed, Some(error.clone()));
    }

    fn write(&mut self, ended: Ended, error: Option<ModelError>) {
        if let Some(draft) = self.draft.take() {
            self.recorder.lock().exchange(draft, ended, error);
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.write(Ended::Aborted, None);
    }
}
