//! A scripted model: a provider that uses no network, for tests of loops, tools, hooks and
//! policies.

use super::Turn;
use crate::provider::{
    CallEvent, CallSpec, CallStream, ModelSession, ParamError, Provider, Response, SessionSpec,
};
use endstop_core::{
    ErrorClass, ImageTokens, Message, ModelError, Part, Price, TerminationSignal, TurnDelta,
    is_blank,
};
use futures_core::Stream;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

/// A provider that plays a script turn by turn, or calls a function for each turn. All runs of its
/// agent share one script, and so do clones.
#[derive(Clone)]
pub struct ScriptedModel {
    script: Arc<Mutex<VecDeque<Turn>>>,
    answer: Option<Arc<Answer>>,
    repeat_last: bool,
    price: Option<Price>,
    context_window: Option<u64>,
    image_tokens: ImageTokens,
}

type Answer = dyn Fn(&[Message]) -> Turn + Send + Sync;

/// The default rule of a scripted model for images.
const IMAGE: ImageTokens = ImageTokens::Flat(1568);

impl ScriptedModel {
    /// Creates a model that plays these turns; a call after the last turn fails.
    pub fn new(turns: impl IntoIterator<Item = Turn>) -> ScriptedModel {
        ScriptedModel {
            script: Arc::new(Mutex::new(turns.into_iter().collect())),
            answer: None,
            repeat_last: false,
            price: None,
            context_window: None,
            image_tokens: IMAGE,
        }
    }

    /// Creates a model that answers each call with what `answer` makes of its conversation, for tests of
    /// several runs or users at once.
    ///
    /// ```
    /// use endstop::testkit::{ScriptedModel, Turn};
    /// use endstop::{Agent, Message};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::from_fn(|conversation: &[Message]| {
    ///     Turn::text(format!("message {}", conversation.len()))
    /// });
    /// let session = Agent::builder(model).build()?.session();
    /// assert_eq!(session.run("Hello")?.await.into_result()?.answer().as_deref(), Some("message 1"));
    /// assert_eq!(session.run("And now?")?.await.into_result()?.answer().as_deref(), Some("message 3"));
    /// # Ok(()) }
    /// ```
    pub fn from_fn(answer: impl Fn(&[Message]) -> Turn + Send + Sync + 'static) -> ScriptedModel {
        ScriptedModel { answer: Some(Arc::new(answer)), ..ScriptedModel::new([]) }
    }

    /// Repeats the last turn for ever.
    #[must_use]
    pub fn repeat_last(mut self) -> ScriptedModel {
        self.repeat_last = true;
        self
    }

    /// Sets the price of the model.
    #[must_use]
    pub fn price(mut self, price: Price) -> ScriptedModel {
        self.price = Some(price);
        self
    }

    /// Sets the context window in tokens.
    #[must_use]
    pub fn context_window(mut self, tokens: u64) -> ScriptedModel {
        self.context_window = Some(tokens);
        self
    }

    /// Sets the rule by which the model counts the tokens of images, for ceilings. The default is
    /// 1568 tokens for each image, the most of Claude; the rules of other models give up to 48,169.
    ///
    /// ```
    /// use endstop::provider::{ImageTokens, Provider};
    /// use endstop::testkit::ScriptedModel;
    /// let model = ScriptedModel::new([]);
    /// assert_eq!(model.image_tokens(), ImageTokens::Flat(1568));
    /// let model = model.count_images_by(ImageTokens::Unknown);
    /// assert_eq!(model.image_tokens(), ImageTokens::Unknown);
    /// ```
    #[must_use]
    pub fn count_images_by(mut self, rule: ImageTokens) -> ScriptedModel {
        self.image_tokens = rule;
        self
    }

    /// Returns the number of turns of the script that are left to play.
    pub fn turns_left(&self) -> usize {
        self.script.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn next(&self, conversation: &[Message]) -> Option<Turn> {
        if let Some(answer) = &self.answer {
            return Some(answer(conversation));
        }
        // A test that panicked in another thread must not hide its failure behind a poisoned lock.
        let mut script = self.script.lock().unwrap_or_else(PoisonError::into_inner);
        if self.repeat_last && script.len() == 1 {
            return script.front().cloned();
        }
        script.pop_front()
    }
}

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedModel").field("script", &self.script).finish_non_exhaustive()
    }
}

impl Provider for ScriptedModel {
    fn name(&self) -> &'static str {
        "scripted"
    }
    fn model(&self) -> &'static str {
        "script"
    }
    fn check_params(&self, _: &SessionSpec) -> Result<(), ParamError> {
        Ok(())
    }
    fn open(&self, _: SessionSpec) -> Box<dyn ModelSession> {
        Box::new(Script(self.clone()))
    }
    fn is_terminal(&self, response: &Response) -> bool {
        !response.parts.iter().any(|part| matches!(part, Part::ToolCall(_)))
    }
    fn detect_termination(&self, response: &Response) -> Option<TerminationSignal> {
        response.signal.clone()
    }
    fn price(&self) -> Option<Price> {
        self.price
    }
    fn context_window(&self) -> Option<u64> {
        self.context_window
    }
    fn image_tokens(&self) -> ImageTokens {
        self.image_tokens
    }
}

