//! Model providers: the interface through which a run calls a model.
//!
//! A [`Provider`] opens a [`ModelSession`] for each run. The session encodes the conversation (and may
//! cache the encoded messages) and starts calls. A call is a stream of [`CallEvent`]s that ends
//! with `Ended` or `Failed`; dropping it aborts the call.
//!
//! [`Provider::is_terminal`] decides if a response ends the model's part in the run. The optional
//! [`Provider::detect_termination`] gives the exact reason, and is preferred.

#[cfg(feature = "http")]
pub mod http;
pub mod layer;
#[cfg(feature = "http")]
mod login;
#[cfg(feature = "http")]
pub(crate) mod network;
#[cfg(feature = "http")]
pub mod record;
#[cfg(feature = "http")]
pub mod recording;
#[cfg(feature = "http")]
pub mod replay;
#[cfg(feature = "bedrock")]
mod sign;
#[cfg(all(feature = "http", not(feature = "bedrock")))]
#[path = "unsigned.rs"]
mod sign;
#[cfg(feature = "http")]
mod transport;

use endstop_core::signal::{YesNo, default_detection};
use endstop_core::{Attachment, Message, Part, Usage};
pub use endstop_core::{
    Confidence, ErrorClass, ImageTokens, ModelError, ModelTurn, Price, SignalReason,
    TerminationSignal, TurnDelta, Window,
};
pub use endstop_wire::endpoint::Secret;
pub use endstop_wire::media::UnsupportedMedia;
pub use endstop_wire::redact::KnownKeys;
pub use endstop_wire::{
    Caching, Effort, ModelParams, ParamError, Thinking, ToolChoice, ToolDefinition,
};
use futures_core::Stream;
use serde_json::{Map, Value, json};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A call in progress: deltas, then `Ended` or `Failed`. Dropping it aborts the call.
pub type CallStream = Pin<Box<dyn Stream<Item = CallEvent> + Send>>;

/// An item of a call's stream.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CallEvent {
    /// An increment of the turn: text, or the number of characters of reasoning or arguments.
    Delta(TurnDelta),
    /// Reasoning in plain text; instead of its count if [`CallSpec::details`] is set.
    Reasoning(String),
    /// Text of a refusal that is not text of the answer; counts as reasoning.
    Refusal(String),
    /// Start of a tool call; its name counts as arguments.
    ToolCallStarted {
        /// Position of the call among the calls of the response, from 0.
        index: u32,
        /// The id that the call has in the response; empty if it is not known yet.
        id: String,
        /// Name of the tool.
        name: String,
    },
    /// A fragment of a tool call's arguments; instead of its count if [`CallSpec::details`] is set.
    ToolArguments {
        /// Position of the call.
        index: u32,
        /// Fragment of JSON text.
        json: String,
    },
    /// The use of a subscription's windows, as the response reports it.
    Windows(Vec<Window>),
    /// The response is complete.
    Ended(Box<Response>),
    /// The call failed. Includes the part of the response that had arrived.
    Failed(ModelError, Option<Box<Response>>),
}

/// The settings that all calls of a run have in common.
#[derive(Clone, Debug, Default)]
pub struct SessionSpec {
    /// The system prompt.
    pub system: Option<String>,
    /// The tools that the model may call.
    pub tools: Vec<ToolDefinition>,
    /// A JSON Schema that the answer must satisfy.
    pub output_schema: Option<Value>,
    /// The model's context window in tokens as the run knows it; `None` if it is unknown.
    pub context_window: Option<u64>,
    /// `true` to stream responses.
    pub streaming: bool,
    /// The run's [`stall_timeout`](crate::Limits::stall_timeout). A response whose end the server does not send must be
    /// complete before it.
    pub stall_timeout: Option<std::time::Duration>,
    /// Parameters of the requests. [`Provider::check_params`] has accepted them, except
    /// [`Caching::Off`] for a session of a single request.
    pub params: ModelParams,
}

/// The input of one call.
#[derive(Clone, Copy, Debug)]
pub struct CallSpec<'a> {
    /// The conversation.
    pub messages: &'a [Message],
    /// The epoch of the conversation. Messages encoded in another epoch must be encoded anew.
    pub epoch: u64,
    /// The maximum number of output tokens; `None` selects the provider's default.
    pub output_cap: Option<u64>,
    /// `true` if the caller reads reasoning and arguments as they arrive. If it is `false`, a
    /// stream should report only the number of their characters, because that costs less.
    pub details: bool,
    /// The place of the call in a trace, to be sent as the header `traceparent`.
    pub trace_parent: Option<&'a str>,
}

/// A complete or partial response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Response {
    /// The parts of the message, in order.
    pub parts: Vec<Part>,
    /// The tokens used.
    pub usage: Usage,
    /// The model that answered.
    pub model: Option<String>,
    /// The provider's id of the response.
    pub id: Option<String>,
    /// The cost that the provider reports for the call.
    pub cost: Option<endstop_core::NanoUsd>,
    /// The output cap that was in force, if known.
    pub output_cap: Option<u64>,
    /// The mean token probability, if known.
    pub confidence: Option<f64>,
    /// The provider's raw termination fields, such as `finish_reason` or `stop_reason`. The default
    /// detection reads them.
    pub metadata: Map<String, Value>,
    /// The termination signal, if the provider's decoder has already determined it.
    pub signal: Option<TerminationSignal>,
    /// The parse error of the tool calls, if they are malformed.
    pub unparseable: Option<String>,
    /// `true` if the finish value is missing although the provider normally sends one. The response
    /// may be truncated, so the call is repeated.
    pub finish_missing: bool,
    /// `true` if the finish value announces a tool call that the response does not contain.
    pub call_missing: bool,
}

