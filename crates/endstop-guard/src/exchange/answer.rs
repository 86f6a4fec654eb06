//! Answers of guard itself, each in the client's format and delivery.
//!
//! | answer | use |
//! |---|---|
//! | [`final_turn`] | the quickest clean stop: the client prints the text and ends, with exit status 0 |
//! | [`refusal`] | a stop that the client reports as an error, after one call |
//! | [`upgrade_required`] | a WebSocket is not available; codex then uses HTTP at once |
//! | [`bad_request`] | a request line or a run name that guard does not accept |
//! | [`unknown_response`] | a request that continues a response which guard has not seen |
//! | [`Tail`] | the end of a stream that was cut while it wrote text |
//!
//! A stop never has a status of 401, 413, 429 or 5xx, because clients retry these, or compact their
//! history and continue.

use super::request::{Request, Structured};
use super::route::{Call, Delivery, Route};
use super::signs::ClientFacts;
use crate::answer::Answer;
use endstop_core::Termination;
use endstop_core::stop_message::PREFIX;
use endstop_wire::WireFormat;
use endstop_wire::codec::response::{Closing, NO_USAGE, Response};
pub use endstop_wire::codec::response::{Ending, Tail};
use endstop_wire::codec::{follow, write, write_error, write_unknown_response};
use http::header::{CACHE_CONTROL, UPGRADE};
use http::{HeaderValue, StatusCode};
use serde_json::Value;

/// The facts of a request that its answer repeats. It outlives the body.
#[derive(Clone, Debug)]
pub struct AnswerFormat {
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
    /// `true` if the client completes a tool call that was cut, and runs it.
    pub completes_cut_calls: bool,
}

impl AnswerFormat {
    /// Collects the facts.
    pub fn to(request: &Request<'_>, facts: &ClientFacts) -> AnswerFormat {
        AnswerFormat {
            format: request.format,
            shape: request.shape,
            delivery: request.delivery,
            model: request.model.clone().unwrap_or_default(),
            usage_requested: request.usage_requested,
            structured: request
                .structured
                .clone()
                .or(facts.is_endstop.then_some(Structured::Endstop)),
            stops_on_402: facts.client.is_some_and(|client| client.stops_on_402),
            completes_cut_calls: facts.client.is_some_and(|client| client.completes_cut_calls),
        }
    }

    /// Collects the facts of a request whose body was not read. It can be refused, and gets no final
    /// turn, because the client may expect more than a text.
    pub fn unread(route: &Route, facts: &ClientFacts) -> AnswerFormat {
        let (format, delivery) = match route.call {
            Call::Model { format, delivery } => (format, delivery),
            // OpenAI's errors are the most common ones.
            _ => (route.below.unwrap_or(WireFormat::OpenAiChat), None),
        };
        AnswerFormat {
            format,
            shape: format,
            delivery: delivery.unwrap_or(Delivery::Whole),
            model: route.model.clone().unwrap_or_default(),
            usage_requested: false,
            structured: Some(Structured::Unknown),
            stops_on_402: facts.client.is_some_and(|client| client.stops_on_402),
            completes_cut_calls: facts.client.is_some_and(|client| client.completes_cut_calls),
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

/// The id and the time of an answer, which a pure function cannot make.
#[derive(Clone, Copy, Debug)]
pub struct Stamp<'a> {
    /// A unique id of letters and digits.
    pub id: &'a str,
    /// Seconds since 1970.
    pub unix_seconds: u64,
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
/// Returns `None` if the client expects more than a text ([`AnswerFormat::structured`]), or if the model's
/// own format inside InvokeModel is not Anthropic's: refuse such a call.
pub fn final_turn(reply: &AnswerFormat, text: &str, stamp: Stamp<'_>) -> Option<Answer> {
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
    let mut answer = Answer::whole(StatusCode::OK, reply.delivery.content_type(), body);
    answer.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Some(answer)
}

/// Returns the refusal of a call, with this message. Every known client shows the message and gives
/// up after it: with status 402 Claude Code, with 400 all others.
pub fn refusal(reply: &AnswerFormat, message: &str, stamp: Stamp<'_>) -> Answer {
    // Claude Code retries a 400 with fewer features, five times.
    let status =
        if reply.stops_on_402 { StatusCode::PAYMENT_REQUIRED } else { StatusCode::BAD_REQUEST };
    // The format of what is between the client and guard, if that translates.
    let is_own = reply.stops_on_402 && reply.shape == WireFormat::Anthropic;
    let format = if is_own { WireFormat::Anthropic } else { reply.format };
    let mut body = write_error(format, message, stamp.id);
    if is_own {
        body["error"]["type"] = "billing_error".into();
    }
    let mut answer = Answer::error_json(status, &body);
    // AWS's SDKs find the type of an error in this header.
    if reply.format.in_frames() {
        answer.headers.insert("x-amzn-errortype", HeaderValue::from_static("ValidationException"));
    }
    answer
}

/// Returns the answer to a request for a WebSocket.
pub fn upgrade_required() -> Answer {
    let text = "endstop guard has no WebSocket; use HTTP";
    let mut answer = Answer::error_json(StatusCode::UPGRADE_REQUIRED, &plain(text));
    answer.headers.insert(UPGRADE, HeaderValue::from_static("HTTP/1.1"));
    answer
}

/// Returns the answer to a request that guard does not accept, before any call is made.
pub fn bad_request(message: &str) -> Answer {
    Answer::error_json(StatusCode::BAD_REQUEST, &plain(message))
}

/// Returns the answer to a request that continues a response which guard has not seen.
pub fn unknown_response(shape: WireFormat, message: &str) -> Answer {
    Answer::error_json(StatusCode::BAD_REQUEST, &write_unknown_response(shape, message))
}

/// An error of a request whose format is not known. OpenAI's errors are the most common ones.
fn plain(message: &str) -> Value {
    write_error(WireFormat::OpenAiChat, message, "")
}
