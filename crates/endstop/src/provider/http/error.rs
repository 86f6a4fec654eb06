//! Errors of creating an HTTP provider.
//!
//! ```
//! use endstop::provider::http::{HttpError, HttpOptions, HttpProvider};
//! let options = HttpOptions { model: "openai/gpt-4.1-mini".into(), ..HttpOptions::default() };
//! let error = HttpProvider::new(&options, &|_| None).unwrap_err();
//! assert!(matches!(error, HttpError::Resolve(_)));
//! assert!(error.to_string().contains("OPENAI_API_KEY"));
//! ```

use endstop_wire::dialect::UnknownApi;
use endstop_wire::endpoint::ResolveError;

/// The reason why an HTTP provider could not be created. Its text names the fix and contains no
/// credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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
    #[error("{0}")]
    Resolve(ResolveError),
    /// The provider has no dialect of the format.
    #[error("{0}")]
    Dialect(UnknownApi),
    /// The address of the server is invalid.
    #[error(
        "invalid {setting} `{address}`: {problem}; expected http://HOST[:PORT][/PATH] or https://…"
    )]
    Address {
        /// The variable or the option that has the address.
        setting: String,
        /// The address, without credentials.
        address: String,
        /// The reason.
        problem: String,
    },
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
        "the key of {provider} would be sent unencrypted to `{host}`, because the address begins with http://: use https://,{} or allow it with --allow-http (`HttpOptions::allow_http` in code)",
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
    #[error("{0}")]
    Unsupported(String),
    /// The HTTP client could not be created.
    #[error("{0}")]
    Client(String),
    /// The recorder already records another provider.
    #[error("the recorder already records another provider; create one recorder for each")]
    RecorderInUse,
    /// The header of a recording is invalid.
    #[error("{0}")]
    Recording(String),
}

fn unset(variables: &str) -> String {
    if variables.is_empty() { String::new() } else { format!(" unset {variables},") }
}
