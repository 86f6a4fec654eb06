//! Providers over HTTP: clients of any server that uses a wire format of [`endstop_wire`].
//!
//! ```no_run
//! use endstop::provider::http::{HttpOptions, HttpProvider};
//! // Reads the key from ANTHROPIC_API_KEY, like the provider's own SDK.
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

/// Time limit for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Bytes of a body that are read before other tasks on the thread get a turn. A buffered or
/// compressed body is available at once and may be endless, and stops and timers must not wait for
/// it.
const TURN_BYTES: usize = 256 << 10;

/// The model and its server.
#[derive(Clone, Default)]
pub struct HttpOptions {
    /// `PROVIDER/MODEL`; with a base URL also the bare name of a model.
    pub model: String,
    /// The wire format, if it is not the provider's default. With a base URL also a dialect of a
    /// format.
    pub api: Option<String>,
    /// An address that replaces the provider's.
    pub base_url: Option<String>,
    /// The model's price; overrides the built-in table.
    pub price: Option<Price>,
    /// The model's context window in tokens; overrides the built-in table.
    pub context_window: Option<u64>,
    /// `true` to allow sending a key to another machine over `http://`, which anyone on the network
    /// path can read (default: `false`).
    pub allow_http: bool,
}

impl fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpOptions")
            .field("model", &self.model)
            .field("api", &self.api)
            // The URL may contain a password.
            .field("base_url", &self.base_url.as_deref().map(address))
            .field("price", &self.price)
            .field("context_window", &self.context_window)
            .field("allow_http", &self.allow_http)
            .finish()
    }
}

/// A provider over HTTP. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct HttpProvider {
    transport: Transport,
    recorder: Option<Recorder>,
    url: Url,
    /// The URL of streaming calls. In most formats it is the same as `url`.
    stream_url: Url,
    headers: HeaderMap,
    /// Signs each request, if the provider uses signatures instead of a key.
    signer: Option<Arc<Signer>>,
    /// Fetches the key of each request, if none is configured.
    keys: Option<Arc<Keys>>,
    dialect: &'static Dialect,
    name: &'static str,
    model: String,
    price: Option<Price>,
    limits: ModelLimits,
}

impl fmt::Debug for HttpProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Omit the headers, which contain the key; the address may contain a password.
        f.debug_struct("HttpProvider")
            .field("provider", &self.name)
            .field("model", &self.model)
            .field("url", &address(self.url.as_str()))
            .finish_non_exhaustive()
    }
}

impl HttpProvider {
    /// Creates a provider from the same key and base-URL variables that its own SDK reads.
    ///
    /// # Errors
    /// The provider or format is unknown (the message lists the choices); a key is missing (the
    /// message names its variable); an address is invalid; or a key would be sent to another
    /// machine over `http://` without [`HttpOptions::allow_http`].
    pub fn from_env(options: &HttpOptions) -> Result<HttpProvider, String> {
        HttpProvider::new(options, &|name| std::env::var(name).ok())
    }

