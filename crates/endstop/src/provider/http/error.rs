//! Errors of creating an HTTP provider.
//!
//! ```
//! use endstop::provider::http::{HttpError, HttpProvider};
//! let error = HttpProvider::builder("openai/gpt-4.1-mini").env(|_| None).build().unwrap_err();
//! assert!(matches!(error, HttpError::Resolve(_)));
//! assert!(error.to_string().contains("OPENAI_API_KEY"));
//! ```

use super::super::network::AddressError;
use super::super::transport::innermost;
use super::headers::HeaderError;
use endstop_http::{CertificateError, SettingsError};
use endstop_wire::dialect::UnknownApi;
use endstop_wire::endpoint::ResolveError;
use std::fmt;

/// The reason why an HTTP provider could not be created. Its text names the fix and contains no
/// credentials.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The wire format is unknown.
    #[error("api `{name}`: {problem}")]
    UnknownApi {
        /// The requested format.
        name: String,
        /// A description with the choices.
        problem: String,
    },
    /// Responses in this format can be decoded, but no request can be sent in it.
    #[error("the format `{name}` can be decoded by `endstop detect`, but not sent; use {instead}")]
    ReadOnlyApi {
        /// The requested format.
        name: String,
        /// A format that can be sent.
        instead: String,
    },
    /// The model, its provider or its key cannot be resolved.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The provider has no dialect of the format.
    #[error(transparent)]
    Dialect(#[from] UnknownApi),
    /// The address of the server is invalid.
    #[error(
        "invalid {setting} `{address}`: {source}; expected http://HOST[:PORT][/PATH] or https://…"
    )]
    Address {
        /// The variable or the option that has the address.
        setting: String,
        /// The address, without credentials.
        address: String,
        /// The reason.
        source: AddressError,
    },
    /// A setting of the builder is not valid.
    #[error("invalid `{setting}`: {problem}")]
    Setting {
        /// The method of the builder.
        setting: &'static str,
        /// The expected value.
        problem: &'static str,
    },
    /// Two settings of the builder contradict each other.
    #[error("`{setting}` contradicts `{other}`: {fix}")]
    Conflict {
        /// The method of the builder.
        setting: &'static str,
        /// The method that it contradicts.
        other: &'static str,
        /// The change that resolves the contradiction.
        fix: &'static str,
    },
    /// The address of the proxy is invalid.
    #[error(
        "invalid `proxy` `{address}`: {source}; expected http://[USER:PASSWORD@]HOST[:PORT] or https://…"
    )]
    Proxy {
        /// The address, without credentials.
        address: String,
        /// The reason.
        source: AddressError,
    },
    /// The certificate of an authority is invalid.
    #[error("invalid `ca_certificate`: {0}")]
    Certificate(#[source] CertificateError),
    /// An additional header cannot be sent.
    #[error("invalid `header`: {0}")]
    Headers(#[source] HeaderError),
    /// A header has characters that cannot be sent.
    #[error(
        "the header `{name}` cannot be sent: its value contains a character that is not allowed in a header, such as a line break; look at {variables}"
    )]
    Header {
        /// The header's name.
        name: String,
        /// The variables that determine its value.
        variables: String,
    },
    /// A key would be sent to another machine over `http://`.
    #[error(
        "the key of {provider} would be sent unencrypted to `{host}`, because the address begins with http://: use https://,{} or allow it with `HttpProviderBuilder::allow_http`",
        unset(.variables)
    )]
    Cleartext {
        /// The provider's name.
        provider: String,
        /// The host.
        host: String,
        /// The variables that hold the key; empty if the key has none.
        variables: String,
    },
    /// Requests cannot be authorized, because this program is built without what it takes.
    #[error("no key for {provider}: this program is built without {what} (feature `{feature}`)")]
    Unsupported {
        /// The provider's name.
        provider: String,
        /// The kind of authorization.
        what: &'static str,
        /// The feature of this crate that provides it.
        feature: &'static str,
    },
    /// The HTTP client could not be created.
    #[error("the HTTP client could not be created: {}", innermost(.0))]
    Client(#[source] SettingsError),
    /// The recorder already records another provider.
    #[error("the recorder already records another provider; create one recorder for each")]
    RecorderInUse,
    /// The header of a recording is invalid.
    #[error(transparent)]
    Recording(#[from] RecordedError),
}

/// The message, because that is what `fn main() -> Result<(), Box<dyn Error>>` prints.
impl fmt::Debug for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl HttpError {
    /// Returns the method of [`HttpProviderBuilder`](super::HttpProviderBuilder) that set the wrong
    /// value, if the error concerns the connection or the headers. Programs use it to name the flag
    /// or the line of a file that the value came from.
    pub fn setting(&self) -> Option<&'static str> {
        match self {
            HttpError::Setting { setting, .. } | HttpError::Conflict { setting, .. } => {
                Some(setting)
            }
            HttpError::Proxy { .. } => Some("proxy"),
            HttpError::Certificate(_) => Some("ca_certificate"),
            HttpError::Headers(_) => Some("header"),
            _ => None,
        }
    }
}

/// The reason why a recording's header does not describe a provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordedError {
    /// The provider is unknown.
    #[error("`provider`: `{name}` is not known")]
    Provider {
        /// The recorded name.
        name: String,
    },
    /// An address is invalid.
    #[error("`{field}`: {source}")]
    Address {
        /// The field of the header.
        field: &'static str,
        /// The reason.
        source: AddressError,
    },
    /// The wire format is unknown.
    #[error("`api`: {0}")]
    Api(#[source] UnknownApi),
}

fn unset(variables: &str) -> String {
    if variables.is_empty() { String::new() } else { format!(" unset {variables},") }
}
