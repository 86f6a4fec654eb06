//! Providers over HTTP: clients of any server that uses a wire format of [`endstop_wire`].
//!
//! ```no_run
//! use endstop::provider::http::HttpProvider;
//! // Reads the key from ANTHROPIC_API_KEY, like the provider's own SDK.
//! let provider = HttpProvider::builder("anthropic/claude-sonnet-4-5").build().unwrap();
//! ```
//!
//! The key, the address, headers and the connection can also be given as values: see
//! [`HttpProviderBuilder`].

mod builder;
mod call;
mod deltas;
mod error;
mod headers;
mod params;
mod prepared;
mod provider;
mod recorded;
mod session;
mod target;

pub use super::network::AddressError;
pub use builder::HttpProviderBuilder;
pub use endstop_http::{CertificateError, Client, ClientBuilder};
pub use error::{HttpError, RecordedError};
pub use headers::HeaderError;
pub use provider::HttpProvider;
