//! Options that the caller of an HTTP provider sets.

use endstop_core::Price;
use endstop_wire::redact::address;
use std::fmt;

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
