//! Response headers, as far as decoding needs them.
//!
//! ```
//! use endstop_wire::Headers;
//! let headers = Headers::from_iter([("Retry-After", "2")]);
//! assert_eq!(headers.get("retry-after"), Some("2"));
//! ```

use std::fmt;

/// Number of headers for which room is reserved at most.
const MOST_RESERVED: usize = 64;
/// Usual length of a header's name and value together, in bytes.
const USUAL_LENGTH: usize = 32;

/// Header names and values in the order of arrival. Names are compared case-insensitively.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers {
    /// All names and values, one after the other.
    // One allocation instead of two for each header: a response has twenty or thirty of them.
    text: String,
    /// Ends of each header's name and value in `text`.
    ends: Vec<(usize, usize)>,
}

impl Headers {
    /// Creates an empty list.
    pub const fn new() -> Headers {
        Headers { text: String::new(), ends: Vec::new() }
    }

    /// Returns the first value of the header with this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Iterates over all headers, with names in their original case.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut from = 0;
        self.ends.iter().map(move |&(name, value)| {
            let pair = (&self.text[from..name], &self.text[name..value]);
            from = value;
            pair
        })
    }

    /// Adds a header.
    pub fn push(&mut self, name: impl AsRef<str>, value: impl AsRef<str>) {
        self.text.push_str(name.as_ref());
        let end = self.text.len();
        self.text.push_str(value.as_ref());
        self.ends.push((end, self.text.len()));
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<N: AsRef<str>, V: AsRef<str>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Headers {
        let pairs = pairs.into_iter();
        let mut headers = Headers::new();
        // Bounded, because an iterator may promise any number.
        let (least, most) = pairs.size_hint();
        let count = most.unwrap_or(least).min(MOST_RESERVED);
        headers.ends.reserve(count);
        headers.text.reserve(count * USUAL_LENGTH);
        for (name, value) in pairs {
            headers.push(name, value);
        }
        headers
    }
}
