//! Formats a call as terminal rows: the parsed arguments, escaped, wrapped and shortened to fit.

use crate::output;
use crate::visible::{is_hidden, is_mark, visible};
use endstop::ToolCall;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fmt::{self, Write as _};

/// Maximum number of consecutive blanks that are shown as blanks, because more could push text out
/// of sight.
const MOST_BLANKS: usize = 16;

/// Maximum number of combining marks (accents, vowels) on a character that are shown as such,
/// because stacked marks can cover other rows.
const MOST_MARKS: usize = 2;

/// Maximum number of notes about duplicate keys.
const MOST_NOTES: usize = 3;

/// Minimum number of rows of a long argument in a small terminal: its first row, the number of
/// omitted rows, and its last row.
const LEAST_ROWS: usize = 3;

/// Maximum number of rows by which a small terminal may scroll, so that each argument is visible.
const MOST_SCROLLED: usize = 15;

/// A call, prepared for display.
pub(super) struct Shown {
    title: String,
    /// The lines of each argument before wrapping.
    arguments: Vec<Vec<String>>,
    notes: Vec<String>,
}

/// The rows that fit the terminal.
pub(super) struct Fitting {
    pub(super) text: String,
    /// `true` if rows were omitted.
    pub(super) cut: bool,
}

impl Shown {
    pub(super) fn of(call: &ToolCall) -> Shown {
        let name = visible(&call.name).replace(['\n', '\t'], " ");
        let (arguments, mut notes) = match call.parsed_arguments() {
            Ok(arguments) => (lines_of(&arguments), given_twice(&call.arguments)),
            // The kernel refuses a call with invalid arguments before it asks, so this is only a
            // fallback.
            Err(_) => (vec![vec![quote_key(&call.arguments)]], Vec::new()),
        };
        if notes.len() > MOST_NOTES {
            let more = notes.len() - MOST_NOTES;
            notes.truncate(MOST_NOTES);
            notes.push(format!("! … and {more} more duplicate keys"));
        }
        let without = if arguments.is_empty() { ", without arguments" } else { "" };
        Shown { title: format!("? The model asks to run `{name}`{without}:"), arguments, notes }
    }

    /// Returns all rows.
    pub(super) fn rows(&self, width: usize) -> Vec<String> {
        self.wrapped(width).into_iter().flatten().collect()
    }

    fn wrapped(&self, width: usize) -> Vec<Vec<String>> {
        let wrap = |lines: &Vec<String>| lines.iter().flat_map(|line| wrap(line, width)).collect();
        self.arguments.iter().map(wrap).collect()
    }

    /// Returns as many rows as the terminal holds together with the question. Of an argument that
    /// is too long, the beginning and the end are shown, so that no argument hides another.
    pub(super) fn fitting(&self, width: usize, height: usize) -> Fitting {
        let notes: Vec<String> = self.notes.iter().map(|note| cut_to(note, width)).collect();
        // Four rows: the title, the question, which may wrap once, and the cursor's row.
        let mut room = height.saturating_sub(4 + notes.len()).max(6);
        let mut arguments = self.wrapped(width);
        let least: usize = arguments.iter().map(|rows| rows.len().min(LEAST_ROWS)).sum();
        if least <= room.max(MOST_SCROLLED) {
            room = room.max(least);
        } else {
            // Too many arguments for a part of each: they are shown as one text, beginning and end.
            arguments = vec![arguments.concat()];
        }
        let total: usize = arguments.iter().map(Vec::len).sum();
        let cut = total > room;
        let mut text = format!("{}\n", cut_to(&self.title, width));
        let shares = shares(&arguments.iter().map(Vec::len).collect::<Vec<_>>(), room);
        for (rows, share) in arguments.iter().zip(shares) {
            let left_out = if rows.len() > share { rows.len() + 1 - share } else { 0 };
            let shown = rows.len() - left_out;
            let head = if left_out == 0 { shown } else { shown.div_ceil(2) };
            for row in &rows[..head] {
                let _ = writeln!(text, "{row}");
            }
            if left_out > 0 {
                let _ = writeln!(text, "… {left_out} more rows; v shows them");
                for row in &rows[head + left_out..] {
                    let _ = writeln!(text, "{row}");
                }
            }
        }
        for note in notes {
            let _ = writeln!(text, "{note}");
        }
        Fitting { text, cut }
    }
}

