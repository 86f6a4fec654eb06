//! The checks of a request's head before its token: addresses without secrets, one `Host` of this
//! server, and no other website as the source.
//!
//! A web page can make a browser send requests to a loopback server. Three checks refuse them: the
//! name in `Host` must be one of this server (a page that rebinds its own name to 127.0.0.1 sends
//! that name), `Origin` must be this server, and `Sec-Fetch-Site` must not name another site.

use http::header::{CONTENT_LENGTH, HOST, ORIGIN, TRANSFER_ENCODING};
use http::uri::Authority;
use http::{HeaderMap, StatusCode, Uri};
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
/// `hosts` are the accepted names; `None` accepts any name.
pub(crate) fn check_source(
    uri: &Uri,
    headers: &HeaderMap,
    hosts: Option<&[String]>,
) -> Result<(), Refusal> {
    let mut given = headers.get_all(HOST).iter();
    let (first, more) = (given.next(), given.next());
    let host = first.filter(|_| more.is_none()).and_then(|host| host.to_str().ok());
    let Some(host) = host.and_then(|host| host.parse::<Authority>().ok()) else {
        return Err(refusal(
            StatusCode::BAD_REQUEST,
            "invalid_host",
            "expected exactly one valid Host header",
        ));
    };
    // A request in absolute form names the server twice.
    let agrees = uri.authority().is_none_or(|authority| *authority == host);
    if !agrees || hosts.is_some_and(|hosts| !is_of(&host, hosts)) {
        return Err(refusal(
            StatusCode::MISDIRECTED_REQUEST,
            "unknown_host",
            "the Host header names another server; use the address that the server listens on, or \
             start it with --host NAME",
        ));
    }
    if let Some(origin) = headers.get(ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        let own = ["http://", "https://"].iter().any(|scheme| {
            origin.strip_prefix(scheme).is_some_and(|rest| rest.eq_ignore_ascii_case(host.as_str()))
        });
        if !own {
            return Err(FOREIGN);
        }
    }
    // Sent by browsers also where they send no `Origin`, for example for an image.
    match headers.get("sec-fetch-site").map(http::HeaderValue::as_bytes) {
        None | Some(b"same-origin" | b"none") => Ok(()),
        Some(_) => Err(FOREIGN),
    }
}

const FOREIGN: Refusal =
    refusal(StatusCode::FORBIDDEN, "cross_origin", "requests from other websites are refused");

/// `true` if the name, without its port, is one of these.
fn is_of(host: &Authority, hosts: &[String]) -> bool {
    // Everything before `@` would be a user name, which no client sends in `Host`.
    !host.as_str().contains('@') && hosts.iter().any(|name| name.eq_ignore_ascii_case(host.host()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn source(uri: &str, headers: &[(&'static str, &str)]) -> Result<(), &'static str> {
        let hosts = ["localhost".to_owned(), "127.0.0.1".to_owned(), "[::1]".to_owned()];
        let headers = headers
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()));
        check_source(&uri.parse().unwrap(), &headers.collect(), Some(&hosts))
            .map_err(|refusal| refusal.code)
    }

    #[test]
    fn other_websites_are_refused() {
        let own = ("host", "127.0.0.1:4001");
        for (uri, headers, expected) in [
            ("/v1/runs", &[own][..], Ok(())),
            ("/v1/runs", &[("host", "[::1]:4001")], Ok(())),
            ("/v1/runs", &[("host", "LOCALHOST")], Ok(())),
            ("/v1/runs", &[("host", "evil.example")], Err("unknown_host")),
            ("/v1/runs", &[("host", "127.0.0.1.evil.example")], Err("unknown_host")),
            ("/v1/runs", &[("host", "localhost@evil.example")], Err("unknown_host")),
            ("/v1/runs", &[("host", "evil@localhost")], Err("unknown_host")),
            ("/v1/runs", &[("host", "")], Err("invalid_host")),
            ("/v1/runs", &[], Err("invalid_host")),
            ("/v1/runs", &[own, ("origin", "http://127.0.0.1:4001")], Ok(())),
            ("/v1/runs", &[own, ("origin", "http://127.0.0.1:4002")], Err("cross_origin")),
            ("/v1/runs", &[own, ("origin", "http://evil.example")], Err("cross_origin")),
            ("/v1/runs", &[own, ("origin", "null")], Err("cross_origin")),
            ("/v1/runs", &[own, ("sec-fetch-site", "same-origin")], Ok(())),
            ("/v1/runs", &[own, ("sec-fetch-site", "same-site")], Err("cross_origin")),
            ("/v1/runs", &[own, ("sec-fetch-site", "cross-site")], Err("cross_origin")),
            ("http://evil.example/v1/runs", &[own], Err("unknown_host")),
        ] {
            assert_eq!(source(uri, headers), expected, "{uri} {headers:?}");
        }
        let mut twice = HeaderMap::new();
        twice.append(HOST, HeaderValue::from_static("localhost"));
        twice.append(HOST, HeaderValue::from_static("evil.example"));
        assert!(check_source(&Uri::from_static("/"), &twice, None).is_err());
    }

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
