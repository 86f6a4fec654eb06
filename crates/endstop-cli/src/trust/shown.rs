//! Text of a file that somebody else wrote, as it is shown to a person before they decide.
//!
//! ```ignore
//! assert_eq!(shown("ls\u{202e}\n"), "ls\\u{202e}\\n");
//! ```

use std::fmt::Write;

/// The text on one line, with an escape in the place of each character that a terminal obeys or
/// that shows nothing: controls, line ends, marks of direction, blanks of other widths, fillers.
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

/// Whether a character is invisible, or moves what stands next to it.
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
