//! Calls a second provider if the first one fails before it showed or charged anything.

use endstop::core::Attachment;
use endstop::provider::layer::ProviderLayer;
use endstop::provider::{
    CallEvent, CallSpec, CallStream, ImageTokens, KnownKeys, ModelSession, ParamError, Price,
    Provider, Response, SessionSpec, TerminationSignal, UnsupportedMedia,
};
use endstop::{Message, NanoUsd};
use futures_util::{StreamExt as _, stream};
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};

/// The field of a response's metadata that marks an answer of the second provider.
const MARK: &str = "answered_by_fallback";

/// A layer that calls this provider if the one below fails.
pub(crate) struct Fallback(Arc<dyn Provider>);

impl Fallback {
    pub(crate) fn to(second: impl Provider + 'static) -> Fallback {
        Fallback(Arc::new(second))
    }

    /// Returns the provider that gave this response.
    fn of<'a>(&'a self, first: &'a Arc<dyn Provider>, response: &Response) -> &'a dyn Provider {
        if response.metadata.contains_key(MARK) { &*self.0 } else { &**first }
    }
}

// Everything that the run asks about "the" provider must hold for both.
impl ProviderLayer for Fallback {
    fn open(&self, first: &Arc<dyn Provider>, spec: SessionSpec) -> Box<dyn ModelSession> {
        Box::new(Both {
            prices: [first.price(), self.0.price()],
            second: Arc::new(Mutex::new(self.0.open(spec.clone()))),
            first: first.open(spec),
        })
    }
    fn check_params(
        &self,
        first: &Arc<dyn Provider>,
        spec: &SessionSpec,
    ) -> Result<(), ParamError> {
        first.check_params(spec).and_then(|()| self.0.check_params(spec))
    }
    fn is_terminal(&self, first: &Arc<dyn Provider>, response: &Response) -> bool {
        self.of(first, response).is_terminal(response)
    }
    fn detect_termination(
        &self,
        first: &Arc<dyn Provider>,
        response: &Response,
    ) -> Option<TerminationSignal> {
        self.of(first, response).detect_termination(response)
    }
    fn context_window(&self, first: &Arc<dyn Provider>) -> Option<u64> {
        first.context_window().into_iter().chain(self.0.context_window()).min()
    }
    fn max_output(&self, first: &Arc<dyn Provider>) -> Option<u64> {
        first.max_output().into_iter().chain(self.0.max_output()).min()
    }
    fn image_tokens(&self, first: &Arc<dyn Provider>) -> ImageTokens {
        let rule = first.image_tokens();
        if rule == self.0.image_tokens() { rule } else { ImageTokens::Unknown }
    }
    fn check_attachment(
        &self,
        first: &Arc<dyn Provider>,
        attachment: &Attachment,
    ) -> Result<(), UnsupportedMedia> {
        first.check_attachment(attachment)?;
        self.0.check_attachment(attachment)
    }
    fn known_keys(&self, first: &Arc<dyn Provider>) -> KnownKeys {
        first.known_keys().and(&self.0.known_keys())
    }
    /// Returns the higher of each of the two prices, because ceilings are reserved with it.
    fn price(&self, first: &Arc<dyn Provider>) -> Option<Price> {
        // Of prices that depend on the size of the prompt, the highest.
        let (a, b) = (first.price()?, self.0.price()?);
        let (a, b) = (a.up_to_prompt(u64::MAX), b.up_to_prompt(u64::MAX));
        // A missing price of cached tokens means that of other input.
        let higher = |part: fn(&Price) -> Option<NanoUsd>| {
            let either = part(&a).or(part(&b));
            either.map(|_| part(&a).unwrap_or(a.input).max(part(&b).unwrap_or(b.input)))
        };
        let either = a.cache_write_1h.or(b.cache_write_1h);
        Some(Price {
            input: a.input.max(b.input),
            output: a.output.max(b.output),
            cached_input: higher(|price| price.cached_input),
            cache_write: higher(|price| price.cache_write),
            cache_write_1h: either.map(|_| a.hour_write().max(b.hour_write())),
            ..Price::default()
        })
    }
}

/// The sessions of both providers.
struct Both {
    first: Box<dyn ModelSession>,
    /// Shared with the stream of a call, which calls it after `call` has returned.
    second: Arc<Mutex<Box<dyn ModelSession>>>,
    prices: [Option<Price>; 2],
}

/// The call to the second provider, with a copy of what a [`CallSpec`] only borrows.
struct Plan {
    session: Arc<Mutex<Box<dyn ModelSession>>>,
    messages: Vec<Message>,
    epoch: u64,
    output_cap: Option<u64>,
    details: bool,
    trace_parent: Option<String>,
}

impl Plan {
    fn call(&self) -> CallStream {
        let Plan { epoch, output_cap, details, .. } = *self;
        let trace_parent = self.trace_parent.as_deref();
        let call = CallSpec { messages: &self.messages, epoch, output_cap, details, trace_parent };
        self.session.lock().unwrap_or_else(PoisonError::into_inner).call(call)
    }
}

/// A call in progress. Dropping it drops the stream of whichever provider is asked.
struct Calling {
    stream: CallStream,
    /// `None` if the second provider must not or cannot be called any more.
    plan: Option<Plan>,
    on_second: bool,
    prices: [Option<Price>; 2],
}

impl ModelSession for Both {
    fn call(&mut self, call: CallSpec<'_>) -> CallStream {
        let plan = Plan {
            session: Arc::clone(&self.second),
            messages: call.messages.to_vec(),
            epoch: call.epoch,
            output_cap: call.output_cap,
            details: call.details,
            trace_parent: call.trace_parent.map(str::to_owned),
        };
        let stream = self.first.call(call);
        let calling = Calling { stream, plan: Some(plan), on_second: false, prices: self.prices };
        Box::pin(stream::unfold(calling, next))
    }
}

async fn next(mut calling: Calling) -> Option<(CallEvent, Calling)> {
    loop {
        let mut event = calling.stream.next().await?;
        match &mut event {
            // A partial response may have been charged, so that the run must see it.
            CallEvent::Failed(error, None) if error.class.is_retryable() => {
                if let Some(plan) = calling.plan.take() {
                    calling.stream = plan.call();
                    calling.on_second = true;
                    continue;
                }
            }
            CallEvent::Ended(response) | CallEvent::Failed(_, Some(response)) => {
                calling.answered(response);
            }
            // An empty delta is a ping.
            CallEvent::Delta(delta) if delta.is_empty() => {}
            _ => calling.plan = None,
        }
        return Some((event, calling));
    }
}

impl Calling {
    /// Marks a response of the second provider, and computes the cost with the price of the
    /// provider that answered.
    fn answered(&self, response: &mut Response) {
        if self.on_second {
            response.metadata.insert(MARK.to_owned(), Value::Bool(true));
        }
        let usage = &response.usage;
        let counted = usage.input_tokens.is_some() && usage.generated_tokens().is_some();
        if response.cost.is_none() && counted {
            response.cost = self.prices[usize::from(self.on_second)].map(|price| price.cost(usage));
        }
    }
}