impl Response {
    /// Creates a response with this text.
    pub fn text(text: impl Into<String>) -> Response {
        Response { parts: vec![Part::Text { text: text.into() }], ..Response::default() }
    }

    /// Converts the response into a turn with this signal.
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

/// A source of model turns.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a provider",
    note = "implement `name`, `open` and `is_terminal`; the example `custom-provider` shows one whole"
)]
pub trait Provider: Send + Sync {
    /// Returns the provider's name, for outcomes.
    fn name(&self) -> &str;

    /// Returns the model's name.
    fn model(&self) -> &str;

    /// Opens a session for a run.
    fn open(&self, spec: SessionSpec) -> Box<dyn ModelSession>;

    /// Checks the parameters of a run when an agent is built, and when a run brings its own. The
    /// tools of `spec` need not have a description or a schema. The default accepts none, so that a
    /// provider that ignores parameters drops none silently.
    ///
    /// # Errors
    /// Names a parameter that the provider does not take, or that contradicts another setting.
    fn check_params(&self, spec: &SessionSpec) -> Result<(), ParamError> {
        let shown = spec.params.shown();
        match shown.as_object().and_then(|params| params.keys().next()) {
            Some(param) => Err(ParamError::none_taken(param, self.name())),
            None => Ok(()),
        }
    }

    /// `true` if this response ends the model's part in the run. This is for providers that cannot
    /// tell more; it is called only if [`detect_termination`](Self::detect_termination) returns
    /// `None`.
    fn is_terminal(&self, response: &Response) -> bool;

    /// Returns the reason why this response ended, if the provider can tell.
    fn detect_termination(&self, response: &Response) -> Option<TerminationSignal> {
        let _ = response;
        None
    }

    /// Returns the model's context window in tokens, if known.
    fn context_window(&self) -> Option<u64> {
        None
    }

    /// Returns the model's maximum number of output tokens, if known.
    fn max_output(&self) -> Option<u64> {
        None
    }

    /// Returns the seed of the waits between attempts, if the provider's calls are recorded or replayed: a
    /// replay makes the same number of attempts only with the seed of the recorded run.
    fn seed(&self) -> Option<u64> {
        None
    }

    /// Returns the rule by which the model counts the tokens of images. A ceiling on cost or tokens
    /// holds only if the number is not too small, so the default is the largest known.
    fn image_tokens(&self) -> ImageTokens {
        ImageTokens::Unknown
    }

    /// Checks if the model takes an image or a document that the user gives. The default accepts all.
    ///
    /// # Errors
    /// The reason why not, for example the largest size.
    fn check_attachment(&self, attachment: &Attachment) -> Result<(), UnsupportedMedia> {
        let _ = attachment;
        Ok(())
    }

    /// Returns the name of the wire format, for example `anthropic-messages`, if it is known. Only
    /// parts of a message that carry this name ([`Part::Opaque`]) are sent back.
    fn wire_format(&self) -> Option<&str> {
        None
    }

    /// Returns the provider's credentials, which are redacted from journals and outcomes.
    fn known_keys(&self) -> KnownKeys {
        KnownKeys::default()
    }

    /// Returns the host and port of the server, if known. Spans record them.
    fn server(&self) -> Option<(&str, u16)> {
        None
    }

    /// Returns the model's price, if known.
    fn price(&self) -> Option<endstop_core::Price> {
        None
    }
}

/// An encoder of one run's conversation that starts calls.
pub trait ModelSession: Send {
    /// Starts a call. Must read all it needs of the conversation before it returns.
    fn call(&mut self, call: CallSpec<'_>) -> CallStream;
}

/// Returns the stream of a call that has already ended with these events, for example one that
/// comes from a cache, or from an API without streaming.
///
/// ```
/// use endstop::provider::{CallEvent, Response, stream_of};
/// let stream = stream_of([CallEvent::Ended(Box::new(Response::text("Hello.")))]);
/// # let _ = stream;
/// ```
pub fn stream_of<I>(events: I) -> CallStream
where
    I: IntoIterator<Item = CallEvent>,
    I::IntoIter: Send + Unpin + 'static,
{
    Box::pin(Events(events.into_iter()))
}

struct Events<I>(I);

impl<I: Iterator<Item = CallEvent> + Unpin> Stream for Events<I> {
    type Item = CallEvent;
    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<CallEvent>> {
        Poll::Ready(self.0.next())
    }
}

/// Returns the reason why a response ended: from the provider's own detection if it has one,
/// otherwise from the default detection on `is_terminal`.
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
        // If the detection itself fails, report `unknown`: that is never taken for a success.
        default_detection(&yes_no).unwrap_or_else(|problem| {
            TerminationSignal::new(SignalReason::Unknown, Confidence::Low)
                .with_message(problem.to_string())
        })
    })
}

/// Adapts a provider and one response to the detection of `endstop-wire`.
struct Asked<'a> {
    provider: &'a dyn Provider,
    response: &'a Response,
}

impl endstop_wire::detect::detector::FinishDetector for Asked<'_> {
    fn is_terminal(&self, _: &Value) -> bool {
        self.provider.is_terminal(self.response)
    }
    fn detect_termination(&self, _: &Value) -> Option<TerminationSignal> {
        self.provider.detect_termination(self.response)
    }
}

/// Returns the response in the form that the default detection reads.
fn payload(response: &Response) -> Value {
    let mut content = Vec::new();
    let mut calls = Vec::new();
    for part in &response.parts {
        match part {
            Part::Text { text } => content.push(json!({"type": "text", "text": text})),
            // The detection only checks that there are calls, so their arguments are not needed.
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
