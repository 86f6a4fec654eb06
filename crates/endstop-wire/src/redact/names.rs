//! Names of headers and URL parameters that carry credentials.
//!
//! ```
//! use endstop_wire::redact::{address, is_secret_header};
//! assert!(is_secret_header("X-Api-Key") && !is_secret_header("x-ratelimit-remaining-tokens"));
//! assert_eq!(address("https://me:pw@host/v1?key=abc&alt=sse"), "https://host/v1?key=[redacted]&alt=sse");
//! ```

/// Replacement for a removed credential.
pub const REDACTED: &str = "[redacted]";

/// Words in the names of credentials. `tokens` is not among them, because rate limits count tokens.
const WORDS: [&str; 17] = [
    "auth",
    "authentication",
    "authorization",
    "apikey",
    "bearer",
    "cookie",
    "credential",
    "credentials",
    "jwt",
    "key",
    "passwd",
    "password",
    "secret",
    "session",
    "sig",
    "signature",
    "token",
];

/// Returns `true` if the header with this name carries a credential: `authorization`, `x-api-key`,
/// `api-key`, `x-goog-api-key`, `cookie`, `set-cookie`, `x-amz-security-token` and similar names.
pub fn is_secret_header(name: &str) -> bool {
    name.split(['-', '_', '.']).any(|word| WORDS.iter().any(|w| word.eq_ignore_ascii_case(w)))
}

/// Returns `true` if the URL parameter with this name carries a credential, such as `key` or
/// `access_token`.
pub fn is_secret_parameter(name: &str) -> bool {
    is_secret_header(name)
}

/// Returns a URL without its user, its password and credentials among its parameters.
pub fn address(url: &str) -> String {
    let (url, fragment) = url.split_once('#').map_or((url, None), |(url, rest)| (url, Some(rest)));
    let (place, query) = url.split_once('?').map_or((url, None), |(url, rest)| (url, Some(rest)));
    let mut out = String::with_capacity(url.len());
    match place.split_once("://") {
        Some((scheme, rest)) => {
            // The last `@` ends the user part, because a password may contain one unescaped.
            let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let host = host.rsplit('@').next().unwrap_or(host);
            out.extend([scheme, "://", host, path]);
        }
        None => out.push_str(place),
    }
    for (at, pair) in query.into_iter().flat_map(|query| query.split('&')).enumerate() {
        out.push(if at == 0 { '?' } else { '&' });
        match pair.split_once('=') {
            Some((name, _)) if is_secret_parameter(name) => out.extend([name, "=", REDACTED]),
            _ => out.push_str(pair),
        }
    }
    if let Some(fragment) = fragment {
        out.extend(["#", fragment]);
    }
    out
}

/// Decodes percent escapes, for example `%41` to `A`.
pub(super) fn unescaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if bytes[at] == b'%' => {
                out.push(byte);
                at += 3;
            }
            _ => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credential_headers_are_recognised() {
        for name in [
            "authorization",
            "Proxy-Authorization",
            "x-api-key",
            "api-key",
            "x-goog-api-key",
            "cookie",
            "set-cookie",
            "x-amz-security-token",
            "ocp-apim-subscription-key",
            "x-auth-token",
        ] {
            assert!(is_secret_header(name), "{name}");
        }
        for name in [
            "retry-after",
            "retry-after-ms",
            "x-should-retry",
            "x-ratelimit-reset-tokens",
            "anthropic-ratelimit-tokens-remaining",
            "anthropic-version",
            "openai-organization",
            "request-id",
            "content-type",
        ] {
            assert!(!is_secret_header(name), "{name}");
        }
    }

    #[test]
    fn url_loses_only_its_credentials() {
        for (url, want) in [
            ("http://127.0.0.1:80/v1/messages", "http://127.0.0.1:80/v1/messages"),
            ("http://u:p@h@x/a@b?alt=sse", "http://x/a@b?alt=sse"),
            (
                "https://h?api_key=1&KEY=2&keys=3#top",
                "https://h?api_key=[redacted]&KEY=[redacted]&keys=3#top",
            ),
            ("h/p?access_token=x", "h/p?access_token=[redacted]"),
        ] {
            assert_eq!(address(url), want);
        }
    }
}
