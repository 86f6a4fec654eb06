//! Providers over HTTP: clients of any server that uses a wire format of [`endstop_wire`].
//!
//! ```no_run
//! use endstop::provider::http::{HttpOptions, HttpProvider};
//! // Reads the key from ANTHROPIC_API_KEY, like the provider's own SDK.
//! let options = HttpOptions { model: "anthropic/claude-sonnet-4-5".into(), ..HttpOptions::default() };
//! let provider = HttpProvider::from_env(&options).unwrap();
//! ```

mod call;
mod deltas;
mod error;
mod options;
mod params;
mod provider;
mod session;
mod target;

pub use error::HttpError;
pub use options::HttpOptions;
pub use provider::HttpProvider;
