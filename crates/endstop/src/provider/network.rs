//! Addresses and the HTTP client.
//!
//! ```text
//! let url = web_address("https://api.openai.com/v1")?;
//! let client = client(&url)?;
//! ```

use endstop_wire::endpoint::is_loopback;
use reqwest::{Client, Url};
use std::time::Duration;

/// Time limit for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

#[cfg(feature = "http")]
/// Parses a URL and checks that its scheme is http or https.
pub(crate) fn web_address(address: &str) -> Result<Url, String> {
    let url = Url::parse(address).map_err(|error| error.to_string())?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        // `localhost:8080` parses as a path with the scheme `localhost`.
        other => Err(format!("`{other}:` is not http or https")),
    }
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
