//! The configuration of an HTTP provider: its model, its server and its key.
//!
//! ```text
//! let provider = HttpProvider::from_env(&options)?.record(&recorder)?;
//! ```

use super::super::login::Keys;
use super::super::network::{cleartext, client, web_address};
use super::super::record::{Recorder, secrets};
use super::super::recording::Header;
use super::super::replay::Replay;
use super::super::sign::Signer;
use super::super::transport::Transport;
use super::error::HttpError;
use endstop_core::Price;
use endstop_wire::catalog::models::{self, ModelLimits};
use endstop_wire::catalog::prices;
use endstop_wire::dialect::{self as wire_api, Dialect, WireFormat};
use endstop_wire::endpoint::{Overrides, ResolveError, Secret, resolve_with};
use endstop_wire::redact::{KnownKeys, address, secrets_out};
use reqwest::Url;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use std::fmt;
use std::sync::{Arc, OnceLock};

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
    pub(super) transport: Transport,
    pub(super) recorder: Option<Recorder>,
    pub(super) url: Url,
    /// The URL of streaming calls. In most formats it is the same as `url`.
    pub(super) stream_url: Url,
    pub(super) headers: HeaderMap,
    /// Signs each request, if the provider uses signatures instead of a key.
    pub(super) signer: Option<Arc<Signer>>,
    /// Fetches the key of each request, if none is configured.
    pub(super) keys: Option<Arc<Keys>>,
    /// The credentials as a redactor, built for the first run: every run needs it, and building its
    /// search tables takes longer than a turn's own work. Headers, URL and signer never change.
    pub(super) known: Arc<OnceLock<KnownKeys>>,
    pub(super) dialect: &'static Dialect,
    pub(super) name: &'static str,
    pub(super) model: String,
    pub(super) price: Option<Price>,
    pub(super) limits: ModelLimits,
    /// `true` if credentials may be sent to another machine over `http://`.
    pub(super) allow_http: bool,
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
    pub fn from_env(options: &HttpOptions) -> Result<HttpProvider, HttpError> {
        HttpProvider::new(options, &|name| std::env::var(name).ok())
    }

    /// Creates a provider with the variables of another environment than the process's.
    ///
    /// # Errors
    /// The same as [`from_env`](Self::from_env).
    pub fn new(
        options: &HttpOptions,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<HttpProvider, HttpError> {
        // The option names either a format or a server's dialect of one, for example `snowflake`. A
        // dialect applies only together with a custom base URL.
        let spoken = options.api.as_deref().and_then(|name| wire_api::dialect(name).ok());
        let api = match options.api.as_deref() {
            None => None,
            Some(name) => {
                let family = WireFormat::named(name).or(spoken.map(|dialect| dialect.family));
                Some(family.ok_or_else(|| {
                    let asked =
                        WireFormat::ALL.iter().filter(|family| family.read_only().is_none());
                    let choices: Vec<&str> = asked.map(|family| family.as_str()).collect();
                    let problem = endstop_core::limits::unknown_key(name, &choices);
                    HttpError::UnknownApi { name: name.to_owned(), problem }
                })?)
            }
        };
        if let Some(other) = api.and_then(WireFormat::read_only) {
            let name = options.api.as_deref().unwrap_or_default();
            let (name, instead) = (name.to_owned(), other.to_string());
            return Err(HttpError::ReadOnlyApi { name, instead });
        }
        // A bare model name with a custom base URL: a compatible server, in the requested format.
        let compatible = api.unwrap_or(WireFormat::OpenAiChat).provider();
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
        .map_err(HttpError::Resolve)?;

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
            HttpError::Address {
                setting: variable.unwrap_or("base URL (--base-url)").to_owned(),
                address: shown,
                problem,
            }
        })?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut set = |name: &str, value: &str, secret: bool| -> Result<(), HttpError> {
            let wrong = || HttpError::Header {
                name: name.to_owned(),
                variables: variables(resolved.provider, name).join(" or "),
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
        let dialect = resolved.dialect(own_address).map_err(HttpError::Dialect)?;
        let by_name = spoken.filter(|dialect| WireFormat::named(dialect.name).is_none());
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
            Some(login) => {
                let keys = Keys::new(login, resolved.provider.name);
                Some(Arc::new(keys.map_err(HttpError::Unsupported)?))
            }
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
            return Err(HttpError::Cleartext {
                provider: resolved.provider.name.to_owned(),
                host: url.host_str().unwrap_or_default().to_owned(),
                variables: variables(resolved.provider, "").join(" and "),
            });
        }
        let signer = match &resolved.signing {
            Some(keys) => {
                let signer = Signer::new(keys, resolved.provider.name);
                Some(Arc::new(signer.map_err(HttpError::Unsupported)?))
            }
            None => None,
        };
        Ok(HttpProvider {
            transport: Transport::Network(client(&url).map_err(HttpError::Client)?),
            recorder: None,
            url,
            stream_url,
            headers,
            signer,
            keys,
            known: Arc::default(),
            dialect,
            name: resolved.provider.id,
            model: resolved.model.clone(),
            price: options.price.or(info.map(|info| info.price)),
            limits: ModelLimits {
                context_window: options.context_window.or(limits.context_window),
                ..limits
            },
            allow_http: options.allow_http,
        })
    }

    /// Records every exchange with this recorder.
    ///
    /// # Errors
    /// The recorder already records another provider.
    pub fn record(mut self, recorder: &Recorder) -> Result<HttpProvider, HttpError> {
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
        if !recorder.attach(header, self.secrets()) {
            return Err(HttpError::RecorderInUse);
        }
        self.recorder = Some(recorder.clone());
        Ok(self)
    }

    /// Returns the credentials that are known before a call.
    pub(super) fn secrets(&self) -> Vec<Vec<u8>> {
        let mut secrets = secrets(&self.headers, &self.url);
        secrets.extend(self.signer.iter().flat_map(|signer| signer.secrets()));
        secrets
    }

    /// Creates a provider that answers from a recording. The model, the dialect and the price are
    /// those of the recording. It needs neither a network nor a key.
    ///
    /// # Errors
    /// The recording's header names an unknown provider or format.
    pub fn replay(replay: &Replay) -> Result<HttpProvider, HttpError> {
        let recording = replay.recording();
        let header = &recording.header;
        let provider = endstop_wire::catalog::providers::provider(&header.provider)
            .ok_or_else(|| format!("`provider`: `{}` is not known", header.provider))
            .map_err(HttpError::Recording)?;
        let place = |name: &str, url: &str| {
            web_address(url).map_err(|problem| HttpError::Recording(format!("`{name}`: {problem}")))
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
            known: Arc::default(),
            dialect: recording.dialect().map_err(HttpError::Recording)?,
            name: provider.id,
            model: header.model.clone(),
            price: header.price,
            limits: ModelLimits {
                context_window: header.context_window,
                max_output: header.max_output,
            },
            allow_http: true,
        })
    }
}

/// Returns the environment variables that determine a header's value.
fn variables(
    provider: &endstop_wire::catalog::providers::ProviderInfo,
    header: &str,
) -> Vec<&'static str> {
    let of_headers = provider.header_vars.iter().filter(|(name, _)| *name == header);
    let mut variables: Vec<&str> = of_headers.map(|(_, variable)| *variable).collect();
    if variables.is_empty() {
        variables.extend(provider.key_vars.iter().map(|variable| variable.name));
    }
    variables
}
