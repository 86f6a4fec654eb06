//! Joins the halves of a surrogate pair that a server cut over two events.
//!
//! ```text
//! {"choices":[{"delta":{"content":"ok \ud83d"}}]}   → held, then "ok 😀"
//! {"choices":[{"delta":{"content":"\ude00 done"}}]} → " done"
//! ```
//!
//! Programs in JavaScript count text in halves of such characters, and some of them cut it between two. An event with a
//! string that ends in a first half is held until the next one, which may continue that string.

use std::borrow::Cow;
use std::ops::Range;

/// Names of the members that tell parallel parts of a response apart.
const POSITIONS: [&str; 4] = ["index", "output_index", "content_index", "contentBlockIndex"];

/// Bytes of an escape such as `\ud83d`.
const ESCAPE: usize = 6;

/// An event and its name.
pub(crate) struct Event<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) data: Cow<'a, str>,
}

/// Holds back an event of a stream while the next one may continue its strings.
#[derive(Default)]
pub(crate) struct Halves {
    held: Option<Event<'static>>,
}

impl Halves {
    /// `true` if an event is read as it is, which is the case for almost all.
    pub(crate) fn passes(&self, data: &str) -> bool {
        self.held.is_none() && !has_surrogate(data)
    }

    /// Takes an event, and returns the events to read now: the one that was held, and this one unless it is held.
    pub(crate) fn next<'a>(&mut self, name: &'a str, data: &'a str) -> [Option<Event<'a>>; 2] {
        let mut event = Event { name: name.into(), data: data.into() };
        let mut held = self.held.take();
        if let Some(held) = &mut held {
            if let Some((first, second)) = joined(&held.data, data) {
                (held.data, event.data) = (first.into(), second.into());
            }
        }
        if !ends_in_half(&event.data) {
            return [held, Some(event)];
        }
        let Event { name, data } = event;
        self.held = Some(Event { name: name.into_owned().into(), data: data.into_owned().into() });
        [held, None]
    }

    /// Returns the event that is held at the end of the stream.
    pub(crate) fn last(&mut self) -> Option<Event<'static>> {
        self.held.take()
    }
}

/// `true` if a string of the event ends in a first half.
fn ends_in_half(event: &str) -> bool {
    has_surrogate(event) && strings(event).iter().any(|string| string.first_half(event).is_some())
}

/// `true` if there is an escape of a surrogate.
fn has_surrogate(event: &str) -> bool {
    let bytes = event.as_bytes();
    let is_one = |at: usize| matches!(bytes.get(at + 1..at + 3), Some(b"ud" | b"uD"));
    memchr::memchr_iter(b'\\', bytes).any(is_one)
}

/// Moves second halves at the beginning of strings of the second event behind the first halves in the first one.
/// `None` if there are none.
fn joined(first: &str, second: &str) -> Option<(String, String)> {
    let next = strings(second);
    let (mut before, mut after) = (String::new(), String::new());
    let (mut from, mut to) = (0, 0);
    for string in strings(first) {
        if string.first_half(first).is_none() {
            continue;
        }
        let continues = |other: &&Text<'_>| other.name == string.name && other.at == string.at;
        // Each is moved once, and in the order of both events.
        let other = next.iter().filter(|other| other.content.start >= to).find(continues);
        let Some((half, start)) =
            other.and_then(|other| Some((other.second_half(second)?, other.content.start)))
        else {
            continue;
        };
        before.push_str(&first[from..string.content.end]);
        before.push_str(half);
        from = string.content.end;
        after.push_str(&second[to..start]);
        to = start + ESCAPE;
    }
    (from > 0).then(|| {
        before.push_str(&first[from..]);
        after.push_str(&second[to..]);
        (before, after)
    })
}

/// A string that is a value in an event.
struct Text<'a> {
    /// Name of the member.
    name: &'a str,
    /// The last value of each of [`POSITIONS`] in front of the string.
    at: [&'a str; POSITIONS.len()],
    /// The string without its quotes.
    content: Range<usize>,
}

impl Text<'_> {
    /// Returns the first half that the string ends in.
    fn first_half<'a>(&self, event: &'a str) -> Option<&'a str> {
        let string = &event[self.content.clone()];
        let at = string.len().checked_sub(ESCAPE)?;
        // A backslash may be escaped itself.
        let escaping = string.as_bytes()[..at].iter().rev().take_while(|byte| **byte == b'\\');
        let half = string.get(at..).filter(|half| is_unit(half, 0xd800..0xdc00));
        half.filter(|_| escaping.count() % 2 == 0)
    }

    /// Returns the second half that the string begins with.
    fn second_half<'a>(&self, event: &'a str) -> Option<&'a str> {
        event[self.content.clone()].get(..ESCAPE).filter(|half| is_unit(half, 0xdc00..0xe000))
    }
}

