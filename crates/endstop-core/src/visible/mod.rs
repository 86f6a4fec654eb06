//! The visible part of a text of the model: everything but the reasoning at its start.
//!
//! A server of a reasoning model should remove the reasoning from the text, or send it apart. Many do
//! not, and then the text begins with it, between tags. Whatever asks about a text (is it blank, does
//! it hold a call, does it satisfy the schema, does it declare an answer) asks about the visible part.
//!
//! ```
//! use endstop_core::visible_text;
//! assert_eq!(visible_text("<think>Two and two.</think>\n\nFour."), "Four.");
//! // The template of the prompt has opened the tag, so the text only closes it.
//! assert_eq!(visible_text("Two and two.\n</think>\n\nFour."), "Four.");
//! assert_eq!(visible_text("<think>Two and two, so"), "");
//! assert_eq!(visible_text("The tag `</think>` ends it."), "The tag `</think>` ends it.");
//! ```

pub(crate) mod markdown;

use crate::visible::markdown::outside_code;
use serde_json::Value;

/// `true` if a reader sees nothing of a text: it has only blanks, control characters, and characters that have no
/// width or no ink, such as a byte order mark or a zero-width space.
///
/// ```
/// use endstop_core::is_blank;
/// assert!(is_blank(" \n\u{200B}\u{FEFF}"));
/// assert!(!is_blank("."));
/// ```
pub fn is_blank(text: &str) -> bool {
    text.chars().all(|c| is_invisible(c) || c.is_control())
}

/// `true` if a value is `null` or a blank text.
pub(crate) fn is_blank_value(value: &Value) -> bool {
    value.is_null() || value.as_str().is_some_and(is_blank)
}

/// The characters that Unicode calls default-ignorable (`Default_Ignorable_Code_Point` of version 16), and the others
/// without ink.
fn is_invisible(c: char) -> bool {
    c.is_whitespace()
        || matches!(c,
            '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{115F}'..='\u{1160}' | '\u{17B4}'..='\u{17B5}'
            | '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}' | '\u{2800}' | '\u{3164}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}'
            | '\u{FFA0}' | '\u{FFF0}'..='\u{FFFB}' | '\u{1BCA0}'..='\u{1BCA3}'
            | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E0FFF}')
}

fn trim_start(text: &str) -> &str {
    text.trim_start_matches(is_invisible)
}

/// The tags around reasoning.
#[derive(Debug, PartialEq, Eq)]
struct Tag {
    open: &'static str,
    close: &'static str,
    /// The closing tag means nothing but the end of reasoning, even without the opening tag.
    unique: bool,
}

const TAGS: &[Tag] = &[
    Tag { open: "<think>", close: "</think>", unique: true },
    Tag { open: "<thinking>", close: "</thinking>", unique: true },
    Tag { open: "<thought>", close: "</thought>", unique: true },
    Tag { open: "<reasoning>", close: "</reasoning>", unique: true },
    Tag { open: "<seed:think>", close: "</seed:think>", unique: true },
    Tag { open: "[THINK]", close: "[/THINK]", unique: true },
    Tag { open: "<|begin_of_thought|>", close: "<|end_of_thought|>", unique: true },
    Tag { open: "<|START_THINKING|>", close: "<|END_THINKING|>", unique: true },
    Tag { open: "<|channel|>analysis<|message|>", close: "<|end|>", unique: false },
];

/// Marks that introduce the answer after reasoning, in the format of gpt-oss.
const HEADERS: &[&str] =
    &["<|start|>assistant", "<|channel|>final<|message|>", "<|START_RESPONSE|>"];

/// Returns the visible part of a complete text. It is empty if the text ends inside its reasoning.
///
/// Reasoning is what stands at the start of the text between its tags, or before a closing tag that
/// was never opened. Tags in code are text. A text without reasoning is returned unchanged; after
/// reasoning, the blanks before the visible text are removed.
pub fn visible_text(text: &str) -> &str {
    read_whole(text).0
}

/// Returns the opening tag of the reasoning that a text never closes.
pub(crate) fn unclosed_reasoning(text: &str) -> Option<&'static str> {
    read_whole(text).1
}

/// Number of blocks of reasoning without an opening tag that are looked for. Each needs a search of the whole
/// text.
const MOST_NEVER_OPENED: usize = 8;

/// Returns the visible part of a complete text, and the opening tag of reasoning that it never closes.
fn read_whole(text: &str) -> (&str, Option<&'static str>) {
    let mut rest = text;
    for _ in 0..MOST_NEVER_OPENED {
        let mut opening = Opening::default();
        let visible = opening.read(rest);
        if let Some(tag) = opening.inside {
            // The only closing tag may be one that the reasoning quotes.
            let Some(end) = find(&rest[opening.begun..], tag.close) else {
                return ("", Some(tag.open));
            };
            rest = trim_start(&rest[opening.begun + end + tag.close.len()..]);
            continue;
        }
        // A part of a tag is text.
        rest = match opening.read {
            0 => rest,
            read if visible.is_empty() => trim_start(&rest[read..]),
            _ => visible,
        };
        match never_opened(rest) {
            Some(end) => rest = trim_start(&rest[end..]),
            None => break,
        }
    }
    (rest, None)
}

