//! What a compactor is given: the conversation, how short it should be, and the means for it.
//!
//! ```
//! use endstop::compaction::CompactionRequest;
//! use endstop::{Message, MessageId, Role};
//! let task = Message::text(MessageId(1), Role::User, "Fix the failing test.");
//! let request = CompactionRequest::new(vec![task]);
//! assert_eq!(request.task, Some(MessageId(1)));
//! assert_eq!(request.target, request.bytes() / 2);
//! ```

use super::bytes;
use crate::budget::SharedBudget;
use crate::provider::Provider;
use crate::tool::ToolContext;
use endstop_core::{Message, MessageId, NanoUsd, Price, Role, Unreported, Usage};
use std::fmt;
use std::future::Future;
use std::sync::Arc;

/// A conversation that is to be shortened.
#[derive(Clone)]
#[non_exhaustive]
pub struct CompactionRequest {
    /// The conversation.
    pub messages: Vec<Message>,
    /// The provider has refused it: everything possible must be done.
    pub forced: bool,
    /// The user's message that the run began with; it must stay.
    pub task: Option<MessageId>,
    /// How many bytes it should have at most. More is taken as well, where it is enough less.
    pub target: u64,
    pub(crate) means: Option<Means>,
}

/// What a model call of a compactor's is made with.
#[derive(Clone)]
pub(crate) struct Means {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) price: Option<Price>,
    pub(crate) tokens_left: Option<u64>,
    pub(crate) context: ToolContext,
}

impl CompactionRequest {
    /// A request of no run, for tests: the last message of the user's is the task, the target half of
    /// what there is.
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

    /// How long the conversation is, as the kernel counts it.
    pub fn bytes(&self) -> u64 {
        bytes(&self.messages)
    }

    /// The loop's own provider; `None` in a request of no run.
    pub fn provider(&self) -> Option<&Arc<dyn Provider>> {
        self.means.as_ref().map(|means| &means.provider)
    }

    /// What is left of the run's ceilings on cost and tokens, for model calls of the compactor's: reserve before
    /// one, and settle after it. `None`: there is no ceiling.
    pub fn budget(&self) -> Option<SharedBudget> {
        self.means.as_ref().and_then(|means| means.context.budget())
    }

    /// What is left of the run's ceiling on tokens; `None`: there is none.
    pub fn tokens_left(&self) -> Option<u64> {
        self.means.as_ref().and_then(|means| means.tokens_left)
    }

    /// Says what the compactor spent on models: it counts towards the run's cost, tokens and
    /// ceilings, whatever becomes of the compaction. `cost_unknown`: some of it has a cost that nobody
    /// knows.
    pub fn spend(&self, usage: &Usage, cost: NanoUsd, cost_unknown: bool) {
        if let Some(means) = &self.means {
            means.context.spend(usage, cost, cost_unknown);
        }
    }

    /// As [`spend`](Self::spend), with what may have been used beyond that by a call that was cut.
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

    /// Awaits a future whose first poll starts user code or a model call; `None` if the run was
    /// stopped before.
    pub(crate) async fn start_future<F: Future>(&self, code: F) -> Option<F::Output> {
        match &self.means {
            Some(means) => means.context.start_future(code).await,
            None => Some(code.await),
        }
    }

    /// The same request for a conversation that is already a part of the way.
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
