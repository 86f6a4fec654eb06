//! A key that is never printed.

use std::fmt;
use zeroize::Zeroize;

/// A key. Neither `Debug` nor `Display` reveals its value, and its memory is overwritten when it is
/// dropped.
///
/// ```
/// use endstop_wire::endpoint::Secret;
/// let key = Secret::from("sk-secret");
/// assert_eq!(format!("{key} {key:?}"), "[secret] Secret(…)");
/// assert_eq!(key.expose(), "sk-secret");
/// ```
///
/// Copies that an HTTP client makes of a header are not overwritten.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Wraps a key.
    pub fn new(key: impl Into<String>) -> Secret {
        Secret(key.into())
    }

    /// Returns the key itself. Use it only to write the header.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl From<String> for Secret {
    fn from(key: String) -> Secret {
        Secret(key)
    }
}

impl From<&str> for Secret {
    fn from(key: &str) -> Secret {
        Secret(key.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}
