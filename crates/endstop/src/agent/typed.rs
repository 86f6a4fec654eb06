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

use super::conversation::RunInput;
use super::handle::RunHandle;
use super::session::Session;
use super::shared::Agent;
use super::start_error::StartError;
use crate::event::AgentEvent;
use crate::schema::{OutputSchema, OutputType, deserialize};
use endstop_core::{DecidedBy, Decision, Layer, Outcome, Termination, Unsuccessful};
use futures_core::Stream;
use serde::de::DeserializeOwned;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

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

    /// Returns the handle of the run without the type of its answer.
    pub fn into_untyped(self) -> RunHandle {
        self.handle
    }

    /// Waits for the outcome and discards all further events.
    pub async fn outcome(self) -> TypedOutcome<T> {
        TypedOutcome::new(self.handle.outcome().await)
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
/// If the run is a success, there is a value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TypedOutcome<T> {
    /// The outcome.
    pub outcome: Outcome,
    /// The answer of a success.
    pub value: Option<T>,
}

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
    /// Returns the answer of a success, or an [`Unsuccessful`] with the outcome, to use with `?`.
    ///
    /// # Errors
    /// The run did not end as a success.
    pub fn into_result(self) -> Result<T, Box<Unsuccessful>> {
        self.value.ok_or(Box::new(Unsuccessful(self.outcome)))
    }
}

impl<T: DeserializeOwned> TypedOutcome<T> {
    fn new(mut outcome: Outcome) -> TypedOutcome<T> {
        if !outcome.is_success() {
            return TypedOutcome { outcome, value: None };
        }
        let answer = outcome.structured.clone().ok_or_else(|| "there is no value".to_owned());
        match answer.and_then(|answer| deserialize(&answer)) {
            Ok(value) => TypedOutcome { outcome, value: Some(value) },
            // The answer was deserialized when it was validated. A type whose `Deserialize` does
            // not give the same result twice must not make a success without a value.
            Err(problem) => {
                outcome.termination = Termination::ErrorSchemaValidation;
                let (layer, name) = (Layer::Fault, "output_type");
                let decision = Decision::of(layer, name);
                outcome.decided_by = DecidedBy { layer, decision, evidence: problem.clone() };
                outcome.error_diagnostic = Some(problem);
                TypedOutcome { outcome, value: None }
            }
        }
    }
}
