//! Providers over HTTP: any server that speaks a format of [`endstop_wire`].
//!
//! ```no_run
//! use endstop::provider::http::{HttpOptions, HttpProvider};
//! // The key from ANTHROPIC_API_KEY, as the provider's own SDK reads it.
//! let options = HttpOptions { model: "anthropic/claude-sonnet-4-5".into(), ..HttpOptions::default() };
//! let provider = HttpProvider::from_env(&options).unwrap();
//! ```

use super::login::Keys;
use super::record::{Recorder, Tap, secrets};
use super::recording::{Ended, Header};
use super::replay::Replay;
use super::sign::Signer;
use super::transport::{Body, Broke, Sending, Transport, shown};
use super::{
    CallEvent, CallSpec, CallStream, Provider, Response, Session, SessionSpec, ToolDefinition,
};
use crate::clock;
use bytes::Bytes;
use endstop_core::{
    ErrorClass, ModelError, ModelTurn, Part, Price, SignalReason, TerminationSignal, TurnDelta,
};
use endstop_wire::catalog::models::{self, ModelLimits};
use endstop_wire::catalog::prices;
use endstop_wire::codec::OutputSchema;
use endstop_wire::dialect::{self as wire_api, Dialect, Family};
use endstop_wire::endpoint::{Overrides, ResolveError, Secret, is_loopback, resolve_with};
use endstop_wire::redact::{KnownKeys, address, secrets_out};
use endstop_wire::{Delta, Encoder, Eof, RequestFacts, RequestSpec, StreamDecoder, ToolSpec};
use futures_core::Stream;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url};
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// How many bytes of a body are read before whoever else is on the thread has a turn: a body that
/// was packed is there at once, and may be endless, while stops and clocks wait.
const TURN_BYTES: usize = 256 << 10;

/// Which model, and where.
#[derive(Clone, Default)]
pub struct HttpOptions {
    /// `PROVIDER/MODEL`; with a base URL also a model's bare name.
    pub model: String,
    /// The wire format, if it is not the provider's first; with a base URL also a dialect of one.
    pub api: Option<String>,
    /// Another address than the provider's own.
    pub base_url: Option<String>,
    /// What the model costs, above the catalogue.
    pub price: Option<Price>,
    /// The context window in tokens, above the catalogue.
    pub context_window: Option<u64>,
    /// Whether a key may be sent to another machine over `http://`, where everyone on the way can
    /// read it (false).
    pub allow_http: bool,
}

impl fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpOptions")
            .field("model", &self.model)
            .field("api", &self.api)
            // It may have a password in it.
            .field("base_url", &self.base_url.as_deref().map(address))
            .field("price", &self.price)
            .field("context_window", &self.context_window)
            .field("allow_http", &self.allow_http)
            .finish()
    }
}

/// A provider over HTTP. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct HttpProvider {
    transport: Transport,
    recorder: Option<Recorder>,
    url: Url,
    /// Where a call that streams goes: the same place in most formats.
    stream_url: Url,
    headers: HeaderMap,
    /// Signs each request, where no key goes with it.
    signer: Option<Arc<Signer>>,
    /// Fetches the key of each request, where none is set.
    keys: Option<Arc<Keys>>,
    dialect: &'static Dialect,
    name: &'static str,
    model: String,
    price: Option<Price>,
    limits: ModelLimits,
}

impl fmt::Debug for HttpProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The headers hold the key, and the address may hold a password.
        f.debug_struct("HttpProvider")
            .field("provider", &self.name)
            .field("model", &self.model)
            .field("url", &address(self.url.as_str()))
            .finish_non_exhaustive()
    }
}

impl HttpProvider {
    /// A provider with the key and base-URL variables that its own SDK uses.
    ///
    /// # Errors
    /// An unknown provider or format (with the choices), a missing key (with its variable), an
    /// invalid address, a key that would be sent to another machine over `http://` without
    /// [`HttpOptions::allow_http`].
    pub fn from_env(options: &HttpOptions) -> Result<HttpProvider, String> {
        HttpProvider::new(options, &|name| std::env::var(name).ok())
    }

