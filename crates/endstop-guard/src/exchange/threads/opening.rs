//! Facts that a history itself reveals: its beginning, which names a thread without ids, and a request to
//! summarise it.

use super::state::Marked;
use crate::exchange::bounded_map::BoundedMap;
use crate::exchange::digest::{Fingerprint, Mixer, Salt};
use crate::exchange::request::Request;
use endstop_core::{Message, Part, Role};

/// The most messages that are searched for the end of the beginning.
const LONGEST_OPENING: usize = 64;
/// The most openings that are remembered. A process with more conversations at once reads some again.
const MOST_OPENINGS: usize = 256;
/// The most texts of an opening that is remembered.
const MOST_TEXTS: usize = 256;

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
#[derive(Clone)]
pub(super) struct Opening {
    /// Fingerprint of their texts.
    pub(super) print: Fingerprint,
    /// Fingerprints of the single texts, to compare with prompts for sub-agents.
    pub(super) texts: Vec<Fingerprint>,
    /// Fingerprints of the beginnings with fewer texts, the longest one last.
    pub(super) shorter: Vec<Fingerprint>,
    /// `true` if the model has not answered yet.
    pub(super) is_all: bool,
}

/// Openings that were read before. A client without ids sends its own with each call, and they can be
/// long.
pub(super) struct Openings(BoundedMap<(Fingerprint, Fingerprint), Known>);

struct Known {
    /// The messages that the opening was read from.
    messages: Vec<Fingerprint>,
    opening: Opening,
}

impl Openings {
    pub(super) fn new() -> Openings {
        Openings(BoundedMap::new(MOST_OPENINGS))
    }

    /// Returns the opening of a request within a scope.
    pub(super) fn of(&mut self, marked: &Marked<'_>, salt: &Salt, scope: Fingerprint) -> Opening {
        let key = marked.messages.first().map(|first| (scope, *first));
        if let Some(known) = key.as_ref().and_then(|key| self.0.get(key)) {
            let length = known.messages.len();
            // The same messages, and the message after them is not another one of the user.
            if marked.messages.get(..length).is_some_and(|first| first == known.messages)
                && let Some(is_all) = ends_at(marked.request, length)
            {
                return Opening { is_all, ..known.opening.clone() };
            }
        }
        let (opening, length) = Opening::read(marked.request, salt, scope);
        let messages = marked.messages.get(..length).unwrap_or_default().to_vec();
        let is_short = !messages.is_empty() && opening.texts.len() <= MOST_TEXTS;
        if let Some(key) = key.filter(|_| is_short) {
            self.0.put(key, Known { messages, opening: opening.clone() });
        }
        opening
    }
}

/// `Some` if an opening can end before this message: `true` if there is no such message.
fn ends_at(request: &Request<'_>, at: usize) -> Option<bool> {
    if at >= request.message_count().min(LONGEST_OPENING) {
        return Some(true);
    }
    request.message(at).filter(|message| ends_opening(message)).map(|_| false)
}

/// `true` if the model or a tool wrote this message.
fn ends_opening(message: &Message) -> bool {
    match message.role {
        Role::User | Role::System => false,
        // The client can have written it itself, and then the user's prompt is still to come.
        Role::Assistant => !is_written_by_client(message),
        Role::Tool => true,
    }
}

impl Opening {
    /// Reads the beginning of a request, and returns the number of its messages, too. Instructions
    /// are left out, because Claude Code's change with each call.
    fn read(request: &Request<'_>, salt: &Salt, scope: Fingerprint) -> (Opening, usize) {
        let mut print = scoped(salt, "opening", scope);
        let (mut texts, mut shorter) = (Vec::new(), Vec::new());
        let mut length = 0;
        let mut is_all = true;
        for at in 0..request.message_count().min(LONGEST_OPENING) {
            let Some(message) = request.message(at) else { break };
            if ends_opening(message) {
                is_all = false;
                break;
            }
            length = at + 1;
            // Neither instructions nor an answer that the client wrote are what the user asked for.
            if message.role != Role::User {
                continue;
            }
            for part in &message.parts {
                if let Part::Text { text } = part {
                    if !texts.is_empty() && texts.len() <= MOST_TEXTS {
                        shorter.push(print.clone().done());
                    }
                    print = print.add(text.as_bytes());
                    texts.push(prompt(salt, scope, text));
                }
            }
        }
        (Opening { print: print.done(), texts, shorter, is_all }, length)
    }
}

/// `true` if this is an answer that the client has put into the history.
fn is_written_by_client(message: &Message) -> bool {
    match message.parts.as_slice() {
        [Part::Text { text }] => WRITTEN_ANSWERS.contains(&text.trim()),
        _ => false,
    }
}

/// Returns the user's first message and its position. Instructions before it may change with each
/// call, for example if they contain the time.
pub(super) fn first_of_user<'r>(request: &'r Request<'_>) -> Option<(usize, &'r Message)> {
    let first = 0..request.message_count().min(LONGEST_OPENING);
    let mut first = first.filter_map(|at| Some((at, request.message(at)?)));
    first.find(|(_, message)| message.role == Role::User)
}

/// Starts a fingerprint within a scope.
pub(super) fn scoped(salt: &Salt, purpose: &str, scope: Fingerprint) -> Mixer {
    Mixer::new(salt, purpose).add(scope.as_bytes())
}

/// Returns the fingerprint of a prompt for a sub-agent.
pub(super) fn prompt(salt: &Salt, scope: Fingerprint, text: &str) -> Fingerprint {
    scoped(salt, "prompt", scope).add(text.trim().as_bytes()).done()
}

/// `true` if the last message asks for a summary of the history.
pub(super) fn asks_for_summary(request: &Request<'_>) -> bool {
    let last = request.last_message().filter(|message| message.role == Role::User);
    last.is_some_and(|message| {
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
    let has_results = |at: &usize| {
        request.message(*at).is_some_and(|message| message.tool_results().next().is_some())
    };
    let newest = (0..request.message_count()).rev().find(has_results);
    let Some(newest) = newest.and_then(|at| request.message(at)) else { return Vec::new() };
    let mut ids: Vec<String> = newest.tool_results().map(|one| one.call_id.clone()).collect();
    ids.reverse();
    ids
}

/// Returns the fingerprint of a message's role, texts, calls and results. Cache marks do not count, because
/// clients move them from message to message.
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
