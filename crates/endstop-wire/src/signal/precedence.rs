//! One table for every provider: from the facts of a turn to its signal.
//!
//! ```
//! use endstop_core::{Confidence, SignalReason};
//! use endstop_wire::signal::precedence::{Facts, signal};
//! use endstop_wire::Finish;
//! // `stop`, and yet a tool call: the call wins.
//! let s = signal(&Facts { finish: Finish::Natural, calls: 1, ..Facts::default() });
//! assert_eq!((s.reason, s.confidence), (SignalReason::ToolUse, Confidence::Medium));
//! ```
//!
//! The order: an error, a pause or a turn in progress, the token limit and the content filter, tool
//! calls, a refusal, a stop string, the natural end, and last what is unknown or missing. Where the
//! value says tools, arguments that do not parse and an output at its cap are told in the metadata
//! (`invalid_args`, `at_output_cap`) and in the message, but the reason stays `tool_use`: a call that
//! does not parse is answered as a bad one, a turn that fills its cap is a cut one to the run, and
//! neither is ever run.

use crate::signal::finish::{Finish, certainty};
use endstop_core::{Confidence, SignalReason, TerminationSignal};
use serde_json::Value;

/// What is known of a turn when it has ended.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// What the finish value means.
    pub finish: Finish,
    /// The field it was read from.
    pub field: &'a str,
    /// The raw value; empty where there was none.
    pub raw: &'a str,
    /// The response is an error, or carries one.
    pub error: bool,
    /// How many tool calls the client is asked to run.
    pub calls: usize,
    /// Whether the arguments of all of them parse.
    pub args_valid: bool,
    /// There is no visible text.
    pub text_blank: bool,
    /// The provider marked the answer as a refusal.
    pub refusal: bool,
    /// The stop string that the server says matched.
    pub matched_stop: Option<&'a str>,
    /// The request listed stop strings, and this API would answer a match as a natural stop.
    pub stop_ambiguous: bool,
    /// The end of the protocol was seen (`[DONE]`, `message_stop`, or a whole JSON body).
    pub terminated: bool,
    /// Output tokens reached the requested cap.
    pub at_cap: bool,
}

impl Default for Facts<'_> {
    /// A turn without text or calls, with no finish value, whose end was not seen.
    fn default() -> Self {
        Facts {
            finish: Finish::Missing,
            field: "",
            raw: "",
            error: false,
            calls: 0,
            args_valid: true,
            text_blank: true,
            refusal: false,
            matched_stop: None,
            stop_ambiguous: false,
            terminated: false,
            at_cap: false,
        }
    }
}

/// The signal that these facts make.
pub fn signal(f: &Facts<'_>) -> TerminationSignal {
    let (reason, confidence, message) = decide(f);
    let mut s = TerminationSignal::new(reason, confidence).from_field(f.field, f.raw);
    s.message = message.map(str::to_owned);
    let facts = &mut s.provider_specific.metadata;
    if let Some(stop) = f.matched_stop {
        facts.insert("stop_sequence".into(), Value::from(stop));
    }
    if f.calls > 0 && !f.args_valid {
        facts.insert("invalid_args".into(), Value::Bool(true));
    }
    if f.at_cap && f.calls > 0 {
        facts.insert("at_output_cap".into(), Value::Bool(true));
    }
    s
}

fn decide(f: &Facts<'_>) -> (SignalReason, Confidence, Option<&'static str>) {
    use Confidence::{High, Low, Medium};
    use SignalReason::{
        ContentFiltered, ErrorTermination, InProgress, NaturalCompletion, Paused, StopSequence,
        TokenLimitReached, ToolUse, Unknown,
    };
    // 1. errors
    if f.error || f.finish == Finish::Error {
        return (ErrorTermination, High, None);
    }
    if f.finish == Finish::Aborted {
        return (ErrorTermination, Medium, Some("the provider gave the generation up"));
    }
    let sure = certainty(f.finish, f.raw);
    if f.finish == Finish::Unusable {
        return (ErrorTermination, sure, Some("what the model wrote cannot be used"));
    }
    match f.finish {
        // 2. pauses
        Finish::Paused => return (Paused, sure, None),
        Finish::InProgress => return (InProgress, High, None),
        // 3. token limit and filter
        Finish::Length if f.text_blank && f.calls == 0 => {
            return (
                TokenLimitReached,
                sure,
                Some("the output budget is spent and nothing is visible"),
            );
        }
        Finish::Length | Finish::ContextExceeded => return (TokenLimitReached, sure, None),
        Finish::ContentFilter => return (ContentFiltered, sure, None),
        _ => {}
    }
    // 4. tool calls
    if f.calls > 0 {
        let doubt = if f.args_valid {
            None
        } else {
            Some("tool arguments do not parse: the call was probably cut")
        };
        return match f.finish {
            Finish::ToolUse => (ToolUse, High, doubt),
            Finish::Natural | Finish::StopSequence => (ToolUse, Medium, doubt),
            Finish::Missing if f.terminated => (ToolUse, Low, doubt),
            Finish::Missing => incomplete(),
            // An unknown value may mean that the calls are cut: not knowing is not running them.
            _ => (Unknown, Low, Some("the finish value is not known")),
        };
    }
    // 5. refusal
    let unfinished = f.finish == Finish::Missing && !f.terminated;
    if f.refusal && f.finish != Finish::Unknown && !unfinished {
        return (ContentFiltered, Medium, None);
    }
    match f.finish {
        // 6. stop strings
        Finish::StopSequence => (StopSequence, High, None),
        Finish::Natural if f.matched_stop.is_some() => (StopSequence, High, None),
        // 7. natural stop
        Finish::Natural if f.text_blank => (NaturalCompletion, Medium, Some("the answer is empty")),
        Finish::Natural if f.stop_ambiguous => (NaturalCompletion, Medium, None),
        Finish::Natural => (NaturalCompletion, High, None),
        // 8. contradictions, unknown and missing values
        Finish::ToolUse if f.text_blank => {
            (Unknown, Low, Some("the finish value says tools, but there is no call"))
        }
        Finish::ToolUse => {
            (NaturalCompletion, Low, Some("the finish value says tools, but there is no call"))
        }
        Finish::Missing if unfinished => incomplete(),
        Finish::Missing if f.text_blank => (Unknown, Low, Some("no finish value and no answer")),
        Finish::Missing => (NaturalCompletion, Low, Some("no finish value")),
        Finish::NothingAsked => (
            Unknown,
            Medium,
            Some(
                "the model was only loaded or unloaded, nothing was generated: send a message of the user",
            ),
        ),
        Finish::Other => (Unknown, Medium, Some("the provider does not say why it stopped")),
        _ => (Unknown, Low, Some("the finish value is not known")),
    }
}

fn incomplete() -> (SignalReason, Confidence, Option<&'static str>) {
    (SignalReason::ErrorTermination, Confidence::Medium, Some("the stream closed without its end"))
}
