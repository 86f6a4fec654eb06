//! A provider over HTTP, or from a recording of one.
//!
//! ```text
//! let provider = HttpProvider::from_env(&options)?.record(&recorder)?;
//! ```

use super::super::login::Keys;
use super::super::network::{client, web_address};
use super::super::record::{Recorder, secrets};
use super::super::recording::Header;
use super::super::replay::RecordingReplay;
use super::super::sign::Signer;
use super::super::transport::Transport;
use super::error::HttpError;
use super::options::HttpOptions;
use super::target::{Requested, Target};
use endstop_core::Price;
use endstop_wire::catalog::models::ModelLimits;
use endstop_wire::dialect::Dialect;
use endstop_wire::redact::{KnownKeys, address};
use reqwest::Url;
use reqwest::header::HeaderMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

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
        let requested = Requested::of(options)?;
        let target = Target::resolve(options, requested, env)?;
        let (url, stream_url) = target.urls()?;
        let headers = target.headers()?;
        let dialect = target.dialect(&url)?;
        let keys = target.keys()?;
        target.check_cleartext(&url, &headers, keys.is_some())?;
        let signer = target.signer()?;
        let (price, limits) = target.catalogue();
        Ok(HttpProvider {
            transport: Transport::Network(client(&url).map_err(HttpError::Client)?),
            recorder: None,
            url,
            stream_url,
            headers,
            signer: signer.map(Arc::new),
            keys: keys.map(Arc::new),
            known: Arc::default(),
            dialect,
            name: target.resolved.provider.id,
            model: target.resolved.model,
            price: options.price.or(price),
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
    pub fn replay(replay: &RecordingReplay) -> Result<HttpProvider, HttpError> {
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
