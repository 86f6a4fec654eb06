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

use endstop_http::{CertificateError, Certificates, NoProxy};
use http::Uri;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

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
    direct: NoProxy,
    /// PEM files with additional authorities, without duplicates.
    pub authorities: Vec<PathBuf>,
    /// The authorities of these files, after [`load`](Outgoing::load).
    pub certificates: Certificates,
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
    /// A file of authorities cannot be used.
    Authority {
        /// The file.
        file: PathBuf,
        /// The reason.
        problem: String,
    },
}

/// The reason why a file of authorities cannot be used.
#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Pem(#[from] CertificateError),
    #[error("it is larger than {LARGEST_FILE} bytes")]
    Large,
}

/// Largest file of authorities, in bytes. That of a whole system has less than 300 kB.
const LARGEST_FILE: u64 = 8 << 20;

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
            let is_valid = url.parse::<Uri>().is_ok_and(|url| url.host().is_some());
            if scheme != "http" && scheme != "https" || !is_valid {
                let warning = OutgoingWarning::ProxyScheme { variable: name };
                if !outgoing.warnings.contains(&warning) {
                    outgoing.warnings.push(warning);
                }
                continue;
            }
            *(if is_https { &mut outgoing.https } else { &mut outgoing.http }) = Some(url);
        }
        let direct = get("no_proxy").or_else(|| get("NO_PROXY")).unwrap_or_default();
        outgoing.direct = NoProxy::new(direct);
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

    /// Reads the files of authorities. One that cannot be used becomes a warning, because it may be
    /// meant for another program.
    #[must_use]
    pub fn load(mut self) -> Outgoing {
        for file in &self.authorities {
            match certificates(file) {
                Ok(certificates) => self.certificates.extend([certificates]),
                Err(problem) => self.warnings.push(OutgoingWarning::Authority {
                    file: file.clone(),
                    problem: problem.to_string(),
                }),
            }
        }
        self
    }

    /// Returns the proxy for calls to a host; `scheme` is that of the upstream's URL. Hosts of this
    /// machine are called directly.
    pub fn proxy_for(&self, scheme: &str, host: &str) -> Option<&str> {
        let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
        // An upstream on this machine, for example a model server or an outer guard.
        let is_local = host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        if is_local || self.direct.contains(&host) {
            return None;
        }
        if scheme.eq_ignore_ascii_case("https") {
            self.https.as_deref()
        } else {
            self.http.as_deref()
        }
    }
}

fn certificates(file: &Path) -> Result<Certificates, FileError> {
    // A device or a pipe has no length, and could be read without end.
    let data = fs::metadata(file)?;
    if !data.is_file() {
        return Err(io::Error::other("it is not a file").into());
    }
    if data.len() > LARGEST_FILE {
        return Err(FileError::Large);
    }
    Ok(Certificates::from_pem(&fs::read(file)?)?)
}

impl fmt::Debug for Outgoing {
    /// Leaves out the URLs of the proxies, which can contain passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing")
            .field("https", &self.https.is_some())
            .field("http", &self.http.is_some())
            .field("direct", &self.direct)
            .field("authorities", &self.authorities)
            .field("certificates", &self.certificates)
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
            OutgoingWarning::Authority { file, problem } => {
                write!(f, "the authorities in {} are not trusted: {problem}", file.display())
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
            ("NO_PROXY", "corp.example, .internal,*.z.ai 10.0.0.0/8,fd00::/8"),
        ]);
        assert_eq!(found.proxy_for("https", "api.anthropic.com"), Some("http://u:secret@a:1"));
        assert_eq!(found.proxy_for("http", "api.anthropic.com"), Some("http://c:3"));
        for host in [
            "corp.example",
            "x.corp.example",
            "a.internal",
            "API.Z.AI",
            "[::1]",
            "127.0.0.2",
            "10.1.2.3",
            "[fd12::1]",
        ] {
            assert_eq!(found.proxy_for("https", host), None, "{host}");
        }
        for host in ["notcorp.example", "11.0.0.1", "[fe80::1]"] {
            assert!(found.proxy_for("https", host).is_some(), "{host}");
        }
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
            ("HTTP_PROXY", "http://"),
        ]);
        assert_eq!(found.authorities, [PathBuf::from("/a.pem"), PathBuf::from("/b.pem")]);
        assert_eq!(found.proxy_for("https", "a.example"), None);
        let scheme = OutgoingWarning::ProxyScheme { variable: "ALL_PROXY" };
        let invalid = OutgoingWarning::ProxyScheme { variable: "HTTP_PROXY" };
        assert_eq!(found.warnings, [scheme, invalid, OutgoingWarning::UncheckedCertificates]);
        assert_eq!(found.proxy_for("http", "a.example"), None);
    }

    #[test]
    fn unusable_authorities_become_warnings() {
        let folder = tempfile::tempdir().unwrap();
        let (file, missing) = (folder.path().join("a.pem"), folder.path().join("b.pem"));
        fs::write(&file, "no certificate").unwrap();
        let found = outgoing(&[
            ("SSL_CERT_FILE", file.to_str().unwrap()),
            ("NODE_EXTRA_CA_CERTS", missing.to_str().unwrap()),
            ("CURL_CA_BUNDLE", "/dev/zero"),
        ])
        .load();
        let shown: Vec<String> = found.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(found.certificates, Certificates::default());
        assert_eq!(shown.len(), 3, "{shown:?}");
        assert!(shown[0].contains("a.pem are not trusted: no certificate found"), "{shown:?}");
        assert!(shown[1].contains("b.pem are not trusted: No such file"), "{shown:?}");
        assert!(shown[2].contains("/dev/zero are not trusted: it is not a file"), "{shown:?}");
    }
}
