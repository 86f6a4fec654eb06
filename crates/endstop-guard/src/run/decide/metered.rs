//! Calls that cost, but are not turns: embeddings, rankings, images, speech. They are calls of the kernel like a
//! title or a summary, with the usage that their response reports.

use super::passing::{Refusal, checked};
use crate::exchange::answer::{AnswerFormat, bad_request};
use crate::exchange::{
    Attempt, ClientFacts, History, Kind, Metered, Placed, Route, form_boundary, form_values, owner,
};
use crate::proxy::{
    Disposition, End, Flow, Forward, RequestBody, RequestHead, ResponseHead, ResponseObserver,
};
use crate::run::calls::{CallFacts, Ticket, Work};
use crate::run::ending::answer;
use crate::run::gate::{CallPrice, Gate, NamedModels, lock};
use crate::run::guarded::{Admitted, Arrival, Response};
use crate::run::handle::RunHandle;
use crate::run::observer::NOT_SENT;
use crate::run::pricing::{TWO_MODELS, dialect_of, port_of};
use crate::run::response::headers_of;
use crate::run::shared::Shared;
use crate::run::trace::place_of;
use bytes::Bytes;
use endstop::telemetry::Operation;
use endstop_core::Decision;
use endstop_core::{
    Confidence, ErrorClass, GuestCall, ModelError, ModelTurn, Part, SignalReason,
    TerminationSignal, Usage,
};
use endstop_wire::codec::request::Fields;
use endstop_wire::{Headers, RequestFacts, WireFormat};
use http::{HeaderName, HeaderValue, Uri};
use serde_json::Value;
use std::sync::Arc;

/// The bytes of a response that are kept of its beginning, and of its end. Servers write the usage before or
/// after the vectors and images, which can be very long.
const KEPT: usize = 64 << 10;

/// Decides about a call that costs, but is not a turn.
pub(super) fn metered(
    gate: &Gate,
    head: &RequestHead,
    line: &Route,
    kind: Metered,
    body: &RequestBody,
) -> Disposition {
    let format = owner(&line.target, |name| head.header(name)).unwrap_or(WireFormat::OpenAiChat);
    let is_vectors = kind == Metered::Vectors;
    let operation = if is_vectors { Operation::Embeddings } else { Operation::GenerateContent };
    let prepared = match Prepared::of(gate, head, line, (format, operation), body) {
        Ok(prepared) => prepared,
        Err(decision) => return *decision,
    };
    let Prepared { run, url, own, facts, placed, mut asked, priced, body } = prepared;
    let shared = &run.0;
    let at = shared.now();
    let mut guarded = shared.lock();
    let ended = guarded.outcome().is_some();
    let objection = priced.objection(&guarded, asked.model.as_deref(), gate.only.is_some());
    if let Some(reason) = objection.filter(|_| !ended) {
        drop(guarded);
        let answer = bad_request(&reason);
        let (cause, reason) = (Decision::UnknownPrice, reason.as_str());
        let refusal = Refusal { cause, reason, answer, work: Work::Aside };
        return gate.refuse_call(Some(&run), head, refusal);
    }
    if !ended && kind == Metered::Media && guarded.settings.is_strict() {
        drop(guarded);
        return gate.refuse(head, MEDIA);
    }
    // Vectors are no output that has a price.
    asked.output_cap = is_vectors.then_some(1);
    let arrival = Arrival { placed, call: asked, facts: &facts, head, body: &body };
    match guarded.admit(at, arrival) {
        Admitted::Ended => {
            let answer = answer(&mut guarded, &facts);
            drop(guarded);
            shared.changed();
            Disposition::Answer(answer)
        }
        Admitted::Go(ticket) => {
            drop(guarded);
            shared.changed();
            let abort = ticket.abort.clone();
            let observer = Counting::new(Arc::clone(shared), ticket, facts);
            let mut forward = Forward::unchanged(url, Box::new(observer));
            forward.abort = abort;
            forward.headers = own;
            Disposition::Forward(forward)
        }
    }
}

/// A call that is not a turn, with its price and its place in a run.
pub(super) struct Prepared {
    pub(super) run: RunHandle,
    pub(super) url: Uri,
    /// Headers of guard's own signature.
    pub(super) own: Vec<(HeaderName, Option<HeaderValue>)>,
    pub(super) facts: Arc<CallFacts>,
    pub(super) placed: Placed,
    pub(super) asked: GuestCall,
    pub(super) priced: CallPrice,
    /// The body of the request, decompressed.
    pub(super) body: Bytes,
}

