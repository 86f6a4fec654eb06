//! Compaction: shortens a conversation before the context window is full, or after the provider
//! refused it.
//!
//! ```
//! use endstop::compaction::{CompactionConfig, DropOldTurns, ElideToolResults, InOrder};
//! use endstop::{Agent, testkit::ScriptedModel};
//! // The default: old tool results first, then old turns, then a summary by the model.
//! let model = || ScriptedModel::new([]).context_window(100_000);
//! let agent = Agent::builder(model()).compaction(&CompactionConfig::default()).build()?;
//! // Or in code, with custom strategies between them.
//! let short = InOrder::new().then(ElideToolResults::default()).then(DropOldTurns::keep(6));
//! let agent = Agent::builder(model()).compactor(short).build()?;
//! # let _ = agent; Ok::<(), endstop::BuildError>(())
//! ```
//!
//! A strategy proposes a conversation and the kernel checks it: it must be shorter by a minimum
//! share, be acceptable to providers, and contain the task, pinned messages and everything that the
//! model has not answered yet. [`Message::pin`] pins a message, [`ToolOutput::pin`] a tool's
//! result.
//!
//! [`Message::pin`]: crate::Message::pin
//! [`ToolOutput::pin`]: crate::tool::ToolOutput::pin

mod compactor;
mod config;
mod drop_turns;
mod elide;
mod in_order;
mod messages;
mod request;
mod summarise;
#[cfg(test)]
mod test_support;
mod turns;

pub use compactor::{CompactionFuture, Compactor};
pub use config::{COMPACTION_SHARE, CompactionConfig, CompactionConfigError, Strategy};
pub use drop_turns::DropOldTurns;
pub use elide::ElideToolResults;
pub use endstop_core::{Compaction, CompactionSpec, ConversationSize, ProactiveCompaction};
pub use in_order::InOrder;
pub use request::CompactionRequest;
pub(crate) use request::Means;
pub use summarise::Summarise;
