//! Makes characters visible that a terminal would obey, hide or overdraw: control characters,
//! characters that change the text direction, and characters without a shape.
//!
//! Text of a model, a tool, a file or a server passes through this module before it is shown.
//!
//! ```text
//! "a\u{202e}b\u{7}"  is shown as  a<U+202E>b␇
//! ```

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, HirKind};
use std::fmt::Write as _;
use std::sync::OnceLock;

/// Characters that have no shape or change how others are shown: control, format, private-use and
/// separator characters, variation selectors, fillers, noncharacters.
const INVISIBLE: [&str; 2] = [
    r"[\p{C}\p{Zl}\p{Zp}\p{Variation_Selector}\u{2800}--\p{Cn}]",
    r"[\p{Default_Ignorable_Code_Point}\p{Noncharacter_Code_Point}]",
];

/// Blanks other than the space, and unassigned characters.
const ODD: [&str; 1] = [r"[\p{Zs}\p{Cn}--\u{20}]"];

/// Combining marks, which are drawn over the character before them.
const MARKS: [&str; 1] = [r"\p{M}"];

/// Maximum number of marks on one character, enough for every language. More would be drawn over
/// the lines above and below.
const MOST_MARKS: usize = 4;

/// A set of characters.
struct Set(ClassUnicode);

impl Set {
    fn of(patterns: &[&str]) -> Set {
        let mut set = ClassUnicode::empty();
        for pattern in patterns {
            match regex_syntax::parse(pattern).map(regex_syntax::hir::Hir::into_kind) {
                Ok(HirKind::Class(Class::Unicode(class))) => set.union(&class),
                // The patterns above are classes. If one were not, everything but ASCII would be
                // shown as a number, which is safe.
                _ => set.push(ClassUnicodeRange::new('\u{80}', char::MAX)),
            }
        }
        Set(set)
    }

    fn has(&self, c: char) -> bool {
        // The ranges are sorted and do not overlap, so a binary search finds the only candidate.
        let ranges = self.0.ranges();
        let after = ranges.partition_point(|range| range.start() <= c);
        after > 0 && c <= ranges[after - 1].end()
    }
}

fn invisible(c: char) -> bool {
    static SET: OnceLock<Set> = OnceLock::new();
    SET.get_or_init(|| Set::of(&INVISIBLE)).has(c)
}

fn odd(c: char) -> bool {
    static SET: OnceLock<Set> = OnceLock::new();
    SET.get_or_init(|| Set::of(&ODD)).has(c)
}

/// Returns `true` if a character combines with the one before it.
pub fn is_mark(c: char) -> bool {
    static SET: OnceLock<Set> = OnceLock::new();
    // The comparison first, because it is cheap and rules out almost all text.
    c >= '\u{300}' && SET.get_or_init(|| Set::of(&MARKS)).has(c)
}

/// `true` if a character must be shown as a number in places where nothing may be hidden.
pub fn is_hidden(c: char) -> bool {
    match c {
        ' '..='~' => false,
        c => invisible(c) || odd(c),
    }
}

/// Returns the text with symbols for control characters, except line feed and tab, and with numbers
/// for other characters without a shape.
pub fn visible(text: &str) -> String {
    Flow::default().visible(text)
}

/// Returns at most `most` characters without blank lines, with control characters made visible.
pub fn shorten(text: &str, most: usize) -> String {
    let kept: String = text.chars().take(most).collect();
    let cut = if kept.len() < text.len() { "…" } else { "" };
    let lines: Vec<&str> = kept.lines().filter(|line| !line.trim().is_empty()).collect();
    visible(&format!("{}{cut}", lines.join("\n")))
}

/// The same conversion for text that arrives in chunks.
#[derive(Default)]
pub struct Flow {
    last: Option<char>,
    marks: usize,
}

impl Flow {
    /// Converts the next chunk.
    pub fn visible(&mut self, text: &str) -> String {
        let mut shown = String::with_capacity(text.len());
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            // CR LF is an ordinary line end; a CR alone would let the rest overwrite the line.
            if c == '\r' && chars.peek() == Some(&'\n') {
                continue;
            }
            self.marks = if is_mark(c) { self.marks + 1 } else { 0 };
            match c {
                '\n' | '\t' | ' '..='~' => shown.push(c),
                '\u{7f}' => shown.push('␡'),
                '\0'..'\u{20}' => {
                    shown.push(char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'));
                }
                c if (!invisible(c) || self.joins(c)) && self.marks <= MOST_MARKS => shown.push(c),
                // Writing to a `String` cannot fail.
                c => drop(write!(shown, "<U+{:04X}>", u32::from(c))),
            }
            self.last = Some(c);
        }
        shown
    }

    /// `true` if an invisible character belongs to the one before it, as in emoji and in scripts
    /// with joined letters. This is never so after ASCII.
    fn joins(&self, c: char) -> bool {
        matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe0e}' | '\u{fe0f}')
            && self.last.is_some_and(|last| !last.is_ascii() && !is_hidden(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_without_shape_are_numbered() {
        for c in [
            '\u{80}',
            '\u{9b}',
            '\u{ad}',
            '\u{34f}',
            '\u{61c}',
            '\u{115f}',
            '\u{180e}',
            '\u{200b}',
            '\u{200d}',
            '\u{200e}',
            '\u{2028}',
            '\u{2029}',
            '\u{202e}',
            '\u{2060}',
            '\u{2066}',
            '\u{2800}',
            '\u{3164}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{ffa0}',
            '\u{fff9}',
            '\u{e000}',
            '\u{e0041}',
            '\u{e01ef}',
            '\u{10ffff}',
        ] {
            let shown = format!("a<U+{:04X}>b", u32::from(c));
            assert_eq!(visible(&format!("a{c}b")), shown);
            assert!(is_hidden(c), "{c:?}");
        }
        for c in ['\u{a0}', '\u{2003}', '\u{3000}', '\u{1680}'] {
            assert!(is_hidden(c), "{c:?}");
        }
    }

    #[test]
    fn text_of_any_language_stays() {
        for text in [
            "naïve e\u{301}",
            "مى\u{200c}خواهم",
            "👩\u{200d}💻 ❤\u{fe0f}",
            "漢字\u{3000}かな",
            "ไทยที่นี้",
        ] {
            assert_eq!(visible(text), text);
        }
        let mut flow = Flow::default();
        assert_eq!(flow.visible("👩") + &flow.visible("\u{200d}💻"), "👩\u{200d}💻");
    }

    #[test]
    fn piled_marks_are_numbered() {
        let piled = format!("a{}", "\u{301}".repeat(50));
        assert_eq!(visible(&piled).matches("<U+0301>").count(), 46);
    }

    #[test]
    fn shortened_text_has_no_control_characters() {
        assert_eq!(shorten("\x1b[2Jgone\r\nand\x07\u{9b}1m", 99), "␛[2Jgone\nand␇<U+009B>1m");
        assert_eq!(shorten("a\tb\n\nc", 3), "a\tb…");
    }
}
