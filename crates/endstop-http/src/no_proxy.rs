//! Servers that are reached without a proxy.

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use std::fmt;
use std::sync::Arc;

/// The value of `NO_PROXY`: hosts, with their subdomains; addresses; networks such as `10.0.0.0/8`;
/// or `*` for all servers. Separated by commas or spaces. `.example.com` and `*.example.com` mean the
/// same as `example.com`.
///
/// ```
/// let direct = endstop_http::NoProxy::new("corp.example, 10.0.0.0/8");
/// assert!(direct.contains("build.corp.example") && direct.contains("10.1.2.3"));
/// assert!(!direct.contains("notcorp.example"));
/// ```
#[derive(Clone, Default)]
pub struct NoProxy {
    /// The list in one spelling.
    list: String,
    /// `None` if the list is empty. Behind a pointer, because each connection asks it.
    matcher: Option<Arc<Matcher>>,
}

impl NoProxy {
    /// Reads a list.
    pub fn new(list: &str) -> NoProxy {
        let entries = list
            .split(|char: char| char == ',' || char.is_whitespace())
            .map(|entry| entry.trim_start_matches("*.").trim_start_matches('.'))
            .filter(|entry| !entry.is_empty())
            .map(str::to_ascii_lowercase);
        let list = entries.collect::<Vec<_>>().join(",");
        // The matcher answers for a proxy that it would use otherwise.
        let matcher = || Matcher::builder().all("http://proxy.invalid").no(list.as_str()).build();
        let matcher = (!list.is_empty()).then(|| Arc::new(matcher()));
        NoProxy { list, matcher }
    }

    /// Reads `no_proxy`, or `NO_PROXY` if that is not set or empty.
    pub(crate) fn environment() -> NoProxy {
        let get = |name| std::env::var(name).ok().filter(|list| !list.trim().is_empty());
        NoProxy::new(&get("no_proxy").or_else(|| get("NO_PROXY")).unwrap_or_default())
    }

    /// `true` if the host is reached without a proxy. An IPv6 address may have brackets.
    pub fn contains(&self, host: &str) -> bool {
        let Some(matcher) = &self.matcher else { return false };
        let bracketed = if host.contains(':') && !host.starts_with('[') {
            format!("http://[{host}]/")
        } else {
            format!("http://{host}/")
        };
        bracketed.parse::<Uri>().is_ok_and(|server| matcher.intercept(&server).is_none())
    }
}

impl PartialEq for NoProxy {
    fn eq(&self, other: &NoProxy) -> bool {
        self.list == other.list
    }
}

impl Eq for NoProxy {}

impl fmt::Debug for NoProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NoProxy").field(&self.list).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_addresses_and_networks_match() {
        let direct = NoProxy::new("Corp.example, .internal,*.z.ai 192.0.2.7 10.0.0.0/8,fd00::/8");
        for host in [
            "corp.example",
            "X.CORP.EXAMPLE",
            "internal",
            "a.internal",
            "api.z.ai",
            "192.0.2.7",
            "10.255.0.1",
            "[fd12::1]",
            "fd12::1",
        ] {
            assert!(direct.contains(host), "{host}");
        }
        for host in ["notcorp.example", "example", "192.0.2.70", "11.0.0.1", "[fe80::1]", "a b", ""]
        {
            assert!(!direct.contains(host), "{host}");
        }
        assert!(
            NoProxy::new("*").contains("a.example") && !NoProxy::new(" ,").contains("a.example")
        );
    }
}