/// Appends a part of a continued answer to the parts before it, without its own reasoning.
pub(crate) fn append_piece(answer: &mut String, piece: &str) {
    // The piece may close the reasoning, so both are needed to read it.
    let continues = answer.is_empty() || unclosed_reasoning(answer).is_some();
    answer.push_str(if continues { piece } else { visible_text(piece) });
}

/// Finds the beginning of the visible text in a text that grows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Opening {
    /// Number of bytes that are not visible.
    read: usize,
    /// The tags of the reasoning that is being read, and where it begins.
    inside: Option<&'static Tag>,
    begun: usize,
    /// Everything from `read` on is visible.
    found: bool,
}

impl Opening {
    /// Returns the reader of a piece that continues `before`, which may have ended inside reasoning.
    pub(crate) fn after(before: &str) -> Opening {
        let mut opening = Opening::default();
        opening.read(before);
        Opening { inside: opening.inside, ..Opening::default() }
    }

    /// `true` if the text that was read ends inside reasoning.
    pub(crate) fn reasons(&self) -> bool {
        self.inside.is_some()
    }

    /// Returns the part that is known to be visible. `text` begins with the text of the last call. Of a closing
    /// tag that was never opened it knows nothing, because only later text has it.
    pub(crate) fn read<'a>(&mut self, text: &'a str) -> &'a str {
        while !self.found {
            let rest = &text[self.read..];
            if let Some(tag) = self.inside {
                let end = match find_closing(rest, tag.close) {
                    Ok(end) => end,
                    Err(searched) => {
                        self.read += searched;
                        return "";
                    }
                };
                self.read += end;
                self.inside = None;
                continue;
            }
            let trimmed = trim_start(rest);
            let at = text.len() - trimmed.len();
            let marks = TAGS.iter().map(|tag| (tag.open, Some(tag)));
            let marks = marks.chain(HEADERS.iter().map(|header| (*header, None)));
            let Some((mark, tag)) = marks.clone().find(|(mark, _)| begins_with(trimmed, mark))
            else {
                // Later text may complete a mark.
                if marks.clone().any(|(mark, _)| begins_with(mark, trimmed)) {
                    return "";
                }
                self.found = true;
                if self.read > 0 {
                    self.read = at;
                }
                break;
            };
            self.read = at + mark.len();
            self.inside = tag;
            self.begun = self.read;
        }
        &text[self.read..]
    }
}

/// Returns the end of the first closing tag that the reasoning does not quote, or else the number of
/// bytes that need not be searched again if more text follows.
fn find_closing(text: &str, close: &str) -> Result<usize, usize> {
    let mut from = 0;
    while let Some(at) = find(&text[from..], close) {
        let end = from + at + close.len();
        if !text[..from + at].ends_with(['`', '"', '\'']) {
            return Ok(end);
        }
        from = end;
    }
    // The beginning of a tag may be at the end, and before it the character that quotes it.
    let tail = text.len().saturating_sub(close.len());
    Err((from..=tail).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(from))
}

/// Returns the end of reasoning whose opening tag the prompt's template has swallowed.
fn never_opened(text: &str) -> Option<usize> {
    let unique = || TAGS.iter().filter(|tag| tag.unique);
    unique().find(|tag| find(text, tag.close).is_some())?;
    let marks = outside_code(text, |rest| {
        unique().find_map(|tag| match () {
            () if begins_with(rest, tag.close) => Some(Some(tag.close.len())),
            () if begins_with(rest, tag.open) => Some(None),
            () => None,
        })
    });
    let (at, length) = marks.first()?;
    let end = at + (*length)?;
    // A sentence about the tag continues after it. The answer begins on another line, or at once.
    let line = text[end..].lines().next().unwrap_or_default();
    let begins = |c: char| c.is_alphanumeric() || matches!(c, '{' | '[' | '<' | '#');
    (is_blank(line) || line.starts_with("```") || line.starts_with(begins)).then_some(end)
}

/// `true` if the text begins with this mark of ASCII characters, in any case.
fn begins_with(text: &str, mark: &str) -> bool {
    let start = text.as_bytes().get(..mark.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(mark.as_bytes()))
}

