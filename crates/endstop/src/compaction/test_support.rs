//! Conversations for the tests of the strategies.

use super::messages::bytes;
use super::request::CompactionRequest;
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
        attachments: Vec::new(),
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
