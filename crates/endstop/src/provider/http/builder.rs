//! The builder of an HTTP provider: the model, its key, and the connection to its server.
//!
//! ```
//! use endstop::provider::http::HttpProvider;
//! use std::time::Duration;
//! # fn build() -> Result<(), endstop::provider::http::HttpError> {
//! let provider = HttpProvider::builder("anthropic/claude-sonnet-4-5")
//!     .api_key("sk-ant-secret") // without it: ANTHROPIC_API_KEY
//!     .header("anthropic-beta", "context-1m-2025-08-07")
//!     .user_agent("my-service/1.2")
//!     .connect_timeout(Duration::from_secs(5))
//!     .build()?;
//! # Ok(()) }
//! # build().unwrap();
//! ```

use super::super::network::{AddressError, Connection, cleartext, client, web_address};
use super::super::transport::{Address, Transport, completed};
use super::error::HttpError;
use super::headers::{HeaderError, Own};
use super::prepared::Prepared;
use super::provider::HttpProvider;
use super::target::{Options, Requested, Target};
use endstop_core::Price;
use endstop_http::{Certificates, Client};
use endstop_wire::catalog::models::ModelLimits;
use endstop_wire::catalog::prices::catalogue_price;
use endstop_wire::endpoint::Secret;
use endstop_wire::redact::secrets_out;
use http::header::{HeaderMap, HeaderValue, USER_AGENT};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use url::Url;

type Lookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// A builder of an [`HttpProvider`], made by [`HttpProvider::builder`].
///
/// Values that it is not given come from the environment variables that the provider's own SDK
/// reads. Neither `Debug` nor an error shows a key, the value of a header, or a password.
#[derive(Clone, Default)]
#[must_use = "a builder does nothing until `build`"]
pub struct HttpProviderBuilder {
    options: Options,
    api_key: Option<Secret>,
    headers: Vec<(String, Secret)>,
    user_agent: Option<String>,
    /// May contain a password.
    proxy: Option<Secret>,
    no_proxy: bool,
    authorities: Vec<Vec<u8>>,
    client: Option<Client>,
    connect_timeout: Option<Duration>,
    env: Option<Lookup>,
}

impl fmt::Debug for HttpProviderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.headers.iter().map(|(name, _)| secrets_out(name)).collect();
        let proxy = self.proxy.as_ref().map(|proxy| without_user(proxy.expose()));
        f.debug_struct("HttpProviderBuilder")
            .field("options", &self.options)
            .field("api_key", &self.api_key)
            .field("headers", &names)
            .field("user_agent", &self.user_agent)
            .field("proxy", &proxy)
            .field("no_proxy", &self.no_proxy)
            .field("ca_certificates", &self.authorities.len())
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}

impl HttpProvider {
    /// Creates a builder for this model: `PROVIDER/MODEL`, or with a
    /// [base URL](HttpProviderBuilder::base_url) also the bare name of a model, whose format is OpenAI's
    /// chat completions if [`api`](HttpProviderBuilder::api) names no other.
    ///
    /// ```
    /// use endstop::provider::http::HttpProvider;
    /// let provider = HttpProvider::builder("openai/gpt-4.1-mini").api_key("sk-secret").build()?;
    /// assert!(!format!("{provider:?}").contains("sk-secret"));
    /// # Ok::<(), endstop::provider::http::HttpError>(())
    /// ```
    pub fn builder(model: impl Into<String>) -> HttpProviderBuilder {
        let options = Options { model: model.into(), ..Options::default() };
        HttpProviderBuilder { options, ..HttpProviderBuilder::default() }
    }
}

impl HttpProviderBuilder {
    /// Sets the wire format, if it is not the provider's default. With a
    /// [base URL](Self::base_url) also a dialect of a format.
    pub fn api(mut self, api: impl Into<String>) -> Self {
        self.options.api = Some(api.into());
        self
    }

