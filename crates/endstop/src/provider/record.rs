//! Recording: writes the requests and responses of an HTTP provider to a file as they happen.
//!
//! ```no_run
//! use endstop::Agent;
//! use endstop::provider::http::HttpProvider;
//! use endstop::provider::record::Recorder;
//! # async fn record() -> Result<(), Box<dyn std::error::Error>> {
//! let recorder = Recorder::create("run.jsonl")?;
//! let provider = HttpProvider::builder("openai/gpt-4.1-mini").build()?.record(&recorder)?;
//! let outcome = Agent::builder(provider).build()?.run("Hello.")?.outcome().await;
//! recorder.ended(&outcome);
//! if let Some(problem) = recorder.problem() {
//!     eprintln!("the recording is incomplete: {problem}");
//! }
//! # Ok(()) }
//! ```
//!
//! Each exchange is written when it ends, so that a killed run leaves its complete exchanges. The
//! keys in use are never written, nor are the values given to [`Recorder::hide`]; see
//! [`KnownKeys`]. A recorder records the runs of one loop.

use super::recording::{Ended, Exchange, Header, end_line, exchange_line, header_line};
use base64::Engine as _;
use bytes::Bytes;
use endstop_core::{ModelError, Outcome};
use endstop_wire::Headers;
use endstop_wire::redact::{KnownKeys, REDACTED, address, is_secret_header, is_secret_parameter};
use http::header::HeaderMap;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use url::Url;

/// Records the exchanges of a run in a file. Cheap to clone; clones write to the same file.
#[derive(Clone)]
pub struct Recorder(Arc<Mutex<Inner>>);

