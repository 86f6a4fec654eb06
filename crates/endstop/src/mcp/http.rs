//! Connects to an MCP server at an HTTP address.
//!
//! ```text
//! let transport = transport("https://host/mcp", &headers, false)?;
//! ```

use super::http_client::HttpClient;
use crate::provider::network::{Connection, cleartext, client, web_address};
use endstop_wire::redact::address;
use http::header::{HeaderName, HeaderValue};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::SseRetryPolicy;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Retry policy for a broken event stream: four retries, after 0.25 to 2 seconds.
#[derive(Debug)]
struct AFewTimes;

impl SseRetryPolicy for AFewTimes {
    fn retry(&self, times: usize) -> Option<Duration> {
        (times < 4).then(|| Duration::from_millis(250 << times))
    }
}

/// Returns a transport for this address.
///
/// # Errors
/// The address or a header is invalid, or a header or a credential would be sent to another machine
/// over `http://` without permission. The message does not contain header values.
pub(super) fn transport(
    url: &str,
    headers: &[(String, String)],
    allow_http: bool,
) -> Result<StreamableHttpClientTransport<HttpClient>, String> {
    let shown = address(url);
    let parsed = web_address(url).map_err(|error| {
        format!("invalid address `{shown}`: {error}; expected http:// or https://")
    })?;
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(format!(
            "{shown}: a user name or password in the address is not supported; set a header instead"
        ));
    }
    // `shown` differs from `url` if the address contains a credential that was cut out.
    if cleartext(&parsed, allow_http) && (!headers.is_empty() || shown != url) {
        return Err(format!(
            "{shown}: its headers or the credential in its address would be sent unencrypted to another machine: use https://, or allow it with `McpServer::allow_http`"
        ));
    }
    let mut custom = HashMap::new();
    for (name, value) in headers {
        let key = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("invalid header name `{name}`"))?;
        let mut value = HeaderValue::from_str(value).map_err(|_| {
            format!("invalid value of the header `{name}`: it contains characters that a header must not have")
        })?;
        // Keeps the value out of the HTTP client's own debug output.
        value.set_sensitive(true);
        custom.insert(key, value);
    }
    let mut config =
        StreamableHttpClientTransportConfig::with_uri(parsed.as_str()).custom_headers(custom);
    config.retry_config = Arc::new(AFewTimes);
    config.control_request_timeout = Duration::from_secs(2);
    let client = client(&parsed, Connection::default())
        .map_err(|error| format!("the HTTP client could not be created: {error}"))?;
    Ok(StreamableHttpClientTransport::with_client(HttpClient::new(client), config))
}