impl Prepared {
    /// Prepares a call, or returns its refusal.
    pub(super) fn of(
        gate: &Gate,
        head: &RequestHead,
        line: &Route,
        (format, operation): (WireFormat, Operation),
        body: &RequestBody,
    ) -> Result<Prepared, Box<Disposition>> {
        let refuse = |reason: &str| Box::new(gate.refuse(head, reason));
        let RequestBody::Whole { raw, decoded } = body else {
            let problem = "the body cannot be read, so what this call costs is not known";
            return Err(refuse(problem));
        };
        let headers = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let facts = ClientFacts::read(headers, &line.target, &gate.salt);
        let seat = lock(&gate.threads)
            .seat_of_other(&facts, line)
            .map_err(|error| refuse(&error.to_string()))?;
        if let Some(refused) = gate.refuse_secret_name(head, decoded, &seat.run) {
            return Err(Box::new(refused));
        }
        let url = gate.url(line, Some(format)).map_err(|error| refuse(&error))?;
        let settings = gate.settings();
        let own = checked(settings.aws.as_ref(), head, &url, Some(raw))
            .and_then(|signed| signed.map(|signed| signed.headers(&url, Some(raw))).transpose())
            .map_err(|error| refuse(&error))?
            .unwrap_or_default();
        let in_body = model_of(decoded, head.header("content-type"));
        let is_ambiguous = in_body == InBody::Several;
        let (model, other) = line.models(in_body.one());
        let named = NamedModels {
            format,
            host: url.host(),
            model: model.as_deref(),
            other: other.as_deref(),
        };
        let prompt_bytes = decoded.len() as u64;
        let priced = gate.price(&named, prompt_bytes);
        let run = gate.run_of(&seat.run, place_of(head).as_ref());
        if is_ambiguous && run.0.lock().is_counting() {
            return Err(refuse(TWO_MODELS));
        }
        let facts = Arc::new(CallFacts {
            seat: seat.clone(),
            kind: Kind::Auxiliary,
            is_known_agent: facts.client.is_some(),
            operation,
            is_background: false,
            is_subscription: facts.subscription,
            reply: AnswerFormat::unread(line, &facts),
            request: RequestFacts::default(),
            dialect: dialect_of(format, url.host()),
            host: url.host().map(str::to_owned),
            port: port_of(&url),
            price: priced.price,
            catalogue: None,
        });
        let placed = Placed {
            seat,
            parent: None,
            kind: Kind::Auxiliary,
            turn: 0,
            attempt: Attempt::First,
            history: History::New,
            input: Vec::new(),
            results: Vec::new(),
            unmatched: 0,
            prompt_bytes,
            prompt_known: true,
            dropped: None,
        };
        let price = priced.price;
        let asked = GuestCall { prompt_bytes, model, price, ..GuestCall::default() };
        Ok(Prepared { run, url, own, facts, placed, asked, priced, body: decoded.clone() })
    }
}

/// The reason for a refusal under a strict ceiling.
const MEDIA: &str =
    "the size of what this call returns is not known, and --cap-output cannot keep the ceiling";

/// The model that a body names.
#[derive(Debug, PartialEq, Eq)]
enum InBody {
    None,
    One(String),
    /// Servers may read different ones.
    Several,
}

impl InBody {
    fn one(self) -> Option<String> {
        match self {
            InBody::One(model) => Some(model),
            InBody::None | InBody::Several => None,
        }
    }
}

/// Returns the model in a body: of JSON, or of a form whose boundary is that of its content type.
fn model_of(body: &[u8], kind: Option<&str>) -> InBody {
    if let Some(fields) = std::str::from_utf8(body).ok().and_then(|text| Fields::of(text).ok()) {
        return match fields.string("model") {
            _ if fields.is_ambiguous("model") => InBody::Several,
            Some(model) => InBody::One(model),
            None => InBody::None,
        };
    }
    let is_form = form_boundary(body).zip(kind).is_some_and(|(boundary, kind)| {
        let declared = kind.split_once("boundary=").map_or("", |(_, declared)| declared);
        declared.split(';').next().unwrap_or_default().trim().trim_matches('"') == boundary
    });
    if !is_form {
        return InBody::None;
    }
    let mut named = form_values(body, |name| name.eq_ignore_ascii_case("model"));
    match (named.pop(), named.is_empty()) {
        (Some(model), true) => InBody::One(model),
        (Some(_), false) => InBody::Several,
        (None, _) => InBody::None,
    }
}

