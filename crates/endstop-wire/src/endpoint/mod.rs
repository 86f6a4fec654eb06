//! Table of supported providers, and resolution of `provider/model` to a URL, a key and headers.
//!
//! ```
//! use endstop_wire::WireFormat;
//! use endstop_wire::endpoint::resolve;
//!
//! let env = |name: &str| (name == "OPENROUTER_API_KEY").then(|| "sk-secret".to_owned());
//! let model = resolve("openrouter/anthropic/claude-sonnet-4", &env).unwrap();
//! assert_eq!(model.model, "anthropic/claude-sonnet-4");
//! assert_eq!(model.api, WireFormat::OpenAiChat);
//! assert_eq!(model.url(), "https://openrouter.ai/api/v1/chat/completions");
//! assert!(!format!("{model:?}").contains("sk-secret"));
//!
//! let error = resolve("antropic/claude", &env).unwrap_err();
//! assert!(error.to_string().contains("did you mean `anthropic`?"));
//! ```
//!
//! This module does not read the environment; the caller passes a lookup function. An unset or
//! blank variable counts as missing. Names of variables, URLs and paths are those of each
//! provider's own SDK or documentation. If a provider documents no variable, none is invented.

mod error;
mod host;
mod login;
mod path;
mod place;
mod resolve;
mod resolved;
mod secret;
mod signing;
mod suggest;

pub use error::ResolveError;
pub use host::is_loopback;
pub use login::Login;
pub use place::Place;
pub use resolve::{Overrides, resolve, resolve_with};
pub use resolved::ResolvedModel;
pub use secret::Secret;
pub use signing::SigningKeys;
