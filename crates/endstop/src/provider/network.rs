//! Addresses and the HTTP client.
//!
//! ```text
//! let url = web_address("https://api.openai.com/v1")?;
//! let client = client(&url, Connection::default())?;
//! ```

use endstop_http::{Certificates, Client, SettingsError};
use endstop_wire::endpoint::is_loopback;
use http::{HeaderValue, Uri};
use std::time::Duration;
use url::Url;

/// Default time limit for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// The user agent of requests, unless another is set.
const USER_AGENT: &str = concat!("endstop/", env!("CARGO_PKG_VERSION"));

/// The reason why a string is not the address of a server. Does not repeat the string, which may
/// contain a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The string is not a URL.
    #[error("{problem}")]
    Syntax {
        /// A description of the mistake.
        problem: String,
    },
    /// The scheme is not http or https.
    #[error("`{scheme}:` is not http or https")]
    Scheme {
        /// The scheme. For `localhost:8080` that is `localhost`.
        scheme: String,
    },
    /// The address has a fragment. The path of a call would be appended to it, so that the path
    /// would never be sent.
    #[error("it has a fragment, which is never sent (`#`)")]
    Fragment,
}

/// The settings of a client's connections, which are valid each by itself.
#[derive(Default)]
pub(crate) struct Connection {
    /// The proxy of all requests; `None` means those of the environment.
    pub(crate) proxy: Option<Url>,
    /// `true` to use no proxy, not even one of the environment.
    pub(crate) no_proxy: bool,
    /// Authorities that are trusted in addition to those of the system.
    pub(crate) authorities: Certificates,
    /// The time limit for establishing a connection; `None` means [`CONNECT_TIMEOUT`].
    pub(crate) connect_timeout: Option<Duration>,
}

/// Parses a URL and checks that its scheme is http or https.
pub(crate) fn web_address(address: &str) -> Result<Url, AddressError> {
    let parsed = Url::parse(address);
    let url = parsed.map_err(|error| AddressError::Syntax { problem: error.to_string() })?;
    match url.scheme() {
        "http" | "https" => {
            // Requests have the address in this form, which allows fewer characters in a host.
            let wrong = |error: http::uri::InvalidUri| error.to_string();
            let uri = Uri::try_from(url.as_str()).map_err(wrong);
            uri.map(|_| url).map_err(|problem| AddressError::Syntax { problem })
        }
        // `localhost:8080` parses as a path with the scheme `localhost`.
        other => Err(AddressError::Scheme { scheme: other.to_owned() }),
    }
}

/// `true` if data sent to this address could be read on the way to another machine.
pub(crate) fn cleartext(url: &Url, allowed: bool) -> bool {
    url.scheme() == "http" && !allowed && !is_local(url)
}

/// `true` if the address is on this machine.
pub(crate) fn is_local(url: &Url) -> bool {
    url.host_str().is_some_and(is_loopback)
}

/// Creates a client for this address. Certificates are loaded only for https. Requests to this
/// machine bypass proxies on other machines, because a remote proxy could not reach it and must not
/// see the data.
pub(crate) fn client(url: &Url, connection: Connection) -> Result<Client, SettingsError> {
    let mut builder = Client::builder()
        .connect_timeout(connection.connect_timeout.unwrap_or(CONNECT_TIMEOUT))
        .user_agent(HeaderValue::from_static(USER_AGENT))
        .certificates(connection.authorities);
    let proxy = connection.proxy.filter(|proxy| !is_local(url) || is_local(proxy));
    let encrypted = [Some(url), proxy.as_ref()].into_iter().flatten();
    let encrypted = encrypted.map(Url::scheme).any(|scheme| scheme == "https");
    match proxy {
        Some(proxy) => builder = builder.proxy(proxy),
        None if connection.no_proxy || is_local(url) => builder = builder.no_proxy(),
        None => {}
    }
    let client = builder.build()?;
    if encrypted {
        // Now, because the caller gets the error of a builder, and the first call is not delayed.
        client.load_certificates()?;
    }
    Ok(client)
}