    /// As [`from_env`](Self::from_env), with another environment.
    ///
    /// # Errors
    /// As [`from_env`](Self::from_env).
    pub fn new(
        options: &HttpOptions,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<HttpProvider, String> {
        // A format, or a server's way of speaking one (`snowflake`), which holds at an address of one's
        // own.
        let spoken = options.api.as_deref().and_then(|name| wire_api::dialect(name).ok());
        let api = match options.api.as_deref() {
            None => None,
            Some(name) => {
                let family = Family::named(name).or(spoken.map(|dialect| dialect.family));
                Some(family.ok_or_else(|| {
                    let asked = Family::ALL.iter().filter(|family| family.read_only().is_none());
                    let choices: Vec<&str> = asked.map(|family| family.as_str()).collect();
                    format!("api `{name}`: {}", endstop_core::limits::unknown_key(name, &choices))
                })?)
            }
        };
        if let Some(other) = api.and_then(Family::read_only) {
            let name = options.api.as_deref().unwrap_or_default();
            return Err(format!(
                "api `{name}` is only read, by `endstop detect`, and cannot be asked; use {other}"
            ));
        }
        // A bare name at an address of one's own: a compatible server, in the format asked for.
        let compatible = api.unwrap_or(Family::OpenAiChat).provider();
        let own_address = options.base_url.is_some();
        let known = options
            .model
            .split_once('/')
            .is_some_and(|(name, _)| endstop_wire::catalog::providers::provider(name).is_some());
        let spec = if own_address && !known {
            format!("{compatible}/{}", options.model)
        } else {
            options.model.clone()
        };
        let mut overrides = Overrides { api, base_url: options.base_url.clone(), key: None };
        let mut keyless = false;
        let resolved = match resolve_with(&spec, &overrides, env) {
            // A server of one's own may want no key.
            Err(ResolveError::MissingKey { .. }) if own_address => {
                keyless = true;
                overrides.key = Some(Secret::new("none"));
                resolve_with(&spec, &overrides, env)
            }
            other => other,
        }
        .map_err(|error| error.to_string())?;

        // The base by itself: what is appended could give it the host that it lacks.
        let parsed = web_address(&resolved.base_url).and_then(|base| {
            if base.fragment().is_some() {
                // The path would be appended to it and never be sent.
                return Err("it has a fragment, which is never sent (`#`)".to_owned());
            }
            Ok((web_address(&resolved.url())?, web_address(&resolved.stream_url())?))
        });
        let (url, stream_url) = parsed.map_err(|problem: String| {
            let of_place = resolved.place.as_ref().map(|place| place.vars.base_url);
            let variable = of_place.or(resolved.provider.base_url_var).filter(|_| !own_address);
            // A password stands before the `@`.
            let shown = secrets_out(resolved.base_url.rsplit('@').next().unwrap_or_default());
            format!(
                "{} is `{shown}`: {problem}; it wants http://HOST[:PORT][/PATH] or https://…",
                variable.unwrap_or("the base URL (--base-url)")
            )
        })?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut set = |name: &str, value: &str, secret: bool| -> Result<(), String> {
            let wrong = || {
                format!(
                    "the header `{name}` cannot be sent: its value has characters that no header has, such as a line break; look at {}",
                    variables(resolved.provider, name).join(" or ")
                )
            };
            let mut header = HeaderValue::from_str(value).map_err(|_| wrong())?;
            header.set_sensitive(secret);
            headers.insert(HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?, header);
            Ok(())
        };
        for (name, value) in &resolved.headers {
            set(name, value, false)?;
        }
        if let Some((name, key)) = resolved.auth_header().filter(|_| !keyless) {
            set(name, key.expose(), true)?;
        }
        // Only the provider itself wants its own dialect; what is compatible speaks the plain one.
        let dialect = resolved.dialect(own_address).map_err(|error| error.to_string())?;
        let by_name = spoken.filter(|dialect| Family::named(dialect.name).is_none());
        let by_host = url.host_str().and_then(|host| wire_api::dialect_at(host, dialect.family));
        let dialect = by_name.or(by_host).filter(|_| own_address).unwrap_or(dialect);
        // At an address of one's own the tables mean nothing.
        let (info, limits) = if own_address {
            (None, ModelLimits::default())
        } else {
            let (provider, model) = (resolved.provider.id, resolved.model.as_str());
            (prices::lookup(provider, model), models::limits(provider, model))
        };
        let keys = match &resolved.login {
            Some(login) => Some(Arc::new(Keys::new(login, resolved.provider.name)?)),
            None => None,
        };
        if cleartext(&url, options.allow_http)
            && (headers.values().any(HeaderValue::is_sensitive)
                || resolved.signing.is_some()
                || keys.is_some()
                || address(url.as_str()) != url.as_str())
        {
            let unset = match variables(resolved.provider, "").join(" and ") {
                none if none.is_empty() => none,
                variables => format!(" unset {variables},"),
            };
            return Err(format!(
                "the key of {} would be sent unencrypted to `{}`, because the address begins with http://: use https://,{unset} or allow it with --allow-http (`HttpOptions::allow_http` in code)",
                resolved.provider.name,
                url.host_str().unwrap_or_default(),
            ));
        }
        Ok(HttpProvider {
            transport: Transport::Network(client(&url)?),
            recorder: None,
            url,
            stream_url,
            headers,
            signer: resolved.signing.as_ref().map(|keys| Arc::new(Signer::new(keys))),
            keys,
            dialect,
            name: resolved.provider.id,
            model: resolved.model.clone(),
            price: options.price.or(info.map(|info| info.price)),
            limits: ModelLimits {
                context_window: options.context_window.or(limits.context_window),
                ..limits
            },
        })
    }

    /// Keeps every exchange with this recorder.
    ///
    /// # Errors
    /// The recorder already keeps the calls of another provider.
    pub fn record(mut self, recorder: &Recorder) -> Result<HttpProvider, String> {
        let url = address(self.url.as_str());
        let header = Header {
            provider: self.name.to_owned(),
            model: self.model.clone(),
            api: self.dialect.name.to_owned(),
            stream_url: Some(address(self.stream_url.as_str())).filter(|stream| *stream != url),
            url,
            price: self.price,
            context_window: self.limits.context_window,
            max_output: self.limits.max_output,
            task: None,
        };
        recorder.attach(header, self.secrets())?;
        self.recorder = Some(recorder.clone());
        Ok(self)
    }

    /// The keys that are known before a call.
    fn secrets(&self) -> Vec<Vec<u8>> {
        let mut secrets = secrets(&self.headers, &self.url);
        secrets.extend(self.signer.iter().flat_map(|signer| signer.secrets()));
        secrets
    }

    /// A provider that answers from a recording: model, dialect and price are those of the file. It
    /// needs no network and no key.
    ///
    /// # Errors
    /// A header that names what is not known.
    pub fn replay(replay: &Replay) -> Result<HttpProvider, String> {
        let recording = replay.recording();
        let header = &recording.header;
        let provider = endstop_wire::catalog::providers::provider(&header.provider)
            .ok_or_else(|| format!("`provider`: `{}` is not known", header.provider))?;
        let place = |name: &str, url: &str| {
            web_address(url).map_err(|problem| format!("`{name}`: {problem}"))
        };
        let url = place("url", &header.url)?;
        let stream_url = match &header.stream_url {
            Some(stream) => place("stream_url", stream)?,
            None => url.clone(),
        };
        Ok(HttpProvider {
            transport: Transport::Recording(replay.clone()),
            recorder: None,
            url,
            stream_url,
            headers: HeaderMap::new(),
            signer: None,
            keys: None,
            dialect: recording.dialect()?,
            name: provider.id,
            model: header.model.clone(),
            price: header.price,
            limits: ModelLimits {
                context_window: header.context_window,
                max_output: header.max_output,
            },
        })
    }
}

/// An address that can be called.
pub(super) fn web_address(address: &str) -> Result<Url, String> {
    let url = Url::parse(address).map_err(|error| error.to_string())?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        // `localhost:8080` parses, as a path of the scheme `localhost`.
        other => Err(format!("`{other}:` is not http or https")),
    }
}

