//! The parts of requests that do not change, prepared when a provider is created.
//!
//! ```text
//! let address = provider.prepared.address(request.stream);
//! let headers = HeaderMap::clone(&provider.prepared.headers);
//! ```

use super::super::login::Keys;
use super::super::record::{secrets, user_secrets};
use super::super::sign::Signer;
use super::super::transport::Address;
use endstop_core::Price;
use endstop_wire::catalog::models::ModelLimits;
use endstop_wire::catalog::prices::ModelInfo;
use endstop_wire::dialect::Dialect;
use endstop_wire::redact::{KnownKeys, secrets_out};
use http::header::HeaderMap;
use std::sync::{Arc, OnceLock};
use url::Url;

/// The server, the model and the credentials of a provider. Clones and sessions share it.
pub(super) struct Prepared {
    /// The address of whole calls.
    pub(super) whole: Arc<Address>,
    /// The address of streaming calls. In most formats it is the same as `whole`.
    pub(super) stream: Arc<Address>,
    /// The headers of each request, without a signature or a fetched key.
    pub(super) headers: Arc<HeaderMap>,
    /// These headers and those of the client, as a request that is sent as it is has them.
    pub(super) sent: Arc<HeaderMap>,
    /// Signs each request, if the provider uses signatures instead of a key.
    pub(super) signer: Option<Arc<Signer>>,
    /// Fetches the key of each request, if none is configured.
    pub(super) keys: Option<Arc<Keys>>,
    /// The configured proxy, whose address may have a password.
    pub(super) proxy: Option<Url>,
    /// The credentials as a redactor, built for the first run: every run needs it, and building its
    /// search tables takes longer than a turn's own work.
    pub(super) known: OnceLock<KnownKeys>,
    pub(super) dialect: &'static Dialect,
    pub(super) name: &'static str,
    pub(super) model: String,
    pub(super) price: Option<Price>,
    /// The source of the price, if that is the catalogue.
    pub(super) catalogue: Option<ModelInfo>,
    pub(super) limits: ModelLimits,
    /// `true` if credentials may be sent to another machine over `http://`.
    pub(super) allow_http: bool,
}

impl Prepared {
    /// Returns the address of streaming or of whole calls.
    pub(super) fn address(&self, stream: bool) -> &Arc<Address> {
        if stream { &self.stream } else { &self.whole }
    }

    /// Returns the credentials that are known before a call.
    pub(super) fn secrets(&self) -> Vec<Vec<u8>> {
        let mut secrets = secrets(&self.headers, &self.whole.url);
        secrets.extend(self.signer.iter().flat_map(|signer| signer.secrets()));
        secrets.extend(self.proxy.iter().flat_map(user_secrets));
        secrets
    }

    /// Returns the credentials as a redactor.
    pub(super) fn known_keys(&self) -> KnownKeys {
        self.known.get_or_init(|| KnownKeys::new(self.secrets()).and(&self.proxy_keys())).clone()
    }

    /// Returns the credentials of the proxy, whose password is a secret even if it is a word.
    pub(super) fn proxy_keys(&self) -> KnownKeys {
        KnownKeys::of_proxies(self.proxy.as_ref().map(Url::as_str))
    }

    /// `true` if each request gets its own headers, with a signature or a fetched key.
    pub(super) fn authorizes_each(&self) -> bool {
        self.signer.is_some() || self.keys.is_some()
    }

    /// Describes a call to this address, for errors about it.
    pub(super) fn asked(&self, address: &Address) -> String {
        format!("POST {}, model `{}`", address.shown(), secrets_out(&self.model))
    }
}
