//! The way from guard to its upstreams: proxies and authorities of the user's environment.
//!
//! ```
//! use endstop_guard::process::Outgoing;
//! let environment = [("HTTPS_PROXY".to_owned(), "http://proxy.example:3128".to_owned())];
//! let outgoing = Outgoing::from_environment(&environment.into());
//! assert_eq!(outgoing.proxy_for("https", "api.openai.com"), Some("http://proxy.example:3128"));
//! assert_eq!(outgoing.proxy_for("http", "127.0.0.1"), None);
//! ```
//!
//! The program itself only speaks to guard, without TLS. Its variables stay as they are, because it
//! needs them for other hosts, but the address of guard is in its `NO_PROXY`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Variables with files of additional authorities.
const AUTHORITIES: [&str; 5] = [
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "AWS_CA_BUNDLE",
];

/// Proxies and authorities that guard honours.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outgoing {
    https: Option<String>,
    http: Option<String>,
    direct: Vec<String>,
    /// PEM files with additional authorities, without duplicates.
    pub authorities: Vec<PathBuf>,
    /// Settings that are not honoured.
    pub warnings: Vec<OutgoingWarning>,
}

/// A setting of the environment that guard does not honour.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutgoingWarning {
    /// `NODE_TLS_REJECT_UNAUTHORIZED=0` turns the check of certificates off.
    UncheckedCertificates,
    /// The proxy has a scheme other than `http` and `https`.
    ProxyScheme {
        /// Name of the variable.
        variable: &'static str,
    },
}

impl Outgoing {
    /// Reads the variables of an environment.
    pub fn from_environment(environment: &BTreeMap<String, String>) -> Outgoing {
        let mut outgoing = Outgoing::default();
        let get = |name: &str| environment.get(name).map(|v| v.trim()).filter(|v| !v.is_empty());
        // The lower-case spelling is the older one and wins, as in curl.
        for (names, is_https) in [
            (["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"], true),
            (["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"], false),
        ] {
            let Some((name, value)) = names.iter().find_map(|name| Some((*name, get(name)?)))
            else {
                continue;
            };
            // curl takes a proxy without a scheme as http.
            let url =
                if value.contains("://") { value.to_owned() } else { format!("http://{value}") };
            let scheme = url.split("://").next().unwrap_or_default().to_ascii_lowercase();
            if scheme != "http" && scheme != "https" {
                let warning = OutgoingWarning::ProxyScheme { variable: name };
                if !outgoing.warnings.contains(&warning) {
                    outgoing.warnings.push(warning);
                }
                continue;
            }
            *(if is_https { &mut outgoing.https } else { &mut outgoing.http }) = Some(url);
        }
        let direct = get("no_proxy").or_else(|| get("NO_PROXY")).unwrap_or_default();
        outgoing.direct = direct
            .split([',', ' '])
            .map(|host| host.trim().trim_start_matches("*.").trim_start_matches('.'))
            .filter(|host| !host.is_empty())
            .map(str::to_ascii_lowercase)
            .collect();
        // Several programs' variables often name the same file.
        for file in AUTHORITIES.iter().filter_map(|name| get(name)).map(PathBuf::from) {
            if !outgoing.authorities.contains(&file) {
                outgoing.authorities.push(file);
            }
        }
        if get("NODE_TLS_REJECT_UNAUTHORIZED") == Some("0") {
            outgoing.warnings.push(OutgoingWarning::UncheckedCertificates);
        }
        outgoing
    }

    /// Returns the proxy for calls to a host; `scheme` is that of the upstream's URL. Hosts of this
    /// machine are called directly.
    pub fn proxy_for(&self, scheme: &str, host: &str) -> Option<&str> {
        let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
        // An upstream on this machine, for example a model server or an outer guard.
        let is_local = host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        let is_direct = self.direct.iter().any(|direct| {
            direct == "*"
                || host == *direct
                || host.strip_suffix(direct.as_str()).is_some_and(|rest| rest.ends_with('.'))
        });
        if is_local || is_direct {
            return None;
        }
        if scheme.eq_ignore_ascii_case("https") {
            self.https.as_deref()
        } else {
            self.http.as_deref()
        }
    }
}

impl fmt::Debug for Outgoing {
    /// Leaves out the URLs of the proxies, which can contain passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing")
            .field("https", &self.https.is_some())
            .field("http", &self.http.is_some())
            .field("direct", &self.direct)
            .field("authorities", &self.authorities)
            .field("warnings", &self.warnings)
            .finish()
    }
}

impl fmt::Display for OutgoingWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OutgoingWarning::UncheckedCertificates => f.write_str(
                "NODE_TLS_REJECT_UNAUTHORIZED=0 is not honoured; \
                 name the authority's file in NODE_EXTRA_CA_CERTS",
            ),
            OutgoingWarning::ProxyScheme { variable } => {
                write!(f, "{variable} is not honoured: expected a proxy with http:// or https://")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outgoing(pairs: &[(&str, &str)]) -> Outgoing {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Outgoing::from_environment(&pairs.collect())
    }

    #[test]
    fn proxy_depends_on_scheme_and_host() {
        let found = outgoing(&[
            ("https_proxy", "http://u:secret@a:1"),
            ("HTTPS_PROXY", "http://b:2"),
            ("ALL_PROXY", "c:3"),
            ("NO_PROXY", "corp.example, .internal,*.z.ai"),
        ]);
        assert_eq!(found.proxy_for("https", "api.anthropic.com"), Some("http://u:secret@a:1"));
        assert_eq!(found.proxy_for("http", "api.anthropic.com"), Some("http://c:3"));
        for host in
            ["corp.example", "x.corp.example", "a.internal", "API.Z.AI", "[::1]", "127.0.0.2"]
        {
            assert_eq!(found.proxy_for("https", host), None, "{host}");
        }
        assert!(found.proxy_for("https", "notcorp.example").is_some());
        assert!(!format!("{found:?}").contains("secret"));
    }

    #[test]
    fn authorities_are_collected_once() {
        let found = outgoing(&[
            ("SSL_CERT_FILE", "/a.pem"),
            ("NODE_EXTRA_CA_CERTS", "/b.pem"),
            ("REQUESTS_CA_BUNDLE", "/a.pem"),
            ("NODE_TLS_REJECT_UNAUTHORIZED", "0"),
            ("ALL_PROXY", "socks5://x:1"),
        ]);
        assert_eq!(found.authorities, [PathBuf::from("/a.pem"), PathBuf::from("/b.pem")]);
        assert_eq!(found.proxy_for("https", "a.example"), None);
        let scheme = OutgoingWarning::ProxyScheme { variable: "ALL_PROXY" };
        assert_eq!(found.warnings, [scheme, OutgoingWarning::UncheckedCertificates]);
    }
}
