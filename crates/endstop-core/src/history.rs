//! The rules that every provider has for a conversation, and the parts that a compaction must keep.
//!
//! ```
//! use endstop_core::{Message, MessageId, Role, history};
//! let task = Message::text(MessageId(1), Role::User, "Fix the failing test.");
//! assert_eq!(history::problem(&[task.clone()]), None);
//!
//! let orphan = Message::text(MessageId(2), Role::Assistant, "");
//! assert_eq!(history::problem(&[task, orphan]).unwrap().name, "empty_message");
//! ```
//!
//! The rules: every tool call is answered in the next message, exactly once, and by nothing else;
//! the first message is from the user; no message is empty.

use crate::message::{Message, MessageId, Part, Role, ToolCall};
use crate::visible::is_blank;
use std::collections::HashSet;
use std::fmt;

/// The largest id of a message: JSON readers that use floating-point numbers keep it exactly, and
/// any number of messages can still be added.
const MOST_ID: u64 = 1 << 53;

/// A violation of the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryProblem {
    /// `empty`, `empty_message`, `duplicate_id`, `id`, `role`, `call_without_result`,
    /// `result_without_call`, `duplicate_call`; after a compaction also `task_lost`, `pin_lost`, `open_turn_lost`.
    pub name: &'static str,
    /// Description of the violation, with its position.
    pub what: String,
}

impl HistoryProblem {
    fn new(name: &'static str, what: impl Into<String>) -> HistoryProblem {
        HistoryProblem { name, what: what.into() }
    }
}

impl fmt::Display for HistoryProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.what)
    }
}

impl std::error::Error for HistoryProblem {}

/// Returns the first reason why a provider would reject this conversation.
pub fn problem(messages: &[Message]) -> Option<HistoryProblem> {
    check(messages).err()
}

fn check(messages: &[Message]) -> Result<(), HistoryProblem> {
    // System messages are instructions, so they do not count as the first message.
    let Some(first) = messages.iter().find(|message| message.role != Role::System) else {
        return Err(HistoryProblem::new("empty", "the conversation has no messages"));
    };
    if first.role != Role::User {
        return Err(HistoryProblem::new("role", "the first message is not from the user"));
    }
    let mut ids = HashSet::new();
    let mut before: Option<&Message> = None;
    for (at, message) in messages.iter().enumerate() {
        let wrong =
            |name, what: String| Err(HistoryProblem::new(name, format!("message {at}: {what}")));
        if !ids.insert(message.id) {
            return wrong("duplicate_id", format!("duplicate id {}", message.id.0));
        }
        if message.id.0 > MOST_ID {
            return wrong("id", format!("the id {} is above {MOST_ID}", message.id.0));
        }
        if !says_something(message) {
            return wrong("empty_message", "the message has no content".to_owned());
        }
        if message.role != Role::Assistant && message.tool_calls().next().is_some() {
            return wrong("role", "a tool call outside an assistant message".to_owned());
        }
        if message.role != Role::Tool && message.tool_results().next().is_some() {
            return wrong("role", "a tool result outside a tool message".to_owned());
        }
        // Only the previous message's calls count, because providers require results right after
        // the calls.
        let asked: Vec<&ToolCall> = before.map(|m| m.tool_calls().collect()).unwrap_or_default();
        let answered: Vec<&str> = match message.role {
            Role::Tool => message.tool_results().map(|result| result.call_id.as_str()).collect(),
            _ => Vec::new(),
        };
        if let Some(call) = asked.iter().find(|call| !answered.contains(&call.id.as_str())) {
            return wrong("call_without_result", format!("the call `{}` has no result", call.id));
        }
        let mut called = HashSet::new();
        if let Some(call) = asked.iter().find(|call| !called.insert(call.id.as_str())) {
            return wrong("duplicate_call", format!("two calls have the id `{}`", call.id));
        }
        for (nth, id) in answered.iter().enumerate() {
            let calls = asked.iter().filter(|call| call.id == **id).count();
            if calls == 0 || answered[..nth].contains(id) {
                return wrong(
                    "result_without_call",
                    format!("the result `{id}` answers no call of the previous message"),
                );
            }
        }
        if message.role == Role::Tool && answered.is_empty() {
            return wrong("role", "a tool message without a result".to_owned());
        }
        before = Some(message);
    }
    match before.and_then(|last| last.tool_calls().next()) {
        Some(call) => Err(HistoryProblem::new(
            "call_without_result",
            format!("message {}: the call `{}` has no result", messages.len(), call.id),
        )),
        None => Ok(()),
    }
}

