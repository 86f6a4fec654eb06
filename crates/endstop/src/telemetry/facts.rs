//! The settings of spans, and the facts that they show.

use endstop_core::{ModelTurn, NanoUsd, Part, TerminationSignal, Usage};

/// The settings of the spans of an agent.
///
/// ```
/// use endstop::telemetry::SpanSettings;
/// use endstop::{Agent, testkit::ScriptedModel};
/// let settings = SpanSettings { agent: Some("reviewer".to_owned()), ..SpanSettings::default() };
/// let agent = Agent::builder(ScriptedModel::new([])).spans(settings);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanSettings {
    /// The name of the agent.
    pub agent: Option<String>,
    /// `true` to show the messages of calls and their answers, without secrets.
    pub content: bool,
    /// `true` to send the place of a call in its trace to the provider, in the header `traceparent`. It needs the
    /// feature `opentelemetry`.
    pub propagate: bool,
}

/// The facts of a run when it begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunFacts<'a> {
    /// The name of the agent.
    pub agent: Option<&'a str>,
    /// The id of the run.
    pub id: Option<&'a str>,
    /// The id of the provider.
    pub provider: Option<&'a str>,
    /// The model that is asked for.
    pub model: Option<&'a str>,
}

/// The kind of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// A turn, or another text.
    #[default]
    Chat,
    /// Vectors.
    Embeddings,
    /// Images, speech and the like.
    GenerateContent,
}

impl Operation {
    /// The name of the convention.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Chat => "chat",
            Operation::Embeddings => "embeddings",
            Operation::GenerateContent => "generate_content",
        }
    }
}

/// The facts of an attempt at a call when it begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallFacts<'a> {
    /// The kind of the call.
    pub operation: Operation,
    /// The id of the provider.
    pub provider: &'a str,
    /// The model that is asked for.
    pub model: &'a str,
    /// Host and port of the server.
    pub server: Option<(&'a str, u16)>,
    /// The id of the run.
    pub run_id: Option<&'a str>,
    /// The name of the conversation, in a run that has several.
    pub thread: Option<&'a str>,
    /// `true` if the answer is streamed.
    pub streaming: bool,
    /// The output cap, in tokens.
    pub output_cap: Option<u64>,
    /// The number of the turn, from 1.
    pub turn: Option<u32>,
    /// The number of the attempt at this turn, from 1.
    pub attempt: Option<u32>,
}

/// An answer, or the part of one that arrived.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answer<'a> {
    /// The model that answered.
    pub model: Option<&'a str>,
    /// The provider's id of the response.
    pub id: Option<&'a str>,
    /// The tokens used.
    pub usage: Option<&'a Usage>,
    /// The cost, if it is known.
    pub cost: Option<NanoUsd>,
    /// The reason why the model stopped, if it did.
    pub signal: Option<&'a TerminationSignal>,
    /// The content, if it is to be shown.
    pub parts: &'a [Part],
}

impl<'a> Answer<'a> {
    /// The facts of a turn, without its content and its cost.
    pub fn of(turn: &'a ModelTurn) -> Answer<'a> {
        Answer {
            model: turn.model.as_deref(),
            id: turn.response_id.as_deref(),
            usage: Some(&turn.usage),
            signal: Some(&turn.signal),
            ..Answer::default()
        }
    }
}
