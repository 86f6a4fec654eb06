//! Requests other than model calls: what the table of paths does not count is refused under a limit that counts.

use super::below::below;
use super::metered::metered;
use super::passing::{has_other_charset, late};
use super::stored::stored_response;
use crate::exchange::{Call, ClientFacts, Route};
use crate::proxy::{Disposition, End, RequestBody, RequestHead, ResponseHead, ResponseObserver};
use crate::run::gate::{Gate, lock};
use crate::run::handle::RunHandle;
use endstop_core::Pause;
use http::header::CONTENT_TYPE;
use std::time::Duration;

/// `true` if the body of a request decides about it.
pub(super) fn reads_body(gate: &Gate, head: &RequestHead, line: &Route) -> bool {
    match line.call {
        Call::Model { .. } => true,
        Call::Metered(_) => is_counted(gate, head, line),
        _ if line.below.is_some() => is_counted(gate, head, line),
        // Also those of GET: a server may not distinguish methods.
        _ if line.costs_posted => is_counted(gate, head, line) || refuses_other(gate, head, line),
        Call::Other => refuses_other(gate, head, line),
        _ => false,
    }
}

fn is_counted(gate: &Gate, head: &RequestHead, line: &Route) -> bool {
    gate.settings_of(gate.named_run(head, line).as_ref()).counts_calls()
}

fn refuses_other(gate: &Gate, head: &RequestHead, line: &Route) -> bool {
    gate.settings_of(gate.named_run(head, line).as_ref()).refuses_other()
}

/// Returns the pause that a call without an answer in text must wait for, which costs, too.
pub(super) fn metered_pause(
    gate: &Gate,
    head: &RequestHead,
    line: &Route,
) -> Option<(RunHandle, Pause)> {
    if !matches!(line.call, Call::Metered(_)) || line.is_respelt || !is_counted(gate, head, line) {
        return None;
    }
    let headers = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let facts = ClientFacts::read(headers, &line.target, &gate.salt);
    let seat = lock(&gate.threads).seat_of_other(&facts, line).ok()?;
    let run = gate.started_run(&seat.run)?;
    let pause = run.pause()?;
    Some((run, pause))
}

/// Decides about a request other than a model call that can be read. An ended run gets no more of those that may cost.
pub(super) fn other_request(
    gate: &Gate,
    head: &RequestHead,
    line: &Route,
    body: &RequestBody,
) -> Disposition {
    let named = gate.named_key(head, line);
    let text = match body {
        RequestBody::Whole { decoded, .. } => decoded.as_ref(),
        RequestBody::Streamed | RequestBody::Unreadable { .. } | RequestBody::TooLarge { .. } => {
            &[]
        }
    };
    if let Some(refused) = named.as_ref().and_then(|key| gate.refuse_secret_name(head, text, key)) {
        return refused;
    }
    let run = named.and_then(|key| gate.started_run(&key));
    let has_body = has_body(body);
    let is_posted = is_writing(head) || has_body;
    let may_cost = (line.costs_posted || line.call == Call::Other) && is_posted;
    // Not counted as a refused call, because it may be telemetry: a program that sends some does not ignore the
    // end.
    if let Some(answer) = run.as_ref().filter(|_| may_cost).and_then(|run| late(run, false)) {
        return answer;
    }
    let settings = gate.settings_of(run.as_ref());
    // No counted call comes without a body, and the cancellation of a batch begins like one.
    let is_respelt = has_body && (line.is_respelt || (line.costs_posted && !is_writing(head)));
    if is_respelt && (settings.counts_calls() || settings.refuses_other()) {
        return gate.refuse(head, RESPELT);
    }
    if let Some(format) = line.below.filter(|_| has_body && settings.counts_calls()) {
        return below(gate, head, (line, format), body);
    }
    match line.call {
        Call::Metered(kind) if !line.is_respelt && is_counted(gate, head, line) => {
            return metered(gate, head, line, kind, body);
        }
        Call::Unread if refuses_other(gate, head, line) => {
            return gate.refuse(head, &format!("guard cannot count what this call costs{LET}"));
        }
        Call::Other if is_posted && refuses_other(gate, head, line) => {
            if let Some(problem) = objection_to(head, body) {
                return gate.refuse(head, &format!("{problem}{LET}"));
            }
        }
        Call::Stored => return stored_response(gate, head, line),
        _ => {}
    }
    let Some(run) = run.filter(|_| may_cost) else { return gate.forward(head, line, None) };
    {
        let counts = &mut run.0.lock().counts;
        counts.others += 1;
        counts.others_billed += u64::from(line.costs_posted);
    }
    let (began, is_billed) = (run.0.now(), line.costs_posted);
    gate.forward_to(head, line, || Box::new(Timed { run, began, is_billed, is_ok: false }))
}

