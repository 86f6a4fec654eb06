//! Messages of providers quote keys: they are cut out, and what is kept is short.
//!
//! ```
//! use endstop_wire::redact::excerpt;
//! assert_eq!(excerpt("bad key: sk-abcdef1234567890"), "bad key: [redacted]");
//! ```
//!
//! A key that is known goes wherever it stands: [`KnownKeys`].

mod frames;
mod known;
mod names;

pub use known::KnownKeys;
pub use names::{address, is_secret_header, is_secret_parameter};

/// What stands for a credential that was cut out.
pub const REDACTED: &str = "[redacted]";

/// The most characters of a provider's words that are kept.
pub const EXCERPT_CHARS: usize = 500;

/// How keys begin.
const PREFIXES: [&str; 17] = [
    "sk-",
    "sk_",
    "gsk_",
    "xai-",
    "hf_",
    "AIza",
    "ya29.",
    "AKIA",
    "ASIA",
    "ABSK",
    "bedrock-api-key-",
    "IQoJ",
    "pplx-",
    "nvapi-",
    "ghp_",
    "eyJ",
    "r8_",
];

/// At most [`EXCERPT_CHARS`] characters of `text`, without credentials and control characters.
pub fn excerpt(text: &str) -> String {
    let mut end = text.len();
    // Look at a little more than is kept, so that a key on the edge is seen whole.
    if let Some((at, _)) = text.char_indices().nth(EXCERPT_CHARS * 2) {
        end = at;
    }
    let clean = secrets_out(text[..end].trim());
    let mut out = String::with_capacity(clean.len().min(EXCERPT_CHARS));
    for (n, c) in clean.chars().enumerate() {
        if n == EXCERPT_CHARS - 1 && clean.chars().nth(EXCERPT_CHARS).is_some() {
            out.push('…');
            break;
        }
        out.push(if c.is_control() && c != '\n' { ' ' } else { c });
    }
    out
}

/// `text` with everything that looks like a key replaced by `[redacted]`.
pub fn secrets_out(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut after_bearer = false;
    while !rest.is_empty() {
        let len = rest.find(|c: char| !is_key_char(c)).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(len);
        if !word.is_empty() {
            // What was cut out before stays as it is.
            let bearers = after_bearer && word.len() >= 8 && word != "redacted";
            if bearers || looks_like_key(word) {
                out.push_str(REDACTED);
            } else {
                out.push_str(word);
            }
            after_bearer =
                word.eq_ignore_ascii_case("bearer") || word.eq_ignore_ascii_case("basic");
        }
        let gap = tail.find(is_key_char).unwrap_or(tail.len());
        // AWS quotes the headers of a request that is signed wrongly.
        after_bearer |=
            matches!((word, &tail[..gap]), ("x-amz-security-token", ":") | ("Signature", "="));
        out.push_str(&tail[..gap]);
        rest = &tail[gap..];
    }
    out
}

fn is_key_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '*' | '.' | '+' | '/')
}

fn looks_like_key(word: &str) -> bool {
    PREFIXES
        .iter()
        .any(|p| word.strip_prefix(p).is_some_and(|tail| tail.trim_end_matches('.').len() >= 6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_go_and_words_stay() {
        for (text, want) in [
            (
                "Incorrect API key provided: sk-fake-key. Go on.",
                "Incorrect API key provided: [redacted] Go on.",
            ),
            ("Authorization: Bearer abc.def-ghi123", "Authorization: Bearer [redacted]"),
            ("key=AIzaSyD1234567, x", "key=[redacted], x"),
            ("token ya29.a0AfH6SMBx-_y expired", "token [redacted] expired"),
            (
                "x-amz-security-token:FwoG/a+b==\n\nhost",
                "x-amz-security-token:[redacted]==\n\nhost",
            ),
            (
                "host;x-amz-security-token, Signature=0123456789abcdef",
                "host;x-amz-security-token, Signature=[redacted]",
            ),
            ("the signature we calculated", "the signature we calculated"),
            ("a risk-free sk- prompt", "a risk-free sk- prompt"),
        ] {
            assert_eq!(secrets_out(text), want);
            assert_eq!(secrets_out(want), want);
        }
        assert!(excerpt(&"é".repeat(5000)).chars().count() <= EXCERPT_CHARS);
        assert!(!excerpt(&format!("{} sk-{}", "x".repeat(490), "y".repeat(40))).contains("yyy"));
    }
}
