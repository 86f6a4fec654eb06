//! Answers a request that was answered before with the recorded events of that answer.

use endstop::provider::layer::ProviderLayer;
use endstop::provider::{
    CallEvent, CallSpec, CallStream, ModelSession, Provider, Response, SessionSpec, SignalReason,
    stream_of,
};
use endstop::{NanoUsd, Usage};
use futures_util::StreamExt as _;
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The answers of one model, by request. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Cache(Arc<Mutex<HashMap<String, Vec<CallEvent>>>>);

/// The cache is emptied when it has this many answers, so that its memory is bounded.
const MOST: usize = 1000;

impl Cache {
    fn get(&self, key: &str) -> Option<Vec<CallEvent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn put(&self, key: String, events: Vec<CallEvent>) {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= MOST {
            answers.clear();
        }
        answers.insert(key, events);
    }
}

impl ProviderLayer for Cache {
    fn open(&self, inner: &Arc<dyn Provider>, spec: SessionSpec) -> Box<dyn ModelSession> {
        // Headers are secrets and may select an account, so that requests with headers cannot be
        // compared.
        if !spec.params.headers.is_empty() {
            return inner.open(spec);
        }
        let tools: Vec<_> =
            spec.tools.iter().map(|t| json!([t.name, t.description, t.schema])).collect();
        let fixed = json!([
            inner.name(),
            inner.model(),
            spec.system,
            tools,
            spec.output_schema,
            spec.params,
            spec.streaming
        ]);
        Box::new(Cached {
            fixed: fixed.to_string(),
            cache: self.clone(),
            provider: Arc::clone(inner),
            session: inner.open(spec),
        })
    }
}

struct Cached {
    /// The part of the key that all requests of the run share.
    fixed: String,
    cache: Cache,
    provider: Arc<dyn Provider>,
    session: Box<dyn ModelSession>,
}

impl ModelSession for Cached {
    fn call(&mut self, call: CallSpec<'_>) -> CallStream {
        // Without the ids of the messages, which the model does not see.
        let messages: Vec<_> = call.messages.iter().map(|m| json!([m.role, m.parts])).collect();
        let rest = json!([messages, call.output_cap]);
        let key = format!("{}{rest}", self.fixed);
        if let Some(mut events) = self.cache.get(&key) {
            if let Some(CallEvent::Ended(response)) = events.last_mut() {
                free(response);
            }
            return stream_of(events);
        }
        let (cache, provider) = (self.cache.clone(), Arc::clone(&self.provider));
        let (mut key, mut events) = (Some(key), Vec::new());
        // An aborted call never gets to `Ended`, so that it is not stored.
        // With the text of reasoning and arguments, which a later run may read.
        let call = CallSpec { details: true, ..call };
        let stream = self.session.call(call).inspect(move |event| {
            events.push(event.clone());
            if let CallEvent::Ended(response) = event
                && is_complete(&*provider, response)
                && let Some(key) = key.take()
            {
                cache.put(key, std::mem::take(&mut events));
            }
        });
        Box::pin(stream)
    }
}

/// `true` if the run will use the answer. A truncated or malformed one is asked for again with the
/// same request, and would then come from the cache for ever.
fn is_complete(provider: &dyn Provider, response: &Response) -> bool {
    let sound = !response.finish_missing && !response.call_missing;
    let reason = provider.detect_termination(response).map(|signal| signal.reason);
    sound
        && response.unparseable.is_none()
        && matches!(reason, Some(SignalReason::NaturalCompletion | SignalReason::ToolUse))
}

/// Takes the cost of an answer away: no tokens were used.
// Both are set, because a missing number counts as unknown and not as zero.
fn free(response: &mut Response) {
    response.cost = Some(NanoUsd::ZERO);
    response.usage = Usage { input_tokens: Some(0), output_tokens: Some(0), ..Usage::default() };
}