struct Inner {
    /// `None` after a failed write, because a recording must not have gaps.
    out: Option<Box<dyn Write + Send>>,
    header: Option<Header>,
    /// The credentials to redact. `keys` is compiled from these and `hidden`.
    secrets: Vec<Vec<u8>>,
    /// Credentials of the environment; see [`Recorder::hide`].
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
    /// Creates a recorder that writes to a new file. On Unix only the file's owner may read it. The
    /// file stays empty until the first exchange has ended.
    ///
    /// # Errors
    /// The file cannot be written, or exists and is not empty. A recording cost money, so it is
    /// never overwritten.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Recorder> {
        let mut options = OpenOptions::new();
        options.write(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt as _;
            // The recording contains the conversation, which may be private.
            options.mode(0o600);
        }
        let file = match options.clone().create_new(true).open(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => present(&options, &path)?,
            opened => opened?,
        };
        Ok(Recorder::new(file))
    }

    /// Creates a recorder that writes to `out`, with one `write_all` and one `flush` per line.
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

    /// Stores the task in the recording, so that a replay needs none. Call it before the run.
    pub fn task(&self, task: impl Into<String>) {
        self.lock().task = Some(task.into());
    }

    /// Redacts these credentials as well. Those of the provider are always redacted.
    pub fn hide(&self, keys: &KnownKeys) {
        let mut inner = self.lock();
        inner.hidden = inner.hidden.and(keys);
        inner.keys = Arc::new(inner.keys.and(keys));
    }

    /// Writes the last line after the run has ended. Without it, a recording counts as incomplete.
    pub fn ended(&self, outcome: &Outcome) {
        let mut inner = self.lock();
        let exchanges = inner.written;
        inner.line(&end_line(outcome.termination, exchanges));
    }

    /// Returns the first write error, if any. Nothing is written after it.
    pub fn problem(&self) -> Option<String> {
        self.lock().problem.clone()
    }

    /// Sets what is recorded, and the `secrets` to redact. Returns `false` and changes nothing if
    /// another provider is recorded already.
    pub(super) fn attach(&self, header: Header, secrets: Vec<Vec<u8>>) -> bool {
        let mut inner = self.lock();
        if inner.header.is_some() {
            return false;
        }
        inner.header = Some(header);
        inner.hide(secrets);
        true
    }

    /// Starts the recording of a call.
    pub(super) fn call(&self, url: &Url, headers: &HeaderMap, body: Bytes) -> Tap {
        let mut inner = self.lock();
        // Each call may have another key.
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

/// Opens an existing file, which must be empty: a temporary file or a pipe.
fn present(options: &OpenOptions, path: impl AsRef<Path>) -> io::Result<File> {
    let file = options.open(path)?;
    if file.metadata()?.len() > 0 {
        let words = "the file exists and is not empty, and a recording is never overwritten; choose another name or remove it";
        return Err(io::Error::new(ErrorKind::AlreadyExists, words));
    }
    Ok(file)
}

impl Inner {
    /// Redacts these credentials as well.
    // Compiling the keys is costly, so do it only if there is a new one.
    fn hide(&mut self, mut secrets: Vec<Vec<u8>>) {
        secrets.retain(|secret| !self.secrets.contains(secret));
        if !secrets.is_empty() {
            self.secrets.append(&mut secrets);
            self.keys = Arc::new(KnownKeys::new(&self.secrets).and(&self.hidden));
        }
    }

    fn line(&mut self, line: &Value) {
        let mut text = String::new();
        // The header is written together with the first line, because `task` and `hide` may be
        // called until then.
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

/// An exchange in progress.
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
        let shown = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            let value = value.to_str().ok().filter(|_| !value.is_sensitive());
            let value =
                value.map_or(REDACTED.to_owned(), |value| header(keys, name.as_str(), value));
            (name.as_str().to_owned(), value.into())
        };
        self.sent.iter().map(shown).collect()
    }

    /// Returns the exchange with all credentials redacted.
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

/// Returns the redacted value of a header.
fn header(keys: &KnownKeys, name: &str, value: &str) -> String {
    if is_secret_header(name) {
        return REDACTED.to_owned();
    }
    keys.out_of_text(value).into_owned()
}

/// Returns the values to redact: those of headers marked as sensitive, and the credentials in an
/// address.
pub(super) fn secrets(headers: &HeaderMap, url: &Url) -> Vec<Vec<u8>> {
    let mut secrets: Vec<Vec<u8>> = Vec::new();
    for value in headers.values().filter(|value| value.is_sensitive()) {
        let value = value.as_bytes();
        secrets.push(credential(value).to_vec());
    }
    secrets.extend(user_secrets(url));
    let parameters = url.query_pairs().filter(|(name, _)| is_secret_parameter(name));
    secrets.extend(parameters.map(|(_, value)| value.into_owned().into_bytes()));
    secrets
}

/// Returns the credentials in the address of a server or a proxy: the password, as written and
/// decoded, and the forms in which a request has user and password.
pub(super) fn user_secrets(url: &Url) -> Vec<Vec<u8>> {
    let mut secrets = Vec::new();
    let (user, password) = (url.username(), url.password().unwrap_or_default());
    let decoded = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
    if !password.is_empty() {
        secrets.push(password.as_bytes().to_vec());
        secrets.push(decoded(password));
    }
    if !password.is_empty() || !user.is_empty() {
        // A URL with a user sends this encoded form in its `authorization` header.
        for (user, password) in [(user.into(), password.into()), (decoded(user), decoded(password))]
        {
            let basic: Vec<u8> = [user, vec![b':'], password].concat();
            secrets.push(base64::engine::general_purpose::STANDARD.encode(basic).into_bytes());
        }
    }
    secrets.dedup();
    secrets
}

/// Returns the credential part of a sensitive header. In a signed request that is the signature
/// only: the part before it has header names and a date, which also occur elsewhere.
fn credential(value: &[u8]) -> &[u8] {
    const SIGNATURE: &[u8] = b"Signature=";
    if value.starts_with(b"AWS4-HMAC-SHA256 ") {
        let at = value.windows(SIGNATURE.len()).position(|window| window == SIGNATURE);
        return at.map_or(value, |at| &value[at + SIGNATURE.len()..]);
    }
    value.strip_prefix(b"Bearer ").unwrap_or(value)
}

/// Records one call and writes it when it ends. If it is dropped earlier, the run aborted the call.
pub(super) struct Tap {
    recorder: Recorder,
    draft: Option<Draft>,
}

impl Tap {
    /// Updates the request's headers after its key was fetched.
    pub(super) fn keyed(&mut self, url: &Url, headers: &HeaderMap) {
        self.recorder.lock().hide(secrets(headers, url));
        if let Some(draft) = &mut self.draft {
            draft.sent = headers.clone();
        }
    }

    /// Records the status and headers of the response.
    pub(super) fn head(&mut self, status: u16, headers: &Headers) {
        if let Some(draft) = &mut self.draft {
            draft.status = status;
            draft.headers = headers.clone();
        }
    }

    /// Records more of the response's body.
    pub(super) fn chunk(&mut self, chunk: &[u8]) {
        if let Some(draft) = &mut self.draft {
            draft.body.extend_from_slice(chunk);
        }
    }

    /// Writes the exchange; `ended` tells how the response ended.
    pub(super) fn ended(mut self, ended: Ended) {
        self.write(ended, None);
    }

    /// Writes the exchange of a call that got no response.
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
