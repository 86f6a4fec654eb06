//! Detection and redaction of secrets in everything that is written.
//!
//! ```
//! use endstop_wire::redact::excerpt;
//! assert_eq!(excerpt("bad key: sk-abcdef1234567890"), "bad key: [redacted]");
//! ```
//!
//! # What is a secret
//!
//! - A credential of a known format is a secret, wherever it comes from: [`secrets_out`].
//! - The value of a variable that [holds a secret](is_secret_variable) and the keys that a provider
//!   uses are secrets: [`KnownKeys`]. A value that is a word, a number, a date or a path is not
//!   searched for, because such words occur in text for other reasons. A value must have 12
//!   characters with letters and digits, or eight that change often, or be a phrase of four words.
//!   The variable is withheld from commands in any case.
//! - In JSON, PEM, URLs and connection strings only the secret parts are searched for.
//!
//! Secrets are removed from string values, never from member names or from the structure of JSON.

mod frames;
mod json;
mod known;
mod names;
mod patterns;
mod text;
mod value;
mod variables;

pub use known::KnownKeys;
pub use names::{address, is_secret_header, is_secret_parameter};
pub use variables::{is_secret_name, is_secret_variable};

/// Replacement for a removed credential.
pub const REDACTED: &str = "[redacted]";

/// Maximum number of characters in an excerpt of a provider's message.
pub const EXCERPT_CHARS: usize = 500;

/// Returns at most [`EXCERPT_CHARS`] characters of `text`, without credentials and control
/// characters.
pub fn excerpt(text: &str) -> String {
    let mut end = text.len();
    // Search more than is returned, so that a key across the cut is seen completely.
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

/// Returns `text` with `[redacted]` in place of each credential of a known format.
pub fn secrets_out(text: &str) -> String {
    KnownKeys::default().out_of_text(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_redacted_and_words_kept() {
        for (text, want) in [
            (
                "Incorrect API key provided: sk-abcdef1234567890. Go on.",
                "Incorrect API key provided: [redacted]. Go on.",
            ),
            ("Authorization: Bearer abc.def-ghi123", "Authorization: Bearer [redacted]"),
            ("key=AIzaSyD-1234567890abcdefghijklmnopqrstu, x", "key=[redacted], x"),
            ("token ya29.a0AfH6SMBx-_y-0123456789 expired", "token [redacted] expired"),
            ("x-amz-security-token:FwoG/a+b9==\n\nhost", "x-amz-security-token:[redacted]\n\nhost"),
            (
                "host;x-amz-security-token, Signature=0123456789abcdef",
                "host;x-amz-security-token, Signature=[redacted]",
            ),
            ("the signature we calculated", "the signature we calculated"),
            (
                "a risk-free sk- prompt, as xai-responses",
                "a risk-free sk- prompt, as xai-responses",
            ),
        ] {
            assert_eq!(secrets_out(text), want);
            assert_eq!(secrets_out(want), want);
        }
        assert!(excerpt(&"é".repeat(5000)).chars().count() <= EXCERPT_CHARS);
        assert!(!excerpt(&format!("{} sk-{}", "x".repeat(490), "y1".repeat(20))).contains("y1y"));
    }
}
