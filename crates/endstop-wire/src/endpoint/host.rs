//! Host handling: expands a host from a variable (`OLLAMA_HOST=gpu.local` means
//! `http://gpu.local:11434`) and recognises loopback hosts.

use std::net::IpAddr;

/// Returns `true` if a URL's host is this machine: `localhost`, 127.0.0.0/8 or `::1`. Requests to
/// it cross no network and need no proxy.
///
/// ```
/// use endstop_wire::endpoint::is_loopback;
/// assert!(is_loopback("localhost") && is_loopback("127.0.0.9") && is_loopback("[::1]"));
/// assert!(!is_loopback("localhost.example.com") && !is_loopback("10.0.0.1"));
/// ```
pub fn is_loopback(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match bare.parse() {
        Ok(IpAddr::V4(address)) => address.is_loopback(),
        Ok(IpAddr::V6(address)) => {
            // An IPv4 address may be written as IPv6, such as `::ffff:127.0.0.1`.
            address.is_loopback() || address.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback())
        }
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

/// Returns the base URL for a host that may lack its scheme, name or port. `port` applies if both
/// scheme and port are missing. A wildcard address, on which a server listens, is replaced by the
/// loopback address.
pub(super) fn base_url(host: &str, port: u16) -> String {
    let (scheme, rest) = match host.split_once("://") {
        Some((scheme, rest)) => (Some(scheme), rest),
        None => (None, host),
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    // An IPv6 address contains colons too, but only inside its brackets.
    let after = authority.find(']').map_or(0, |at| at + 1);
    let (name, given) = match authority[after..].rfind(':') {
        Some(at) => (&authority[..after + at], &authority[after + at + 1..]),
        None => (authority, ""),
    };
    let name = match name {
        "" | "0.0.0.0" => "127.0.0.1",
        "[::]" => "[::1]",
        name => name,
    };
    let port = match (scheme, given) {
        (None, "") => format!(":{port}"),
        (Some(_), "") => String::new(),
        (_, given) => format!(":{given}"),
    };
    let path = path.trim_matches('/');
    let slash = if path.is_empty() { "" } else { "/" };
    format!("{}://{name}{port}{slash}{path}", scheme.unwrap_or("http"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_hosts_are_recognised() {
        for host in ["localhost", "LOCALHOST.", "127.0.0.1", "127.255.0.3", "[::1]", "::1"] {
            assert!(is_loopback(host), "{host}");
        }
        assert!(is_loopback("[::ffff:127.0.0.1]"));
        for host in [
            "",
            "0.0.0.0",
            "10.0.0.1",
            "[::]",
            "[::2]",
            "[::ffff:10.0.0.1]",
            "localhost.example.com",
            "my.localhost",
            "127.0.0.1.example.com",
            "host.docker.internal",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn missing_url_parts_are_filled_in() {
        for (host, url) in [
            ("1.2.3.4", "http://1.2.3.4:11434"),
            (":56789", "http://127.0.0.1:56789"),
            ("1.2.3.4:56789", "http://1.2.3.4:56789"),
            ("http://1.2.3.4", "http://1.2.3.4"),
            ("https://1.2.3.4:56789", "https://1.2.3.4:56789"),
            ("example.com/", "http://example.com:11434"),
            ("example.com:56789/path/", "http://example.com:56789/path"),
            ("https://example.com/a/b", "https://example.com/a/b"),
            ("[0001:002:003:0004::1]", "http://[0001:002:003:0004::1]:11434"),
            ("[::1]:56789/path", "http://[::1]:56789/path"),
            ("http://[::1]", "http://[::1]"),
            ("0.0.0.0", "http://127.0.0.1:11434"),
            ("0.0.0.0:8080", "http://127.0.0.1:8080"),
            ("[::]:8080", "http://[::1]:8080"),
            ("http://:8080", "http://127.0.0.1:8080"),
        ] {
            assert_eq!(base_url(host, 11434), url, "{host}");
        }
    }
}
