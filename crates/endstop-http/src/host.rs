//! Hosts of addresses.

use http::{HeaderValue, Uri};
use std::net::IpAddr;

/// Returns the host and the port of an address, as `HOST:PORT`. The port is added if the address
/// does not have it.
pub(crate) fn host_port(uri: &Uri) -> String {
    let port = uri.port_u16().unwrap_or(if is_https(uri) { 443 } else { 80 });
    format!("{}:{port}", uri.host().unwrap_or_default())
}

/// Returns the value that the header `host` of a request to this address has, or `None` without a host.
pub(crate) fn host_header(uri: &Uri) -> Option<HeaderValue> {
    let authority = uri.authority()?;
    // The port is omitted if the scheme implies it, also if the address names it.
    let implied = if is_https(uri) { ":443" } else { ":80" };
    let full = host_port(uri);
    HeaderValue::from_str(full.strip_suffix(implied).unwrap_or(authority.as_str())).ok()
}

pub(crate) fn is_https(uri: &Uri) -> bool {
    uri.scheme() == Some(&http::uri::Scheme::HTTPS)
}

/// Returns a host without the brackets of an IPv6 address.
pub(crate) fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// `true` if the host of an address is this machine.
pub(crate) fn is_loopback(uri: &Uri) -> bool {
    is_loopback_name(uri.host().unwrap_or_default())
}

/// `true` if a host is this machine. The address of an IPv6 host has brackets or not.
pub(crate) fn is_loopback_name(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    match bare(host).parse() {
        Ok(IpAddr::V4(address)) => address.is_loopback(),
        // An IPv4 address may be written as IPv6, such as `::ffff:127.0.0.1`.
        Ok(IpAddr::V6(address)) => {
            address.is_loopback() || address.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback())
        }
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_recognised_in_all_forms() {
        for host in ["localhost", "LOCALHOST.", "127.9.0.1:80", "[::1]", "[::ffff:127.0.0.1]:8"] {
            assert!(is_loopback(&format!("http://{host}/").parse().unwrap()), "{host}");
        }
        for host in ["localhost.example.com", "10.0.0.1", "[::2]", "128.0.0.1"] {
            assert!(!is_loopback(&format!("http://{host}/").parse().unwrap()), "{host}");
        }
    }

    #[test]
    fn default_port_is_named() {
        for (uri, is) in [
            ("https://h/v1", "h:443"),
            ("http://h", "h:80"),
            ("https://me@h:9", "h:9"),
            ("http://[::1]", "[::1]:80"),
        ] {
            assert_eq!(host_port(&uri.parse().unwrap()), is);
        }
    }
}