    /// Sets an address that replaces the provider's. Another server may have other prices, so the
    /// built-in table does not apply to it: with a cost ceiling, set the [price](Self::price).
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.options.base_url = Some(url.into());
        self
    }

    /// Sets the key, which is sent in the provider's own header. It takes precedence over the
    /// environment. White space around it is removed.
    pub fn api_key(mut self, key: impl Into<Secret>) -> Self {
        self.api_key = Some(key.into());
        self
    }

    /// Adds a header to each request. Its value is treated as a secret. The name must not repeat,
    /// and must not be one that the provider or the HTTP client sets.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the `User-Agent` header (default: `endstop/` and the version).
    pub fn user_agent(mut self, name: impl Into<String>) -> Self {
        self.user_agent = Some(name.into());
        self
    }

    /// Sets the proxy of all requests, as `http://[USER:PASSWORD@]HOST[:PORT]` or `https://…`. It
    /// replaces the proxies of the environment, and `NO_PROXY` does not apply to it.
    ///
    /// Requests to this machine use it only if it runs on this machine, too: another machine could
    /// not reach the server, and must not see the requests.
    pub fn proxy(mut self, url: impl Into<Secret>) -> Self {
        self.proxy = Some(url.into());
        self
    }

    /// Uses no proxy, not even one that the environment names.
    pub fn no_proxy(mut self) -> Self {
        self.no_proxy = true;
        self
    }

    /// Trusts the authorities of this PEM text, in addition to those of the system. May be called
    /// again for more.
    pub fn ca_certificate(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.authorities.push(pem.as_ref().to_vec());
        self
    }

    /// Sends requests with this client instead of a new one, to share its connections. Providers
    /// that are created with the same client open fewer connections to the same server.
    ///
    /// ```
    /// use endstop::provider::http::{Client, HttpProvider};
    /// # fn build() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = Client::builder().no_proxy().build()?;
    /// let large = HttpProvider::builder("openai/gpt-4.1").api_key("k").client(client.clone());
    /// let small = HttpProvider::builder("openai/gpt-4.1-mini").api_key("k").client(client);
    /// # let _ = (large.build()?, small.build()?);
    /// # Ok(()) }
    /// # build().unwrap();
    /// ```
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// Sets the time limit for establishing a connection, TLS included (default: 15 s). The times
    /// of a call are [`Limits`](crate::Limits): `turn_timeout` and `stall_timeout`.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = Some(limit);
        self
    }

    /// Sets the model's price; overrides the built-in table.
    pub fn price(mut self, price: Price) -> Self {
        self.options.price = Some(price);
        self
    }

    /// Sets the model's context window in tokens; overrides the built-in table.
    pub fn context_window(mut self, tokens: u64) -> Self {
        self.options.context_window = Some(tokens);
        self
    }

    /// Sets if credentials may be sent to another machine over `http://`, which anyone on the network
    /// path can read (default: `false`).
    pub fn allow_http(mut self, allow: bool) -> Self {
        self.options.allow_http = allow;
        self
    }

    /// Looks variables up with this function instead of the process's environment. `|_| None` uses
    /// no variables at all. It does not affect the proxies of the environment; see
    /// [`no_proxy`](Self::no_proxy).
    pub fn env(mut self, lookup: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        self.env = Some(Arc::new(lookup));
        self
    }

    /// Creates the provider.
    ///
    /// # Errors
    /// The provider or format is unknown (the message lists the choices); a key is missing (the
    /// message names its variable); an address, a header or a certificate is invalid; settings
    /// contradict each other; or a key or a header would be sent to another machine over `http://`
    /// without [`allow_http`](Self::allow_http).
    pub fn build(&self) -> Result<HttpProvider, HttpError> {
        match &self.env {
            Some(env) => self.build_in(&**env),
            None => self.build_in(&|name| std::env::var(name).ok()),
        }
    }

    /// Creates the provider with the variables of this environment.
    pub(super) fn build_in(
        &self,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<HttpProvider, HttpError> {
        let (connection, user_agent) = (self.connection()?, self.agent_header()?);
        let proxy = connection.proxy.clone();
        let options = &self.options;
        let target = Target::resolve(options, Requested::of(options)?, self.given_key()?, env)?;
        let (url, stream_url) = target.urls()?;
        let mut headers = target.headers()?;
        let dialect = target.dialect(&url)?;
        let keys = target.keys()?;
        target.check_cleartext(&url, &headers, keys.is_some())?;
        let signer = target.signer()?;
        if let Some(user_agent) = user_agent {
            headers.insert(USER_AGENT, user_agent);
        }
        let own = Own {
            headers: &headers,
            has_key: keys.is_some() || signer.is_some(),
            provider: target.resolved.provider.id,
        };
        let more = self.additional_headers(&own, &url)?;
        headers.extend(more);
        let client = match &self.client {
            Some(client) => client.clone(),
            None => client(&url, connection).map_err(HttpError::Client)?,
        };
        let transport = Transport::Network(client);
        let (price, limits) = target.catalogue();
        let price = options.price.or(price);
        let (provider, model) = (target.resolved.provider.id, target.resolved.model);
        let whole = Address::new(url);
        let prepared = Prepared {
            stream: if stream_url == whole.url {
                Arc::clone(&whole)
            } else {
                Address::new(stream_url)
            },
            sent: Arc::new(completed(&headers)),
            whole,
            headers: Arc::new(headers),
            signer: signer.map(Arc::new),
            keys: keys.map(Arc::new),
            proxy,
            known: OnceLock::new(),
            dialect,
            name: provider,
            price,
            catalogue: catalogue_price(provider, &model, price),
            model,
            limits: ModelLimits {
                context_window: options.context_window.or(limits.context_window),
                ..limits
            },
            allow_http: options.allow_http,
        };
        Ok(HttpProvider { prepared: Arc::new(prepared), transport, recorder: None, seed: None })
    }

    /// Returns the given key.
    fn given_key(&self) -> Result<Option<Secret>, HttpError> {
        let Some(key) = &self.api_key else { return Ok(None) };
        let key = key.expose().trim();
        if key.is_empty() {
            let problem = "the key is empty; remove the call to read it from the environment";
            return Err(HttpError::Setting { setting: "api_key", problem });
        }
        Ok(Some(Secret::from(key)))
    }

    /// Returns the value of the `User-Agent` header.
    fn agent_header(&self) -> Result<Option<HeaderValue>, HttpError> {
        let Some(name) = &self.user_agent else { return Ok(None) };
        let value = HeaderValue::from_str(name).ok().filter(|_| !name.trim().is_empty());
        let problem = "expected a name that can be sent in a header, for example `my-service/1.2`";
        value.map(Some).ok_or(HttpError::Setting { setting: "user_agent", problem })
    }

    fn additional_headers(&self, own: &Own<'_>, url: &Url) -> Result<HeaderMap, HttpError> {
        let more = own.and(&self.headers).map_err(HttpError::Headers)?;
        if !more.is_empty() && cleartext(url, self.options.allow_http) {
            let host = url.host_str().unwrap_or_default().to_owned();
            return Err(HttpError::Headers(HeaderError::Cleartext { host }));
        }
        Ok(more)
    }

    /// Returns the settings of the connection, of which each is valid and none contradicts another.
    fn connection(&self) -> Result<Connection, HttpError> {
        let set = [
            ("proxy", self.proxy.is_some()),
            ("no_proxy", self.no_proxy),
            ("ca_certificate", !self.authorities.is_empty()),
            ("connect_timeout", self.connect_timeout.is_some()),
        ];
        let set = set.into_iter().find(|(_, given)| *given);
        if let (Some((setting, _)), Some(_)) = (set, &self.client) {
            let fix = "set it when you create the client, or let the builder create the client";
            return Err(HttpError::Conflict { setting, other: "client", fix });
        }
        if self.proxy.is_some() && self.no_proxy {
            let fix = "remove one of them";
            return Err(HttpError::Conflict { setting: "proxy", other: "no_proxy", fix });
        }
        if self.connect_timeout.is_some_and(|limit| limit.is_zero()) {
            let problem = "expected a duration above zero";
            return Err(HttpError::Setting { setting: "connect_timeout", problem });
        }
        let proxy = self.proxy.as_ref().map(|proxy| {
            // Of `user:password@host` the parser would report the user as the scheme.
            let parsed = if proxy.expose().contains("://") {
                web_address(proxy.expose().trim())
            } else {
                Err(AddressError::Syntax { problem: "the scheme is missing".to_owned() })
            };
            parsed.map_err(|source| HttpError::Proxy {
                address: without_user(proxy.expose()),
                source,
            })
        });
        Ok(Connection {
            proxy: proxy.transpose()?,
            no_proxy: self.no_proxy,
            authorities: self.authorities()?,
            connect_timeout: self.connect_timeout,
        })
    }

    fn authorities(&self) -> Result<Certificates, HttpError> {
        let mut all = Certificates::default();
        for pem in &self.authorities {
            all.extend([Certificates::from_pem(pem).map_err(HttpError::Certificate)?]);
        }
        Ok(all)
    }
}

/// Returns an address that may be invalid, without user and password.
fn without_user(address: &str) -> String {
    secrets_out(address.rsplit('@').next().unwrap_or_default())
}
