//! The state of one thread, and the fingerprints of a request that are compared with its last one.

use super::placed::{Attempt, History, ToolAnswer};
use super::seat::ThreadId;
use crate::exchange::digest::{Fingerprint, Mixer, Salt};
use crate::exchange::request::Request;
use endstop_core::{Message, Part, Role, ToolCall, ToolResult};

/// The most open calls that a thread remembers. Models ask for a few at once.
const MOST_OPEN: usize = 256;
/// The longest call id that is remembered, in bytes.
const LONGEST_ID: usize = 256;

/// The last call of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Pending,
    Answered,
    Failed,
}

/// A call that waits for its result.
#[derive(Clone, Debug)]
struct OpenCall {
    id: String,
    name: String,
}

/// The table's record of a thread.
#[derive(Clone, Debug)]
pub(super) struct ThreadState {
    /// The thread that started this one.
    pub(super) parent: Option<ThreadId>,
    /// Number of turns so far.
    pub(super) turn: u64,
    /// Bytes of the last prompt, with the requests that it continued.
    pub(super) prompt_bytes: u64,
    /// Number of messages in the last request; 0 if it continued a response by id.
    count: usize,
    /// The largest such number.
    most: usize,
    first: Option<First>,
    last: Option<Last>,
    body: Option<Fingerprint>,
    phase: Phase,
    open: Vec<OpenCall>,
}

/// The user's first message.
#[derive(Clone, Copy, Debug)]
pub(super) struct First {
    pub(super) at: usize,
    /// The bytes of the messages up to this one.
    pub(super) raw: Option<Fingerprint>,
    /// The content.
    pub(super) content: Fingerprint,
}

/// The last message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Last {
    /// The bytes.
    pub(super) raw: Option<Fingerprint>,
    /// The content.
    pub(super) content: Fingerprint,
}

/// The last request of a thread, as the next one is compared with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// The bytes of the body.
    pub(super) body: Fingerprint,
    /// Number of messages.
    pub(super) count: usize,
    /// The user's first message.
    pub(super) first: Option<First>,
    /// The last message.
    pub(super) last: Option<Last>,
    /// `true` if the request has only what is new, and continues a response by id.
    pub(super) chained: bool,
}

impl ThreadState {
    pub(super) fn new(parent: Option<ThreadId>) -> ThreadState {
        ThreadState {
            parent,
            turn: 0,
            prompt_bytes: 0,
            count: 0,
            most: 0,
            first: None,
            last: None,
            body: None,
            phase: Phase::Answered,
            open: Vec::new(),
        }
    }

    /// The user's first message in the previous request.
    pub(super) fn first(&self) -> Option<First> {
        self.first
    }

    /// Returns the change of the history and the first message that may be new. `is_last` compares
    /// the message at this position with the one that was the last in the previous request.
    pub(super) fn change(
        &self,
        sent: Sent,
        is_last: impl FnOnce(usize, Last) -> bool,
    ) -> (History, usize) {
        // The thread was put into the table for this request.
        if self.turn == 0 {
            return (History::New, 0);
        }
        if sent.chained || self.count == 0 {
            return (History::Grown, 0);
        }
        let first = |first: Option<First>| first.map(|first| first.content);
        if sent.count < self.count || first(sent.first) != first(self.first) {
            return (History::Rewritten, 0);
        }
        // Clients append a reminder to their last message, and then that message is new again.
        let same = self.last.is_some_and(|last| is_last(self.count - 1, last));
        (History::Grown, if same { self.count } else { self.count - 1 })
    }

    /// `true` if the history had grown beyond this number of messages.
    pub(super) fn was_longer_than(&self, count: usize) -> bool {
        self.most > count
    }

    /// Number of messages of the last request.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Compares a request without new results with the previous one.
    pub(super) fn attempt(&self, sent: Sent) -> Attempt {
        let last = |last: Option<Last>| last.map(|last| last.content);
        // The provider bills each answer, so the same bytes after an answer are the next turn.
        if self.body == Some(sent.body) && self.phase != Phase::Answered {
            Attempt::Repeat
        } else if self.phase == Phase::Failed
            && self.count == sent.count
            && last(self.last) == last(sent.last)
        {
            Attempt::Changed
        } else {
            Attempt::First
        }
    }

