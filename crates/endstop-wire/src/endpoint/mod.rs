//! The providers that are understood, as data, and how `provider/model` becomes a place to call.
//!
//! ```
//! use endstop_wire::Family;
//! use endstop_wire::endpoint::resolve;
//!
//! let env = |name: &str| (name == "OPENROUTER_API_KEY").then(|| "sk-secret".to_owned());
//! let model = resolve("openrouter/anthropic/claude-sonnet-4", &env).unwrap();
//! assert_eq!(model.model, "anthropic/claude-sonnet-4");
//! assert_eq!(model.api, Family::OpenAiChat);
//! assert_eq!(model.url(), "https://openrouter.ai/api/v1/chat/completions");
//! assert!(!format!("{model:?}").contains("sk-secret"));
//!
//! let error = resolve("antropic/claude", &env).unwrap_err();
//! assert!(error.to_string().contains("did you mean `anthropic`?"));
//! ```
//!
//! Nothing here reads the environment: the caller passes a function that does. A variable that is
//! unset or blank is no value. Names of variables, addresses and paths are those of each
//! provider's own SDK or documentation; where a provider documents no variable, none is made up.

mod host;
mod login;
mod place;
mod resolve;
mod secret;
mod signing;

pub use host::is_loopback;
pub use login::Login;
pub use place::Place;
pub use resolve::{Overrides, ResolveError, ResolvedModel, resolve, resolve_with};
pub use secret::Secret;
pub use signing::SigningKeys;