struct Script(ScriptedModel);

impl ModelSession for Script {
    fn call(&mut self, call: CallSpec<'_>) -> CallStream {
        let turn = self.0.next(call.messages);
        let Some(turn) = turn else {
            let error = ModelError::new(ErrorClass::UnknownError, "the script has no more turns");
            let events = [CallEvent::Failed(error, None)].into();
            return Box::pin(Play { events, ..Play::default() });
        };
        Box::pin(Play::of(&turn, call.output_cap, call.details))
    }
}

/// The events of a turn, with pauses between them.
#[derive(Default)]
struct Play {
    events: VecDeque<CallEvent>,
    delay: Duration,
    pace: Duration,
    wait: Option<Pin<Box<Sleep>>>,
}

impl Play {
    fn of(turn: &Turn, output_cap: Option<u64>, details: bool) -> Play {
        let mut events = VecDeque::new();
        if let Some((status, body)) = &turn.error {
            // The classes of the bare statuses; the scripted server also sends bodies that refine
            // them.
            let class = match status {
                401 => ErrorClass::Authentication,
                403 => ErrorClass::Permission,
                404 => ErrorClass::NotFound,
                413 => ErrorClass::RequestTooLarge,
                429 => ErrorClass::RateLimit,
                503 | 529 => ErrorClass::Overloaded,
                500.. => ErrorClass::ServerError,
                _ => ErrorClass::InvalidRequest,
            };
            let error =
                ModelError { status: Some(*status), ..ModelError::new(class, body.clone()) };
            events.push_back(CallEvent::Failed(error, None));
        } else {
            let mut parts = Vec::new();
            if !turn.reasoning.is_empty() {
                events.push_back(if details {
                    CallEvent::Reasoning(turn.reasoning.clone())
                } else {
                    let chars = turn.reasoning.chars().count() as u64;
                    CallEvent::Delta(TurnDelta::Reasoning(chars))
                });
                parts.push(Part::Reasoning { text: turn.reasoning.clone() });
            }
            for word in turn.words() {
                events.push_back(CallEvent::Delta(TurnDelta::Text(word.to_owned())));
            }
            if !turn.text.is_empty() {
                parts.push(Part::Text { text: turn.text.clone() });
            }
            for (index, call) in turn.calls.iter().enumerate() {
                if details {
                    let (index, id) = (index as u32, call.id.clone());
                    let started = CallEvent::ToolCallStarted { index, id, name: call.name.clone() };
                    let json = call.arguments.clone();
                    events.extend([started, CallEvent::ToolArguments { index, json }]);
                } else {
                    let chars = call.arguments.chars().count() as u64;
                    events.push_back(CallEvent::Delta(TurnDelta::ToolArguments(chars)));
                }
                parts.push(Part::ToolCall(call.clone()));
            }
            let signal = signal(turn);
            events.push_back(CallEvent::Ended(Box::new(Response {
                parts,
                usage: turn.used(),
                model: Some("script".to_owned()),
                output_cap,
                signal: Some(signal),
                ..Response::default()
            })));
        }
        Play { events, delay: turn.delay, pace: turn.pace, wait: None }
    }
}

/// Returns the signal of a scripted turn, from the same precedence table as for real responses.
fn signal(turn: &Turn) -> TerminationSignal {
    use endstop_wire::signal::finish::finish_of_any;
    use endstop_wire::signal::precedence::{TurnFacts, signal};
    let fitting = if turn.calls.is_empty() { "stop" } else { "tool_calls" };
    let raw = turn.finish.as_deref().unwrap_or(fitting);
    signal(&TurnFacts {
        finish: finish_of_any(raw),
        field: "finish_reason",
        raw,
        calls: turn.calls.len(),
        text_blank: is_blank(&turn.text),
        terminated: true,
        ..TurnFacts::default()
    })
}

impl Stream for Play {
    type Item = CallEvent;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<CallEvent>> {
        // Taken, so that only the first poll waits. The sleep itself is stored in `wait`, because a
        // new one at every poll would never elapse.
        let delay = std::mem::take(&mut self.delay);
        if !delay.is_zero() {
            self.wait = Some(Box::pin(tokio::time::sleep(delay)));
        }
        if let Some(wait) = &mut self.wait {
            std::task::ready!(wait.as_mut().poll(cx));
            self.wait = None;
        }
        let event = self.events.pop_front();
        let ends = matches!(event, None | Some(CallEvent::Ended(_) | CallEvent::Failed(..)));
        if !ends && !self.pace.is_zero() {
            self.wait = Some(Box::pin(tokio::time::sleep(self.pace)));
        }
        Poll::Ready(event)
    }
}

use std::future::Future as _;
