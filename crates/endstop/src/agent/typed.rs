//! Runs whose answer is a value of a Rust type.
//!
//! ```
//! use endstop::Agent;
//! use endstop::testkit::{ScriptedModel, Turn};
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct City {
//!     name: String,
//!     /// Inhabitants.
//!     population: u64,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = ScriptedModel::new([
//!     Turn::text(r#"{"name": "Paris", "population": "two million"}"#), // is repaired
//!     Turn::text(r#"{"name": "Paris", "population": 2103000}"#),
//! ]);
//! let agent = Agent::builder(model).build()?;
//! let city: City = agent.run_typed("What is the capital of France?")?.await.into_result()?;
//! assert_eq!((city.name.as_str(), city.population), ("Paris", 2_103_000));
//! # Ok(()) }
//! ```

use super::handle::RunHandle;
use super::handle::approvals::{AnswerError, Approval, Approvals};
use super::session::Session;
use super::shared::Agent;
use super::start::conversation::RunInput;
use super::start::start_error::StartError;
use super::stored::resume::Resume;
use super::user_code::off_thread::{ANSWER_TYPE, off_thread, read_bound};
use super::user_code::words;
use crate::event::{AgentEvent, RequestId};
use crate::schema::{OutputSchema, OutputType, deserialize};
use endstop_core::{Outcome, Unsuccessful};
use endstop_wire::redact::KnownKeys;
use futures_core::Stream;
use serde::de::DeserializeOwned;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

impl Agent {
    /// Starts a run in a new conversation whose answer must be a `T`. Must be called within a tokio
    /// runtime.
    ///
    /// The JSON Schema of `T` is sent to the model, and replaces an
    /// [`output_schema`](super::AgentBuilder::output_schema) of the agent. An answer that violates
    /// the schema, or that `T` does not deserialize from, goes back to the model with the problem,
    /// at most `max_structured_output_retries` times. A run that ends as a success therefore has a
    /// `T`.
    ///
    /// `T` may be any type: if its JSON is not an object (a `Vec`, an enum, a string), the model is
    /// asked for an object with the value in its field `value`.
    ///
    /// # Errors
    /// Those of [`run`](Self::run), or the provider's format does not take the schema, for example
    /// because the type is recursive.
    pub fn run_typed<T>(&self, input: impl Into<RunInput>) -> Result<TypedHandle<T>, StartError>
    where
        T: OutputType,
    {
        self.session().run_typed(input)
    }

    /// Resumes a run of the agent's journal whose answer must be a `T`, in a new conversation; see
    /// [`Session::resume_typed`].
    ///
    /// # Errors
    /// Those of [`Session::resume_typed`].
    pub fn resume_typed<T>(&self, how: impl Into<Resume>) -> Result<TypedHandle<T>, StartError>
    where
        T: OutputType,
    {
        self.session().resume_typed(how)
    }
}

impl Session {
    /// Starts a run whose answer must be a `T`, and which continues the conversation. See
    /// [`Agent::run_typed`](crate::Agent::run_typed).
    ///
    /// # Errors
    /// Those of [`run`](Self::run), or the provider's format does not take the schema.
    pub fn run_typed<T>(&self, input: impl Into<RunInput>) -> Result<TypedHandle<T>, StartError>
    where
        T: OutputType,
    {
        let schema = Arc::new(OutputSchema::of::<T>());
        let handle = self.start(input.into(), Some(schema))?;
        Ok(TypedHandle { handle, value: PhantomData })
    }

    /// Resumes a run of the agent's journal whose answer must be a `T`. See
    /// [`resume`](Self::resume) and [`Agent::run_typed`](crate::Agent::run_typed).
    ///
    /// # Errors
    /// Those of [`resume`](Self::resume). A run that was started with another type or schema is
    /// [`StartError::Changed`].
    pub fn resume_typed<T>(&self, how: impl Into<Resume>) -> Result<TypedHandle<T>, StartError>
    where
        T: OutputType,
    {
        let handle = self.resume(how.into().output_schema(OutputSchema::of::<T>()))?;
        Ok(TypedHandle { handle, value: PhantomData })
    }
}

/// A handle to a run whose answer is a `T`. Like a [`RunHandle`], it is a stream of events and a
/// future of the outcome, and dropping it cancels the run.
#[must_use = "dropping the handle cancels the run"]
pub struct TypedHandle<T> {
    handle: RunHandle,
    value: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for TypedHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedHandle").field("handle", &self.handle).finish_non_exhaustive()
    }
}

impl<T: DeserializeOwned> TypedHandle<T> {
    /// Returns the next event, or `None` after the event with the outcome.
    pub async fn next(&mut self) -> Option<AgentEvent> {
        self.handle.next().await
    }

    /// Cancels this run, as [`RunHandle::cancel`].
    pub fn cancel(&self) {
        self.handle.cancel();
    }

    /// Terminates this run, as [`RunHandle::terminate`].
    pub fn terminate(&self) {
        self.handle.terminate();
    }

