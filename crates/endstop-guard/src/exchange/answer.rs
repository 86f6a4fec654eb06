//! Answers of guard itself, each in the client's format and delivery.
//!
//! | answer | use |
//! |---|---|
//! | [`final_turn`] | the quickest clean stop: the client prints the text and ends, with exit status 0 |
//! | [`refusal`] | a stop that the client reports as an error, after one call |
//! | [`upgrade_required`] | a WebSocket is not available; codex then uses HTTP at once |
//! | [`bad_request`] | a request line or a run name that guard does not accept |
//! | [`Tail`] | the end of a stream that was cut while it wrote text |
//!
//! A stop never has a status of 401, 413, 429 or 5xx, because clients retry these, or compact their
//! history and continue.

use super::request::{Request, Structured};
use super::route::{Call, Delivery, Route};
use super::signs::ClientFacts;
use endstop_core::Termination;
use endstop_core::stop_message::PREFIX;
use endstop_wire::WireFormat;
use endstop_wire::codec::response::{Closing, NO_USAGE, Response};
pub use endstop_wire::codec::response::{Ending, Tail};
use endstop_wire::codec::{follow, write, write_error};
use serde_json::{Value, json};

/// The facts of a request that its answer repeats. It outlives the body.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The format of the call.
    pub format: WireFormat,
    /// The format of the body.
    pub shape: WireFormat,
    /// The form in which the client expects the answer.
    pub delivery: Delivery,
    /// The model that the client asked for.
    pub model: String,
    /// `true` if a stream has to report usage.
    pub usage_requested: bool,
    /// The sign that a text would break the client.
    pub structured: Option<Structured>,
    /// `true` if the client stops at once on the status 402, and retries after 400.
    pub stops_on_402: bool,
}

impl Reply {
    /// Collects the facts.
    pub fn to(request: &Request<'_>, facts: &ClientFacts) -> Reply {
        Reply {
            format: request.format,
            shape: request.shape,
            delivery: request.delivery,
            model: request.model.clone().unwrap_or_default(),
            usage_requested: request.usage_requested,
            structured: request
                .structured
                .clone()
                .or(facts.is_endstop.then_some(Structured::Endstop)),
            stops_on_402: stops_on_402(facts),
        }
    }

    /// Collects the facts of a request whose body was not read. It can be refused, and gets no final
    /// turn, because the client may expect more than a text.
    pub fn unread(route: &Route, facts: &ClientFacts) -> Reply {
        let (format, delivery) = match route.call {
            Call::Model { format, delivery } => (format, delivery),
            // OpenAI's errors are the most common ones.
            _ => (route.below.unwrap_or(WireFormat::OpenAiChat), None),
        };
        Reply {
            format,
            shape: format,
            delivery: delivery.unwrap_or(Delivery::Whole),
            model: route.model.clone().unwrap_or_default(),
            usage_requested: false,
            structured: Some(Structured::Unknown),
            stops_on_402: stops_on_402(facts),
        }
    }

    /// Starts to follow the stream that answers this request, from its beginning, to end it cleanly. Call it only if
    /// a policy may cut the stream, because every event is parsed.
    pub fn tail(&self, stamp: Stamp<'_>) -> Tail {
        let closing = Closing {
            id: stamp.id.to_owned(),
            unix_seconds: stamp.unix_seconds,
            model: self.model.clone(),
            omits_usage: !self.usage_requested,
        };
        follow(self.format, self.delivery, closing)
    }
}

fn stops_on_402(facts: &ClientFacts) -> bool {
    facts.client.is_some_and(|client| client.stops_on_402)
}

/// The id and the time of an answer, which a pure function cannot make.
#[derive(Clone, Copy, Debug)]
pub struct Stamp<'a> {
    /// A unique id of letters and digits.
    pub id: &'a str,
    /// Seconds since 1970.
    pub unix_seconds: u64,
}

/// A whole HTTP response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status.
    pub status: u16,
    /// Headers, with names in lower case. The length of the body is not among them.
    pub headers: Vec<(&'static str, &'static str)>,
    /// Body.
    pub body: Vec<u8>,
}

