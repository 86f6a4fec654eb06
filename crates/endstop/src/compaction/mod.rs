//! Compaction: shortens a conversation before the context window is full, or after the provider
//! refused it.
//!
//! ```
//! use endstop::compaction::{CompactionConfig, DropOldTurns, ElideToolResults, InOrder};
//! use endstop::{AgentLoop, testkit::ScriptedModel};
//! // The default: old tool results first, then old turns, then a summary by the model.
//! let model = || ScriptedModel::new([]).context_window(100_000);
//! let agent = AgentLoop::builder(model()).compaction(&CompactionConfig::default()).build()?;
//! // Or in code, with custom strategies between them.
//! let short = InOrder::new().then(ElideToolResults::default()).then(DropOldTurns::keep(6));
//! let agent = AgentLoop::builder(model()).compactor(short).build()?;
//! # let _ = agent; Ok::<(), endstop::StartError>(())
//! ```
//!
//! A strategy proposes a conversation and the kernel checks it: it must be shorter by a minimum
//! share, be acceptable to providers, and contain the task, pinned messages and everything that the
//! model has not answered yet. [`Message::pin`] pins a message, [`ToolOutput::pin`] a tool's
//! result.
//!
//! [`Message::pin`]: crate::Message::pin [`ToolOutput::pin`]: crate::tool::ToolOutput::pin

mod config;
mod drop_turns;
mod elide;
mod in_order;
mod request;
mod summarise;
mod turns;

pub use config::{CompactionConfig, Strategy};
pub use drop_turns::DropOldTurns;
pub use elide::ElideToolResults;
pub use in_order::InOrder;
pub use request::CompactionRequest;
pub(crate) use request::Means;
pub use summarise::Summarise;

use endstop_core::{Message, MessageId};

fn bytes(messages: &[Message]) -> u64 {
    // The same measure as in the kernel, so that both agree on a target.
    messages.iter().map(Message::byte_len).sum()
}

/// Returns an unused id. The newest message is never dropped, so the highest id is always known.
fn fresh_id(messages: &[Message]) -> MessageId {
    // Saturating, because ids may come from a history that the user supplied.
    MessageId(messages.iter().map(|message| message.id.0).max().unwrap_or(0).saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::{CompactionRequest, bytes};
    use endstop_core::{Message, MessageId, Part, Role, ToolCall, ToolResult, ToolStatus, history};

    /// Returns a task and this many turns, each with a result of this size; the last is unanswered.
    pub(super) fn conversation(turns: u64, size: usize) -> Vec<Message> {
        let mut messages = vec![Message::text(MessageId(1), Role::User, "Read all of it.")];
        for n in 1..=turns {
            let (asks, gives) = turn(n, size, false);
            messages.extend([asks, gives]);
        }
        messages
    }

    pub(super) fn turn(n: u64, size: usize, pinned: bool) -> (Message, Message) {
        let (id, name) = (format!("call_{n}"), "look".to_owned());
        let result = ToolResult {
            call_id: id.clone(),
            name: name.clone(),
            status: ToolStatus::Ok,
            content: "x".repeat(size),
            started: true,
            pinned,
        };
        let call = Part::ToolCall(ToolCall { id, name, arguments: "{}".to_owned() });
        let asks = vec![Part::Text { text: format!("I look at {n}.") }, call];
        (
            Message::new(MessageId(2 * n), Role::Assistant, asks),
            Message::new(MessageId(2 * n + 1), Role::Tool, vec![Part::ToolResult(result)]),
        )
    }

    /// Returns the content of a message's first result, or its text.
    pub(super) fn says(message: &Message) -> String {
        match message.tool_results().next() {
            Some(result) => result.content.clone(),
            None => message.plain_text(),
        }
    }

    /// Asserts that the kernel would accept the messages, apart from the required gain.
    pub(super) fn valid(request: &CompactionRequest, short: &[Message]) {
        let problem = history::shortened_problem(&request.messages, short, request.task);
        assert_eq!(problem, None);
        assert!(bytes(short) < request.bytes());
    }
}
