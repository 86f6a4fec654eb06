//! Percent-encoding of names in the path of a URL.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Everything but the unreserved characters of RFC 3986 and the slash, which separates a maker from
/// a model.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// Escapes a name for use in a path, so that it cannot end the path or start an escape.
pub(super) fn in_path(name: &str) -> String {
    utf8_percent_encode(name, ESCAPED).to_string()
}
