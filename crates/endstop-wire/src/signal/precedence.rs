//! Decision table from the facts of a finished turn to its signal, shared by all providers.
//!
//! ```
//! use endstop_core::{Confidence, SignalReason};
//! use endstop_wire::signal::precedence::{TurnFacts, signal};
//! use endstop_wire::Finish;
//! // The finish value is `stop`, but the turn has a tool call: the call takes precedence.
//! let s = signal(&TurnFacts { finish: Finish::Natural, calls: 1, ..TurnFacts::default() });
//! assert_eq!((s.reason, s.confidence), (SignalReason::ToolUse, Confidence::Medium));
//! ```
//!
//! The facts are checked in this order: an error, a pause or a turn in progress, the token limit and
//! the content filter, tool calls, a refusal, a stop string, the natural end, and last unknown or
//! missing values. If the finish value reports tools, unparsable arguments and an output at its cap
//! are recorded in the metadata (`invalid_args`, `at_output_cap`) and in the message, but the
//! reason stays `tool_use`. The run answers an unparsable call as invalid and treats a turn that
//! filled its cap as truncated, so it executes neither.

use crate::signal::finish::{Finish, certainty};
use endstop_core::{Confidence, SignalReason, TerminationSignal};
use serde_json::Value;

/// The facts about a turn that has ended.
#[derive(Clone, Debug)]
pub struct TurnFacts<'a> {
    /// Meaning of the finish value.
    pub finish: Finish,
    /// Field that the value was read from.
    pub field: &'static str,
    /// Raw value, or an empty string if there was none.
    pub raw: &'a str,
    /// `true` if the response is or contains an error.
    pub error: bool,
    /// Number of tool calls that the client is asked to run.
    pub calls: usize,
    /// `true` if the arguments of all calls parse.
    pub args_valid: bool,
    /// `true` if there is no visible text.
    pub text_blank: bool,
    /// `true` if the provider marked the answer as a refusal.
    pub refusal: bool,
    /// Stop string that matched, according to the server.
    pub matched_stop: Option<&'a str>,
    /// `true` if the request listed stop strings and this API reports a match as a natural stop.
    pub stop_ambiguous: bool,
    /// `true` if the protocol's end marker arrived (`[DONE]`, `message_stop`, or a complete JSON
    /// body).
    pub terminated: bool,
    /// `true` if the output tokens reached the requested cap.
    pub at_cap: bool,
}

impl Default for TurnFacts<'_> {
    /// Returns the facts of a turn without text, calls or finish value, whose end marker is
    /// missing.
    fn default() -> Self {
        TurnFacts {
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

/// Returns the signal for these facts.
pub fn signal(f: &TurnFacts<'_>) -> TerminationSignal {
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

/// Reason, confidence and message of a signal.
type Decision = (SignalReason, Confidence, Option<&'static str>);

fn decide(f: &TurnFacts<'_>) -> Decision {
    use Confidence::{High, Low, Medium};
    use SignalReason::{
        ContentFiltered, ErrorTermination, InProgress, NaturalCompletion, Paused, StopSequence,
        TokenLimitReached, Unknown,
    };
    // 1. Errors
    if f.error || f.finish == Finish::Error {
        return (ErrorTermination, High, None);
    }
    if f.finish == Finish::Aborted {
        return (ErrorTermination, Medium, Some("the provider aborted the generation"));
    }
    let sure = certainty(f.finish, f.raw);
    if f.finish == Finish::Unusable {
        return (ErrorTermination, sure, Some("the model's output cannot be used"));
    }
    match f.finish {
        // 2. Pauses
        Finish::Paused => return (Paused, sure, None),
        Finish::InProgress => return (InProgress, High, None),
        // 3. Token limit and content filter. They precede tool calls, because a cut turn may
        //    contain a cut call that parses.
        Finish::Length if f.text_blank && f.calls == 0 => {
            return (
                TokenLimitReached,
                sure,
                Some("the output budget is spent, but no text is visible"),
            );
        }
        Finish::Length | Finish::ContextExceeded => return (TokenLimitReached, sure, None),
        Finish::ContentFilter => return (ContentFiltered, sure, None),
        _ => {}
    }
    // 4. Tool calls
    if f.calls > 0 {
        return with_calls(f);
    }
    // 5. Refusal
    let unfinished = f.finish == Finish::Missing && !f.terminated;
    if f.refusal && f.finish != Finish::Unknown && !unfinished {
        return (ContentFiltered, Medium, None);
    }
    match f.finish {
        // 6. Stop strings
        Finish::StopSequence => (StopSequence, High, None),
        Finish::Natural if f.matched_stop.is_some() => (StopSequence, High, None),
        // 7. Natural stop
        Finish::Natural if f.text_blank => (NaturalCompletion, Medium, Some("the answer is empty")),
        Finish::Natural if f.stop_ambiguous => (NaturalCompletion, Medium, None),
        Finish::Natural => (NaturalCompletion, High, None),
        // 8. Contradictory, unknown and missing values
        Finish::ToolUse if f.text_blank => {
            (Unknown, Low, Some("the finish value reports tool calls, but there are none"))
        }
        Finish::ToolUse => (
            NaturalCompletion,
            Low,
            Some("the finish value reports tool calls, but there are none"),
        ),
        Finish::Missing if unfinished => incomplete(),
        Finish::Missing if f.text_blank => (Unknown, Low, Some("no finish value and no answer")),
        Finish::Missing => (NaturalCompletion, Low, Some("no finish value")),
        Finish::NothingAsked => (
            Unknown,
            Medium,
            Some(
                "the model was only loaded or unloaded and nothing was generated; send a user message",
            ),
        ),
        Finish::Other => (Unknown, Medium, Some("the provider gave no reason for stopping")),
        _ => (Unknown, Low, Some("the finish value is not known")),
    }
}

/// Decides for a turn with tool calls that nothing before them outranks.
fn with_calls(f: &TurnFacts<'_>) -> Decision {
    use Confidence::{High, Low, Medium};
    use SignalReason::{ToolUse, Unknown};
    let doubt = if f.args_valid {
        None
    } else {
        Some("tool arguments do not parse: the call was probably cut")
    };
    match f.finish {
        Finish::ToolUse => (ToolUse, High, doubt),
        // Many compatible servers report `stop` although the turn has calls.
        Finish::Natural | Finish::StopSequence => (ToolUse, Medium, doubt),
        Finish::Missing if f.terminated => (ToolUse, Low, doubt),
        Finish::Missing => incomplete(),
        // An unknown value may mean that the calls were cut, so they must not run.
        _ => (Unknown, Low, Some("the finish value is not known")),
    }
}

fn incomplete() -> Decision {
    (SignalReason::ErrorTermination, Confidence::Medium, Some("the stream closed without its end"))
}