/// The beginning and the end of a response.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) first: Vec<u8>,
    last: Vec<u8>,
}

impl Kept {
    pub(super) fn push(&mut self, chunk: &[u8]) {
        let room = KEPT.saturating_sub(self.first.len());
        self.first.extend_from_slice(&chunk[..room.min(chunk.len())]);
        self.last.extend_from_slice(&chunk[chunk.len().saturating_sub(KEPT)..]);
        let over = self.last.len().saturating_sub(KEPT);
        // Seldom, because each time half of it goes.
        if over > KEPT {
            self.last.drain(..over);
        }
    }

    /// The turn that a response reports, as far as it is read: its usage.
    pub(super) fn turn(&self) -> (ModelTurn, bool) {
        let found = [&self.first, &self.last].into_iter().filter_map(|part| usage_in(part));
        let usage = found.max_by_key(Usage::total_tokens);
        let signal = TerminationSignal::new(SignalReason::NaturalCompletion, Confidence::Medium);
        // A text, because a turn without content would be an empty answer.
        let text = "(no text)".to_owned();
        let turn = ModelTurn::new(vec![Part::Text { text }], signal);
        let is_reported = usage.is_some();
        (ModelTurn { usage: usage.unwrap_or_default(), ..turn }, is_reported)
    }
}

/// Counts what a response reports.
struct Counting {
    shared: Arc<Shared>,
    ticket: Ticket,
    facts: Arc<CallFacts>,
    status: u16,
    headers: Headers,
    kept: Kept,
    is_ended: bool,
}

impl Counting {
    fn new(shared: Arc<Shared>, ticket: Ticket, facts: Arc<CallFacts>) -> Counting {
        Counting {
            shared,
            ticket,
            facts,
            status: 0,
            headers: Headers::default(),
            kept: Kept::default(),
            is_ended: false,
        }
    }

    fn finish(&mut self, end: &End) {
        if std::mem::replace(&mut self.is_ended, true) {
            return;
        }
        let response = self.response(end);
        let _ = self.shared.finished(&self.ticket, &self.facts, response);
    }

    fn response(&self, end: &End) -> Response {
        if self.status >= 400 {
            let text = String::from_utf8_lossy(&self.kept.first);
            let provider = self.facts.dialect.family.provider();
            let error = endstop_wire::errors::classify(self.status, &self.headers, &text, provider);
            return Err((error, None));
        }
        let (turn, is_reported) = self.kept.turn();
        let is_whole = matches!(end, End::Complete | End::Ended | End::ClientGone { whole: true });
        if !is_whole && !is_reported {
            let class = match end {
                End::NoResponse { sent: false, .. } => ErrorClass::ServerError,
                _ => ErrorClass::IncompleteStream,
            };
            return Err((ModelError::new(class, "the response did not end"), None));
        }
        Ok(turn)
    }
}

impl ResponseObserver for Counting {
    fn head(&mut self, head: &ResponseHead) {
        self.status = head.status.as_u16();
        self.headers = headers_of(head);
        self.shared.lock().response_began(&self.ticket);
    }

    fn bytes(&mut self, chunk: &[u8]) -> Flow {
        self.kept.push(chunk);
        Flow::Pass
    }

    fn end(mut self: Box<Self>, end: End) {
        self.finish(&end);
    }
}

impl Drop for Counting {
    // The request was dropped before it was forwarded.
    fn drop(&mut self) {
        self.finish(&End::NoResponse { error: NOT_SENT.to_owned(), sent: false });
    }
}

/// Names of objects with usage: of OpenAI and most others, of Google, of Cohere.
const OBJECTS: &[&str] = &["usage", "usageMetadata", "billed_units"];
/// Names of the prompt's tokens, and of the generated ones.
const INPUT: &[&str] = &["prompt_tokens", "input_tokens", "promptTokenCount"];
const OUTPUT: &[&str] = &["completion_tokens", "output_tokens", "candidatesTokenCount"];

