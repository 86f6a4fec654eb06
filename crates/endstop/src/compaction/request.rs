//! The input of a compactor: the conversation, its target size, and access to a model.
//!
//! ```
//! use endstop::compaction::CompactionRequest;
//! use endstop::{Message, MessageId, Role};
//! let task = Message::text(MessageId(1), Role::User, "Fix the failing test.");
//! let request = CompactionRequest::new(vec![task]);
//! assert_eq!(request.task, Some(MessageId(1)));
//! assert_eq!(request.target, request.bytes() / 2);
//! ```

use super::messages::bytes;
use crate::budget::SharedBudget;
use crate::provider::{ModelParams, Provider};
use crate::tool::ToolContext;
use endstop_core::{Message, MessageId, NanoUsd, Price, Role, Unreported, Usage};
use std::fmt;
use std::future::Future;
use std::sync::Arc;

/// A request to shorten a conversation.
#[derive(Clone)]
#[non_exhaustive]
pub struct CompactionRequest {
    /// The conversation.
    pub messages: Vec<Message>,
    /// `true` if the provider has refused the conversation, so that every possible measure must be
    /// taken.
    pub forced: bool,
    /// The user message that the run began with. It must stay.
    pub task: Option<MessageId>,
    /// Target size in bytes. A larger result is accepted if it is enough shorter than before.
    pub target: u64,
    pub(crate) means: Option<Means>,
}

/// The provider and the limits for model calls by a compactor.
#[derive(Clone)]
pub(crate) struct Means {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) price: Option<Price>,
    /// The run's parameters that any call of its provider needs: its headers, tier and storage.
    pub(crate) params: ModelParams,
    pub(crate) tokens_left: Option<u64>,
    pub(crate) context: ToolContext,
}

impl CompactionRequest {
    /// Creates a request without a run, for tests. The last user message is the task, and the
    /// target is half of the current size.
    pub fn new(messages: Vec<Message>) -> CompactionRequest {
        let asked = messages.iter().rev().find(|message| message.role == Role::User);
        CompactionRequest {
            forced: false,
            task: asked.map(|message| message.id),
            target: bytes(&messages) / 2,
            messages,
            means: None,
        }
    }

    /// Returns the size of the conversation in bytes, as the kernel counts it.
    pub fn bytes(&self) -> u64 {
        bytes(&self.messages)
    }

    /// Returns the loop's provider; `None` for a request without a run.
    pub fn provider(&self) -> Option<&Arc<dyn Provider>> {
        self.means.as_ref().map(|means| &means.provider)
    }

    /// Returns the rest of the run's ceilings on cost and tokens, for model calls by the compactor:
    /// reserve before a call and settle after it. `None` if there is no ceiling.
    pub fn budget(&self) -> Option<SharedBudget> {
        self.means.as_ref().and_then(|means| means.context.budget())
    }

    /// Returns the rest of the run's ceiling on tokens; `None` if there is no ceiling.
    pub fn tokens_left(&self) -> Option<u64> {
        self.means.as_ref().and_then(|means| means.tokens_left)
    }

    /// Reports what the compactor spent on models. It counts towards the run's cost, tokens and
    /// ceilings, even if the compaction fails. `cost_unknown` means that some of the cost is
    /// unknown.
    pub fn spend(&self, usage: &Usage, cost: NanoUsd, cost_unknown: bool) {
        if let Some(means) = &self.means {
            means.context.spend(usage, cost, cost_unknown);
        }
    }

    /// Same as [`spend`](Self::spend), with an upper bound on the unreported use of a call that was
    /// cut off.
    pub fn spend_at_most(
        &self,
        usage: &Usage,
        cost: NanoUsd,
        cost_unknown: bool,
        unreported: Unreported,
    ) {
        if let Some(means) = &self.means {
            means.context.spend_at_most(usage, cost, cost_unknown, unreported);
        }
    }

    /// Awaits a future whose first poll starts user code or a model call. Returns `None` if the run
    /// was stopped before.
    pub(crate) async fn start_future<F: Future>(&self, code: F) -> Option<F::Output> {
        match &self.means {
            Some(means) => means.context.start_future(code).await,
            None => Some(code.await),
        }
    }

    /// Returns the same request for a conversation that is already partly shortened.
    #[must_use]
    pub fn with_messages(&self, messages: Vec<Message>) -> CompactionRequest {
        CompactionRequest {
            messages,
            forced: self.forced,
            task: self.task,
            target: self.target,
            means: self.means.clone(),
        }
    }
}

impl fmt::Debug for CompactionRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompactionRequest")
            .field("messages", &self.messages.len())
            .field("bytes", &self.bytes())
            .field("forced", &self.forced)
            .field("task", &self.task)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}
