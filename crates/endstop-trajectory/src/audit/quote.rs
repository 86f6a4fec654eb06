//! What was said, in short: on one line, without what looks like a key.
//!
//! ```ignore
//! let quote = short("All tests pass.\nThe key is sk-abcdef1234567890", 60);
//! assert_eq!(quote, "All tests pass. The key is [redacted]");
//! ```

use endstop_wire::redact::secrets_out;

/// At most `most` characters of a text, on one line.
pub(super) fn short(text: &str, most: usize) -> String {
    // More than is kept is looked at, so that a key on the edge is seen whole.
    let end = text.char_indices().nth(most * 4 + 400).map_or(text.len(), |(at, _)| at);
    let words: Vec<&str> = text[..end].split_whitespace().collect();
    let clean = secrets_out(&words.join(" "));
    if end == text.len() && clean.chars().count() <= most {
        return clean;
    }
    let kept: String = clean.chars().take(most.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// A call as a person reads it: the tool, and its arguments in short.
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
    fn a_quote_is_short_on_one_line_and_without_a_key() {
        let text = "All tests pass.\n\n The key is sk-abcdef1234567890";
        assert_eq!(short(text, 60), "All tests pass. The key is [redacted]");
        assert_eq!(short("one two three", 8), "one two…");
        // The key is seen whole although only its beginning would be kept.
        let edge = format!("{} sk-abcdef1234567890", "x".repeat(20));
        assert!(!short(&edge, 26).contains("sk-a"), "{}", short(&edge, 26));
        assert_eq!(call("Bash", r#"{"command":"ls  -l"}"#, 40), "Bash(ls -l)");
        assert_eq!(call("Read", r#"{"path":"a"}"#, 40), r#"Read({"path":"a"})"#);
    }
}