    /// Returns the id of the run, as [`RunHandle::run_id`].
    pub fn run_id(&self) -> &str {
        self.handle.run_id()
    }

    /// Answers a request for approval, as [`RunHandle::answer`].
    ///
    /// # Errors
    /// Those of [`RunHandle::answer`].
    pub fn answer(&self, id: RequestId, approval: Approval) -> Result<(), AnswerError> {
        self.handle.answer(id, approval)
    }

    /// Returns the requests for approval, as [`RunHandle::approvals`].
    pub fn approvals(&self) -> Approvals {
        self.handle.approvals()
    }

    /// Returns the handle of the run without the type of its answer.
    pub fn into_untyped(self) -> RunHandle {
        self.handle
    }
}

impl<T: DeserializeOwned + Send + 'static> TypedHandle<T> {
    /// Waits for the outcome and discards all further events.
    ///
    /// The `Deserialize` of `T` runs on a thread of its own, so that one that blocks does not block
    /// the task. If it panics, or takes longer than the run's `timeout` or `turn_timeout`, there is no
    /// value, and [`unread`](TypedOutcome::unread) is the reason.
    pub async fn outcome(self) -> TypedOutcome<T> {
        let (agent, secrets) = (self.handle.agent(), self.handle.secrets());
        let bound = agent.and_then(|agent| read_bound(&agent.config.limits));
        TypedOutcome::new(self.handle.outcome().await, bound, secrets).await
    }
}

impl<T> Stream for TypedHandle<T> {
    type Item = AgentEvent;
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<AgentEvent>> {
        Pin::new(&mut self.get_mut().handle).poll_next(cx)
    }
}

impl<T: DeserializeOwned + Send + 'static> IntoFuture for TypedHandle<T> {
    type Output = TypedOutcome<T>;
    type IntoFuture = Pin<Box<dyn Future<Output = TypedOutcome<T>> + Send>>;
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.outcome())
    }
}

/// The outcome of a run whose answer is a `T`. Dereferences to the [`Outcome`].
///
/// If the run is a success, there is a value, unless the type's `Deserialize` does not give the same
/// result twice.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TypedOutcome<T> {
    /// The outcome, as observers of the run have heard it.
    pub outcome: Outcome,
    /// The answer of a success.
    pub value: Option<T>,
    /// The reason why a success has no value: its answer, which was valid, did not deserialize again.
    pub unread: Option<String>,
}

/// The reason why a typed run has no value. Its `Debug` is its text, because a `main` that returns an error
/// prints that.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum NoValue {
    /// The run did not end as a success.
    Unsuccessful(Box<Unsuccessful>),
    /// The run is a success, but its answer did not deserialize again.
    Unread {
        /// The outcome, with the validated JSON in `structured`.
        outcome: Box<Outcome>,
        /// The error of the type's `Deserialize`.
        problem: String,
    },
}

impl fmt::Display for NoValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoValue::Unsuccessful(ended) => ended.fmt(f),
            NoValue::Unread { problem, .. } => {
                write!(f, "the answer was valid, and did not deserialize again: {problem}")
            }
        }
    }
}

impl fmt::Debug for NoValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NoValue({self})")
    }
}

impl std::error::Error for NoValue {}

impl<T> Deref for TypedOutcome<T> {
    type Target = Outcome;
    fn deref(&self) -> &Outcome {
        &self.outcome
    }
}

impl<T> fmt::Display for TypedOutcome<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.outcome.fmt(f)
    }
}

impl<T> TypedOutcome<T> {
    /// Returns the answer of a success, or the reason why there is none, to use with `?`.
    ///
    /// # Errors
    /// The run did not end as a success, or its answer did not deserialize again.
    pub fn into_result(self) -> Result<T, NoValue> {
        let TypedOutcome { outcome, value, unread } = self;
        value.ok_or_else(|| match unread {
            Some(problem) => NoValue::Unread { outcome: Box::new(outcome), problem },
            None => NoValue::Unsuccessful(Box::new(Unsuccessful(outcome))),
        })
    }
}

impl<T: DeserializeOwned + Send + 'static> TypedOutcome<T> {
    /// Deserializes the answer of a success. It was deserialized before, when it was validated, so only a
    /// type whose `Deserialize` does not give the same result twice fails here. The ending stays the
    /// one that observers have heard.
    async fn new(outcome: Outcome, bound: Option<Duration>, keys: KnownKeys) -> TypedOutcome<T> {
        let Some(answer) = outcome.structured.clone().filter(|_| outcome.is_success()) else {
            return TypedOutcome { outcome, value: None, unread: None };
        };
        let read = off_thread(bound, move || {
            catch_unwind(AssertUnwindSafe(|| deserialize(&answer))).unwrap_or_else(|payload| {
                Err(format!("{ANSWER_TYPE} panicked: {}", words(&keys, payload)))
            })
        });
        let (value, unread) = match read.await {
            Ok(Ok(value)) => (Some(value), None),
            Ok(Err(problem)) => (None, Some(problem)),
            Err(error) => (None, Some(error.to_string())),
        };
        TypedOutcome { outcome, value, unread }
    }
}
