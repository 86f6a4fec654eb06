//! A session of an HTTP provider: encodes the conversation of a run and starts its calls.
//!
//! ```text
//! let mut session = provider.open(spec);
//! let stream = session.call(CallSpec { messages, epoch, output_cap });
//! ```

use super::super::transport::{Address, Transport, completed};
use super::super::{
    CallSpec, CallStream, ModelSession, ParamError, Provider, Response, SessionSpec,
};
use super::call::{HttpCall, Unsent};
use super::provider::HttpProvider;
use crate::clock;
use bytes::Bytes;
use endstop_core::{Attachment, ErrorClass, ImageTokens, ModelError, Price, TerminationSignal};
use endstop_wire::media::{self, MediaSupport, UnsupportedMedia};
use endstop_wire::params::check_output_schema;
use endstop_wire::redact::KnownKeys;
use endstop_wire::{Encoder, RequestFacts};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use std::sync::Arc;
use std::time::Duration;

impl Provider for HttpProvider {
    fn name(&self) -> &str {
        self.prepared.name
    }
    fn model(&self) -> &str {
        &self.prepared.model
    }
    fn open(&self, spec: SessionSpec) -> Box<dyn ModelSession> {
        let params = spec.params.clone();
        let stall_timeout = spec.stall_timeout;
        let more = self.more_headers(&spec);
        let mut request = self.request(spec);
        let applied = params.apply(self.prepared.dialect, &mut request).and(more);
        let address = Arc::clone(self.prepared.address(request.stream));
        let mut headers = Arc::clone(&self.prepared.headers);
        let mut sent = Arc::clone(&self.prepared.sent);
        let refused = match applied {
            Ok(more) if more.is_empty() => None,
            Ok(more) => {
                Arc::make_mut(&mut headers).extend(more);
                sent = Arc::new(completed(&headers));
                None
            }
            // `check_params` has accepted the parameters, unless the caller did not ask.
            Err(error) => Some(error.to_string()),
        };
        let encoder = Encoder::new(self.prepared.dialect, &request);
        Box::new(HttpSession {
            encoder,
            body: None,
            address,
            // Not the request: the encoder has written it, and a waiting run need not hold it twice.
            facts: request.facts(None),
            provider: self.clone(),
            headers,
            sent,
            refused,
            stall_timeout,
        })
    }
    fn check_params(&self, spec: &SessionSpec) -> Result<(), ParamError> {
        if let Some(schema) = &spec.output_schema {
            check_output_schema(self.prepared.dialect.family, schema)?;
        }
        let mut request = self.request(spec.clone());
        spec.params.apply(self.prepared.dialect, &mut request)?;
        self.more_headers(spec).map(drop)
    }
    fn is_terminal(&self, response: &Response) -> bool {
        response.signal.as_ref().is_some_and(|signal| signal.should_terminate)
    }
    fn detect_termination(&self, response: &Response) -> Option<TerminationSignal> {
        response.signal.clone()
    }
    fn context_window(&self) -> Option<u64> {
        self.prepared.limits.context_window
    }
    fn max_output(&self) -> Option<u64> {
        self.prepared.limits.max_output
    }
    fn seed(&self) -> Option<u64> {
        self.seed
    }

    fn image_tokens(&self) -> ImageTokens {
        media::image_tokens(self.prepared.dialect, &self.prepared.model)
    }
    fn check_attachment(&self, attachment: &Attachment) -> Result<(), UnsupportedMedia> {
        MediaSupport::of(self.prepared.dialect, &self.prepared.model).check(attachment)
    }
    fn wire_format(&self) -> Option<&str> {
        // Amazon Bedrock carries the messages of Anthropic in an envelope of its own.
        Some(self.prepared.dialect.family.content().as_str())
    }
    fn server(&self) -> Option<(&str, u16)> {
        // A recording is replayed without a server.
        let Transport::Network(_) = &self.transport else { return None };
        let url = &self.prepared.whole.url;
        Some((url.host_str()?, url.port_or_known_default()?))
    }
    fn price(&self) -> Option<Price> {
        self.prepared.price
    }
    fn known_keys(&self) -> KnownKeys {
        self.prepared.known_keys()
    }
}

/// The header with the place of a call in a trace.
const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");

struct HttpSession {
    provider: HttpProvider,
    encoder: Encoder,
    /// The last request, which goes back to the encoder.
    body: Option<Bytes>,
    /// The facts about each request, with its default output cap.
    facts: RequestFacts,
    address: Arc<Address>,
    /// The headers of each request, without a signature.
    headers: Arc<HeaderMap>,
    /// These headers and those of the client.
    sent: Arc<HeaderMap>,
    /// The reason that the parameters cannot be sent.
    refused: Option<String>,
    stall_timeout: Option<Duration>,
}

impl ModelSession for HttpSession {
    fn call(&mut self, call: CallSpec<'_>) -> CallStream {
        if let Some(body) = self.body.take() {
            // Not a copy, unless something still holds the request, such as a recorder.
            self.encoder.give_back(body.into());
        }
        self.encoder.body(call.messages, call.epoch, call.output_cap);
        let body = Bytes::from(self.encoder.take_body());
        self.body = Some(body.clone());
        let prepared = &self.provider.prepared;
        let url = &self.address.url;
        let recorder = self.provider.recorder.as_ref();
        // Only a request that is sent as it is can have all headers from the start.
        let as_is = !prepared.authorizes_each() && recorder.is_none();
        let mut headers = HeaderMap::clone(if as_is { &self.sent } else { &self.headers });
        // The signature covers the body, so every request is signed separately.
        let signed = match &prepared.signer {
            Some(signer) => signer
                .headers(url, &headers, &body, clock::now())
                .map(|signature| headers.extend(signature)),
            None => Ok(()),
        };
        let tap = recorder.map(|recorder| recorder.call(url, &headers, body.clone()));
        // After the recording, which is the same for each trace.
        if let Some(place) = call.trace_parent.and_then(|place| HeaderValue::from_str(place).ok()) {
            headers.insert(TRACE_PARENT, place);
        }
        let output_cap = call.output_cap.or(self.facts.output_cap);
        let facts = RequestFacts { output_cap, ..self.facts };
        let details = call.details;
        let mut call = HttpCall::new(tap, Arc::clone(prepared), Arc::clone(&self.address), facts)
            .details(details)
            .stall_timeout(self.stall_timeout);
        match self.refused.clone().map_or(signed, Err) {
            Ok(()) => call.send(Unsent { headers, body }, &self.provider.transport),
            Err(problem) => call.fail(ModelError::new(ErrorClass::InvalidRequest, problem)),
        }
        Box::pin(call)
    }
}
