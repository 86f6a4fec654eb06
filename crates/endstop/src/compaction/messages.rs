//! Measures of a conversation.
//!
//! ```text
//! bytes(&short) < bytes(&messages)
//! ```

use endstop_core::{Message, MessageId};

/// Returns the size of the messages in bytes.
pub(super) fn bytes(messages: &[Message]) -> u64 {
    // The same measure as in the kernel, so that both agree on a target.
    messages.iter().map(Message::byte_len).sum()
}

/// Returns an unused id. The newest message is never dropped, so the highest id is always known.
pub(super) fn fresh_id(messages: &[Message]) -> MessageId {
    // Saturating, because ids may come from a history that the user supplied.
    MessageId(messages.iter().map(|message| message.id.0).max().unwrap_or(0).saturating_add(1))
}