/// Returns the place of a mark of ASCII characters, in any case.
fn find(text: &str, mark: &str) -> Option<usize> {
    let first = char::from(mark.as_bytes()[0]);
    text.match_indices(first).map(|(at, _)| at).find(|at| begins_with(&text[*at..], mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts, and their visible parts.
    const TEXTS: &[(&str, &str)] = &[
        ("", ""),
        ("Four.", "Four."),
        ("  Four.", "  Four."),
        ("<think>a</think>Four.", "Four."),
        ("\u{FEFF}<think>a</think>\u{200B}Four.", "Four."),
        ("\n<think>\na\n</think>\n\nFour.", "Four."),
        ("<think></think>\n\n{\"a\": 1}", "{\"a\": 1}"),
        ("<THINK>a</Think> Four.", "Four."),
        ("<think>a</think><think>b</think>Four.", "Four."),
        ("<thinking>a</thinking>\nFour.", "Four."),
        ("[THINK]a[/THINK]Four.", "Four."),
        ("<|begin_of_thought|>a<|end_of_thought|>Four.", "Four."),
        ("<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>Four.", "Four."),
        (
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>Four.",
            "Four.",
        ),
        ("<think>The tag `</think>` ends it.</think>Four.", "Four."),
        ("<think>only \"</think>\" is here", "\" is here"),
        ("<think>never closed", ""),
        ("<think>a</think>", ""),
        ("<think>a</think>\n <think>b", ""),
        ("<thi", "<thi"),
        ("<think>a</think><thi", "<thi"),
        // The opening tag was in the prompt.
        ("a\n</think>\n\nFour.", "Four."),
        ("a</think><think>b", ""),
        ("a\n</think>\nb\n</think>\nFour.", "Four."),
        ("<think>a<think>b</think>c</think>Four.", "Four."),
        ("a</think>Four.", "Four."),
        ("a </think>{\"a\": 1}", "{\"a\": 1}"),
        ("I should call ls.</think>", ""),
        ("</think>\n\nFour.", "Four."),
        ("`<think>` is opened by the prompt.\n</think>\nFour.", "Four."),
        // Texts about the tags.
        ("The tag </think> closes it.", "The tag </think> closes it."),
        ("It ends with </think>.", "It ends with </think>."),
        ("Write `</think>`\nthen the answer.", "Write `</think>`\nthen the answer."),
        ("```\na\n</think>\n\nFour.\n```", "```\na\n</think>\n\nFour.\n```"),
        ("`<think>` opens it.", "`<think>` opens it."),
        ("So: <think>a</think> Four.", "So: <think>a</think> Four."),
        ("a < b", "a < b"),
    ];

    #[test]
    fn text_without_ink_is_blank() {
        for text in [
            "",
            " \t\r\n",
            "\u{A0}\u{3000}\u{2028}",
            "\u{200B}",
            "\u{FEFF}\0\u{1b}",
            "\u{AD}\u{E0041}",
        ] {
            assert!(is_blank(text), "{text:?}");
            assert_eq!(
                trim_start(&format!("{}4", text.replace(char::is_control, ""))),
                "4",
                "{text:?}"
            );
        }
        // A joiner or a variation of a character that has ink.
        for text in [
            ".",
            "0",
            "\u{FFFD}",
            "\u{1F468}\u{200D}\u{1F469}",
            "\u{2764}\u{FE0F}",
            "\u{301}",
            "\u{200B}a",
        ] {
            assert!(!is_blank(text), "{text:?}");
        }
    }

    #[test]
    fn reasoning_is_not_visible() {
        for (text, visible) in TEXTS {
            assert_eq!(visible_text(text), *visible, "{text:?}");
            assert_eq!(visible_text(visible), *visible, "{text:?}");
        }
    }

    /// What is read of a stream is a beginning of what is read of the whole text, however it is cut, unless only its
    /// end shows what it is.
    #[test]
    fn streamed_text_is_read_like_the_whole() {
        for (text, visible) in TEXTS {
            let mut opening = Opening::default();
            for (end, _) in text.char_indices().chain([(text.len(), ' ')]) {
                let read = opening.read(&text[..end]);
                let shown = Opening::default().read(text);
                let known = visible.starts_with(read) || never_opened(shown).is_some();
                assert!(known, "{text:?} up to {end}: {read:?}");
            }
        }
    }

    #[test]
    fn pieces_are_read_as_one_answer() {
        for (pieces, visible) in [
            (&["The answer", " is 4."][..], "The answer is 4."),
            (&["<think>a</think>The answer", "<think>b</think> is 4."], "The answeris 4."),
            (&["<think>a", "b</think>The answer", " is 4."], "The answer is 4."),
            (&["<think>a", "b"], ""),
            (&["", "4."], "4."),
        ] {
            let mut answer = String::new();
            for piece in pieces {
                append_piece(&mut answer, piece);
            }
            assert_eq!(visible_text(&answer), visible, "{pieces:?}");
        }
    }
}
