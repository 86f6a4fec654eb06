//! The checks of a request's head before its token: addresses without secrets, one `Host` of this
//! server, and no other website as the source.

use endstop_http::{Names, SourceError};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode, Uri, Version};
use percent_encoding::percent_decode_str;

/// Names of query parameters with which clients send secrets.
const SECRET_PARAMETERS: [&str; 12] = [
    "token",
    "access_token",
    "auth_token",
    "auth",
    "authorization",
    "api_key",
    "apikey",
    "api-key",
    "key",
    "bearer",
    "secret",
    "password",
];

/// The reason why a request is refused before it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: &'static str,
}

const fn refusal(status: StatusCode, code: &'static str, message: &'static str) -> Refusal {
    Refusal { status, code, message }
}

/// Checks the address and the framing. `is_token` recognises a token of this server.
pub(crate) fn check_head(
    uri: &Uri,
    headers: &HeaderMap,
    is_token: impl Fn(&[u8]) -> bool,
) -> Result<(), Refusal> {
    if is_ambiguous(headers) {
        return Err(refusal(
            StatusCode::BAD_REQUEST,
            "invalid_request",
            "the length of the body is stated twice; send either one Content-Length or \
             `Transfer-Encoding: chunked`",
        ));
    }
    let pairs = uri.query().unwrap_or_default().split('&');
    for (name, value) in pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))) {
        let name = percent_decode_str(name).decode_utf8_lossy().to_ascii_lowercase();
        let value: Vec<u8> = percent_decode_str(value).collect();
        if SECRET_PARAMETERS.contains(&name.as_str()) || is_token(&value) {
            return Err(refusal(
                StatusCode::BAD_REQUEST,
                "token_in_url",
                "a token in the URL is refused, because URLs are logged; send it in the header \
                 `Authorization: Bearer …`, and replace this token",
            ));
        }
    }
    Ok(())
}

/// `true` if two programs could disagree about the end of the body: a part of it could then be another
/// request for this server, and not for a proxy in front of it.
pub(crate) fn is_ambiguous(headers: &HeaderMap) -> bool {
    // hyper rejects most of these, but the answer must not depend on its version.
    let lengths = headers.get_all(CONTENT_LENGTH).iter().count();
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    match (encodings.next(), encodings.next()) {
        (None, _) => lengths > 1,
        (Some(encoding), None) => {
            lengths > 0 || !encoding.as_bytes().eq_ignore_ascii_case(b"chunked")
        }
        (Some(_), Some(_)) => true,
    }
}

/// Checks that the request is meant for this server and does not come from another website.
pub(crate) fn check_source(
    version: Version,
    uri: &Uri,
    headers: &HeaderMap,
    names: &Names,
) -> Result<(), Refusal> {
    endstop_http::check_source(version, uri, headers, names).map_err(|source| {
        let (code, message) = match source {
            SourceError::Invalid => ("invalid_host", "expected exactly one valid Host header"),
            SourceError::OtherServer => (
                "unknown_host",
                "the Host header names another server; use the address that the server listens \
                 on, or start it with --host NAME",
            ),
            SourceError::OtherWebsite => {
                ("cross_origin", "requests from other websites are refused")
            }
        };
        refusal(source.status(), code, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_in_addresses_are_refused() {
        let is_token = |value: &[u8]| value == b"0123456789abcdef";
        for (uri, refused) in [
            ("/v1/runs?limit=5", false),
            ("/v1/runs?token=x", true),
            ("/v1/runs?a=1&Access_Token=x", true),
            ("/v1/runs?%74oken=x", true),
            ("/v1/runs?category=0123456789abcdef", true),
            ("/v1/runs?category=%30123456789abcdef", true),
        ] {
            let checked = check_head(&uri.parse().unwrap(), &HeaderMap::new(), is_token);
            assert_eq!(checked.is_err(), refused, "{uri}");
        }
    }
}
