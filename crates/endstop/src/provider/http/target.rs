//! The server of an HTTP provider: its URLs, headers, dialect and credentials, from the options and
//! the environment.
//!
//! ```text
//! let target = Target::resolve(options, Requested::of(options)?, env)?;
//! let (url, stream_url) = target.urls()?;
//! ```

use super::super::login::Keys;
use super::super::network::{AddressError, cleartext, web_address};
use super::super::sign::Signer;
use super::error::HttpError;
use endstop_core::Price;
use endstop_wire::catalog::models::{self, ModelLimits};
use endstop_wire::catalog::prices;
use endstop_wire::catalog::providers::{ProviderInfo, provider};
use endstop_wire::dialect::{self as wire_api, Dialect, WireFormat};
use endstop_wire::endpoint::{Overrides, ResolveError, ResolvedModel, Secret, resolve_with};
use endstop_wire::redact::{address, secrets_out};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use std::fmt;
use url::Url;

/// The model and its server.
#[derive(Clone, Default)]
pub(super) struct Options {
    /// `PROVIDER/MODEL`; with a base URL also the bare name of a model.
    pub(super) model: String,
    /// The wire format, if it is not the provider's default. With a base URL also a dialect of a
    /// format.
    pub(super) api: Option<String>,
    /// An address that replaces the provider's.
    pub(super) base_url: Option<String>,
    /// The model's price; overrides the built-in table.
    pub(super) price: Option<Price>,
    /// The model's context window in tokens; overrides the built-in table.
    pub(super) context_window: Option<u64>,
    /// `true` to allow sending a key to another machine over `http://`, which anyone on the network
    /// path can read (default: `false`).
    pub(super) allow_http: bool,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
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

/// The wire format that the options request. The option names either a format or a server's dialect
/// of one, for example `snowflake`.
#[derive(Clone, Copy)]
pub(super) struct Requested {
    api: Option<WireFormat>,
    /// The dialect, which applies only together with a custom base URL.
    dialect: Option<&'static Dialect>,
}

impl Requested {
    pub(super) fn of(options: &Options) -> Result<Requested, HttpError> {
        let Some(name) = options.api.as_deref() else {
            return Ok(Requested { api: None, dialect: None });
        };
        let dialect = wire_api::dialect(name).ok();
        let family = WireFormat::named(name).or(dialect.map(|dialect| dialect.family));
        let api = family.ok_or_else(|| {
            let asked = WireFormat::ALL.iter().filter(|family| family.read_only().is_none());
            let choices: Vec<&str> = asked.map(|family| family.as_str()).collect();
            let problem = endstop_core::limits::unknown_key(name, &choices);
            HttpError::UnknownApi { name: name.to_owned(), problem }
        })?;
        if let Some(other) = api.read_only() {
            let (name, instead) = (name.to_owned(), other.to_string());
            return Err(HttpError::ReadOnlyApi { name, instead });
        }
        Ok(Requested { api: Some(api), dialect })
    }
}

/// A resolved model and the options that it was resolved with.
pub(super) struct Target<'o> {
    options: &'o Options,
    pub(super) resolved: ResolvedModel,
    dialect: Option<&'static Dialect>,
    /// `true` if no key is sent.
    keyless: bool,
    /// `true` if the caller gave the key as a value.
    key_given: bool,
}

impl<'o> Target<'o> {
    pub(super) fn resolve(
        options: &'o Options,
        requested: Requested,
        key: Option<Secret>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Target<'o>, HttpError> {
        let Requested { api, dialect } = requested;
        let own_address = options.base_url.is_some();
        // A bare model name with a custom base URL: a compatible server, in the requested format.
        let compatible = api.unwrap_or(WireFormat::OpenAiChat).provider();
        let known = options.model.split_once('/').is_some_and(|(name, _)| provider(name).is_some());
        let spec = if own_address && !known {
            format!("{compatible}/{}", options.model)
        } else {
            options.model.clone()
        };
        let mut overrides = Overrides { api, base_url: options.base_url.clone(), key };
        let key_given = overrides.key.is_some();
        let mut keyless = false;
        let resolved = match resolve_with(&spec, &overrides, env) {
            // A custom server may not require a key.
            Err(ResolveError::MissingKey { .. }) if own_address => {
                // Resolution requires some key. This placeholder is never sent; see `keyless`.
                keyless = true;
                overrides.key = Some(Secret::new("none"));
                resolve_with(&spec, &overrides, env)
            }
            other => other,
        };
        Ok(Target { options, resolved: resolved?, dialect, keyless, key_given })
    }

    fn own_address(&self) -> bool {
        self.options.base_url.is_some()
    }

