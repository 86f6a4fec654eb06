//! The request of an HTTP provider with its parameters, and the additional headers.

use super::super::SessionSpec;
use super::provider::HttpProvider;
use crate::provider::network::cleartext;
use endstop_wire::codec::NamedSchema;
use endstop_wire::{ParamError, RequestSpec};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

/// Headers that the client sets itself.
const FRAMING: &[&str] = &[
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers that carry a credential of a provider. A request must not have two of them, because the
/// server, or a proxy in between, could use and log either.
const CREDENTIALS: &[&str] = &["api-key", "authorization", "x-api-key", "x-goog-api-key"];

impl HttpProvider {
    /// Returns the request of a session, without its parameters.
    pub(super) fn request(&self, spec: SessionSpec) -> RequestSpec {
        RequestSpec {
            model: self.model.clone(),
            system: spec.system,
            tools: spec.tools,
            output_schema: spec
                .output_schema
                .map(|schema| NamedSchema { name: "answer".to_owned(), schema }),
            // Some formats require a cap in each request; send the model's maximum.
            max_output_tokens: self.limits.max_output.filter(|_| self.dialect.wants_cap()),
            context_window: spec.context_window,
            stream: spec.streaming,
            ..RequestSpec::default()
        }
    }

    /// Returns the additional headers of a session.
    pub(super) fn more_headers(&self, spec: &SessionSpec) -> Result<HeaderMap, ParamError> {
        let mut more = HeaderMap::new();
        let given = &spec.params.headers;
        for (name, value) in given {
            let invalid = |problem: &str| ParamError::Invalid {
                param: "headers".to_owned(),
                // The name may be a key that was put in the wrong place.
                problem: format!("`{}`: {problem}", endstop_wire::redact::secrets_out(name)),
            };
            let header = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| invalid("expected a header name of letters, digits and hyphens"))?;
            if FRAMING.contains(&header.as_str()) {
                return Err(invalid("the client sets this header itself"));
            }
            let mut value = HeaderValue::from_str(value.expose()).map_err(|_| {
                invalid("its value contains a character that is not allowed in a header")
            })?;
            // Sensitive values are redacted from recordings and are not shown by `Debug`.
            value.set_sensitive(true);
            let credential = CREDENTIALS.contains(&header.as_str());
            let own = self.headers.keys().any(|own| CREDENTIALS.contains(&own.as_str()));
            if credential && (own || self.signer.is_some() || self.keys.is_some()) {
                return Err(ParamError::Conflict(format!(
                    "the header `{header}` contradicts the key that `{}` already sends; remove one of them",
                    self.name
                )));
            }
            if self.headers.contains_key(&header) {
                return Err(invalid("the provider sets this header itself"));
            }
            let others =
                more.keys().any(|other: &HeaderName| CREDENTIALS.contains(&other.as_str()));
            if more.contains_key(&header) || (credential && others) {
                return Err(ParamError::Conflict(format!(
                    "the header `{header}` is given twice, or next to another credential; remove one of them"
                )));
            }
            more.insert(header, value);
        }
        if !more.is_empty() && cleartext(&self.url, self.allow_http) {
            return Err(ParamError::Conflict(format!(
                "additional headers may be credentials, and would be sent unencrypted over http:// to {}; use https://, or set `allow_http`",
                self.url.host_str().unwrap_or_default()
            )));
        }
        Ok(more)
    }
}