/// The variables that a header's value comes from.
fn variables(
    provider: &endstop_wire::catalog::providers::Provider,
    header: &str,
) -> Vec<&'static str> {
    let of_headers = provider.header_vars.iter().filter(|(name, _)| *name == header);
    let mut variables: Vec<&str> = of_headers.map(|(_, variable)| *variable).collect();
    if variables.is_empty() {
        variables.extend(provider.key_vars.iter().map(|variable| variable.name));
    }
    variables
}

/// Whether what is sent to this address can be read on the way to another machine.
pub(crate) fn cleartext(url: &Url, allowed: bool) -> bool {
    url.scheme() == "http" && !allowed && !url.host_str().is_some_and(is_loopback)
}

/// A client for this address. Certificates are only loaded where they are needed; requests to this
/// machine use no proxy, because a proxy elsewhere cannot reach it and must not see them.
pub(crate) fn client(url: &Url) -> Result<Client, String> {
    let mut builder = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .user_agent(concat!("endstop/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none());
    if url.scheme() == "http" {
        builder = builder.tls_certs_only([]).http1_only();
    }
    if url.host_str().is_some_and(is_loopback) {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| format!("the HTTP client could not be made: {error}"))
}

impl Provider for HttpProvider {
    fn name(&self) -> &str {
        self.name
    }
    fn model(&self) -> &str {
        &self.model
    }
    fn open(&self, spec: SessionSpec) -> Box<dyn Session> {
        let request = RequestSpec {
            model: self.model.clone(),
            system: spec.system,
            tools: spec.tools.into_iter().map(tool).collect(),
            output_schema: spec
                .output_schema
                .map(|schema| OutputSchema { name: "answer".to_owned(), schema }),
            // Where a format wants a cap in each request, the model's own.
            max_output_tokens: self.limits.max_output.filter(|_| self.dialect.wants_cap()),
            context_window: spec.context_window,
            stream: spec.streaming,
            ..RequestSpec::default()
        };
        Box::new(HttpSession {
            encoder: Encoder::new(self.dialect, &request),
            request,
            provider: self.clone(),
        })
    }
    fn is_terminal(&self, response: &Response) -> bool {
        response.signal.as_ref().is_some_and(|signal| signal.should_terminate)
    }
    fn detect_termination(&self, response: &Response) -> Option<TerminationSignal> {
        response.signal.clone()
    }
    fn context_window(&self) -> Option<u64> {
        self.limits.context_window
    }
    fn max_output(&self) -> Option<u64> {
        self.limits.max_output
    }
    fn server(&self) -> Option<(&str, u16)> {
        // A recording is asked by nobody over a network.
        let Transport::Network(_) = &self.transport else { return None };
        Some((self.url.host_str()?, self.url.port_or_known_default()?))
    }
    fn price(&self) -> Option<Price> {
        self.price
    }
    fn known_keys(&self) -> KnownKeys {
        KnownKeys::new(self.secrets())
    }
}

fn tool(tool: ToolDefinition) -> ToolSpec {
    ToolSpec { name: tool.name, description: tool.description, parameters: tool.schema }
}

struct HttpSession {
    provider: HttpProvider,
    request: RequestSpec,
    encoder: Encoder,
}

impl Session for HttpSession {
    fn call(&mut self, call: CallSpec<'_>) -> CallStream {
        let body = self.encoder.body(call.messages, call.epoch, call.output_cap);
        let provider = &self.provider;
        let url = if self.request.stream { &provider.stream_url } else { &provider.url };
        let mut headers = provider.headers.clone();
        let signed = match &provider.signer {
            Some(signer) => signer.headers(url, &headers, body, clock::now()),
            None => Ok(HeaderMap::new()),
        };
        let body = Bytes::copy_from_slice(body);
        if let Ok(more) = &signed {
            headers.extend(more.clone());
        }
        let recorder = provider.recorder.as_ref();
        let tap = recorder.map(|recorder| recorder.call(url, &headers, body.clone()));
        let mut call = HttpCall {
            state: State::Done,
            tap: tap.map(Box::new),
            dialect: provider.dialect,
            asked: format!("POST {}, model `{}`", shown(url), secrets_out(&provider.model)),
            facts: self.request.facts(call.output_cap),
            ready: VecDeque::new(),
            read: 0,
        };
        match signed {
            Ok(_) => call.state = Unsent { url: url.clone(), headers, body }.start(provider),
            Err(problem) => call.fail(ModelError::new(ErrorClass::InvalidRequest, problem)),
        }
        Box::pin(call)
    }
}

/// A request that may have to wait for its key.
struct Unsent {
    url: Url,
    headers: HeaderMap,
    body: Bytes,
}

impl Unsent {
    fn start(self, provider: &HttpProvider) -> State {
        let Some(keys) = provider.keys.clone() else {
            return State::Sending(provider.transport.send(&self.url, self.headers, self.body));
        };
        let key = Box::pin(async move { keys.header().await });
        State::Asking { key, request: self, transport: provider.transport.clone() }
    }
}

type Key = Pin<Box<dyn Future<Output = Result<HeaderValue, ModelError>> + Send>>;

enum State {
    /// The key is being fetched.
    Asking {
        key: Key,
        request: Unsent,
        transport: Transport,
    },
    Sending(Sending),
    Reading(Body, Box<StreamDecoder>),
    Done,
}

/// A call under way; dropping it closes the connection.
struct HttpCall {
    state: State,
    /// Where the call is recorded.
    tap: Option<Box<Tap>>,
    dialect: &'static Dialect,
    /// What was asked of which address, for an error that is about the two.
    asked: String,
    facts: RequestFacts,
    ready: VecDeque<CallEvent>,
    /// Bytes that were read since somebody else had a turn.
    read: usize,
}

impl HttpCall {
    /// There will be no response.
    fn fail(&mut self, error: ModelError) {
        self.state = State::Done;
        if let Some(tap) = self.tap.take() {
            tap.failed(&error);
        }
        self.ready.push_back(CallEvent::Failed(error, None));
    }
}

impl Stream for HttpCall {
    type Item = CallEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<CallEvent>> {
        let this = self.get_mut();
        loop {
            if let Some(event) = this.ready.pop_front() {
                return Poll::Ready(Some(event));
            }
            match &mut this.state {
                State::Done => return Poll::Ready(None),
                State::Asking { key, request, transport } => match ready!(key.as_mut().poll(cx)) {
                    Ok(key) => {
                        request.headers.insert(AUTHORIZATION, key);
                        if let Some(tap) = &mut this.tap {
                            tap.keyed(&request.url, &request.headers);
                        }
                        let body = request.body.clone();
                        let headers = std::mem::take(&mut request.headers);
                        let sending = transport.send(&request.url, headers, body);
                        this.state = State::Sending(sending);
                    }
                    Err(error) => this.fail(error),
                },
                State::Sending(sending) => match ready!(sending.poll(cx)) {
                    Ok(head) => {
                        if let Some(tap) = &mut this.tap {
                            tap.head(head.status, &head.headers);
                        }
                        let decoder =
                            StreamDecoder::new(this.dialect, head.status, head.headers, this.facts);
                        this.state = State::Reading(head.body, Box::new(decoder));
                    }
                    Err(error) => this.fail(error),
                },
                State::Reading(body, decoder) => {
                    if this.read >= TURN_BYTES {
                        this.read = 0;
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    let Poll::Ready(next) = body.poll_next(cx) else {
                        this.read = 0;
                        return Poll::Pending;
                    };
                    let eof = match next {
                        Some(Ok(chunk)) => {
                            this.read += chunk.len();
                            if let Some(tap) = &mut this.tap {
                                tap.chunk(&chunk);
                            }
                            let mut deltas = Deltas::default();
                            let pushed = decoder.push(&chunk, &mut |delta| deltas.take(delta));
                            this.ready.extend(deltas.done.into_iter().map(CallEvent::Delta));
                            match pushed {
                                // The protocol's end was seen: what the server does with the
                                // connection after it is no longer of interest.
                                Ok(()) if !decoder.is_complete() => continue,
                                _ => Eof::Clean,
                            }
                        }
                        Some(Err(Broke)) => Eof::Reset,
                        None => Eof::Clean,
                    };
                    if let Some(tap) = this.tap.take() {
                        tap.ended(match eof {
                            Eof::Clean => Ended::Clean,
                            Eof::Reset => Ended::Reset,
                        });
                    }
                    if let State::Reading(_, decoder) =
                        std::mem::replace(&mut this.state, State::Done)
                    {
                        let mut decoded = decoder.finish(eof);
                        if let Some(error) = &mut decoded.error {
                            name_address(error, &this.asked);
                        }
                        this.ready.push_back(ended(decoded, this.dialect));
                    }
                }
            }
        }
    }
}

/// Adds what was asked to an error that says that it is not there: the address may be wrong, or the
/// model's name.
fn name_address(error: &mut ModelError, asked: &str) {
    let Some(status) = error.status else { return };
    let elsewhere = matches!(status, 300..400 | 404 | 405 | 410 | 501);
    if elsewhere || error.class == ErrorClass::NotFound {
        error.message = format!("{} (HTTP {status} for {asked})", error.message);
    }
}

/// The deltas of one read, neighbours of a kind joined.
#[derive(Default)]
struct Deltas {
    done: Vec<TurnDelta>,
}

impl Deltas {
    fn take(&mut self, delta: Delta<'_>) {
        let count = |text: &str| text.chars().count() as u64;
        match (delta, self.done.last_mut()) {
            (Delta::Text(text), Some(TurnDelta::Text(so_far))) => so_far.push_str(text),
            (Delta::Text(text), _) => self.done.push(TurnDelta::Text(text.to_owned())),
            (Delta::Reasoning(text) | Delta::Refusal(text), Some(TurnDelta::Reasoning(n))) => {
                *n += count(text);
            }
            (Delta::Reasoning(text) | Delta::Refusal(text), _) => {
                self.done.push(TurnDelta::Reasoning(count(text)));
            }
            (Delta::ToolArguments { json, .. }, Some(TurnDelta::ToolArguments(n))) => {
                *n += count(json);
            }
            (Delta::ToolArguments { json, .. }, _) => {
                self.done.push(TurnDelta::ToolArguments(count(json)));
            }
            (Delta::ToolCallStarted { name, .. }, _) => {
                self.done.push(TurnDelta::ToolArguments(count(name)));
            }
            _ => {}
        }
    }
}

fn ended(decoded: endstop_wire::Decoded, dialect: &Dialect) -> CallEvent {
    let signal = decoded.signal;
    match (decoded.error, decoded.turn) {
        (Some(error), mut turn) => {
            // These count the output at the beginning of a stream, with a few tokens, and at its end.
            // The count of one that was cut is not what it used.
            let early = matches!(dialect.family, Family::Anthropic | Family::BedrockInvoke);
            let raw = &signal.provider_specific;
            let ended = raw.original_field == "stop_reason" && !raw.original_value.is_empty();
            if let Some(turn) = turn.as_mut().filter(|_| early && !ended) {
                turn.usage.output_tokens = None;
            }
            CallEvent::Failed(error, turn.map(|turn| Box::new(response(turn, signal))))
        }
        (None, Some(turn)) => CallEvent::Ended(Box::new(response(turn, signal))),
        (None, None) => CallEvent::Failed(
            ModelError::new(ErrorClass::IncompleteStream, "the response has no turn in it"),
            None,
        ),
    }
}

fn response(turn: ModelTurn, signal: TerminationSignal) -> Response {
    debug_assert!(signal.reason != SignalReason::InProgress || !signal.should_terminate);
    let parts: Vec<Part> = turn.parts;
    Response {
        parts,
        usage: turn.usage,
        model: turn.model,
        id: turn.response_id,
        cost: turn.cost,
        output_cap: turn.output_cap,
        confidence: turn.confidence,
        metadata: serde_json::Map::new(),
        signal: Some(signal),
        unparseable: turn.unparseable,
        finish_missing: turn.finish_missing,
        call_missing: turn.call_missing,
    }
}
