//! The model of a run: its session with the provider, and the call in progress.
//!
//! ```text
//! queue.extend(model.call(&config, &control, &mut trace, id, spec)); // the fault of a panic
//! match ready!(model.poll(&config, &control, &trace, cx)) { … }
//! ```

use crate::agent::setup::config::Config;
use crate::agent::user_code;
use crate::agent::user_code::Panicked;
use crate::control::{Control, Request};
use crate::provider::{
    CallEvent, CallSpec, CallStream, ModelParams, ModelSession, Provider, Response, SessionSpec,
    ToolChoice,
};
use crate::telemetry::Trace;
use endstop_core::{
    Confidence, EffectId, ErrorClass, EventKind, ModelError, Price, SignalReason, TerminationSignal,
};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::task::coop;

/// A model call in progress.
struct Call {
    id: EffectId,
    stream: CallStream,
    /// `true` once the stream was polled; the first poll sends the request.
    started: bool,
}

/// What a call in progress has brought.
pub(super) enum Polled {
    /// An item of the call's stream; `None` is its end.
    Item(EffectId, Option<CallEvent>),
    /// The run was stopped before the request was sent.
    Stopped,
    Panicked(Panicked),
}

/// The model of a run.
pub(super) struct Model {
    session: Option<Box<dyn ModelSession>>,
    /// The settings of that session, if the run may open another one.
    spec: Option<Box<SessionSpec>>,
    /// The model of that session: 0 is the agent's own, and n its n-th fallback.
    fallback: u32,
    /// The parameters of calls in addition to the conversation, if any is set.
    service: Option<Box<ModelParams>>,
    call: Option<Call>,
}

impl Model {
    pub(super) fn new(
        session: Option<Box<dyn ModelSession>>,
        spec: Option<Box<SessionSpec>>,
        service: Option<Box<ModelParams>>,
    ) -> Model {
        Model { session, spec, fallback: 0, service, call: None }
    }

