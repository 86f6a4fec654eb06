//! Shortening a conversation before its window is full, or once the provider has refused it.
//!
//! ```
//! use endstop::compaction::{CompactionConfig, DropOldTurns, ElideToolResults, InOrder};
//! use endstop::{AgentLoop, testkit::ScriptedModel};
//! // The usual: old tool results first, then old turns, then a summary by the model.
//! let model = || ScriptedModel::new([]).context_window(100_000);
//! let agent = AgentLoop::builder(model()).compaction(&CompactionConfig::default()).build()?;
//! // Or in code, with strategies of one's own between them.
//! let short = InOrder::new().then(ElideToolResults::default()).then(DropOldTurns::keep(6));
//! let agent = AgentLoop::builder(model()).compactor(short).build()?;
//! # let _ = agent; Ok::<(), endstop::StartError>(())
//! ```
//!
//! A strategy proposes, the kernel judges: what it gives must be shorter by a share, a conversation
//! that providers accept, and have the task, what is pinned, and what the model has not answered yet.
//! A message is pinned with [`Message::pin`], a tool's result with [`ToolOutput::pin`].
//!
//! [`Message::pin`]: crate::Message::pin
//! [`ToolOutput::pin`]: crate::tool::ToolOutput::pin

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
    messages.iter().map(Message::byte_len).sum()
}

/// An id that no message has had: the newest message is never left out.
fn fresh_id(messages: &[Message]) -> MessageId {
    MessageId(messages.iter().map(|message| message.id.0).max().unwrap_or(0).saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::{CompactionRequest, bytes};
    use endstop_core::{Message, MessageId, Part, Role, ToolCall, ToolResult, ToolStatus, history};

    /// A task and so many turns, each with a result of so many bytes; the last is not answered yet.
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

    /// What a message's text or its first result says.
    pub(super) fn says(message: &Message) -> String {
        match message.tool_results().next() {
            Some(result) => result.content.clone(),
            None => message.plain_text(),
        }
    }

    /// The kernel would take it, as far as it is enough.
    pub(super) fn valid(request: &CompactionRequest, short: &[Message]) {
        let problem = history::shortened_problem(&request.messages, short, request.task);
        assert_eq!(problem, None);
        assert!(bytes(short) < request.bytes());
    }
}
