//! The source of a request to a server on this machine: meant for it, and not sent by another website.
//!
//! A web page can make a browser send requests to a loopback server. Three checks refuse them: the
//! name in `Host` must be one of this server (a page that rebinds its own name to 127.0.0.1 sends
//! that name), `Origin` must be this server, and `Sec-Fetch-Site` must not name another site.

use crate::host::is_loopback_name;
use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, StatusCode, Uri, Version};

/// The names that a server has in `Host`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    /// Any name, for a server that asks every client for a token.
    Any,
    /// `localhost`, the loopback addresses, and these names.
    Loopback(Vec<String>),
}

impl Names {
    fn include(&self, host: &Authority) -> bool {
        // Everything before `@` would be a user name, which no client sends in `Host`.
        if host.as_str().contains('@') {
            return false;
        }
        match self {
            Names::Any => true,
            Names::Loopback(more) => {
                is_loopback_name(host.host())
                    || more.iter().any(|name| name.eq_ignore_ascii_case(host.host()))
            }
        }
    }
}

/// The reason why a request is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// `Host` is missing, invalid, or given more than once.
    #[error("expected exactly one valid Host header")]
    Invalid,
    /// `Host` names another server.
    #[error("the Host header names another server")]
    OtherServer,
    /// Another website sent the request.
    #[error("requests from other websites are refused")]
    OtherWebsite,
}

impl SourceError {
    /// Returns the status of the answer.
    pub fn status(self) -> StatusCode {
        match self {
            SourceError::Invalid => StatusCode::BAD_REQUEST,
            SourceError::OtherServer => StatusCode::MISDIRECTED_REQUEST,
            SourceError::OtherWebsite => StatusCode::FORBIDDEN,
        }
    }
}

