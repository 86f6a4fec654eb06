//! The clients that a proxy serves.
//!
//! ```
//! use endstop_guard::proxy::SecretPath;
//! let path = SecretPath::new([7; 16], "/run/nightly");
//! assert!(path.as_str().ends_with("/run/nightly"));
//! assert_eq!(format!("{path:?}"), r#"SecretPath("/[hidden]/run/nightly")"#);
//! ```

use endstop_http::Names;
use http::Uri;
use std::fmt;
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// The beginning of the secret segment. It is a known format of a credential, so that the segment is
/// redacted wherever secrets are.
const PREFIX: &str = "/endstop_guard_";

/// The clients that a proxy serves. Each form refuses requests of web pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Any client that reaches the address, by any name: the gatekeeper asks for a token.
    #[default]
    Gatekeeper,
    /// Programs on this machine. On Linux, only those of this user and of root.
    SameUser,
    /// Programs on this machine that know a path.
    Path {
        /// The path of the base URL.
        path: SecretPath,
        /// `true` if other users can read the path, so that the user is checked, too.
        is_visible: bool,
    },
}

impl Access {
    /// `true` if the user of each connection is checked.
    pub(super) fn checks_user(&self) -> bool {
        match self {
            Access::Gatekeeper => false,
            Access::SameUser => true,
            Access::Path { is_visible, .. } => *is_visible,
        }
    }

    /// Returns the names that `Host` may have.
    pub(super) fn names(&self) -> Names {
        match self {
            Access::Gatekeeper => Names::Any,
            Access::SameUser | Access::Path { .. } => Names::Loopback(Vec::new()),
        }
    }

    /// Returns the path that each request must begin with.
    pub(super) fn path(&self) -> Option<&SecretPath> {
        match self {
            Access::Gatekeeper | Access::SameUser => None,
            Access::Path { path, .. } => Some(path),
        }
    }
}

/// The path of a base URL whose first segment is a secret of 128 bits. `Debug` hides the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretPath(Arc<str>);

impl SecretPath {
    /// Creates a path from random bytes and what follows them, which starts with a slash or is empty.
    pub fn new(random: [u8; 16], rest: &str) -> SecretPath {
        let secret = u128::from_be_bytes(random);
        SecretPath(format!("{PREFIX}{secret:032x}{rest}").into())
    }

    /// Returns the path with its secret, for the base URL. It has no slash at its end.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the secret segment without its slash.
    pub fn secret(&self) -> &str {
        self.0[1..].split('/').next().unwrap_or_default()
    }

    /// Returns a target without this path; `None` if it does not begin with it. Only this spelling is
    /// accepted, not one with percent-encoding or in upper case. The time does not depend on the
    /// number of characters that are right.
    pub(super) fn strip(&self, target: &Uri) -> Option<Uri> {
        let target = target.path_and_query()?.as_str();
        let (path, rest) = target.split_at_checked(self.0.len())?;
        let is_end = rest.is_empty() || rest.starts_with(['/', '?']);
        if !bool::from(path.as_bytes().ct_eq(self.0.as_bytes())) || !is_end {
            return None;
        }
        // The address alone stands for the root.
        let slash = if rest.starts_with('/') { "" } else { "/" };
        Uri::builder().path_and_query(format!("{slash}{rest}")).build().ok()
    }
}

impl fmt::Debug for SecretPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = format!("/[hidden]{}", &self.0[1 + self.secret().len()..]);
        f.debug_tuple("SecretPath").field(&shown).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_path_is_stripped() {
        let path = SecretPath::new([0xab; 16], "/run/r1");
        let secret = path.secret();
        assert_eq!(secret, "endstop_guard_abababababababababababababababab");
        let strip =
            |target: &str| path.strip(&target.parse().unwrap()).map(|target| target.to_string());
        let p = path.as_str();
        for (target, expected) in [
            (format!("{p}/v1/messages?beta=true"), Some("/v1/messages?beta=true")),
            (format!("http://127.0.0.1:4000{p}/v1/messages"), Some("/v1/messages")),
            (p.to_owned(), Some("/")),
            (format!("{p}/"), Some("/")),
            (format!("{p}?a=b"), Some("/?a=b")),
            (format!("{p}//v1"), Some("//v1")),
            (format!("{p}x/v1/messages"), None),
            (format!("/{secret}/run/r2/v1/messages"), None),
            (format!("/{secret}/v1/messages"), None),
            (format!("/{secret}"), None),
            (format!("/run/r1/{secret}/v1/messages"), None),
            ("/run/r1/v1/messages".to_owned(), None),
            ("/v1/messages".to_owned(), None),
            (format!("/v1/messages?x={p}"), None),
            ("/".to_owned(), None),
            ("*".to_owned(), None),
            (p.to_uppercase(), None),
            (p.replace("abab", "ABAB"), None),
            (p.replacen("ab", "%61b", 1), None),
            (p.replacen("ab", "ac", 1), None),
            (p.replace("/run/", "/%72un/"), None),
            (format!("/{p}/v1/messages"), None),
            (format!("/x/..{p}/v1/messages"), None),
        ] {
            assert_eq!(strip(&target).as_deref(), expected, "{target}");
        }
    }

    #[test]
    fn secret_is_not_shown() {
        let path = SecretPath::new([0xab; 16], "/run/r1");
        let access = Access::Path { path: path.clone(), is_visible: false };
        assert!(!format!("{access:?}").contains("abab"), "{access:?}");
        let text = format!("ANTHROPIC_BASE_URL=http://127.0.0.1:1{}", path.as_str());
        let redacted = endstop_wire::redact::secrets_out(&text);
        assert_eq!(redacted, "ANTHROPIC_BASE_URL=http://127.0.0.1:1/[redacted]/run/r1");
    }
}
