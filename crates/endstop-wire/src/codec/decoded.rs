//! The vocabulary of decoding: a response as a [`Decoded`] turn, its [`Delta`]s, and the trait that
//! each wire format implements.

use super::common::{Common, Said};
use endstop_core::{ModelError, ModelTurn, TerminationSignal};

/// What decoding needs to know of the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestFacts {
    /// It listed stop strings.
    pub stop_strings: bool,
    /// Its output cap.
    pub output_cap: Option<u64>,
}

/// A piece of a turn, as it comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delta<'a> {
    /// Visible text.
    Text(&'a str),
    /// Reasoning shown in clear.
    Reasoning(&'a str),
    /// A refusal, where the provider keeps it apart from the text.
    Refusal(&'a str),
    /// A tool call begins.
    ToolCallStarted {
        /// Its place among the turn's calls, from 0.
        index: usize,
        /// The tool's name.
        name: &'a str,
    },
    /// More of a call's arguments.
    ToolArguments {
        /// The call's place.
        index: usize,
        /// A piece of JSON text.
        json: &'a str,
    },
}

impl Delta<'_> {
    /// Bytes of generated text in it.
    pub(super) fn bytes(&self) -> u64 {
        let text = match self {
            Delta::Text(text) | Delta::Reasoning(text) | Delta::Refusal(text) => text,
            Delta::ToolCallStarted { name, .. } => name,
            Delta::ToolArguments { json, .. } => json,
        };
        text.len() as u64
    }
}

/// How the body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eof {
    /// The server closed it.
    Clean,
    /// The connection broke.
    Reset,
}

/// A response, decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// What was said and used; beside an error, what had arrived before it.
    pub turn: Option<ModelTurn>,
    /// The error that the response is or carries, or that ended it.
    pub error: Option<ModelError>,
    /// Why it stopped; `error_termination` wherever `error` is set.
    pub signal: TerminationSignal,
    /// It came as a stream of events.
    pub streamed: bool,
    /// A finish value or the protocol's end was seen.
    pub complete: bool,
    /// The decisive field was missing or null (an empty string is a value).
    pub value_missing: bool,
    /// What the provider says about trying again, where it does.
    pub should_retry: Option<bool>,
}

pub(crate) type DeltaSink<'s> = &'s mut dyn FnMut(Delta<'_>);

/// What a wire format does with a response; one implementation a folder.
pub(crate) trait Accumulate: Send {
    /// Takes an event of a stream; an `Err` is JSON that does not read.
    fn event(
        &mut self,
        name: &str,
        data: &str,
        sink: DeltaSink<'_>,
    ) -> Result<(), serde_json::Error>;
    /// Takes a whole JSON body.
    fn body(&mut self, json: &str) -> Result<(), serde_json::Error>;
    /// What is the same for every format.
    fn common(&mut self) -> &mut Common;
    /// What was said, once all of it is there.
    fn conclude(self: Box<Self>, facts: &RequestFacts) -> (Common, Said);
}
