//! Escapes text of a third-party file before it is shown to the user for a decision.

use std::fmt::Write;

/// Returns the text on one line, with an escape for each character that a terminal obeys or that is
/// invisible: controls, line ends, direction marks, unusual blanks, fillers.
///
/// ```text
/// "ls\u{202e}
/// "  is shown as  ls\u{202e}
///
/// ```
pub(crate) fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if hides(c) => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

/// `true` if a character is invisible or changes the order of the text around it.
fn hides(c: char) -> bool {
    c.is_control()
        || (c.is_whitespace() && c != ' ')
        || matches!(u32::from(c),
            0xad | 0x34f | 0x61c | 0x115f | 0x1160 | 0x17b4 | 0x17b5
            | 0x180b..=0x180f | 0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x206f | 0x2800
            | 0x3164 | 0xfe00..=0xfe0f | 0xfeff | 0xffa0 | 0xfff0..=0xfffb
            | 0x1d173..=0x1d17a | 0xe0000..=0xe0fff)
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn hidden_characters_are_shown_escaped() {
        assert_eq!(shown("a\u{1b}[2J\nb\u{9b}c"), "a\\u{1b}[2J\\nb\\u{9b}c");
        assert_eq!(shown("x\u{202e}y\u{200b}z\u{2066}"), "x\\u{202e}y\\u{200b}z\\u{2066}");
        assert_eq!(shown("a\u{a0}b\u{feff}\u{e0041}"), "a\\u{a0}b\\u{feff}\\u{e0041}");
        assert_eq!(shown("größe 大 ls -l"), "größe 大 ls -l");
    }
}
