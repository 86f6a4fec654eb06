//! Chooses the headers that are forwarded: all but the hop-by-hop ones (RFC 9110, section 7.6.1).

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Copies the headers of a request for the upstream. `host` takes the place of the client's `Host`.
/// A header with the secret of the proxy's own address is left out: some clients send the address from
/// which they were redirected.
pub(crate) fn for_upstream(
    headers: &HeaderMap,
    host: &HeaderValue,
    secret: Option<&str>,
) -> HeaderMap {
    let has_secret = |value: &HeaderValue| {
        secret.is_some_and(|secret| {
            value.as_bytes().windows(secret.len()).any(|part| part == secret.as_bytes())
        })
    };
    let named = connection_names(headers);
    let mut copy = HeaderMap::with_capacity(headers.len() + 1);
    for (name, value) in headers {
        if *name == HOST {
            // Several `Host` headers become a single one.
            if !copy.contains_key(HOST) {
                copy.append(HOST, host.clone());
            }
        } else if *name == TE {
            // Trailers pass in both directions, so this proxy accepts them itself.
            if value.as_bytes().eq_ignore_ascii_case(b"trailers") {
                copy.insert(TE, HeaderValue::from_static("trailers"));
            }
        } else if *name == TRANSFER_ENCODING {
            // The server side accepts only bodies whose last coding is `chunked`, and removes that
            // coding; the client side applies it again.
            copy.append(TRANSFER_ENCODING, value.clone());
        } else if *name != EXPECT
            && !is_hop_by_hop(name)
            && !named.contains(name)
            && !has_secret(value)
        {
            // `Expect` is left out because the server side has already answered it with 100.
            copy.append(name.clone(), value.clone());
        }
    }
    if !copy.contains_key(HOST) {
        copy.insert(HOST, host.clone());
    }
    join_cookies(&mut copy);
    copy
}

/// Joins several `Cookie` headers, which only HTTP/2 allows (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}

/// Copies the headers of a response for the client, without those that only the proxy itself may send.
pub(crate) fn for_client(headers: &HeaderMap) -> HeaderMap {
    let named = connection_names(headers);
    // Chunks take precedence over a length (RFC 9112, section 6.3), which is wrong then.
    let is_chunked = headers.contains_key(TRANSFER_ENCODING);
    let mut copy = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        if *name == CONTENT_LENGTH && is_chunked {
            continue;
        }
        if !is_hop_by_hop(name) && *name != TE && !named.contains(name) && !is_own(name) {
            copy.append(name.clone(), value.clone());
        }
    }
    copy
}

/// Removes from the trailers of a response what its headers may not have either.
pub(crate) fn trailers_for_client(mut trailers: HeaderMap) -> HeaderMap {
    let own: Vec<HeaderName> = trailers.keys().filter(|name| is_own(name)).cloned().collect();
    for name in own {
        trailers.remove(name);
    }
    trailers
}

/// `true` for headers between a client and a proxy of Endstop, which nothing else may send in its place.
fn is_own(name: &HeaderName) -> bool {
    name.as_str().starts_with("x-endstop-")
}

/// `true` if a request has such a header more than once, so that two readers could take different ones.
pub(crate) fn has_own_twice(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| is_own(name) && headers.get_all(name).iter().count() > 1)
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    *name == CONNECTION
        || *name == TRANSFER_ENCODING
        || *name == UPGRADE
        || *name == "keep-alive"
        || *name == "proxy-connection"
}

/// Returns the headers that `Connection` names.
fn connection_names(headers: &HeaderMap) -> Vec<HeaderName> {
    headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        // `Host` is replaced in any case. Headers that describe the content stay with it (RFC 9110, section
        // 7.6.1): guard would read the body in one way, and its receiver in another one.
        .filter(|name| *name != HOST && !name.as_str().starts_with("content-"))
        .collect()
}

/// Returns whether the client asks for another protocol on this connection.
pub(crate) fn is_upgrade(headers: &HeaderMap) -> bool {
    // `h2c` may be ignored (RFC 9110, section 7.8), and then the request is an ordinary one.
    headers.get_all(UPGRADE).iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"h2c"))
}
