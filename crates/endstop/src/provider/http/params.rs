//! The request of an HTTP provider with its parameters, and the additional headers.

use super::super::SessionSpec;
use super::headers::{HeaderError, Own};
use super::provider::HttpProvider;
use crate::provider::network::cleartext;
use endstop_wire::codec::NamedSchema;
use endstop_wire::{ParamError, RequestSpec};
use http::header::HeaderMap;

impl HttpProvider {
    /// Returns the request of a session, without its parameters.
    pub(super) fn request(&self, spec: SessionSpec) -> RequestSpec {
        let prepared = &self.prepared;
        RequestSpec {
            model: prepared.model.clone(),
            system: spec.system,
            tools: spec.tools,
            output_schema: spec
                .output_schema
                .map(|schema| NamedSchema { name: "answer".to_owned(), schema }),
            // Some formats require a cap in each request; send the model's maximum.
            max_output_tokens: prepared.limits.max_output.filter(|_| prepared.dialect.wants_cap()),
            context_window: spec.context_window,
            stream: spec.streaming,
            ..RequestSpec::default()
        }
    }

    /// Returns the additional headers of a session.
    pub(super) fn more_headers(&self, spec: &SessionSpec) -> Result<HeaderMap, ParamError> {
        let prepared = &self.prepared;
        let own = Own {
            headers: &prepared.headers,
            has_key: prepared.signer.is_some() || prepared.keys.is_some(),
            provider: prepared.name,
        };
        let more = own.and(&spec.params.headers).map_err(|error| param_error(&error))?;
        let url = &prepared.whole.url;
        if !more.is_empty() && cleartext(url, prepared.allow_http) {
            let host = url.host_str().unwrap_or_default().to_owned();
            return Err(param_error(&HeaderError::Cleartext { host }));
        }
        Ok(more)
    }
}

fn param_error(error: &HeaderError) -> ParamError {
    let problem = error.to_string();
    match error {
        HeaderError::Name { .. }
        | HeaderError::Framing { .. }
        | HeaderError::Value { .. }
        | HeaderError::Own { .. } => ParamError::Invalid { param: "headers".to_owned(), problem },
        HeaderError::Credential { .. }
        | HeaderError::Twice { .. }
        | HeaderError::Cleartext { .. } => ParamError::Conflict(problem),
    }
}
