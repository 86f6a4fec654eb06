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
mod setting;
mod uncached;

pub(crate) use key::CacheKey;
pub use models::{BEDROCK, BedrockModel};
pub use plan::{CachePlan, Marks};
pub(crate) use plan::{Support, has_marks, plan};
pub use setting::Caching;
pub use uncached::without_marks;
