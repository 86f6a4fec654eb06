//! Facts that a history itself reveals: its beginning, which names a thread without ids, and a request to
//! summarise it.

use crate::exchange::digest::{Fingerprint, Mixer, Salt};
use crate::exchange::read::Request;
use endstop_core::{Message, Part, Role};

/// The most messages that are searched for the end of the beginning.
const LONGEST_OPENING: usize = 64;

/// Beginnings of the messages with which clients ask for a summary of the history. Their other signs
/// equal those of a turn: Claude Code sends the same tools and headers.
const SUMMARY_PROMPTS: &[(&str, &str)] = &[
    ("Claude Code", "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools."),
    ("Claude Code, older", "Your task is to create a detailed summary of the conversation so far"),
    ("codex", "You are performing a CONTEXT CHECKPOINT COMPACTION."),
    (
        "Gemini CLI, Qwen Code",
        "First, reason in your scratchpad. Then, generate the <state_snapshot>.",
    ),
    ("opencode", "Provide a detailed prompt for continuing our conversation above."),
];

/// Answers that clients write themselves after a message about the environment, which is the same
/// in all their conversations: Qwen Code, and Gemini CLI before it.
const WRITTEN_ANSWERS: &[&str] = &["Got it. Thanks for the context!"];

/// The user's messages before the first answer of the model.
pub(super) struct Opening {
    /// Fingerprint of their texts.
    pub(super) print: Fingerprint,
    /// Fingerprints of the single texts, to compare with prompts for sub-agents.
    pub(super) texts: Vec<Fingerprint>,
    /// `true` if the model has not answered yet.
    pub(super) is_all: bool,
}

impl Opening {
    /// Reads the beginning of a request. Instructions are left out, because Claude Code's change
    /// with each call.
    pub(super) fn of(request: &Request<'_>, salt: &Salt, scope: Fingerprint) -> Opening {
        let mut print = scoped(salt, "opening", scope);
        let mut texts = Vec::new();
        let mut is_all = true;
        for at in 0..request.message_count().min(LONGEST_OPENING) {
            let Some(message) = request.message(at) else { break };
            match message.role {
                Role::User => {}
                // Instructions are not what the user asked for.
                Role::System => continue,
                // The client wrote it itself, so the user's prompt is still to come.
                Role::Assistant if is_written_by_client(&message) => continue,
                Role::Assistant | Role::Tool => {
                    is_all = false;
                    break;
                }
            }
            for part in &message.parts {
                if let Part::Text { text } = part {
                    print = print.add(text.as_bytes());
                    texts.push(prompt(salt, scope, text));
                }
            }
        }
        Opening { print: print.done(), texts, is_all }
    }
}

/// `true` if this is an answer that the client has put into the history.
fn is_written_by_client(message: &Message) -> bool {
    match message.parts.as_slice() {
        [Part::Text { text }] => WRITTEN_ANSWERS.contains(&text.trim()),
        _ => false,
    }
}

/// Returns the user's first message. Instructions before it may change with each call, for example
/// if they contain the time.
pub(super) fn first_of_user(request: &Request<'_>) -> Option<Message> {
    let first = 0..request.message_count().min(LONGEST_OPENING);
    first.filter_map(|at| request.message(at)).find(|message| message.role == Role::User)
}

/// Starts a fingerprint within a scope.
pub(super) fn scoped(salt: &Salt, purpose: &str, scope: Fingerprint) -> Mixer {
    Mixer::new(salt, purpose).add(scope.to_string().as_bytes())
}

/// Returns the fingerprint of a prompt for a sub-agent.
pub(super) fn prompt(salt: &Salt, scope: Fingerprint, text: &str) -> Fingerprint {
    scoped(salt, "prompt", scope).add(text.trim().as_bytes()).done()
}

/// `true` if the last message asks for a summary of the history.
pub(super) fn asks_for_summary(request: &Request<'_>) -> bool {
    let last = request.message_count().checked_sub(1).and_then(|at| request.message(at));
    last.filter(|message| message.role == Role::User).is_some_and(|message| {
        message.parts.iter().any(|part| match part {
            Part::Text { text } => {
                // A prompt counts at the beginning only, because users quote such texts.
                let text = text.trim_start();
                SUMMARY_PROMPTS.iter().any(|(_, prompt)| text.starts_with(prompt))
            }
            _ => false,
        })
    })
}

/// Returns the call ids in the newest message that has results, the last one first.
pub(super) fn newest_results(request: &Request<'_>) -> Vec<String> {
    for at in (0..request.message_count()).rev() {
        let Some(message) = request.message(at) else { break };
        let mut ids: Vec<String> = message.tool_results().map(|one| one.call_id.clone()).collect();
        if !ids.is_empty() {
            ids.reverse();
            return ids;
        }
    }
    Vec::new()
}

/// Returns the fingerprint of a message's role, texts, calls and results. Cache marks do not count,
/// because clients move them from message to message.
pub(super) fn message_print(salt: &Salt, message: &Message) -> Fingerprint {
    let mut print = Mixer::new(salt, "message").add(format!("{:?}", message.role).as_bytes());
    for part in &message.parts {
        print = match part {
            Part::Text { text } => print.add(text.as_bytes()),
            Part::ToolCall(call) => print
                .add(call.id.as_bytes())
                .add(call.name.as_bytes())
                .add(call.arguments.as_bytes()),
            Part::ToolResult(result) => {
                print.add(result.call_id.as_bytes()).add(result.content.as_bytes())
            }
            _ => print,
        };
    }
    print.done()
}