    /// Stores a request, and starts the next turn unless it is an attempt of this one.
    pub(super) fn sent(&mut self, sent: Sent, attempt: Attempt) {
        if attempt == Attempt::First {
            self.turn += 1;
            // The client has dropped the calls that it did not answer.
            self.open.clear();
        }
        self.body = Some(sent.body);
        self.count = if sent.chained { 0 } else { sent.count };
        // A later, shorter request without an answer is a program that started again.
        self.most = self.most.max(sent.count);
        self.first = sent.first;
        self.last = sent.last;
        self.phase = Phase::Pending;
    }

    /// Stores the calls of a response.
    pub(super) fn answered<'c>(&mut self, calls: impl Iterator<Item = &'c ToolCall>) {
        // A provider that sends huge ids only loses the exact match of its results.
        let calls = calls.filter(|call| call.id.len() <= LONGEST_ID).take(MOST_OPEN);
        let name = |call: &ToolCall| call.name.chars().take(LONGEST_ID).collect();
        self.open = calls.map(|call| OpenCall { id: call.id.clone(), name: name(call) }).collect();
        self.phase = Phase::Answered;
    }

    /// Notes that the last call failed.
    pub(super) fn failed(&mut self) {
        self.phase = Phase::Failed;
    }

    /// Takes the open call that a result answers. Gemini's clients invent ids of their own, and
    /// other formats have none, so there the name of the tool decides, in order.
    pub(super) fn close(&mut self, result: &ToolResult, by_name: bool) -> Option<ToolAnswer> {
        let by_id = self.open.iter().position(|call| call.id == result.call_id);
        let by_name = by_name || result.call_id.is_empty();
        // Ollama's older clients name neither the call nor the tool.
        let nameless = result.name.is_empty() && result.call_id.is_empty();
        let named = |call: &OpenCall| nameless || call.name == result.name;
        let at = match by_id {
            Some(at) => at,
            None if by_name => self.open.iter().position(named)?,
            None => return None,
        };
        Some(ToolAnswer {
            call_id: self.open.remove(at).id,
            text: result.content.clone(),
            is_error: result.status.is_error(),
        })
    }
}

/// Returns the part of a message that is new to the kernel. Results that were reported as answers
/// are left out; in a grown history also the other results and the model's own messages.
pub(super) fn input_of(message: &Message, grown: bool, answered: &[String]) -> Option<Message> {
    if grown && message.role == Role::Assistant {
        return None;
    }
    let is_new = |part: &&Part| match part {
        Part::ToolResult(result) => !grown && !answered.contains(&result.call_id),
        _ => true,
    };
    let parts: Vec<Part> = message.parts.iter().filter(is_new).cloned().collect();
    (!parts.is_empty()).then(|| Message::new(message.id, message.role, parts))
}

/// A request with its marks: fingerprints of each message and of the whole body, from one pass over its bytes.
pub(super) struct Marked<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) messages: Vec<Fingerprint>,
    pub(super) body: Fingerprint,
}

impl<'a> Marked<'a> {
    /// Reads the bytes of a request.
    pub(super) fn of(request: &'a Request<'a>, salt: &Salt) -> Marked<'a> {
        let body = request.body().as_bytes();
        let mut messages = Vec::with_capacity(request.message_count());
        let mut whole = Mixer::new(salt, "body");
        let mut from = 0;
        for span in request.message_spans() {
            // The same bytes at another place are the same message.
            let mark = Mixer::new(salt, "raw message").add(&body[span.clone()]).done();
            whole = whole.add(&body[from..span.start]).add(mark.as_bytes());
            from = span.end;
            messages.push(mark);
        }
        Marked { request, messages, body: whole.add(&body[from..]).done() }
    }

    /// Returns the mark of the first messages together, up to the one at this position.
    pub(super) fn up_to(&self, last: usize, salt: &Salt) -> Option<Fingerprint> {
        let first = self.messages.get(..=last)?;
        let start = Mixer::new(salt, "first messages");
        Some(first.iter().fold(start, |mark, one| mark.add(one.as_bytes())).done())
    }
}
