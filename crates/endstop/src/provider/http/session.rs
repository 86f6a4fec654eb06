//! A session of an HTTP provider: encodes the conversation of a run and starts its calls.
//!
//! ```text
//! let mut session = provider.open(spec);
//! let stream = session.call(CallSpec { messages, epoch, output_cap });
//! ```

use super::super::transport::{Transport, shown};
use super::super::{
    CallSpec, CallStream, ModelSession, ParamError, Provider, Response, SessionSpec,
};
use super::call::{HttpCall, Unsent};
use super::provider::HttpProvider;
use crate::clock;
use bytes::Bytes;
use endstop_core::{ErrorClass, ModelError, Price, TerminationSignal};
use endstop_wire::redact::{KnownKeys, secrets_out};
use endstop_wire::{Encoder, RequestSpec};
use reqwest::header::HeaderMap;

impl Provider for HttpProvider {
    fn name(&self) -> &str {
        self.name
    }
    fn model(&self) -> &str {
        &self.model
    }
    fn open(&self, spec: SessionSpec) -> Box<dyn ModelSession> {
        let params = spec.params.clone();
        let more = self.more_headers(&spec);
        let mut request = self.request(spec);
        let applied = params.apply(self.dialect, &mut request).and(more);
        let mut provider = self.clone();
        let refused = match applied {
            Ok(more) => {
                provider.headers.extend(more);
                None
            }
            // `check_params` has accepted the parameters, unless the caller did not ask.
            Err(error) => Some(error.to_string()),
        };
        Box::new(HttpSession {
            encoder: Encoder::new(self.dialect, &request),
            request,
            provider,
            refused,
        })
    }
    fn check_params(&self, spec: &SessionSpec) -> Result<(), ParamError> {
        let mut request = self.request(spec.clone());
        spec.params.apply(self.dialect, &mut request)?;
        self.more_headers(spec).map(drop)
    }
    fn is_terminal(&self, response: &Response) -> bool {
        response.signal.as_ref().is_some_and(|signal| signal.should_terminate)
    }
    fn detect_termination(&self, response: &Response) -> Option<TerminationSignal> {
        response.signal.clone()
    }
    fn context_window(&self) -> Option<u64> {
        self.limits.context_window
    }
    fn max_output(&self) -> Option<u64> {
        self.limits.max_output
    }
    fn server(&self) -> Option<(&str, u16)> {
        // A recording is replayed without a server.
        let Transport::Network(_) = &self.transport else { return None };
        Some((self.url.host_str()?, self.url.port_or_known_default()?))
    }
    fn price(&self) -> Option<Price> {
        self.price
    }
    fn known_keys(&self) -> KnownKeys {
        self.known.get_or_init(|| KnownKeys::new(self.secrets())).clone()
    }
}

struct HttpSession {
    provider: HttpProvider,
    request: RequestSpec,
    encoder: Encoder,
    /// Why the parameters cannot be sent.
    refused: Option<String>,
}

impl ModelSession for HttpSession {
    fn call(&mut self, call: CallSpec<'_>) -> CallStream {
        let body = self.encoder.body(call.messages, call.epoch, call.output_cap);
        let provider = &self.provider;
        let url = if self.request.stream { &provider.stream_url } else { &provider.url };
        // The signature covers the body, so every request is signed separately.
        let mut headers = provider.headers.clone();
        let signed = match &provider.signer {
            Some(signer) => signer.headers(url, &headers, body, clock::now()),
            None => Ok(HeaderMap::new()),
        };
        let body = Bytes::copy_from_slice(body);
        if let Ok(more) = &signed {
            headers.extend(more.clone());
        }
        let recorder = provider.recorder.as_ref();
        let tap = recorder.map(|recorder| recorder.call(url, &headers, body.clone()));
        let asked = format!("POST {}, model `{}`", shown(url), secrets_out(&provider.model));
        let facts = self.request.facts(call.output_cap);
        let details = call.details;
        let mut call = HttpCall::new(tap, provider.dialect, asked, facts).details(details);
        match self.refused.clone().map_or(signed, Err) {
            Ok(_) => call.send(Unsent { url: url.clone(), headers, body }, provider),
            Err(problem) => call.fail(ModelError::new(ErrorClass::InvalidRequest, problem)),
        }
        Box::pin(call)
    }
}
