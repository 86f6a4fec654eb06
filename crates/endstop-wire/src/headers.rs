//! Response headers, as far as decoding needs them.
//!
//! ```
//! use endstop_wire::Headers;
//! let headers = Headers::from_iter([("Retry-After", "2")]);
//! assert_eq!(headers.get("retry-after"), Some("2"));
//! ```

/// Header names and values in the order of arrival. Names are compared case-insensitively.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Creates an empty list.
    pub const fn new() -> Headers {
        Headers(Vec::new())
    }

    /// Returns the first value of the header with this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// Iterates over all headers, with names in their original case.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Adds a header.
    pub fn push(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.push((name.into(), value.into()));
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Headers {
        Headers(pairs.into_iter().map(|(n, v)| (n.into(), v.into())).collect())
    }
}