/// `true` if the escape is that of a code unit in this range.
fn is_unit(escape: &str, range: Range<u16>) -> bool {
    let unit = escape.strip_prefix("\\u").map(|digits| u16::from_str_radix(digits, 16));
    unit.is_some_and(|unit| unit.is_ok_and(|unit| range.contains(&unit)))
}

/// Returns the strings that are values in an event.
fn strings(event: &str) -> Vec<Text<'_>> {
    let bytes = event.as_bytes();
    let mut found = Vec::new();
    let (mut name, mut at) = ("", [""; POSITIONS.len()]);
    let mut from = 0;
    while let Some(open) = memchr::memchr(b'"', &bytes[from..]).map(|quote| from + quote) {
        if let Some(position) = POSITIONS.iter().position(|position| *position == name) {
            let number = event[from..open].trim_start_matches([':', ' ']);
            let digits = number.bytes().take_while(u8::is_ascii_digit).count();
            at[position] = &number[..digits];
            name = "";
        }
        let Some(close) = end_of_string(bytes, open + 1) else { break };
        from = close + 1;
        let content = open + 1..close;
        if event[from..].trim_start().starts_with(':') {
            name = &event[content];
        } else {
            found.push(Text { name, at, content });
        }
    }
    found
}

/// Returns the position of the quote that ends the string that begins here.
fn end_of_string(bytes: &[u8], mut from: usize) -> Option<usize> {
    loop {
        let found = from + memchr::memchr2(b'"', b'\\', bytes.get(from..)?)?;
        if bytes[found] == b'"' {
            return Some(found);
        }
        from = found + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the events in the order in which they are read.
    fn read(events: &[&str]) -> Vec<String> {
        let mut halves = Halves::default();
        let mut read = Vec::new();
        for event in events {
            read.extend(halves.next("", event).into_iter().flatten().map(|e| e.data.into_owned()));
        }
        read.extend(halves.last().map(|event| event.data.into_owned()));
        read
    }

    #[test]
    fn second_half_moves_to_its_first() {
        for (events, want) in [
            (
                &[r#"{"t":"a\ud83d"}"#, r#"{"t":"\ude00b"}"#][..],
                &[r#"{"t":"a\ud83d\ude00"}"#, r#"{"t":"b"}"#][..],
            ),
            // Two cuts in a row, in upper case.
            (
                &[r#"{"t":"\uD83D"}"#, r#"{"t":"\uDE00\uD83D"}"#, r#"{"t":"\uDE01"}"#],
                &[r#"{"t":"\uD83D\uDE00"}"#, r#"{"t":"\uD83D\uDE01"}"#, r#"{"t":""}"#],
            ),
            // Two strings, of the same name at two positions, and of another name.
            (
                &[
                    r#"[{"index":0,"t":"\ud83d"},{"index": 1,"t":"\ud83d","u":"\ud83d"}]"#,
                    r#"[{"index": 1,"t":"\ude01"},{"u":"\ude02"}]"#,
                ],
                &[
                    r#"[{"index":0,"t":"\ud83d"},{"index": 1,"t":"\ud83d\ude01","u":"\ud83d\ude02"}]"#,
                    r#"[{"index": 1,"t":""},{"u":""}]"#,
                ],
            ),
        ] {
            assert_eq!(read(events), want);
        }
    }

    #[test]
    fn other_events_are_unchanged() {
        let first = r#"{"t":"\ud83d"}"#;
        for event in [
            first,
            r#"{"t":"\ud83d\ude00"}"#,
            r#"{"t":"\\ud83d"}"#,
            r#"{"t":"\\\\ude00"}"#,
            r#"{"u":"\ude00"}"#,
            r#"{"t":"x\ude00"}"#,
            r#"{"index":0,"t":"\ude00"}"#,
            r#"{"\ud83d":1}"#,
            r#"{"t":"\ud83d"#,
            r#"{"t":"é\ud83"}"#,
            r#""\"#,
            "",
        ] {
            assert_eq!(read(&[event, event]), [event, event]);
            assert_eq!(read(&[first, event]), [first, event]);
        }
    }
}