/// Divides the rows among the arguments: short ones get all their rows, and long ones share the
/// rest equally.
fn shares(lengths: &[usize], mut room: usize) -> Vec<usize> {
    // Shortest first, so that the rows that short arguments do not use go to the long ones.
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|at| lengths[*at]);
    let mut shares = vec![0; lengths.len()];
    for (done, at) in order.iter().enumerate() {
        let share = (room / (lengths.len() - done)).max(LEAST_ROWS).min(lengths[*at]);
        shares[*at] = share;
        room = room.saturating_sub(share);
    }
    shares
}

fn lines_of(arguments: &Map<String, Value>) -> Vec<Vec<String>> {
    let last = arguments.len();
    let line = |(at, (key, value)): (usize, (&String, &Value))| {
        let mut lines = vec![format!("{}: ", quote_key(key))];
        print(value, 0, &mut lines);
        if at + 1 < last
            && let Some(line) = lines.last_mut()
        {
            line.push(',');
        }
        lines
    };
    arguments.iter().enumerate().map(line).collect()
}

/// Prints a value at the end of the last line, and over more lines if it has members. The recursion
/// is safe because the parser bounded the depth.
fn print(value: &Value, indent: usize, lines: &mut Vec<String>) {
    let push = |text: &str, lines: &mut Vec<String>| match lines.last_mut() {
        Some(line) => line.push_str(text),
        None => lines.push(text.to_owned()),
    };
    let inner = " ".repeat(indent + 2);
    let parts: Vec<(String, &Value)> = match value {
        Value::String(text) => {
            // Each line of the string starts a new row.
            let quoted = quote(&output::hidden(text));
            let mut pieces = quoted.split(LINE_END);
            push(pieces.next().unwrap_or_default(), lines);
            lines.extend(pieces.map(|piece| format!("{inner}{piece}")));
            return;
        }
        Value::Array(items) => items.iter().map(|item| (String::new(), item)).collect(),
        Value::Object(map) => {
            map.iter().map(|(key, value)| (quote_key(key) + ": ", value)).collect()
        }
        plain => return push(&plain.to_string(), lines),
    };
    let (open, close) = if value.is_array() { ("[", "]") } else { ("{", "}") };
    push(open, lines);
    let last = parts.len();
    for (at, (key, value)) in parts.into_iter().enumerate() {
        lines.push(format!("{inner}{key}"));
        print(value, indent + 2, lines);
        if at + 1 < last {
            push(",", lines);
        }
    }
    if last > 0 {
        lines.push(" ".repeat(indent));
    }
    push(close, lines);
}

/// Marks the places in a quoted string at which a row may end, after the escape of a line end. A
/// quoted string contains no other such character, because `quote` escapes them.
const LINE_END: char = '\n';

/// Quotes a key as JSON on one line.
fn quote_key(key: &str) -> String {
    quote(key).replace(LINE_END, "")
}

/// Quotes a string as JSON, with escapes for all characters without a visible shape, and with a
/// [`LINE_END`] after each line.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    let (mut marks, mut blanks) = (0, 0);
    let end_blanks = |blanks: &mut usize, quoted: &mut String| {
        match *blanks {
            few @ 0..=MOST_BLANKS => quoted.extend(std::iter::repeat_n(' ', few)),
            // Writing to a `String` cannot fail.
            many => drop(write!(quoted, "\\u0020×{many} ")),
        }
        *blanks = 0;
    };
    for c in text.chars() {
        if c == ' ' {
            blanks += 1;
            marks = 0;
            continue;
        }
        end_blanks(&mut blanks, &mut quoted);
        marks = if is_mark(c) { marks + 1 } else { 0 };
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.extend(['\\', 'n', LINE_END]),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if is_hidden(c) || marks > MOST_MARKS => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(quoted, "\\u{unit:04x}");
                }
            }
            c => quoted.push(c),
        }
    }
    end_blanks(&mut blanks, &mut quoted);
    if quoted.ends_with(LINE_END) {
        quoted.pop();
    }
    quoted.push('"');
    quoted
}

/// Returns the columns that a character may take. Terminals disagree on non-ASCII characters, but
/// none uses more than two.
fn columns(c: char) -> usize {
    if c.is_ascii() { 1 } else { 2 }
}

/// Wraps a line into rows that fit, each with the `│ ` mark of the call.
fn wrap(line: &str, width: usize) -> Vec<String> {
    let room = width.saturating_sub(4).max(8);
    let mut rows = vec![String::from("│ ")];
    let mut filled = 0;
    for c in line.chars() {
        if filled + columns(c) > room {
            rows.push(String::from("│ "));
            filled = 0;
        }
        filled += columns(c);
        if let Some(row) = rows.last_mut() {
            row.push(c);
        }
    }
    rows
}

