//! The headers of a response, as far as decoding needs them.
//!
//! ```
//! use endstop_wire::Headers;
//! let headers = Headers::from_iter([("Retry-After", "2")]);
//! assert_eq!(headers.get("retry-after"), Some("2"));
//! ```

/// Names and values, in the order they came; names compare without case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// No headers.
    pub const fn new() -> Headers {
        Headers(Vec::new())
    }

    /// The first value of the header of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// All of them: names as they came, and values.
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