/// `true` if the message has content that a provider accepts back. Reasoning alone is rejected.
pub(crate) fn says_something(message: &Message) -> bool {
    message.parts.iter().any(|part| match part {
        Part::Text { text } | Part::Refusal { text } => !is_blank(text),
        part => !part.is_reasoning(),
    })
}

/// Returns the index of the first message of the open turn, which the model has not answered yet:
/// its last calls with their results, or its last text if it must continue from there, and
/// everything after that.
///
/// A compaction must keep this part unchanged; only tool results may become shorter.
pub fn open_from(messages: &[Message]) -> usize {
    let Some(last) = messages.iter().rposition(|message| message.role == Role::Assistant) else {
        return 0;
    };
    let goes_on = last + 1 == messages.len() || messages[last].tool_calls().next().is_some();
    if goes_on { last } else { last + 1 }
}

/// Checks a conversation that a compaction made of `old`, apart from its size.
pub fn shortened_problem(
    old: &[Message],
    new: &[Message],
    task: Option<MessageId>,
) -> Option<HistoryProblem> {
    check_shortened(old, new, task).err()
}

fn check_shortened(
    old: &[Message],
    new: &[Message],
    task: Option<MessageId>,
) -> Result<(), HistoryProblem> {
    check(new)?;
    // Compare whole messages, because a changed pinned message is as bad as a missing one.
    let there = |kept: &Message| new.iter().any(|message| message == kept);
    for message in old {
        if task == Some(message.id) && !there(message) {
            return Err(HistoryProblem::new("task_lost", "the task message is missing or changed"));
        }
        if message.pinned && !there(message) {
            let what = format!("pinned message {} is missing or changed", message.id.0);
            return Err(HistoryProblem::new("pin_lost", what));
        }
    }
    for (at, message) in old.iter().enumerate() {
        for result in message.tool_results().filter(|result| result.pinned) {
            // Its call is present as well, or `check` would have rejected the result.
            let same = |other: &Message| {
                other.id == message.id && other.tool_results().any(|r| r == result)
            };
            if !new.iter().any(same) {
                let what = format!(
                    "the pinned result `{}` of message {at} is missing or changed",
                    result.call_id
                );
                return Err(HistoryProblem::new("pin_lost", what));
            }
        }
    }
    let open = &old[open_from(old)..];
    let end =
        // Fewer messages than the open turn has: compare with nothing, which fails the length test
        // below.
        new.len().checked_sub(open.len()).and_then(|from| new.get(from..)).unwrap_or_default();
    match open.iter().zip(end).find(|(old, new)| !stands(old, new)) {
        None if open.len() == end.len() => Ok(()),
        _ => Err(HistoryProblem::new(
            "open_turn_lost",
            "the messages that the model has not answered yet must stay unchanged at the end",
        )),
    }
}

