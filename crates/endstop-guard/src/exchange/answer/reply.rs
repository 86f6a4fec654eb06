//! An answer, and the facts about its request that it depends on.

use crate::exchange::read::{Request, Structured};
use crate::exchange::route::{Call, Delivery, Route};
use crate::exchange::signs::ClientFacts;
use endstop_core::Termination;
use endstop_core::stop_message::PREFIX;
use endstop_wire::WireFormat;

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
            structured: request.structured.clone(),
            stops_on_402: stops_on_402(facts),
        }
    }

    /// Collects the facts of a request whose body was not read. It can be refused, and gets no final
    /// turn, because the client may expect more than a text.
    pub fn unread(route: &Route, facts: &ClientFacts) -> Reply {
        let (format, delivery) = match route.call {
            Call::Model { format, delivery } => (format, delivery),
            // OpenAI's errors are the most common ones.
            _ => (WireFormat::OpenAiChat, None),
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
/// error_max_turns (25 of 25 turns). run nightly-1`. Characters that a terminal would obey become
/// spaces.
///
/// ```
/// use endstop_core::Termination;
/// use endstop_guard::exchange::answer::stop_message;
/// assert_eq!(
///     stop_message(Termination::ErrorMaxTurns, "25 of 25 turns", "nightly-1"),
///     "Run stopped by endstop: error_max_turns (25 of 25 turns). run nightly-1"
/// );
/// ```
pub fn stop_message(termination: Termination, detail: &str, run: &str) -> String {
    let detail = if detail.is_empty() { String::new() } else { format!(" ({detail})") };
    let text = format!("{PREFIX}{termination}{detail}. run {run}");
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
