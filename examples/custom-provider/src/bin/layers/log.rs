//! Logs how long each call took, and why it ended.

use endstop::provider::layer::ProviderLayer;
use endstop::provider::{
    CallEvent, CallSpec, CallStream, ModelError, ModelSession, Provider, SessionSpec,
    TerminationSignal,
};
use futures_util::StreamExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The end of a call.
pub(crate) enum Ended {
    /// With a response. The signal is `None` if the provider cannot tell why it ended.
    Response(Option<TerminationSignal>),
    Failed(ModelError),
    /// The run was stopped, or did not wait any longer.
    Aborted,
}

/// A layer that passes each call to a function when it has ended.
pub(crate) struct Log<F>(pub(crate) F);

impl<F: Fn(Duration, Ended) + Clone + Send + Sync + 'static> ProviderLayer for Log<F> {
    fn open(&self, inner: &Arc<dyn Provider>, spec: SessionSpec) -> Box<dyn ModelSession> {
        let (provider, session) = (Arc::clone(inner), inner.open(spec));
        Box::new(Logged { provider, session, log: self.0.clone() })
    }
}

struct Logged<F> {
    provider: Arc<dyn Provider>,
    session: Box<dyn ModelSession>,
    log: F,
}

impl<F: Fn(Duration, Ended) + Clone + Send + Sync + 'static> ModelSession for Logged<F> {
    fn call(&mut self, call: CallSpec<'_>) -> CallStream {
        let mut open = Open { log: self.log.clone(), began: Instant::now(), ended: Ended::Aborted };
        let provider = Arc::clone(&self.provider);
        // The closure owns `open`, so a call that is aborted is logged when its stream is dropped.
        let stream = self.session.call(call).inspect(move |event| match event {
            CallEvent::Ended(response) => {
                open.end(Ended::Response(provider.detect_termination(response)));
            }
            CallEvent::Failed(error, _) => open.end(Ended::Failed(error.clone())),
            _ => {}
        });
        Box::pin(stream)
    }
}

/// A call that was not logged yet.
struct Open<F: Fn(Duration, Ended)> {
    log: F,
    began: Instant,
    ended: Ended,
}

impl<F: Fn(Duration, Ended)> Open<F> {
    fn end(&mut self, ended: Ended) {
        self.ended = ended;
    }
}

impl<F: Fn(Duration, Ended)> Drop for Open<F> {
    fn drop(&mut self) {
        let ended = std::mem::replace(&mut self.ended, Ended::Aborted);
        (self.log)(self.began.elapsed(), ended);
    }
}
