//! Proxies: those of the environment, or one that is given.

use crate::error::SettingsError;
use crate::host::{is_https, is_loopback};
use crate::no_proxy::NoProxy;
use http::{HeaderValue, Uri};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use std::sync::Arc;

/// Returns the address of a server's proxy.
pub(crate) type Choose = Arc<dyn Fn(&Uri) -> Option<String> + Send + Sync>;

/// The proxies of a client.
pub(crate) enum Proxies {
    None,
    /// `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, in capital or small letters.
    Environment(Box<Matcher>, NoProxy),
    One(Intercept),
    /// A function has the address of each server's proxy.
    Chosen(Choose),
}

/// The way to a server.
#[derive(Clone)]
pub(crate) enum Route {
    Direct,
    /// The proxy receives the requests, with their whole address.
    Forward(Proxy),
    /// The proxy connects to the server, and transfers bytes that it cannot read.
    Tunnel(Proxy),
}

/// A proxy.
#[derive(Clone)]
pub(crate) struct Proxy {
    /// The address, without user and password.
    pub(crate) uri: Uri,
    /// The value of `proxy-authorization`, marked as sensitive.
    pub(crate) login: Option<HeaderValue>,
}

impl Proxies {
    pub(crate) fn environment() -> Proxies {
        Proxies::Environment(Box::new(Matcher::from_env()), NoProxy::environment())
    }

    /// Uses this proxy for all servers.
    pub(crate) fn one(address: &str) -> Result<Proxies, SettingsError> {
        parse(address).map(Proxies::One)
    }

    /// Returns the way to a server. Another machine could not reach a server on this one, and must
    /// not see the requests to it.
    ///
    /// # Errors
    /// The address that was chosen for this server is not valid.
    pub(crate) fn route(&self, server: &Uri) -> Result<Route, SettingsError> {
        let local = is_loopback(server);
        // A proxy on this machine reaches the same servers as the client.
        let proxy = match self {
            Proxies::Environment(matcher, direct) if !local => {
                let host = server.host().unwrap_or_default();
                // The matcher reads the list of the environment, too, but not `*.HOST`.
                matcher.intercept(server).filter(|_| !direct.contains(host))
            }
            Proxies::One(proxy) if !local || is_loopback(proxy.uri()) => Some(proxy.clone()),
            Proxies::Chosen(choose) if !local => {
                choose(server).map(|address| parse(&address)).transpose()?
            }
            _ => None,
        };
        let Some(proxy) = proxy else { return Ok(Route::Direct) };
        let proxy = Proxy { uri: proxy.uri().clone(), login: proxy.basic_auth().cloned() };
        Ok(if is_https(server) { Route::Tunnel(proxy) } else { Route::Forward(proxy) })
    }
}

/// Reads the address of a proxy that speaks HTTP.
fn parse(address: &str) -> Result<Intercept, SettingsError> {
    let matcher = Matcher::builder().all(address).build();
    // A matcher has no other way to return the address, which it has parsed.
    let found = matcher.intercept(&Uri::from_static("http://server.invalid/"));
    found.filter(|proxy| is_web(proxy.uri())).ok_or(SettingsError::Proxy)
}

/// `true` if the proxy speaks HTTP. The variables may also name proxies that speak SOCKS.
pub(crate) fn is_web(proxy: &Uri) -> bool {
    matches!(proxy.scheme_str(), Some("http" | "https"))
}

impl Route {
    /// Returns the proxy's address.
    pub(crate) fn proxy(&self) -> Option<&Uri> {
        match self {
            Route::Direct => None,
            Route::Forward(proxy) | Route::Tunnel(proxy) => Some(&proxy.uri),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(proxies: &Proxies, server: &str) -> String {
        match proxies.route(&server.parse().unwrap()).unwrap() {
            Route::Direct => "direct".to_owned(),
            Route::Forward(proxy) => format!("forward {}", proxy.uri),
            Route::Tunnel(proxy) => format!("tunnel {}", proxy.uri),
        }
    }

    #[test]
    fn given_proxy_is_used_for_other_machines() {
        let proxy = Proxies::one("http://me:p%2Bw@192.0.2.1:9").unwrap();
        assert_eq!(way(&proxy, "http://h/a"), "forward http://192.0.2.1:9/");
        assert_eq!(way(&proxy, "https://h/a"), "tunnel http://192.0.2.1:9/");
        assert_eq!(way(&proxy, "https://127.0.0.1/a"), "direct");
        let local = Proxies::one("https://localhost:9").unwrap();
        assert_eq!(way(&local, "http://[::1]:80/a"), "forward https://localhost:9/");
        let Route::Forward(found) = proxy.route(&Uri::from_static("http://h")).unwrap() else {
            panic!()
        };
        let login = found.login.unwrap();
        assert!(login.is_sensitive() && login == "Basic bWU6cCt3");
    }

    #[test]
    fn environment_never_applies_to_this_machine() {
        let matcher = Matcher::builder().all("http://192.0.2.1:9").build();
        let direct = NoProxy::new("*.direct.test, 10.0.0.0/8");
        let proxies = Proxies::Environment(Box::new(matcher), direct);
        assert_eq!(way(&proxies, "https://h/"), "tunnel http://192.0.2.1:9/");
        for direct in ["http://localhost:1/", "http://a.direct.test/", "https://10.1.2.3/"] {
            assert_eq!(way(&proxies, direct), "direct", "{direct}");
        }
    }

    #[test]
    fn chosen_proxy_depends_on_server() {
        let proxies = Proxies::Chosen(Arc::new(|server| match server.host() {
            Some("direct.test") => None,
            Some("wrong.test") => Some("socks5://192.0.2.1:9".to_owned()),
            _ => Some("http://me:hush@192.0.2.1:9".to_owned()),
        }));
        assert_eq!(way(&proxies, "https://h/"), "tunnel http://192.0.2.1:9/");
        assert_eq!(way(&proxies, "http://h/"), "forward http://192.0.2.1:9/");
        for direct in ["https://direct.test/", "https://[::1]:1/", "http://localhost/"] {
            assert_eq!(way(&proxies, direct), "direct", "{direct}");
        }
        let wrong = proxies.route(&Uri::from_static("https://wrong.test/"));
        assert!(matches!(wrong, Err(SettingsError::Proxy)));
    }

    #[test]
    fn other_proxies_are_refused() {
        for address in ["socks5://h:1", "http://", "", "ftp://h", "http://a b"] {
            assert!(matches!(Proxies::one(address), Err(SettingsError::Proxy)), "{address}");
        }
    }
}