    /// Returns the URLs of whole and of streaming calls.
    pub(super) fn urls(&self) -> Result<(Url, Url), HttpError> {
        let resolved = &self.resolved;
        // Check the base before the path is appended, because the appended part could supply the
        // host that the base lacks.
        let parsed = web_address(&resolved.base_url).and_then(|base| {
            if base.fragment().is_some() {
                // The path would be appended to the fragment, so it would never be sent.
                return Err(AddressError::Fragment);
            }
            Ok((web_address(&resolved.url())?, web_address(&resolved.stream_url())?))
        });
        parsed.map_err(|source| {
            let of_place = resolved.place.as_ref().map(|place| place.vars.base_url);
            let variable =
                of_place.or(resolved.provider.base_url_var).filter(|_| !self.own_address());
            // Show only the part after the `@`: the part before it may contain a password.
            let shown = secrets_out(resolved.base_url.rsplit('@').next().unwrap_or_default());
            HttpError::Address {
                setting: variable.unwrap_or("base URL").to_owned(),
                address: shown,
                source,
            }
        })
    }

    /// Returns the headers of each request, with the key if one is known.
    pub(super) fn headers(&self) -> Result<HeaderMap, HttpError> {
        let resolved = &self.resolved;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut set = |name: &str, value: &str, secret: bool| -> Result<(), HttpError> {
            if secret && self.key_given && HeaderValue::from_str(value).is_err() {
                let problem = "it contains a character that is not allowed in a header";
                return Err(HttpError::Setting { setting: "api_key", problem });
            }
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
        if let Some((name, key)) = resolved.auth_header().filter(|_| !self.keyless) {
            set(name, key.expose(), true)?;
        }
        Ok(headers)
    }

    /// Returns the dialect. Only the provider's own server uses its dialect. Compatible servers use
    /// the plain format, unless the option or the host name selects a dialect.
    pub(super) fn dialect(&self, url: &Url) -> Result<&'static Dialect, HttpError> {
        let own_address = self.own_address();
        let dialect = self.resolved.dialect(own_address)?;
        let by_name = self.dialect.filter(|dialect| WireFormat::named(dialect.name).is_none());
        let by_host = url.host_str().and_then(|host| wire_api::dialect_at(host, dialect.family));
        Ok(by_name.or(by_host).filter(|_| own_address).unwrap_or(dialect))
    }

    /// Returns the price and the limits of the built-in tables, which describe the provider's
    /// models and not those of a custom server.
    pub(super) fn catalogue(&self) -> (Option<Price>, ModelLimits) {
        if self.own_address() {
            return (None, ModelLimits::default());
        }
        let (provider, model) = (self.resolved.provider.id, self.resolved.model.as_str());
        let info = prices::lookup(provider, model);
        (info.map(|info| info.price), models::limits(provider, model))
    }

    /// Returns the source of the keys that are fetched before a call, if none is configured.
    pub(super) fn keys(&self) -> Result<Option<Keys>, HttpError> {
        let keys = self.resolved.login.as_ref();
        let keys = keys.map(|login| Keys::new(login, self.resolved.provider.name));
        keys.transpose()
    }

    /// Returns the signer, if requests are signed.
    pub(super) fn signer(&self) -> Result<Option<Signer>, HttpError> {
        let signer = self.resolved.signing.as_ref();
        let signer = signer.map(|keys| Signer::new(keys, self.resolved.provider.name));
        signer.transpose()
    }

    /// Refuses cleartext, but only if there is a secret to protect: a key, a signature or a
    /// password in the URL. A local server without a key stays usable over http.
    pub(super) fn check_cleartext(
        &self,
        url: &Url,
        headers: &HeaderMap,
        fetches_keys: bool,
    ) -> Result<(), HttpError> {
        let resolved = &self.resolved;
        let secret = headers.values().any(HeaderValue::is_sensitive)
            || resolved.signing.is_some()
            || fetches_keys
            || address(url.as_str()) != url.as_str();
        if !(secret && cleartext(url, self.options.allow_http)) {
            return Ok(());
        }
        Err(HttpError::Cleartext {
            provider: resolved.provider.name.to_owned(),
            host: url.host_str().unwrap_or_default().to_owned(),
            variables: if self.key_given {
                String::new()
            } else {
                variables(resolved.provider, "").join(" and ")
            },
        })
    }
}

/// Returns the environment variables that determine a header's value.
fn variables(provider: &ProviderInfo, header: &str) -> Vec<&'static str> {
    let of_headers = provider.header_vars.iter().filter(|(name, _)| *name == header);
    let mut variables: Vec<&str> = of_headers.map(|(_, variable)| *variable).collect();
    if variables.is_empty() {
        variables.extend(provider.key_vars.iter().map(|variable| variable.name));
    }
    variables
}
