//! Runs several strategies in order until the conversation is short enough.
//!
//! ```
//! use endstop::compaction::{DropOldTurns, ElideToolResults, InOrder, Summarise};
//! let gentle = InOrder::new()
//!     .then(ElideToolResults::default())
//!     .then(Summarise::default())
//!     .then(DropOldTurns::default());
//! # let _ = gentle;
//! ```

use super::compactor::{CompactionFuture, Compactor};
use super::messages::bytes;
use super::{CompactionRequest, DropOldTurns, ElideToolResults, Summarise};
use endstop_core::{Compaction, NanoUsd, history};
use std::sync::Arc;

/// Tries each strategy on the result of the previous one, until the target size is met. A strategy
/// that fails, or returns a longer or invalid conversation, is skipped.
#[derive(Clone)]
pub struct InOrder(Vec<Arc<dyn Compactor>>);

impl InOrder {
    /// Creates a compactor without strategies.
    pub fn new() -> InOrder {
        InOrder(Vec::new())
    }

    /// Appends a strategy.
    #[must_use]
    pub fn then(mut self, next: impl Compactor + 'static) -> InOrder {
        self.0.push(Arc::new(next));
        self
    }
}

impl Default for InOrder {
    /// Creates the default order: old tool results, then old turns, then a summary by the loop's
    /// model.
    fn default() -> InOrder {
        InOrder::new()
            .then(ElideToolResults::default())
            .then(DropOldTurns::default())
            .then(Summarise::default())
    }
}

impl Compactor for InOrder {
    fn compact(&self, request: CompactionRequest) -> CompactionFuture<'_> {
        Box::pin(async move {
            let mut current = request.messages.clone();
            let (mut took, mut failed, mut spent) = (Vec::new(), Vec::new(), NanoUsd::ZERO);
            for strategy in &self.0 {
                let next = request.with_messages(current.clone());
                // Strategies may be user code, which must not start after the run was stopped.
                let compacted = request.start_future(async { strategy.compact(next).await });
                let Some(compacted) = compacted.await else {
                    failed.push("the run was stopped".to_owned());
                    break;
                };
                match compacted {
                    Compaction::NotNeeded => {}
                    Compaction::Failed(why) => failed.push(why),
                    Compaction::Done { messages, cost, strategy } => {
                        // Even a rejected result may have cost money.
                        spent += cost;
                        // Check each result here, not only the last one in the kernel: one faulty
                        // strategy would otherwise invalidate the work of the others.
                        let torn =
                            history::shortened_problem(&request.messages, &messages, request.task);
                        let (was, is) = (bytes(&current), bytes(&messages));
                        match torn {
                            Some(problem) => failed.push(format!("{strategy}: {problem}")),
                            None if is >= was => {
                                failed.push(format!("{strategy}: {was} bytes became {is}"));
                            }
                            None => {
                                current = messages;
                                took.push(strategy);
                            }
                        }
                    }
                }
                if bytes(&current) <= request.target {
                    break;
                }
            }
            if took.is_empty() {
                // Only a successful compaction carries a cost to the kernel, so report the cost of
                // failed ones here.
                if let Some(budget) = request.budget() {
                    budget.settle(NanoUsd::ZERO, spent);
                }
                request.spend(&endstop_core::Usage::default(), spent, false);
                return Compaction::Failed(if failed.is_empty() {
                    "no strategy had anything to do".to_owned()
                } else {
                    failed.join("; ")
                });
            }
            Compaction::Done { messages: current, cost: spent, strategy: took.join("+") }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::test_support::{conversation, valid};
    use endstop_core::{Message, MessageId, Role};

    /// Returns a fixed result for every request.
    struct Gives(fn(Vec<Message>) -> Compaction);

    impl Compactor for Gives {
        fn compact(&self, request: CompactionRequest) -> CompactionFuture<'_> {
            Box::pin(std::future::ready((self.0)(request.messages)))
        }
    }

    async fn done(order: &InOrder, request: &CompactionRequest) -> (Vec<Message>, String) {
        match order.compact(request.clone()).await {
            Compaction::Done { messages, strategy, .. } => {
                valid(request, &messages);
                (messages, strategy)
            }
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn strategies_run_until_target_is_met() {
        let mut request = CompactionRequest::new(conversation(12, 4_000));
        let (short, by) = done(&InOrder::default(), &request).await;
        assert_eq!((by.as_str(), short.len()), ("elide", 25), "notes are enough");
        request.target = 13_000;
        let (_, by) = done(&InOrder::default(), &request).await;
        assert_eq!(by, "elide+drop");
    }

    #[tokio::test]
    async fn failing_invalid_or_growing_strategy_skipped() {
        let request = CompactionRequest::new(conversation(12, 4_000));
        let order = InOrder::new()
            .then(Gives(|_| Compaction::Failed("no".to_owned())))
            .then(Gives(|_| Compaction::done("torn", Vec::new())))
            .then(Gives(|mut messages| {
                messages.insert(1, Message::text(MessageId(900), Role::User, "and more"));
                Compaction::done("grown", messages)
            }))
            .then(Gives(|_| Compaction::NotNeeded));
        let failed = order.compact(request.clone()).await;
        let Compaction::Failed(why) = failed else { panic!("{failed:?}") };
        assert!(
            why.starts_with("no; torn: empty: the conversation has no messages; grown: "),
            "{why}"
        );
        let (_, by) = done(&order.then(DropOldTurns::default()), &request).await;
        assert_eq!(by, "drop");
    }
}