/// Shortens a row of the prompt itself to the width.
fn cut_to(row: &str, width: usize) -> String {
    let mut filled = 0;
    let fits = |c: &char| {
        filled += columns(*c);
        filled < width.max(20)
    };
    let mut kept: String = row.chars().take_while(fits).collect();
    if kept.len() < row.len() {
        kept.pop();
        kept.push('…');
    }
    kept
}

/// Returns a note for each duplicate key of an object. Parsers use the last value, and a reader may
/// not expect that.
fn given_twice(arguments: &str) -> Vec<String> {
    let mut notes = Vec::new();
    find_twice(arguments, &mut notes);
    notes
}

fn find_twice(json: &str, notes: &mut Vec<String>) {
    match json.trim_start().bytes().next() {
        Some(b'{') => {
            let Ok(Pairs(pairs)) = serde_json::from_str(json) else { return };
            let last: HashMap<&str, usize> =
                pairs.iter().enumerate().map(|(at, (key, _))| (key.as_str(), at)).collect();
            for (at, (key, value)) in pairs.iter().enumerate() {
                if last.get(key.as_str()) == Some(&at) {
                    find_twice(value.get(), notes);
                } else {
                    let key = quote_key(key);
                    let value = visible(&output::hidden(value.get())).replace(['\n', '\t'], " ");
                    notes.push(format!("! duplicate key {key}: unused value {value}"));
                }
            }
        }
        Some(b'[') => {
            let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(json) else { return };
            for item in items {
                find_twice(item.get(), notes);
            }
        }
        _ => {}
    }
}

/// The pairs of an object, including those with duplicate keys, which a map would drop.
struct Pairs<'a>(Vec<(String, &'a RawValue)>);

impl<'de> serde::Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Pairs<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'de>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(arguments: &str) -> Shown {
        Shown::of(&ToolCall {
            id: "call_1".to_owned(),
            name: "shell".to_owned(),
            arguments: arguments.to_owned(),
        })
    }

    #[test]
    fn quote_escapes_hidden_characters() {
        let hidden = "a\u{202e}b\u{200d}c\u{a0}d\u{e0041}e\r\tf\u{7}g\u{9b}h\\u0020\"";
        let quoted = r#""a\u202eb\u200dc\u00a0d\udb40\udc41e\r\tf\u0007g\u009bh\\u0020\"""#;
        assert_eq!(quote_key(hidden), quoted);
        assert_eq!(serde_json::from_str::<String>(quoted).unwrap(), hidden, "it is JSON");
        assert_eq!(quote_key(&format!("a{}b", " ".repeat(300))), "\"a\\u0020×300 b\"");
        assert_eq!(quote_key("a\u{301}\u{302}\u{303}"), "\"a\u{301}\u{302}\\u0303\"");
    }

    #[test]
    fn call_rows_are_marked_and_fit() {
        let text = format!("{}\n? Run it?\n{}", "x".repeat(500), "漢".repeat(500));
        let call =
            shown(&serde_json::json!({"command": text, "k\ney": [1, {"a": {}}]}).to_string());
        for width in [1, 20, 80] {
            for row in call.rows(width) {
                let columns: usize = row.chars().skip(1).map(columns).sum();
                assert!(row.starts_with("│ ") && columns <= width.max(10), "{row}");
            }
        }
        assert_eq!(call.rows(80).last().unwrap(), "│ ]");
    }

    #[test]
    fn duplicate_key_is_noted_with_value() {
        let call = shown(r#"{"command": "ls", "x": [{"a": 1, "a": 2}], "command": "rm -r ."}"#);
        assert_eq!(call.rows(80)[0], "│ \"command\": \"rm -r .\",");
        let notes = [
            "! duplicate key \"command\": unused value \"ls\"",
            "! duplicate key \"a\": unused value 1",
        ];
        assert_eq!(call.notes, notes);
        assert!(call.fitting(80, 24).text.ends_with(&format!("{}\n{}\n", notes[0], notes[1])));
        assert!(shown(r#"{"a": {"b": 1}, "b": {"a": 1}}"#).notes.is_empty());
    }

    #[test]
    fn long_argument_hides_no_other() {
        let long = "x\n".repeat(1000);
        let arguments = serde_json::json!({"a": long, "command": "rm -r .", "b": long});
        let call = shown(&arguments.to_string());
        for height in [0, 10, 24, 50] {
            let fitting = call.fitting(80, height);
            assert!(
                fitting.cut && fitting.text.contains("\"command\": \"rm -r .\""),
                "{}",
                fitting.text
            );
            assert!(fitting.text.lines().count() <= height.max(14), "{}", fitting.text);
        }
        assert!(!call.fitting(80, 5000).cut);
    }
}