/// Returns the largest usage in a part of a response: an object may be written twice, or inside of another one,
/// and the counts of one response never fall.
fn usage_in(text: &[u8]) -> Option<Usage> {
    let text = String::from_utf8_lossy(text);
    let of_objects = OBJECTS.iter().flat_map(|name| {
        // Quotes in a string of JSON are escaped, so that this is a name and not text of the model.
        let quoted = format!("\"{name}\"");
        let found: Vec<Usage> = text
            .match_indices(&quoted)
            .filter_map(|(at, _)| usage_at(&text[at + quoted.len()..]))
            .collect();
        found
    });
    let of_ollama = text.match_indices("\"prompt_eval_count\"").filter_map(|(at, name)| {
        let input_tokens = value_at(&text[at + name.len()..])?.as_u64();
        Some(Usage { input_tokens, output_tokens: Some(0), ..Usage::default() })
    });
    let largest = of_objects.chain(of_ollama).max_by_key(Usage::total_tokens);
    // Zero tokens for something are not a report.
    largest.filter(|usage| usage.total_tokens() > 0)
}

/// Reads the value of a member, whose name ends here.
fn value_at(rest: &str) -> Option<Value> {
    let rest = rest.trim_start().strip_prefix(':')?;
    serde_json::Deserializer::from_str(rest).into_iter::<Value>().next()?.ok()
}

fn usage_at(rest: &str) -> Option<Usage> {
    let value = value_at(rest)?;
    let count = |names: &[&str]| names.iter().find_map(|name| value.get(name)?.as_u64());
    let total = value.get("total_tokens").and_then(Value::as_u64);
    let (input, output) = (count(INPUT), count(OUTPUT));
    let input = input.or(total.map(|all| all.saturating_sub(output.unwrap_or(0))));
    Some(Usage { input_tokens: input, output_tokens: output.or(Some(0)), ..Usage::default() })
}

#[cfg(test)]
mod tests {
    use super::{InBody, model_of, usage_in};

    #[test]
    fn usage_of_each_server_is_read() {
        for (text, expected) in [
            (r#"{"data":[[1]],"usage":{"prompt_tokens":8,"total_tokens":8}}"#, Some((8, 0))),
            (r#"…0.1]}],"model":"m","usage": {"total_tokens":9}}"#, Some((9, 0))),
            (
                r#"{"usage":{"input_tokens":3,"output_tokens":4160,"total_tokens":4163}}"#,
                Some((3, 4160)),
            ),
            (
                "data: {\"type\":\"done\",\"usage\":{\"input_tokens\":3,\"output_tokens\":5}}\n\n",
                Some((3, 5)),
            ),
            (r#"{"meta":{"billed_units":{"input_tokens":7}}}"#, Some((7, 0))),
            (r#"{"embeddings":[[1]],"prompt_eval_count":12}"#, Some((12, 0))),
            (r#"{"usageMetadata":{"promptTokenCount":5}}"#, Some((5, 0))),
            (r#"{"data":[{"revised_prompt":"\"usage\":{\"total_tokens\":1}"}]}"#, None),
            (
                r#"{"usage":{"total_tokens":900},"data":[{"usage":{"total_tokens":1}}],"usage":{"total_tokens":2}}"#,
                Some((900, 0)),
            ),
            (r#"{"usage":{"prompt_tokens":0}}"#, None),
            (r#"{"usage":null}"#, None),
            (r#"{"usage":{"prompt_tokens":"#, None),
            ("", None),
        ] {
            let found = usage_in(text.as_bytes());
            let found =
                found.map(|usage| (usage.input_tokens.unwrap(), usage.output_tokens.unwrap()));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn model_is_read_from_json_and_forms() {
        let one = |model: &str| InBody::One(model.to_owned());
        let kind = Some("multipart/form-data; boundary=x; a=b");
        assert_eq!(model_of(br#"{"model":"m"}"#, None), one("m"));
        let form =
            "--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--x--";
        assert_eq!(model_of(form.as_bytes(), kind), one("whisper-1"));
        let twice = format!("{}{form}", form.trim_end_matches("--x--"));
        assert_eq!(model_of(twice.as_bytes(), kind), InBody::Several);
        // A server uses the boundary of the content type, and may find other parts.
        for other in [None, Some("multipart/form-data; boundary=y"), Some("application/json")] {
            assert_eq!(model_of(form.as_bytes(), other), InBody::None, "{other:?}");
        }
        for several in [r#"{"model":"a","model":"b"}"#, r#"{"Model":"a"}"#] {
            assert_eq!(model_of(several.as_bytes(), None), InBody::Several, "{several}");
        }
        for none in ["--x", "{}", r#"{"model":4}"#, "[1]"] {
            assert_eq!(model_of(none.as_bytes(), kind), InBody::None, "{none}");
        }
    }
}
