//! Heads of requests and responses, whose `Debug` hides every credential, and the credentials of
//! requests.

use super::access::SecretPath;
use endstop_wire::redact::{KnownKeys, Redacted, is_random, is_secret_header};
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
    /// because a query can contain a key. It does not contain `base`.
    pub target: Uri,
    /// The secret path of the proxy's base URL, which the client has put before the target.
    pub base: Option<SecretPath>,
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

    /// Returns path and query for reports, with the values of unknown parameters and the credentials
    /// of the request hidden.
    pub fn redacted_target(&self) -> Redacted {
        self.redact(&redacted_url(&self.target))
    }

    /// Returns text for reports without the credentials of this request, which a client may also have
    /// used as a name or in its path.
    pub fn redact(&self, text: &str) -> Redacted {
        let mut all = Vec::new();
        self.each_credential(|credential, _| all.push(credential.to_owned()));
        KnownKeys::new(all).redact(text)
    }

    /// Visits the credentials of the request, in its headers and in its URL: a server may echo them, and
    /// a client may have used one as a name. `true` says that the name of the header or parameter does
    /// not prove that the value is a credential, so that it may also differ in each request.
    pub fn each_credential(&self, mut found: impl FnMut(&str, bool)) {
        for (name, value) in &self.headers {
            let name = name.as_str();
            let value = String::from_utf8_lossy(value.as_bytes());
            let is_guess = !is_secret_header(name);
            // Guard's own headers have names of runs and profiles, and its token.
            let is_own = is_guess && name.starts_with("x-endstop-");
            if is_id(name) || is_own || is_guess && !(is_unknown(name) && is_random(&value)) {
                continue;
            }
            // A signature differs in each request, and does not contain the key that made it.
            if value.starts_with("AWS4-") {
                continue;
            }
            if name == "cookie" {
                for (_, cookie) in value.split(';').filter_map(|pair| pair.split_once('=')) {
                    found(cookie.trim(), is_guess);
                }
            }
            // `Bearer KEY`: the key alone is the secret, too.
            if let Some((_, key)) = value.trim().split_once(' ') {
                found(key.trim(), is_guess);
            }
            found(value.trim(), is_guess);
        }
        for parameter in self.query().into_iter().flat_map(|query| query.split('&')) {
            let (name, value) = parameter.split_once('=').unwrap_or(("", parameter));
            if is_harmless_parameter(name) {
                continue;
            }
            let is_guess = !is_secret_header(name);
            let plain = percent_decode_str(value).decode_utf8_lossy();
            if plain != value {
                found(&plain, is_guess);
            }
            found(value, is_guess);
        }
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
            .field("target", &&*self.redacted_target())
            .field("base", &self.base)
            .field("version", &self.version)
            .field("headers", &Hidden(&self.headers))
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
            .field("headers", &Hidden(&self.headers))
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
const HARMLESS_PARAMETERS: [&str; 8] =
    ["alt", "api-version", "beta", "deployment", "limit", "model", "pageSize", "stream"];

/// Returns `true` for headers with ids, some of whose names sound like those of credentials.
fn is_id(name: &str) -> bool {
    name.ends_with("session-id") || name.ends_with("session_id") || name == "idempotency-key"
}

/// Words in the names of headers that name an account or a request, or that have a checksum.
const NAMING: [&str; 19] = [
    "account",
    "b3",
    "baggage",
    "checksum",
    "correlation",
    "date",
    "digest",
    "id",
    "ids",
    "metadata",
    "organization",
    "project",
    "request",
    "sha256",
    "span",
    "tenant",
    "trace",
    "traceparent",
    "tracestate",
];

/// Returns `true` if the name of a header tells nothing about its value, which may be a credential
/// then: gateways have headers of their own for keys.
fn is_unknown(name: &str) -> bool {
    !HARMLESS_HEADERS.contains(&name)
        && !name.split(['-', '_', '.']).any(|word| NAMING.contains(&word))
}

fn is_harmless_parameter(name: &str) -> bool {
    let plain = percent_decode_str(name).decode_utf8();
    plain.is_ok_and(|name| HARMLESS_PARAMETERS.contains(&name.as_ref()))
}

struct Hidden<'a>(&'a HeaderMap);

impl fmt::Debug for Hidden<'_> {
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
        let value = if is_harmless_parameter(name) { value } else { "[hidden]" };
        let _ = write!(text, "{}={}", name.escape_default(), value.escape_default());
    }
    text
}
