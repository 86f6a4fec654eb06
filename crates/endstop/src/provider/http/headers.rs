//! Additional headers of requests: those of a provider, and those of the parameters of a run.
//!
//! ```text
//! let more = Own { headers: &headers, has_key: true, provider: "openai" }.and(&given)?;
//! ```

use endstop_wire::endpoint::Secret;
use endstop_wire::redact::secrets_out;
use http::header::{HeaderMap, HeaderName, HeaderValue};

/// Headers that the client sets itself.
const FRAMING: &[&str] = &[
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers that carry a credential of a provider. A request must not have two of them, because the
/// server, or a proxy in between, could use and log either.
const CREDENTIALS: &[&str] = &["api-key", "authorization", "x-api-key", "x-goog-api-key"];

/// The reason why an additional header cannot be sent. Contains no value of a header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The name has characters that a header's name cannot have.
    #[error("`{name}`: expected a header name of letters, digits and hyphens")]
    Name {
        /// The name, redacted if it looks like a secret.
        name: String,
    },
    /// The header describes the transfer, which the client determines.
    #[error("`{name}`: the client sets this header itself")]
    Framing {
        /// The header's name.
        name: String,
    },
    /// The value has characters that cannot be sent.
    #[error("`{name}`: its value contains a character that is not allowed in a header")]
    Value {
        /// The header's name.
        name: String,
    },
    /// The header is a credential, and the provider sends a key already.
    #[error(
        "the header `{name}` contradicts the key that `{provider}` already sends; remove one of them"
    )]
    Credential {
        /// The header's name.
        name: String,
        /// The provider's name.
        provider: String,
    },
    /// The provider sets the header already.
    #[error("`{name}`: the provider sets this header itself")]
    Own {
        /// The header's name.
        name: String,
    },
    /// The header repeats, or is a second credential.
    #[error(
        "the header `{name}` is given twice, or next to another credential; remove one of them"
    )]
    Twice {
        /// The header's name.
        name: String,
    },
    /// The headers would be sent to another machine over `http://`.
    #[error(
        "additional headers may be credentials, and would be sent unencrypted over http:// to {host}; use https://, or set `allow_http`"
    )]
    Cleartext {
        /// The host.
        host: String,
    },
}

/// The headers that are sent already.
pub(super) struct Own<'a> {
    pub(super) headers: &'a HeaderMap,
    /// `true` if requests carry a signature or a key that is fetched later.
    pub(super) has_key: bool,
    pub(super) provider: &'static str,
}

impl Own<'_> {
    /// Returns the given headers, which are sent in addition to these.
    pub(super) fn and(&self, given: &[(String, Secret)]) -> Result<HeaderMap, HeaderError> {
        let is_credential = |name: &HeaderName| CREDENTIALS.contains(&name.as_str());
        let mut more = HeaderMap::new();
        for (name, value) in given {
            // The name may be a key that was put in the wrong place.
            let shown = || secrets_out(name);
            let header = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| HeaderError::Name { name: shown() })?;
            if FRAMING.contains(&header.as_str()) {
                return Err(HeaderError::Framing { name: shown() });
            }
            let mut value = HeaderValue::from_str(value.expose())
                .map_err(|_| HeaderError::Value { name: shown() })?;
            // Sensitive values are redacted from recordings and are not shown by `Debug`.
            value.set_sensitive(true);
            let name = header.as_str().to_owned();
            let credential = is_credential(&header);
            if credential && (self.has_key || self.headers.keys().any(is_credential)) {
                return Err(HeaderError::Credential { name, provider: self.provider.to_owned() });
            }
            if self.headers.contains_key(&header) {
                return Err(HeaderError::Own { name: shown() });
            }
            if more.contains_key(&header) || (credential && more.keys().any(is_credential)) {
                return Err(HeaderError::Twice { name });
            }
            more.insert(header, value);
        }
        Ok(more)
    }
}