    /// Creates a provider with the variables of another environment than the process's.
    ///
    /// # Errors
    /// The same as [`from_env`](Self::from_env).
    pub fn new(
        options: &HttpOptions,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<HttpProvider, String> {
        // The option names either a format or a server's dialect of one, for example `snowflake`. A
        // dialect applies only together with a custom base URL.
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
                "the format `{name}` can be decoded by `endstop detect`, but not sent; use {other}"
            ));
        }
        // A bare model name with a custom base URL: a compatible server, in the requested format.
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
            // A custom server may not require a key.
            Err(ResolveError::MissingKey { .. }) if own_address => {
                // Resolution requires some key. This placeholder is never sent; see `keyless`
                // below.
                keyless = true;
                overrides.key = Some(Secret::new("none"));
                resolve_with(&spec, &overrides, env)
            }
            other => other,
        }
        .map_err(|error| error.to_string())?;

        // Check the base before the path is appended, because the appended part could supply the
        // host that the base lacks.
        let parsed = web_address(&resolved.base_url).and_then(|base| {
            if base.fragment().is_some() {
                // The path would be appended to the fragment, so it would never be sent.
                return Err("it has a fragment, which is never sent (`#`)".to_owned());
            }
            Ok((web_address(&resolved.url())?, web_address(&resolved.stream_url())?))
        });
        let (url, stream_url) = parsed.map_err(|problem: String| {
            let of_place = resolved.place.as_ref().map(|place| place.vars.base_url);
            let variable = of_place.or(resolved.provider.base_url_var).filter(|_| !own_address);
            // Show only the part after the `@`: the part before it may contain a password.
            let shown = secrets_out(resolved.base_url.rsplit('@').next().unwrap_or_default());
            format!(
                "invalid {} `{shown}`: {problem}; expected http://HOST[:PORT][/PATH] or https://…",
                variable.unwrap_or("base URL (--base-url)")
            )
        })?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut set = |name: &str, value: &str, secret: bool| -> Result<(), String> {
            let wrong = || {
                format!(
                    "the header `{name}` cannot be sent: its value contains a character that is not allowed in a header, such as a line break; look at {}",
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
        // Only the provider's own server uses its dialect. Compatible servers use the plain format,
        // unless the option or the host name selects a dialect.
        let dialect = resolved.dialect(own_address).map_err(|error| error.to_string())?;
        let by_name = spoken.filter(|dialect| Family::named(dialect.name).is_none());
        let by_host = url.host_str().and_then(|host| wire_api::dialect_at(host, dialect.family));
        let dialect = by_name.or(by_host).filter(|_| own_address).unwrap_or(dialect);
        // The price and limit tables describe the provider's models, not those of a custom server.
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
        // Cleartext is refused only if there is a secret to protect: a key, a signature or a
        // password in the URL. A local server without a key stays usable over http.
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

    /// Records every exchange with this recorder.
    ///
    /// # Errors
    /// The recorder already records another provider.
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

    /// Returns the credentials that are known before a call.
    fn secrets(&self) -> Vec<Vec<u8>> {
        let mut secrets = secrets(&self.headers, &self.url);
        secrets.extend(self.signer.iter().flat_map(|signer| signer.secrets()));
        secrets
    }

    /// Creates a provider that answers from a recording. The model, the dialect and the price are
    /// those of the recording. It needs neither a network nor a key.
    ///
    /// # Errors
    /// The recording's header names an unknown provider or format.
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

/// Parses a URL and checks that its scheme is http or https.
pub(super) fn web_address(address: &str) -> Result<Url, String> {
    let url = Url::parse(address).map_err(|error| error.to_string())?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        // `localhost:8080` parses as a path with the scheme `localhost`.
        other => Err(format!("`{other}:` is not http or https")),
    }
}

/// Returns the environment variables that determine a header's value.
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

/// `true` if data sent to this address could be read on the way to another machine.
pub(crate) fn cleartext(url: &Url, allowed: bool) -> bool {
    url.scheme() == "http" && !allowed && !url.host_str().is_some_and(is_loopback)
}

/// Creates a client for this address. Certificates are loaded only for https. Requests to this
/// machine bypass proxies, because a remote proxy could not reach it and must not see the data.
pub(crate) fn client(url: &Url) -> Result<Client, String> {
    let mut builder = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        // A redirect could lead the key to another host.
        .user_agent(concat!("endstop/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none());
    if url.scheme() == "http" {
        // Loading the system's certificates takes time, and cleartext does not need them.
        builder = builder.tls_certs_only([]).http1_only();
    }
    if url.host_str().is_some_and(is_loopback) {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| format!("the HTTP client could not be created: {error}"))
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
            // Some formats require a cap in each request; send the model's maximum.
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
        // A recording is replayed without a server.
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
        // The signature covers the body, so every request is signed separately.
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

/// A call in progress; dropping it closes the connection.
struct HttpCall {
    state: State,
    /// The recorder of this call, if it is recorded.
    tap: Option<Box<Tap>>,
    dialect: &'static Dialect,
    /// The method, URL and model, for errors about them.
    asked: String,
    facts: RequestFacts,
    ready: VecDeque<CallEvent>,
    /// Bytes read since other tasks had a turn.
    read: usize,
}

impl HttpCall {
    /// Ends the call without a response.
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
                        // The recorder must know the fetched key before anything of this request is
                        // written.
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
                        // Wake the task at once: there may be more data, and no new I/O event
                        // announces it.
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
                                // The decoder has seen the end of the message. Ignore the rest of
                                // the connection: some servers keep it open, and waiting would
                                // delay the turn.
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

/// Appends the request's URL and model to an error that means "not found", because either the
/// address or the model name may be wrong.
fn name_address(error: &mut ModelError, asked: &str) {
    let Some(status) = error.status else { return };
    let elsewhere = matches!(status, 300..400 | 404 | 405 | 410 | 501);
    if elsewhere || error.class == ErrorClass::NotFound {
        error.message = format!("{} (HTTP {status} for {asked})", error.message);
    }
}

/// The deltas of one read. Consecutive deltas of the same kind are merged.
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
                // Refusals count as reasoning here; the finished turn has their text.
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
            // These formats report the output count twice: a preliminary value at the start of the
            // stream and the final one at its end. The preliminary count of a truncated stream must
            // not be charged as usage.
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
