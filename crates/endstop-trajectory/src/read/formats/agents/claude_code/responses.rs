//! Decides which records of the model begin a response.
//!
//! ```text
//! u1 ── a1 (id m, call c1) ── r1 ── a2 (id m, call c2)     one response, with a result between its blocks
//! u1 ── a1 (id m, tool_use) ── r1 ── a2 (id m)             two responses, if the first one had ended
//! ```
//!
//! A response is written block by block, and all its records have one id. But some gateways give all
//! responses the same one. A record with a known id begins another response
//!
//! - if its request id is another one;
//! - if the earlier one has its stop reason, and a message of the user's role stands between the two: a
//!   prompt, or results;
//! - if the id is that of several responses, such a message stands between the two, and all calls of the
//!   earlier one have a result.
//!
//! An id is that of several responses if one of them shows it, or if all responses of the file have it and it
//! is not one of Anthropic's, or stands before and after a prompt, or before results and in the answer to
//! them.

use super::record::{Record, Side, What};
use crate::read::build::fields::peek;
use std::collections::{HashMap, HashSet};

/// Beginning of the ids that Anthropic's API gives, each to a single response.
const UNIQUE: &str = "msg_";

/// Returns for each record whether it begins a response: `true` for all that are not blocks of an earlier
/// one.
pub(super) fn begins(records: &[Record], sides: &[Option<Side>], kept: &[bool]) -> Vec<bool> {
    let reused = reused(records, sides, kept);
    let mut begins = vec![true; records.len()];
    walk(records, sides, kept, |at, id, before| {
        begins[at] = before.has_ended || before.is_answered && reused.contains(id);
        begins[at]
    });
    begins
}

/// Returns the ids that several responses have.
fn reused<'r>(records: &'r [Record], sides: &[Option<Side>], kept: &[bool]) -> HashSet<&'r str> {
    let ids: HashSet<&str> =
        records.iter().filter(|r| !r.is_synthetic()).filter_map(Record::response).collect();
    let is_constant = ids.len() == 1;
    let mut reused: HashSet<&str> =
        ids.into_iter().filter(|id| is_constant && !id.starts_with(UNIQUE)).collect();
    walk(records, sides, kept, |at, id, before| {
        // Text after the results is an answer to them. Further calls could be of the same response.
        let is_answer = before.follows_prompt || before.is_answered && is_text(&records[at]);
        if before.has_ended || is_constant && is_answer {
            reused.insert(id);
        }
        before.has_ended
    });
    reused
}

fn is_text(record: &Record) -> bool {
    match &record.what {
        What::Assistant(said) => said.content.iter().all(|part| part["type"] == "text"),
        _ => false,
    }
}

/// What stands before a record whose response id is known.
struct Before {
    /// The earlier response had ended.
    has_ended: bool,
    /// A prompt stands between the two.
    follows_prompt: bool,
    /// A message of the user's role stands between the two, and all calls of the response have a result.
    is_answered: bool,
}

/// The messages of one agent.
#[derive(Default)]
struct Thread<'r> {
    responses: HashMap<&'r str, Response<'r>>,
    /// The calls without a result.
    open: HashSet<&'r str>,
    /// The last message of the user's role, and the last prompt.
    heard: Option<usize>,
    prompt: Option<usize>,
}

/// The blocks of a response so far.
#[derive(Default)]
struct Response<'r> {
    last: usize,
    request: Option<&'r str>,
    has_stopped: bool,
    calls: Vec<&'r str>,
}

/// Calls `begins` with each record whose response id is known, in the order of the file. It returns whether
/// the record begins another response.
fn walk<'r>(
    records: &'r [Record],
    sides: &[Option<Side>],
    kept: &[bool],
    mut begins: impl FnMut(usize, &'r str, &Before) -> bool,
) {
    let above = messages_above(records);
    let mut threads: HashMap<Option<&Side>, Thread<'r>> = HashMap::new();
    for (at, record) in records.iter().enumerate().filter(|(at, _)| kept[*at]) {
        let thread = threads.entry(sides[at].as_ref()).or_default();
        match &record.what {
            What::User(said) => {
                thread.heard = Some(at);
                if record.is_prompt() {
                    thread.prompt = Some(at);
                }
                for id in said.content.iter().filter_map(|part| part["tool_use_id"].as_str()) {
                    thread.open.remove(id);
                }
            }
            What::Assistant(said) if !record.is_synthetic() => {
                let Some(id) = record.response() else { continue };
                let before = thread.responses.get(id).map(|response| {
                    thread.before(record, id, response, above[at].map(|on| &records[on]))
                });
                let is_new = before.is_none_or(|before| begins(at, id, &before));
                let response = thread.responses.entry(id).or_default();
                if is_new {
                    *response = Response::default();
                }
                response.last = at;
                response.request = peek(&record.rest, "requestId").or(response.request);
                response.has_stopped |= peek(&said.rest, "stop_reason").is_some();
                let calls = said.content.iter().filter(|part| part["type"] == "tool_use");
                for call in calls.filter_map(|part| part["id"].as_str()) {
                    response.calls.push(call);
                    thread.open.insert(call);
                }
            }
            _ => {}
        }
    }
}

impl Thread<'_> {
    fn before(
        &self,
        record: &Record,
        id: &str,
        response: &Response<'_>,
        above: Option<&Record>,
    ) -> Before {
        let since = |place: Option<usize>| place.is_some_and(|place| place > response.last);
        let follows = match above {
            // A block of the same response is linked to the one before it.
            Some(above) if above.response() == Some(id) => false,
            Some(Record { what: What::User(_), .. }) => true,
            _ => since(self.heard),
        };
        let follows_prompt = follows && since(self.prompt);
        let request = peek(&record.rest, "requestId");
        let is_other = response.request.zip(request).is_some_and(|(before, now)| before != now);
        let is_open = response.calls.iter().any(|call| self.open.contains(call));
        Before {
            has_ended: is_other || follows && response.has_stopped,
            follows_prompt,
            is_answered: follows_prompt || follows && !is_open,
        }
    }
}

/// Returns for each record the closest message above it. Hooks and other records may stand between messages.
fn messages_above(records: &[Record]) -> Vec<Option<usize>> {
    let mut by_uuid: HashMap<&str, usize> = HashMap::new();
    let mut above: Vec<Option<usize>> = Vec::with_capacity(records.len());
    for (at, record) in records.iter().enumerate() {
        let on = record.parent.as_deref().and_then(|parent| by_uuid.get(parent).copied());
        above.push(on.and_then(|on| match records[on].what {
            What::Assistant(_) | What::User(_) => Some(on),
            _ => above[on],
        }));
        if let Some(uuid) = record.uuid.as_deref() {
            by_uuid.entry(uuid).or_insert(at);
        }
    }
    above
}