/// Returns the sentence with which guard stops a run, for example `Run stopped by endstop:
/// error_max_turns (25 of 25 turns), in run nightly-1`. Characters that a terminal would obey become
/// spaces.
///
/// ```
/// use endstop_core::Termination;
/// use endstop_guard::exchange::answer::stop_message;
/// assert_eq!(
///     stop_message(Termination::ErrorMaxTurns, "25 of 25 turns", "nightly-1"),
///     "Run stopped by endstop: error_max_turns (25 of 25 turns), in run nightly-1"
/// );
/// ```
pub fn stop_message(termination: Termination, detail: &str, run: &str) -> String {
    let detail = if detail.is_empty() { String::new() } else { format!(" ({detail})") };
    let text = format!("{PREFIX}{termination}{detail}, in run {run}");
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Returns a whole answer with this text as the model's last turn. Its usage is 0, and its model the
/// one that was asked for.
///
/// Returns `None` if the client expects more than a text ([`Reply::structured`]), or if the model's
/// own format inside InvokeModel is not Anthropic's: refuse such a call.
pub fn final_turn(reply: &Reply, text: &str, stamp: Stamp<'_>) -> Option<Answer> {
    // A parser that expects JSON fails on prose, or asks again.
    if reply.structured.is_some() || reply.shape != reply.format.content() {
        return None;
    }
    let response = Response {
        id: stamp.id,
        unix_seconds: stamp.unix_seconds,
        model: &reply.model,
        text: &[text],
        usage: NO_USAGE,
        omits_usage: !reply.usage_requested,
        ..Response::default()
    };
    let body = write(reply.format, reply.delivery, &response)?.concat();
    let headers =
        vec![("content-type", reply.delivery.content_type()), ("cache-control", "no-cache")];
    Some(Answer { status: 200, headers, body })
}

/// Returns the refusal of a call, with this message. Every known client shows the message and gives
/// up after it: with status 402 Claude Code, with 400 all others.
pub fn refusal(reply: &Reply, message: &str, stamp: Stamp<'_>) -> Answer {
    // Claude Code retries a 400 with fewer features, five times.
    if reply.stops_on_402 {
        let mut body = write_error(WireFormat::Anthropic, message, stamp.id);
        body["error"]["type"] = "billing_error".into();
        return error_answer(402, &body);
    }
    let mut answer = error_answer(400, &write_error(reply.format, message, stamp.id));
    // AWS's SDKs find the type of an error in this header.
    if reply.format.in_frames() {
        answer.headers.push(("x-amzn-errortype", "ValidationException"));
    }
    answer
}

/// Returns the answer to a request for a WebSocket.
pub fn upgrade_required() -> Answer {
    let text = "endstop guard has no WebSocket; use HTTP";
    let mut answer = error_answer(426, &plain(text));
    answer.headers.push(("upgrade", "HTTP/1.1"));
    answer
}

/// Returns the answer to a request that guard does not accept, before any call is made.
pub fn bad_request(message: &str) -> Answer {
    error_answer(400, &plain(message))
}

/// Returns the answer to a request that continues a response which guard has not seen. It has the form that makes
/// the clients of these APIs send the whole conversation: Anthropic's error for a thread that cannot be continued,
/// OpenAI's for a response that is not stored.
pub fn unknown_response(shape: WireFormat, message: &str) -> Answer {
    let kind = "invalid_request_error";
    let body = if shape == WireFormat::Anthropic {
        let details = json!({"error_code": "thread_unsupported_request"});
        json!({"type": "error", "error": {"type": kind, "message": message, "details": details}})
    } else {
        let code = "previous_response_not_found";
        let param = "previous_response_id";
        json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
    };
    error_answer(400, &body)
}

/// An error of a request whose format is not known. OpenAI's errors are the most common ones.
fn plain(message: &str) -> Value {
    write_error(WireFormat::OpenAiChat, message, "")
}

fn error_answer(status: u16, body: &Value) -> Answer {
    let headers = vec![("content-type", "application/json"), ("x-should-retry", "false")];
    Answer { status, headers, body: body.to_string().into_bytes() }
}