/// The reason for a refusal of a path in another spelling.
const RESPELT: &str = "the path or the method is another spelling of a call that costs, or begins like one, which a \
     server may accept and guard would not count; use the spelling of the API's documentation";

/// The advice about a call that cannot be counted.
const LET: &str = ", so the limits of the run cannot be kept; `--other pass` (`other = \"pass\"` in a profile) lets \
     such calls pass uncounted";

/// Returns the reason why a request to a path that no row knows may be a model call: its body is JSON. The members are
/// not looked at, because each API has names of its own for a prompt.
fn objection_to(head: &RequestHead, body: &RequestBody) -> Option<&'static str> {
    let is_json = match head.headers.get(CONTENT_TYPE) {
        None => true,
        Some(kind) => {
            String::from_utf8_lossy(kind.as_bytes()).to_ascii_lowercase().contains("json")
        }
    };
    match body {
        RequestBody::Whole { decoded, .. } if decoded.is_empty() => None,
        RequestBody::Whole { decoded, .. } => {
            // Whatever its label is: a server may read it nevertheless, also in another encoding.
            let is_json = is_json || begins_like_json(decoded) || has_other_charset(head);
            is_json.then_some("guard does not know this path, and its body is JSON")
        }
        RequestBody::Streamed | RequestBody::Unreadable { .. } | RequestBody::TooLarge { .. } => {
            is_json.then_some("guard does not know this path, and cannot read its body")
        }
    }
}

/// `true` if a text begins with an object or a list, after the marks and zero bytes of other encodings, and spaces.
fn begins_like_json(text: &[u8]) -> bool {
    let mut begin = text.iter().skip_while(|byte| {
        matches!(byte, 0 | 0xef | 0xbb | 0xbf | 0xfe | 0xff) || byte.is_ascii_whitespace()
    });
    matches!(begin.next(), Some(b'{' | b'['))
}

/// `true` if a body was read and has something in it.
fn has_body(body: &RequestBody) -> bool {
    match body {
        RequestBody::Streamed => false,
        RequestBody::Whole { raw, .. } | RequestBody::Unreadable { raw, .. } => !raw.is_empty(),
        RequestBody::TooLarge { .. } => true,
    }
}

/// `true` if the method of a request may have an effect.
fn is_writing(head: &RequestHead) -> bool {
    let reads = [http::Method::GET, http::Method::HEAD, http::Method::OPTIONS, http::Method::TRACE];
    !reads.contains(&head.method) && head.method != http::Method::DELETE
}

/// Takes the time of a request that does not call a model.
struct Timed {
    run: RunHandle,
    began: Duration,
    /// `true` if it is known to have a bill.
    is_billed: bool,
    /// `true` if its status is not an error.
    is_ok: bool,
}

impl ResponseObserver for Timed {
    fn head(&mut self, head: &ResponseHead) {
        self.is_ok = head.status.as_u16() < 400;
    }

    fn end(self: Box<Self>, end: End) {
        let took = self.run.0.now().saturating_sub(self.began);
        let is_whole = matches!(end, End::Complete | End::ClientGone { whole: true });
        let mut run = self.run.0.lock();
        run.counts.others_time += took;
        if self.is_billed && self.is_ok {
            run.counts.without_text += u64::from(is_whole);
            run.account.ledger.book_unknown();
        }
    }
}
