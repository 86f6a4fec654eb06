//! The interface of a compactor.
//!
//! ```text
//! let result = compactor.compact(CompactionRequest::new(messages)).await;
//! ```

use super::request::CompactionRequest;
use endstop_core::Compaction;
use std::future::Future;
use std::pin::Pin;

/// The future of a compactor's result.
pub type CompactionFuture<'a> = Pin<Box<dyn Future<Output = Compaction> + Send + 'a>>;

/// Shortens a conversation. The built-in compactors are in [`compaction`](super).
///
/// The result is accepted if it is enough shorter, is valid for providers, and contains the task,
/// pinned messages and everything that the model has not answered yet. Otherwise the compaction has
/// failed, and the conversation stays unchanged.
///
/// ```
/// use endstop::compaction::CompactionRequest;
/// use endstop::core::history;
/// use endstop::hook::{CompactionFuture, Compactor};
/// use endstop::{Role, compaction::Compaction};
///
/// /// Drops everything that is answered, except the task.
/// struct Forget;
/// impl Compactor for Forget {
///     fn compact(&self, request: CompactionRequest) -> CompactionFuture<'_> {
///         let open = history::open_from(&request.messages);
///         let messages = request.messages.into_iter().enumerate().filter_map(|(at, message)| {
///             let stays = at >= open || request.task == Some(message.id) || message.pinned;
///             stays.then_some(message)
///         });
///         let done = Compaction::done("forget", messages.collect());
///         Box::pin(async { done })
///     }
/// }
/// # let _ = Forget;
/// ```
pub trait Compactor: Send + Sync {
    /// Shortens the conversation. The future is dropped if the run ends first.
    fn compact(&self, request: CompactionRequest) -> CompactionFuture<'_>;
}