    /// Returns the provider of the model in use.
    pub(super) fn provider<'a>(&self, config: &'a Config) -> &'a Arc<dyn Provider> {
        config.provider_of(self.fallback)
    }

    /// Returns the price of the calls of the model in use.
    pub(super) fn price(&self, config: &Config) -> Option<Price> {
        config.price_of(self.fallback, &self.params())
    }

    /// `true` if the model in use is the agent's own.
    pub(super) fn is_own(&self) -> bool {
        self.fallback == 0
    }

    pub(super) fn params(&self) -> ModelParams {
        self.service.as_deref().cloned().unwrap_or_default()
    }

    pub(super) fn is_calling(&self) -> bool {
        self.call.is_some()
    }

    /// `true` if this call is in progress.
    pub(super) fn is_in(&self, id: EffectId) -> bool {
        self.call.as_ref().is_some_and(|call| call.id == id)
    }

    /// Drops the call. Its destructor is user code; returns the fault if it panics.
    pub(super) fn hang_up(&mut self, config: &Config) -> Option<EventKind> {
        let call = self.call.take();
        let gone = in_provider(&**self.provider(config), || drop(call));
        gone.err().map(EventKind::from)
    }

    /// Closes the call and the session. Returns the fault of the call.
    pub(super) fn close(&mut self, config: &Config) -> Option<EventKind> {
        let fault = self.hang_up(config);
        let session = self.session.take();
        // A panic while the session is dropped can no longer change the ending.
        let _ = in_provider(&**self.provider(config), || drop(session));
        fault
    }

    /// Opens a session for the hand-over, in which the model may call no tools. The run makes no other call after it. Returns
    /// the event that reports why there is none.
    pub(super) fn open_hand_over(&mut self, config: &Config, id: EffectId) -> Option<EventKind> {
        let Some(spec) = self.spec.take() else {
            // A run that was resumed with the limit off does not ask for a hand-over.
            let error = ModelError::new(ErrorClass::UnknownError, "the hand-over is not set up");
            return Some(EventKind::TurnFailed { call: id, error, partial: None });
        };
        let provider = &**self.provider(config);
        match in_provider(provider, || provider.open(without_calls(provider, *spec))) {
            Ok(session) => {
                self.session = Some(session);
                None
            }
            Err(panicked) => Some(panicked.into()),
        }
    }

    /// Sends later calls to a model of the run: 0 is the agent's own, and n its n-th fallback. Does
    /// nothing if that model is in use, as after a resume in the middle of a switch. Returns the fault if the
    /// provider panics.
    pub(super) fn switch(
        &mut self,
        config: &Config,
        trace: &mut Trace,
        fallback: u32,
    ) -> Option<EventKind> {
        if self.fallback == fallback {
            return None;
        }
        let (before, session) = (&**self.provider(config), self.session.take());
        // Its destructor is user code. A panic does not end a run that leaves the provider.
        let _ = in_provider(before, || drop(session));
        self.fallback = fallback;
        let provider = &**self.provider(config);
        // Without the settings nothing was opened before either, and the run has a fault.
        let mut spec = self.spec.as_deref()?.clone();
        spec.context_window = config.context_window_of(fallback);
        let fault = match in_provider(provider, || provider.open(spec)) {
            Ok(session) => {
                self.session = Some(session);
                None
            }
            Err(panicked) => Some(panicked.into()),
        };
        trace.switched(provider);
        fault
    }

    /// Calls the model. Returns the fault if the provider panics.
    pub(super) fn call(
        &mut self,
        config: &Config,
        control: &Control,
        trace: &mut Trace,
        id: EffectId,
        spec: CallSpec<'_>,
    ) -> Option<EventKind> {
        let provider = &**self.provider(config);
        let session = self.session.as_mut()?;
        let called = control.start(Request::Cancel, || {
            in_provider(provider, || trace.in_call(|| session.call(spec)))
        });
        match called {
            Some(Ok(stream)) => self.call = Some(Call { id, stream, started: false }),
            Some(Err(panicked)) => {
                trace.call_panicked();
                return Some(panicked.into());
            }
            // The run was stopped; the next poll delivers the request.
            None => trace.aborted(),
        }
        None
    }

    /// Polls the call in progress.
    pub(super) fn poll(
        &mut self,
        config: &Config,
        control: &Control,
        trace: &Trace,
        cx: &mut Context<'_>,
    ) -> Poll<Polled> {
        let provider = &**self.provider(config);
        let Some(Call { id, stream, started }) = &mut self.call else { return Poll::Pending };
        // Give up the thread from time to time. A stream that is always ready would otherwise
        // starve the timers, and on a single-threaded runtime everything else.
        let turn = ready!(coop::poll_proceed(cx));
        let mut poll = || in_provider(provider, || trace.in_call(|| stream.as_mut().poll_next(cx)));
        let polled = if std::mem::replace(started, true) {
            poll()
        } else if let Some(polled) = control.start(Request::Cancel, poll) {
            polled
        } else {
            return Poll::Ready(Polled::Stopped);
        };
        match polled {
            Ok(Poll::Ready(item)) => {
                turn.made_progress();
                Poll::Ready(Polled::Item(*id, item))
            }
            Ok(Poll::Pending) => Poll::Pending,
            Err(panicked) => Poll::Ready(Polled::Panicked(panicked)),
        }
    }

    /// Returns the event of a whole response.
    pub(super) fn ended(
        &self,
        config: &Config,
        trace: &mut Trace,
        call: EffectId,
        response: Response,
    ) -> EventKind {
        let provider = &**self.provider(config);
        let signal = user_code::guard(provider, "provider", "the provider's detection", || {
            crate::provider::detect(provider, &response, config.strict_detection)
        });
        match signal {
            Ok(signal) => {
                trace.answered(&response, &signal, || self.price(config));
                EventKind::TurnEnded { call, turn: Box::new(response.into_turn(signal)) }
            }
            Err(panicked) => {
                trace.call_panicked();
                panicked.into()
            }
        }
    }
}

/// Returns the event of a call that has failed, with what it brought before.
pub(super) fn failed(
    trace: &mut Trace,
    call: EffectId,
    error: ModelError,
    partial: Option<Box<Response>>,
    price: impl FnOnce() -> Option<Price>,
) -> EventKind {
    trace.failed(error.class, partial.as_deref(), price);
    let partial = partial.map(|response| {
        // A failed call is certain to have ended with an error, even if the provider gave no signal.
        let signal = response.signal.clone().unwrap_or_else(|| {
            TerminationSignal::new(SignalReason::ErrorTermination, Confidence::High)
        });
        Box::new(response.into_turn(signal))
    });
    EventKind::TurnFailed { call, error, partial }
}

/// Runs code of the provider and catches its panics.
pub(super) fn in_provider<T>(
    provider: &dyn Provider,
    code: impl FnOnce() -> T,
) -> Result<T, Panicked> {
    user_code::guard(provider, "provider", "the provider", code)
}

/// Returns the settings of a session in which the model may not call tools. They are still part of its
/// requests, because a conversation with calls is refused without them, and because a cached prompt
/// includes them. If the provider's API cannot forbid calls, the kernel ignores them.
fn without_calls(provider: &dyn Provider, mut spec: SessionSpec) -> SessionSpec {
    // The hand-over is text.
    spec.output_schema = None;
    if spec.tools.is_empty() {
        return spec;
    }
    let mut quiet = spec.clone();
    quiet.params.tool_choice = Some(ToolChoice::None);
    quiet.params.parallel_tool_calls = None;
    if provider.check_params(&quiet).is_ok() { quiet } else { spec }
}