/// Checks that a request is meant for a server with these names and does not come from another website.
///
/// ```
/// use endstop_http::{Names, SourceError, check_source};
/// use http::{HeaderMap, HeaderValue, Uri, Version, header::HOST};
/// let names = Names::Loopback(Vec::new());
/// let mut headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static("127.0.0.1:4000"))]);
/// let check = |headers: &HeaderMap| {
///     check_source(Version::HTTP_11, &Uri::from_static("/v1/runs"), headers, &names)
/// };
/// assert_eq!(check(&headers), Ok(()));
/// headers.insert(HOST, HeaderValue::from_static("evil.example"));
/// assert_eq!(check(&headers), Err(SourceError::OtherServer));
/// ```
///
/// A request with HTTP/1.0 may have no `Host` if the server has any name, because that version does not
/// require it. HTTP/2 has the name in the target instead.
///
/// # Errors
/// The reason for which the request must be refused.
pub fn check_source(
    version: Version,
    target: &Uri,
    headers: &HeaderMap,
    names: &Names,
) -> Result<(), SourceError> {
    let host = named(version, target, headers)?;
    match (&host, names) {
        (Some(host), _) if !names.include(host) => return Err(SourceError::OtherServer),
        (None, Names::Loopback(_)) => return Err(SourceError::Invalid),
        (Some(_), _) | (None, Names::Any) => {}
    }
    let is_own = |origin: &str| {
        let Some(host) = &host else { return false };
        ["http://", "https://"].iter().any(|scheme| {
            origin.strip_prefix(scheme).is_some_and(|rest| rest.eq_ignore_ascii_case(host.as_str()))
        })
    };
    // Sent by browsers also where they send no `Origin`, for example for an image.
    let sites = headers.get_all("sec-fetch-site");
    let is_foreign = headers.get_all(ORIGIN).iter().any(|o| !o.to_str().is_ok_and(is_own))
        || sites.iter().any(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"));
    if is_foreign { Err(SourceError::OtherWebsite) } else { Ok(()) }
}

/// Returns the name of the server in a request, if it has one.
fn named(
    version: Version,
    target: &Uri,
    headers: &HeaderMap,
) -> Result<Option<Authority>, SourceError> {
    let mut given = headers.get_all(HOST).iter();
    let host = match (given.next(), given.next()) {
        (Some(host), None) => {
            let host = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
            Some(host.ok_or(SourceError::Invalid)?)
        }
        (None, _) if version <= Version::HTTP_10 || version >= Version::HTTP_2 => None,
        _ => return Err(SourceError::Invalid),
    };
    match (host, target.authority()) {
        // A request in absolute form names the server twice.
        (Some(host), Some(authority)) if host != *authority => Err(SourceError::OtherServer),
        (host, authority) => Ok(host.or_else(|| authority.cloned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn source(
        version: Version,
        target: &str,
        headers: &[(&'static str, &str)],
        names: &Names,
    ) -> Result<(), SourceError> {
        let headers = headers
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()));
        check_source(version, &target.parse().unwrap(), &headers.collect(), names)
    }

    #[test]
    fn other_servers_and_websites_are_refused() {
        use SourceError::{Invalid, OtherServer, OtherWebsite};
        let own = ("host", "127.0.0.1:4001");
        let names = Names::Loopback(vec!["runs.example".to_owned()]);
        for (target, headers, expected) in [
            ("/v1/runs", &[own][..], Ok(())),
            ("/v1/runs", &[("host", "[::1]:4001")], Ok(())),
            ("/v1/runs", &[("host", "127.0.0.9")], Ok(())),
            ("/v1/runs", &[("host", "[::ffff:127.0.0.1]:1")], Ok(())),
            ("/v1/runs", &[("host", "LOCALHOST")], Ok(())),
            ("/v1/runs", &[("host", "localhost.:4001")], Ok(())),
            ("/v1/runs", &[("host", "Runs.Example:443")], Ok(())),
            ("/v1/runs", &[("host", "evil.example")], Err(OtherServer)),
            ("/v1/runs", &[("host", "x.runs.example")], Err(OtherServer)),
            ("/v1/runs", &[("host", "127.0.0.1.evil.example")], Err(OtherServer)),
            ("/v1/runs", &[("host", "evil.localhost")], Err(OtherServer)),
            ("/v1/runs", &[("host", "0.0.0.0:4001")], Err(OtherServer)),
            ("/v1/runs", &[("host", "10.0.0.1:4001")], Err(OtherServer)),
            ("/v1/runs", &[("host", "2130706433")], Err(OtherServer)),
            ("/v1/runs", &[("host", "localhost@evil.example")], Err(OtherServer)),
            ("/v1/runs", &[("host", "evil@localhost")], Err(OtherServer)),
            ("/v1/runs", &[("host", "")], Err(Invalid)),
            ("/v1/runs", &[("host", "local host")], Err(Invalid)),
            ("/v1/runs", &[], Err(Invalid)),
            ("/v1/runs", &[own, ("origin", "http://127.0.0.1:4001")], Ok(())),
            ("/v1/runs", &[own, ("origin", "http://127.0.0.1:4002")], Err(OtherWebsite)),
            ("/v1/runs", &[own, ("origin", "http://evil.example")], Err(OtherWebsite)),
            ("/v1/runs", &[own, ("origin", "null")], Err(OtherWebsite)),
            ("/v1/runs", &[own, ("origin", "")], Err(OtherWebsite)),
            ("/v1/runs", &[own, ("sec-fetch-site", "same-origin")], Ok(())),
            ("/v1/runs", &[own, ("sec-fetch-mode", "cors")], Ok(())),
            ("/v1/runs", &[own, ("sec-fetch-site", "none")], Ok(())),
            ("/v1/runs", &[own, ("sec-fetch-site", "same-site")], Err(OtherWebsite)),
            ("/v1/runs", &[own, ("sec-fetch-site", "cross-site")], Err(OtherWebsite)),
            ("http://127.0.0.1:4001/v1/runs", &[own], Ok(())),
            ("http://evil.example/v1/runs", &[own], Err(OtherServer)),
            ("http://127.0.0.1:4001/v1/runs", &[("host", "evil.example")], Err(OtherServer)),
        ] {
            let found = source(Version::HTTP_11, target, headers, &names);
            assert_eq!(found, expected, "{target} {headers:?}");
        }
    }

    #[test]
    fn only_old_requests_need_no_host() {
        let (own, names) = ("http://localhost:1/", Names::Loopback(Vec::new()));
        for (version, target, headers, expected) in [
            (Version::HTTP_10, "/", &[][..], Err(SourceError::Invalid)),
            (Version::HTTP_10, "/", &[("host", "localhost")], Ok(())),
            (Version::HTTP_10, own, &[], Ok(())),
            (Version::HTTP_10, "/", &[("host", "evil.example")], Err(SourceError::OtherServer)),
            (Version::HTTP_10, "http://evil.example/", &[], Err(SourceError::OtherServer)),
            (Version::HTTP_11, own, &[], Err(SourceError::Invalid)),
            (Version::HTTP_2, own, &[], Ok(())),
            (Version::HTTP_2, own, &[("origin", "http://localhost:1")], Ok(())),
            (Version::HTTP_2, "http://evil.example/", &[], Err(SourceError::OtherServer)),
        ] {
            let found = source(version, target, headers, &names);
            assert_eq!(found, expected, "{version:?} {target} {headers:?}");
        }
        let any = |headers: &[_]| source(Version::HTTP_10, "/", headers, &Names::Any);
        assert_eq!(any(&[]), Ok(()));
        assert_eq!(any(&[("origin", "http://x")]), Err(SourceError::OtherWebsite));
    }

    #[test]
    fn server_with_tokens_has_any_name_but_no_other_website() {
        let own = ("host", "guard.example");
        let any = |headers: &[_]| source(Version::HTTP_11, "/", headers, &Names::Any);
        assert_eq!(any(&[own]), Ok(()));
        assert_eq!(any(&[own, ("origin", "https://guard.example")]), Ok(()));
        assert_eq!(any(&[own, ("origin", "https://evil.example")]), Err(SourceError::OtherWebsite));
    }

    #[test]
    fn each_of_several_values_is_checked() {
        let names = Names::Loopback(Vec::new());
        let twice = |name: &'static str, one: &'static str, other: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static("localhost"));
            headers.remove(name);
            headers.append(name, HeaderValue::from_static(one));
            headers.append(name, HeaderValue::from_static(other));
            check_source(Version::HTTP_11, &Uri::from_static("/"), &headers, &names)
        };
        assert_eq!(twice("host", "localhost", "evil.example"), Err(SourceError::Invalid));
        assert_eq!(twice("host", "localhost", "localhost"), Err(SourceError::Invalid));
        let foreign = Err(SourceError::OtherWebsite);
        assert_eq!(twice("origin", "http://localhost", "http://evil.example"), foreign);
        assert_eq!(twice("sec-fetch-site", "none", "cross-site"), foreign);
    }
}
