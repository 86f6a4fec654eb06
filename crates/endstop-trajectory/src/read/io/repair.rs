//! Repairs text that is not valid Unicode, so that a character is lost instead of a record.
//!
//! ```text
//! let text = repaired(bytes);      // the same bytes, unless something had to be replaced
//! ```

use super::unpack::is_zip;
use endstop_wire::without_lone_surrogates;
use std::borrow::Cow;

/// Replaces invalid UTF-8, and each escape of a lone surrogate (`\ud83d` without its other half), with
/// U+FFFD. An archive is not text and stays as it is.
pub(crate) fn repaired(bytes: &[u8]) -> Cow<'_, [u8]> {
    if is_zip(bytes) {
        return Cow::Borrowed(bytes);
    }
    let text = String::from_utf8_lossy(bytes);
    match (without_lone_surrogates(&text), text) {
        (Some(text), _) | (None, Cow::Owned(text)) => Cow::Owned(text.into_bytes()),
        (None, Cow::Borrowed(_)) => Cow::Borrowed(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn half_character_costs_one_character() {
        for (text, read) in [
            (&br#"{"t":"a\ud83d"}"#[..], "a\u{fffd}"),
            (br#"{"t":"\ude00b"}"#, "\u{fffd}b"),
            (br#"{"t":"\ud83d\ude00"}"#, "\u{1f600}"),
            (br#"{"t":"\ud83dx\ude00"}"#, "\u{fffd}x\u{fffd}"),
            (br#"{"t":"\\ud83d"}"#, "\\ud83d"),
            (br#"{"t":"\uD83D\uD83D\uDE00"}"#, "\u{fffd}\u{1f600}"),
            (b"{\"t\":\"caf\xe9\"}", "caf\u{fffd}"),
            (b"{\"t\":\"\xf0\x9f\x98\"}", "\u{fffd}"),
            (b"{\"t\":\"\xf0\x9f\x98\x80\"}", "\u{1f600}"),
            (b"{\"t\":\"\xff\\ud83d\"}", "\u{fffd}\u{fffd}"),
            (b"{\"t\":\"a\xc3\"}", "a\u{fffd}"),
        ] {
            let value: Value = serde_json::from_slice(&repaired(text)).unwrap();
            assert_eq!(value["t"], read, "{}", text.escape_ascii());
        }
        assert!(serde_json::from_slice::<Value>(&repaired(br#"{"\ud83d":1}"#)).is_ok());
        assert!(matches!(repaired("{\"t\":\"é\\ud83d\\ude00\"}".as_bytes()), Cow::Borrowed(_)));
    }
}
