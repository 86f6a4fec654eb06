//! The base URL of each wire format's provider, and the URL of a call below it.
//!
//! ```
//! use endstop_guard::proxy::{Upstream, UpstreamMap};
//! use endstop_wire::WireFormat;
//!
//! let map = UpstreamMap::new(Upstream::parse("https://api.openai.com/v1")?)
//!     .with(WireFormat::Anthropic, Upstream::parse("https://api.anthropic.com")?);
//! // Some clients leave out the version: it is restored.
//! let url = map.url(Some(WireFormat::Anthropic), "/messages", None)?;
//! assert_eq!(url, "https://api.anthropic.com/v1/messages");
//! let url = map.url(Some(WireFormat::OpenAiResponses), "/v1/responses", Some("a=b"))?;
//! assert_eq!(url, "https://api.openai.com/v1/responses?a=b");
//! # Ok::<(), endstop_guard::proxy::UpstreamError>(())
//! ```

use endstop_wire::WireFormat;
use http::Uri;
use http::uri::{Authority, Scheme};

/// A base URL as a client's configuration has it, for example `https://api.openai.com/v1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    scheme: Scheme,
    authority: Authority,
    // Without a slash at its end.
    prefix: String,
}

/// An address that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// The base URL is not an absolute `http` or `https` URL.
    // The value is not shown, because it can contain a credential.
    #[error(
        "invalid upstream URL: expected `http://HOST` or `https://HOST`, with an optional path"
    )]
    Base,
    /// The base URL contains user information, a query or a fragment.
    #[error("invalid upstream URL: remove the user information and the query")]
    Extra,
    /// No upstream is set for the format of a call.
    #[error("no upstream is set for this call")]
    Unknown,
    /// The path of the request cannot be part of a URL, or leaves the upstream's prefix.
    #[error("invalid path")]
    Path,
}

impl Upstream {
    /// Reads a base URL.
    pub fn parse(url: &str) -> Result<Upstream, UpstreamError> {
        let parts = url.parse::<Uri>().map_err(|_| UpstreamError::Base)?.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(UpstreamError::Base);
        };
        if scheme != Scheme::HTTP && scheme != Scheme::HTTPS {
            return Err(UpstreamError::Base);
        }
        let path = parts.path_and_query;
        if authority.as_str().contains('@') || path.as_ref().is_some_and(|p| p.query().is_some()) {
            return Err(UpstreamError::Extra);
        }
        let prefix = path.map(|path| path.path().trim_end_matches('/').to_owned());
        Ok(Upstream { scheme, authority, prefix: prefix.unwrap_or_default() })
    }

    fn url(&self, prefix: &str, path: &str, query: Option<&str>) -> Result<Uri, UpstreamError> {
        if leaves_its_folder(path) {
            return Err(UpstreamError::Path);
        }
        let mut target = String::with_capacity(prefix.len() + path.len() + 16);
        target.push_str(prefix);
        target.push_str(path);
        if let Some(query) = query {
            target.push('?');
            target.push_str(query);
        }
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(target)
            .build()
            .map_err(|_| UpstreamError::Path)
    }
}

/// The upstream of each wire format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamMap {
    default: Option<Upstream>,
    formats: Vec<(WireFormat, Upstream)>,
    /// Upstreams below a prefix of the path.
    services: Vec<(String, Upstream)>,
}

impl UpstreamMap {
    /// Returns a map that sends everything to one upstream.
    pub fn new(default: Upstream) -> UpstreamMap {
        UpstreamMap { default: Some(default), ..UpstreamMap::empty() }
    }

    /// Returns a map without upstreams: calls of formats that it does not name have no address.
    pub fn empty() -> UpstreamMap {
        UpstreamMap { default: None, formats: Vec::new(), services: Vec::new() }
    }

    /// Sends calls of this format to another upstream.
    #[must_use]
    pub fn with(mut self, format: WireFormat, upstream: Upstream) -> UpstreamMap {
        self.formats.retain(|(known, _)| *known != format);
        self.formats.push((format, upstream));
        self
    }

    /// Sends requests below a prefix of the path, such as `/vertex`, to another upstream, whatever their format. Its base
    /// URL replaces the prefix.
    #[must_use]
    pub fn below(mut self, prefix: &str, upstream: Upstream) -> UpstreamMap {
        self.services.push((prefix.to_owned(), upstream));
        self
    }

    /// Returns the URL of a call. `path` starts with a slash, and contains no prefix of the proxy.
    /// The query is not changed.
    ///
    /// Base URLs of OpenAI's formats are complete but for the last part, so the version in the path
    /// (`/v1`) is replaced by the base URL's, or removed. Base URLs of the other formats do not have
    /// a version by convention, but some clients put it there: it is used once.
    pub fn url(
        &self,
        format: Option<WireFormat>,
        path: &str,
        query: Option<&str>,
    ) -> Result<Uri, UpstreamError> {
        if !path.starts_with('/') {
            return Err(UpstreamError::Path);
        }
        for (prefix, upstream) in &self.services {
            match path.strip_prefix(prefix.as_str()) {
                Some("") => return upstream.url(&upstream.prefix, "/", query),
                Some(rest) if rest.starts_with('/') => {
                    return upstream.url(&upstream.prefix, rest, query);
                }
                Some(_) | None => {}
            }
        }
        let known = self.formats.iter().find(|(known, _)| Some(*known) == format);
        let known = known.map(|(_, upstream)| upstream).or(self.default.as_ref());
        let upstream = known.ok_or(UpstreamError::Unknown)?;
        let (version, rest) = split_version(path);
        let base = upstream.prefix.as_str();
        let base_has_version = base.rsplit('/').next().is_some_and(is_version);
        let is_complete = format.is_some_and(|format| format.version().is_none());
        if base_has_version || is_complete {
            return upstream.url(base, rest, query);
        }
        // Claude Code has paths of its own, which have no version.
        let default = format.filter(|_| !rest.starts_with("/api/")).and_then(WireFormat::version);
        let version = if version.is_empty() { default.unwrap_or_default() } else { version };
        upstream.url(&format!("{base}{version}"), rest, query)
    }
}

/// Splits `/v1/messages` into `/v1` and `/messages`.
fn split_version(path: &str) -> (&str, &str) {
    let end = path[1..].find('/').map_or(path.len(), |slash| slash + 1);
    if end < path.len() && is_version(&path[1..end]) { path.split_at(end) } else { ("", path) }
}

/// Returns whether a segment is a version, for example `v1`, `v1beta` or `v4`.
fn is_version(segment: &str) -> bool {
    let Some(rest) = segment.strip_prefix('v') else { return false };
    let letters = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    letters.len() < rest.len()
        && letters.trim_end_matches(|c: char| c.is_ascii_digit()).chars().all(char::is_alphabetic)
}

/// Returns whether a segment of the path is `.` or `..`, also if it is percent-encoded. A server
/// would apply it, and reach a path outside the prefix.
pub(crate) fn leaves_its_folder(path: &str) -> bool {
    path.split(['/', '\\']).any(|segment| {
        let mut rest = segment;
        let mut dots = 0;
        while !rest.is_empty() {
            rest = match rest.strip_prefix('.').or_else(|| {
                rest.get(..3).filter(|text| text.eq_ignore_ascii_case("%2e")).map(|_| &rest[3..])
            }) {
                Some(rest) => rest,
                None => return false,
            };
            dots += 1;
        }
        dots == 1 || dots == 2
    })
}
