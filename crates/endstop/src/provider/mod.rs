//! Providers: where a model's turns come from.
//!
//! A [`Provider`] opens a [`Session`] for each run; the session encodes the conversation (and may
//! keep what it has encoded) and starts calls. A call is a stream of [`CallEvent`]s that ends
//! with `Ended` or `Failed`; dropping it aborts the call.
//!
//! Whether a response ends the model's part in the run is said by [`Provider::is_terminal`], or,
//! better, by the optional [`Provider::detect_termination`].

pub mod http;
mod login;
pub mod record;
pub mod recording;
pub mod replay;
mod sign;
mod transport;

use endstop_core::signal::{YesNo, default_detection};
use endstop_core::{
    Confidence, Message, ModelError, ModelTurn, Part, SignalReason, TerminationSignal, TurnDelta,
    Usage,
};
use endstop_wire::redact::KnownKeys;
use futures_core::Stream;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::pin::Pin;

/// A call under way: deltas, then `Ended` or `Failed`; dropping it aborts the call.
pub type CallStream = Pin<Box<dyn Stream<Item = CallEvent> + Send>>;

/// What comes of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallEvent {
    /// More of the turn.
    Delta(TurnDelta),
    /// The response is whole.
    Ended(Box<Response>),
    /// The call failed; with what had arrived.
    Failed(ModelError, Option<Box<Response>>),
}

/// What every call of a run has in common.
#[derive(Clone, Debug, Default)]
pub struct SessionSpec {
    /// Instructions.
    pub system: Option<String>,
    /// The tools that the model may call.
    pub tools: Vec<ToolDefinition>,
    /// A JSON Schema that the answer must satisfy.
    pub output_schema: Option<Value>,
    /// The context window that the run reckons with, in tokens; `None`: it is not known.
    pub context_window: Option<u64>,
    /// Whether to stream.
    pub streaming: bool,
}

/// A tool as the model is told of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolDefinition {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments.
    pub schema: Value,
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct CallSpec<'a> {
    /// The conversation.
    pub messages: &'a [Message],
    /// Its epoch: messages of another must be encoded anew.
    pub epoch: u64,
    /// The output cap; `None`: the provider's own.
    pub output_cap: Option<u64>,
}

/// A response, whole or partial.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Response {
    /// What was said, in order.
    pub parts: Vec<Part>,
    /// What it used.
    pub usage: Usage,
    /// The model that answered.
    pub model: Option<String>,
    /// The provider's id of it.
    pub id: Option<String>,
    /// What the provider says that it billed.
    pub cost: Option<endstop_core::NanoUsd>,
    /// The output cap that was in force, where known.
    pub output_cap: Option<u64>,
    /// The mean token probability, where known.
    pub confidence: Option<f64>,
    /// What the provider says of the ending, in its own words: `finish_reason`, `stop_reason` …
    /// The default detection reads these.
    pub metadata: Map<String, Value>,
    /// The signal, where the provider's decoder has already read it.
    pub signal: Option<TerminationSignal>,
    /// Why its tool calls could not be parsed, if they could not.
    pub unparseable: Option<String>,
    /// It has no finish value, although the provider sends one: it may be cut, and is asked for again.
    pub finish_missing: bool,
    /// Its finish value announces a tool call that it does not have.
    pub call_missing: bool,
}

impl Response {
    /// A response that is this text.
    pub fn text(text: impl Into<String>) -> Response {
        Response { parts: vec![Part::Text { text: text.into() }], ..Response::default() }
    }

    /// The turn that it is, with this signal.
    pub fn into_turn(self, signal: TerminationSignal) -> ModelTurn {
        ModelTurn {
            usage: self.usage,
            model: self.model,
            response_id: self.id,
            cost: self.cost,
            output_cap: self.output_cap,
            confidence: self.confidence,
            unparseable: self.unparseable,
            finish_missing: self.finish_missing,
            call_missing: self.call_missing,
            ..ModelTurn::new(self.parts, signal)
        }
    }
}

/// Where a model's turns come from.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a provider",
    note = "implement `name`, `open` and `is_terminal`; the example `custom-provider` shows one whole"
)]
pub trait Provider: Send + Sync {
    /// Its name, for outcomes.
    fn name(&self) -> &str;

    /// The model that it asks.
    fn model(&self) -> &str;

    /// Opens a session: one for each run.
    fn open(&self, spec: SessionSpec) -> Box<dyn Session>;

    /// Whether this response ends the model's part in the run: the yes or no of a provider that
    /// knows no more. It is asked only where [`detect_termination`](Self::detect_termination)
    /// says `None`.
    fn is_terminal(&self, response: &Response) -> bool;

    /// Why this response ended, where the provider can tell.
    fn detect_termination(&self, response: &Response) -> Option<TerminationSignal> {
        let _ = response;
        None
    }

    /// The model's context window in tokens, where known.
    fn context_window(&self) -> Option<u64> {
        None
    }

    /// The largest answer in tokens that the model gives, where known.
    fn max_output(&self) -> Option<u64> {
        None
    }

    /// Its keys, which must not come to a journal, nor to an outcome.
    fn known_keys(&self) -> KnownKeys {
        KnownKeys::default()
    }

    /// The host and port that it asks, where known: spans name them.
    fn server(&self) -> Option<(&str, u16)> {
        None
    }

    /// What the model costs, where known.
    fn price(&self) -> Option<endstop_core::Price> {
        None
    }
}

/// A run's conversation with a provider.
pub trait Session: Send {
    /// Starts a call. What must be read of the conversation is read before this returns.
    fn call(&mut self, call: CallSpec<'_>) -> CallStream;
}

/// Why a response ended: the provider's own detection where it has one, else the default one on
/// its yes or no.
pub(crate) fn detect(
    provider: &dyn Provider,
    response: &Response,
    strict: bool,
) -> TerminationSignal {
    let asked = Asked { provider, response };
    endstop_wire::detect::detector::detect(&asked, &Value::Null, |asked, _| {
        let payload = payload(response);
        let yes_no = YesNo {
            payload: &payload,
            is_terminal: Some(asked.is_terminal(&Value::Null)),
            own: None,
            strict,
        };
        default_detection(&yes_no).unwrap_or_else(|problem| {
            TerminationSignal::new(SignalReason::Unknown, Confidence::Low)
                .with_message(problem.to_string())
        })
    })
}

/// A provider that is asked about one response.
struct Asked<'a> {
    provider: &'a dyn Provider,
    response: &'a Response,
}

impl endstop_wire::detect::detector::Provider for Asked<'_> {
    fn is_terminal(&self, _: &Value) -> bool {
        self.provider.is_terminal(self.response)
    }
    fn detect_termination(&self, _: &Value) -> Option<TerminationSignal> {
        self.provider.detect_termination(self.response)
    }
}

/// A response as the default detection reads it.
fn payload(response: &Response) -> Value {
    let mut content = Vec::new();
    let mut calls = Vec::new();
    for part in &response.parts {
        match part {
            Part::Text { text } => content.push(json!({"type": "text", "text": text})),
            Part::ToolCall(call) => calls.push(json!({"id": call.id, "name": call.name})),
            _ => {}
        }
    }
    let mut message = json!({"role": "assistant", "content": content});
    if !calls.is_empty() {
        message["metadata"] = json!({"toolCalls": calls});
    }
    json!({"message": message, "model": response.model, "metadata": response.metadata})
}
