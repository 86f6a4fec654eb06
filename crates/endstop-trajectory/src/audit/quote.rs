//! Shortens recorded text to one line and redacts secrets.
//!
//! ```text
//! let quote = short("All tests pass.\nThe key is sk-abcdef1234567890", 60);
//! assert_eq!(quote, "All tests pass. The key is [redacted]");
//! ```

use endstop_wire::redact::secrets_out;

/// Shortens a text to at most `most` characters on one line.
pub(super) fn short(text: &str, most: usize) -> String {
    // More text than needed is scanned, so that a secret at the cut is still recognised as a whole.
    let end = text.char_indices().nth(most * 4 + 400).map_or(text.len(), |(at, _)| at);
    let words: Vec<&str> = text[..end].split_whitespace().collect();
    let clean = secrets_out(&words.join(" "));
    if end == text.len() && clean.chars().count() <= most {
        return clean;
    }
    let kept: String = clean.chars().take(most.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// Formats a call for the user: the tool and its shortened arguments.
pub(super) fn call(name: &str, arguments: &str, most: usize) -> String {
    let shown = match super::command::line(arguments) {
        Some(line) => short(&line, most),
        None => short(arguments, most),
    };
    format!("{}({shown})", short(name, 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quote_is_short_and_redacted() {
        let text = "All tests pass.\n\n The key is sk-abcdef1234567890";
        assert_eq!(short(text, 60), "All tests pass. The key is [redacted]");
        assert_eq!(short("one two three", 8), "one two…");
        // The secret is redacted although only its beginning would be shown.
        let edge = format!("{} sk-abcdef1234567890", "x".repeat(20));
        assert!(!short(&edge, 26).contains("sk-a"), "{}", short(&edge, 26));
        assert_eq!(call("Bash", r#"{"command":"ls  -l"}"#, 40), "Bash(ls -l)");
        assert_eq!(call("Read", r#"{"path":"a"}"#, 40), r#"Read({"path":"a"})"#);
    }
}