/// `true` if the messages are equal, except that tool results may be shorter.
fn stands(old: &Message, new: &Message) -> bool {
    (old.id, old.role, old.pinned) == (new.id, new.role, new.pinned)
        && old.parts.len() == new.parts.len()
        && old.parts.iter().zip(&new.parts).all(|parts| match parts {
            (Part::ToolResult(old), Part::ToolResult(new)) => {
                (&old.call_id, &old.name, old.status, old.started, old.pinned)
                    == (&new.call_id, &new.name, new.status, new.started, new.pinned)
                    && new.content.len() <= old.content.len()
                    // Attachments are kept or removed, but never replaced.
                    && (new.attachments.is_empty() || new.attachments == old.attachments)
            }
            (old, new) => old == new,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{ToolResult, ToolStatus};

    fn user(id: u64, text: &str) -> Message {
        Message::text(MessageId(id), Role::User, text)
    }

    fn calls(id: u64, ids: &[&str]) -> Message {
        let call = |id: &&str| {
            let (id, name) = ((*id).to_owned(), "look".to_owned());
            Part::ToolCall(ToolCall { id, name, arguments: "{}".to_owned() })
        };
        Message::new(MessageId(id), Role::Assistant, ids.iter().map(call).collect())
    }

    fn results(id: u64, ids: &[&str], content: &str) -> Message {
        let result = |id: &&str| {
            Part::ToolResult(ToolResult {
                call_id: (*id).to_owned(),
                name: "look".to_owned(),
                status: ToolStatus::Ok,
                content: content.to_owned(),
                attachments: Vec::new(),
                started: true,
                pinned: false,
            })
        };
        Message::new(MessageId(id), Role::Tool, ids.iter().map(result).collect())
    }

    fn name(messages: &[Message]) -> Option<&'static str> {
        problem(messages).map(|problem| problem.name)
    }

    #[test]
    fn refused_histories_have_a_name() {
        let (task, asks, answers) =
            (user(1, "go"), calls(2, &["a", "b"]), results(3, &["b", "a"], "r"));
        assert_eq!(name(&[task.clone(), asks.clone(), answers.clone()]), None);
        for (messages, expected) in [
            (vec![], "empty"),
            (vec![Message::text(MessageId(1), Role::System, "be brief")], "empty"),
            (vec![user(1, " ")], "empty_message"),
            (vec![user(1, "go"), user(1, "go")], "duplicate_id"),
            (vec![Message::text(MessageId(1), Role::Assistant, "hi")], "role"),
            (vec![task.clone(), asks.clone()], "call_without_result"),
            (vec![task.clone(), asks.clone(), results(3, &["a"], "r")], "call_without_result"),
            (
                vec![task.clone(), asks.clone(), user(3, "and?"), answers.clone()],
                "call_without_result",
            ),
            (vec![task.clone(), answers.clone()], "result_without_call"),
            (
                vec![task.clone(), asks.clone(), results(3, &["a", "b", "b"], "r")],
                "result_without_call",
            ),
            (vec![task.clone(), calls(2, &["a", "a"]), results(3, &["a"], "r")], "duplicate_call"),
            (vec![user(u64::MAX, "go")], "id"),
            (vec![task, Message { role: Role::User, ..asks }, answers], "role"),
        ] {
            assert_eq!(name(&messages), Some(expected), "{messages:?}");
        }
    }

    #[test]
    fn missing_kept_messages_are_reported() {
        let old = vec![
            user(1, "go"),
            calls(2, &["a"]),
            results(3, &["a"], "long"),
            user(4, "never forget this").pin(),
            calls(5, &["b"]),
            results(6, &["b"], "long"),
            user(7, "well?"),
        ];
        let lost = |new: &[Message]| {
            shortened_problem(&old, new, Some(MessageId(1))).map(|problem| problem.name)
        };
        let without = |ids: &[u64]| -> Vec<Message> {
            old.iter().filter(|message| !ids.contains(&message.id.0)).cloned().collect()
        };
        assert_eq!(lost(&old), None);
        assert_eq!(lost(&without(&[2, 3])), None);
        assert_eq!(lost(&without(&[4])), Some("pin_lost"));
        let mut other = old.clone();
        other[0] = user(9, "in short");
        assert_eq!(lost(&other), Some("task_lost"));
        assert_eq!(lost(&without(&[5, 6])), Some("open_turn_lost"));
        assert_eq!(lost(&without(&[7])), Some("open_turn_lost"));
        let mut shorter = old.clone();
        shorter[5] = results(6, &["b"], "lo");
        assert_eq!(lost(&shorter), None, "a result may be shorter");
        shorter[5] = results(6, &["b"], "longer");
        assert_eq!(lost(&shorter), Some("open_turn_lost"));
        let mut pinned = old.clone();
        if let Part::ToolResult(result) = &mut pinned[2].parts[0] {
            result.pinned = true;
        }
        let new = without(&[2, 3]);
        let problem = shortened_problem(&pinned, &new, Some(MessageId(1))).unwrap();
        assert_eq!(problem.name, "pin_lost", "{problem}");
    }

    #[test]
    fn open_turn_starts_after_last_answer() {
        let said = Message::text(MessageId(2), Role::Assistant, "so");
        assert_eq!(open_from(&[user(1, "go")]), 0);
        assert_eq!(open_from(&[user(1, "go"), said.clone()]), 1, "it is to go on from there");
        assert_eq!(open_from(&[user(1, "go"), said, user(3, "again")]), 2);
        assert_eq!(open_from(&[user(1, "go"), calls(2, &["a"]), results(3, &["a"], "r")]), 1);
    }
}
