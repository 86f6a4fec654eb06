//! Prompt caching: the setting, the rules of the providers, and the key of a conversation.
//!
//! ```
//! use endstop_wire::{Caching, ModelParams, RequestSpec, dialect};
//! let mut spec = RequestSpec { model: "claude-sonnet-4-5".into(), ..RequestSpec::default() };
//! ModelParams::default().apply(dialect::ANTHROPIC, &mut spec)?;
//! assert!(spec.cache.marks.is_some());
//! let hour = ModelParams { cache: Some(Caching::OneHour), ..ModelParams::default() };
//! let refused = hour.apply(dialect::OPENAI_CHAT, &mut RequestSpec::default()).unwrap_err();
//! assert!(refused.to_string().starts_with("invalid `cache`: expected off or auto"));
//! # Ok::<(), endstop_wire::ParamError>(())
//! ```
//!
//! | providers | what a request carries |
//! |---|---|
//! | Anthropic, also on Vertex AI | marks `cache_control` |
//! | Amazon Bedrock, for the models of `models` | `cachePoint` blocks, or `cache_control` for InvokeModel |
//! | OpenAI itself | `prompt_cache_key`; the provider finds the longest known prefix by itself |
//! | all others | nothing; most cache the longest known prefix by themselves |
//!
//! Every encoder appends, so that the encoded conversation of a turn is a prefix of the next turn's.
//! An exception is a new epoch, which compaction starts.

mod key;
mod models;
mod plan;
mod uncached;

pub(crate) use key::CacheKey;
pub use models::{BEDROCK, BedrockModel};
pub use plan::{CachePlan, Marks};
pub(crate) use plan::{Support, has_marks, plan};
pub use uncached::without_marks;

use serde::{Deserialize, Serialize};
use std::fmt;

/// The use of prompt caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Caching {
    /// Requests carry no marks and no key. A provider that caches by itself still does.
    #[serde(rename = "off")]
    Off,
    /// Requests carry what the provider takes, for its default lifetime of about five minutes.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// The same for a lifetime of an hour, which some providers offer at a higher price.
    #[serde(rename = "1h")]
    OneHour,
}

impl Caching {
    /// Every setting.
    pub const ALL: &[Caching] = &[Caching::Off, Caching::Auto, Caching::OneHour];

    /// Returns the setting with this name: `off`, `auto` or `1h`.
    pub fn named(name: &str) -> Option<Caching> {
        Caching::ALL.iter().copied().find(|setting| setting.as_str() == name)
    }

    /// Returns the name of the setting.
    pub const fn as_str(self) -> &'static str {
        match self {
            Caching::Off => "off",
            Caching::Auto => "auto",
            Caching::OneHour => "1h",
        }
    }
}

impl fmt::Display for Caching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
