//! Requests of a worker to the engine's own server.
//!
//! ```text
//! let stop: StopSeen = client.post("/EndstopRun/r1/stopped", &()).await?;
//! ```

use bytes::Bytes;
use endstop::wire::endpoint::is_loopback;
use endstop_http::{Client, Full};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http_body_util::{BodyExt, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::{self, Write as _};

/// The largest response that is read, in bytes.
const MOST: usize = 1 << 20;

/// A request to the engine that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The address or the token is not valid.
    #[error("{0}")]
    Settings(String),
    /// The server did not answer.
    #[error("the engine at {address} did not answer: {problem}")]
    Network {
        /// The address of the request.
        address: String,
        /// The reason.
        problem: String,
    },
    /// The server refused the request.
    #[error("the engine refused {address} (status {status}): {problem}")]
    Refused {
        /// The address of the request.
        address: String,
        /// The HTTP status.
        status: u16,
        /// The start of the answer.
        problem: String,
    },
}

/// A client of one address of the engine. Cheap to clone.
#[derive(Clone)]
pub(crate) struct EngineClient {
    client: Client,
    base: String,
    token: Option<HeaderValue>,
}

impl fmt::Debug for EngineClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineClient").field("base", &self.base).finish_non_exhaustive()
    }
}

impl EngineClient {
    /// Creates a client for `base`, for example `http://127.0.0.1:8080`. The token is sent as a bearer
    /// token.
    pub(crate) fn new(base: &str, token: Option<&str>) -> Result<EngineClient, ClientError> {
        let settings = |problem: String| ClientError::Settings(problem);
        let base = base.trim_end_matches('/').to_owned();
        if !(base.starts_with("http://") || base.starts_with("https://")) {
            return Err(settings(
                "invalid address of the engine: expected for example http://127.0.0.1:8080"
                    .to_owned(),
            ));
        }
        if token.is_some() && is_readable_on_the_way(&base) {
            return Err(settings(format!(
                "the token would be sent to {base} without encryption; use https://, or remove the token"
            )));
        }
        let client = Client::builder().build().map_err(|error| settings(error.to_string()))?;
        let token = token
            .map(|token| {
                let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                    .map_err(|_| settings("the engine's token is not a header value".to_owned()))?;
                // Keeps the token out of debug output.
                value.set_sensitive(true);
                Ok(value)
            })
            .transpose()?;
        Ok(EngineClient { client, base, token })
    }

    /// Sends a value as JSON, and reads the answer. The time is not limited: an answer may take as
    /// long as a run.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.post_once(path, body, None).await
    }

    /// Sends a value as JSON under a key, with which the engine recognises a repeated request.
    pub(crate) async fn post_once<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        key: Option<&str>,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body)
            .map_err(|error| ClientError::Settings(format!("the request: {error}")))?;
        let mut request = http::Request::post(format!("{}{path}", self.base))
            .header(CONTENT_TYPE, "application/json");
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let request = request.body(Full::new(Bytes::from(body)));
        let body = self.send(request).await?;
        // A handler without a result answers with an empty body.
        let body = if body.is_empty() { &b"null"[..] } else { &body[..] };
        serde_json::from_slice(body).map_err(|error| ClientError::Network {
            address: format!("{}{path}", self.base),
            problem: error.to_string(),
        })
    }

    /// Checks that the server answers at this path.
    #[cfg_attr(not(feature = "serve"), expect(dead_code, reason = "only servers of runs ask"))]
    pub(crate) async fn check(&self, path: &str) -> Result<(), ClientError> {
        let request = http::Request::get(format!("{}{path}", self.base));
        self.send(request.body(Full::default())).await.map(drop)
    }

    /// Sends a request with the token, and reads the body of a successful answer.
    async fn send(
        &self,
        request: Result<http::Request<Full<Bytes>>, http::Error>,
    ) -> Result<Bytes, ClientError> {
        let mut request = request.map_err(|error| ClientError::Settings(error.to_string()))?;
        let address = request.uri().to_string();
        let network = |problem: String| ClientError::Network { address: address.clone(), problem };
        if let Some(token) = &self.token {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        let response =
            self.client.send(request).await.map_err(|error| network(error.to_string()))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MOST).collect().await;
        let body = body.map_err(|error| network(error.to_string()))?.to_bytes();
        if !status.is_success() {
            let text = String::from_utf8_lossy(&body);
            let problem = text.chars().take(300).collect();
            return Err(ClientError::Refused { address, status: status.as_u16(), problem });
        }
        Ok(body)
    }
}

/// `true` if requests to this address cross a network without encryption.
fn is_readable_on_the_way(base: &str) -> bool {
    let uri = base.parse::<http::Uri>().ok();
    let host = uri.as_ref().and_then(http::Uri::host);
    // An address that cannot be parsed fails later, and must not get the token either.
    base.starts_with("http://") && !host.is_some_and(is_loopback)
}

/// Returns a key as part of an address. A client chooses the key, which need not be the id of a run.
pub(crate) fn encoded(key: &str) -> String {
    key.bytes().fold(String::with_capacity(key.len()), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_not_sent_unencrypted() {
        let with = |base: &str| EngineClient::new(base, Some("t-0123456789abcdef")).is_ok();
        assert!(
            with("http://127.0.0.1:8080") && with("http://[::1]:8080") && with("https://r.example")
        );
        assert!(!with("http://restate:8080") && !with("http://127.0.0.1.example.com"));
        assert!(!with("http://localhost@evil.example"));
        assert!(EngineClient::new("http://restate:8080", None).is_ok(), "there is nothing to read");
    }
}
