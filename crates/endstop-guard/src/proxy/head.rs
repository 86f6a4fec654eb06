//! Heads of requests and responses, whose `Debug` hides every credential.

use http::{HeaderMap, Method, StatusCode, Uri, Version};
use percent_encoding::percent_decode_str;
use std::fmt::{self, Write};
use std::net::SocketAddr;

/// The first line and the headers of a request, as the client sent them.
#[derive(Clone)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The target, usually a path and a query. Print [`RequestHead::redacted_target`] instead,
    /// because a query can contain a key.
    pub target: Uri,
    /// The version that the client speaks.
    pub version: Version,
    /// The headers, including the hop-by-hop ones, which are not forwarded.
    pub headers: HeaderMap,
    /// The client's address.
    pub peer: SocketAddr,
}

impl RequestHead {
    /// Returns the path of the target.
    pub fn path(&self) -> &str {
        self.target.path()
    }

    /// Returns the query of the target, without the question mark. It can contain a key.
    pub fn query(&self) -> Option<&str> {
        self.target.query()
    }

    /// Returns path and query for reports, with the values of unknown parameters hidden.
    pub fn redacted_target(&self) -> String {
        redacted_url(&self.target)
    }

    /// Returns a header that is valid UTF-8.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl fmt::Debug for RequestHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHead")
            .field("method", &self.method)
            .field("target", &self.redacted_target())
            .field("version", &self.version)
            .field("headers", &Redacted(&self.headers))
            .field("peer", &self.peer)
            .finish()
    }
}

/// The status and the headers of a response, as the upstream sent them.
#[derive(Clone)]
pub struct ResponseHead {
    /// The status.
    pub status: StatusCode,
    /// The headers, including the hop-by-hop ones, which are not forwarded.
    pub headers: HeaderMap,
    /// Reports that the body is compressed. The observer reads decompressed bytes, so it cannot
    /// change or end such a body, only hold it back or abort it.
    pub encoded: bool,
}

impl fmt::Debug for ResponseHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseHead")
            .field("status", &self.status)
            .field("headers", &Redacted(&self.headers))
            .field("encoded", &self.encoded)
            .finish()
    }
}

// Lists of harmless names, not of secret ones, because each provider has its own name for a key.
const HARMLESS_HEADERS: [&str; 16] = [
    "accept",
    "accept-encoding",
    "anthropic-beta",
    "anthropic-version",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "date",
    "host",
    "retry-after",
    "server",
    "transfer-encoding",
    "user-agent",
    "x-should-retry",
    "x-stainless-retry-count",
];
const HARMLESS_PARAMETERS: [&str; 6] =
    ["alt", "api-version", "beta", "limit", "pageSize", "stream"];

struct Redacted<'a>(&'a HeaderMap);

impl fmt::Debug for Redacted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.iter().map(|(name, value)| {
            let harmless = HARMLESS_HEADERS.contains(&name.as_str());
            (name, value.to_str().ok().filter(|_| harmless).unwrap_or("[hidden]"))
        });
        f.debug_map().entries(shown).finish()
    }
}

/// Returns a URL for reports: without user information, and with the values of all query parameters
/// hidden that are not known to be harmless. Control characters are escaped.
pub fn redacted_url(url: &Uri) -> String {
    let mut text = String::new();
    if let (Some(scheme), Some(authority)) = (url.scheme_str(), url.authority()) {
        let host = authority.as_str().rsplit('@').next().unwrap_or_default();
        let _ = write!(text, "{scheme}://{host}");
    }
    let _ = write!(text, "{}", url.path().escape_default());
    let Some(query) = url.query() else { return text };
    for (index, parameter) in query.split('&').enumerate() {
        text.push(if index == 0 { '?' } else { '&' });
        let Some((name, value)) = parameter.split_once('=') else {
            // A bare word can be a token.
            text.push_str("[hidden]");
            continue;
        };
        let known = percent_decode_str(name)
            .decode_utf8()
            .is_ok_and(|name| HARMLESS_PARAMETERS.contains(&name.as_ref()));
        let value = if known { value } else { "[hidden]" };
        let _ = write!(text, "{}={}", name.escape_default(), value.escape_default());
    }
    text
}
