//! A simple model of server-sent events that reads the complete body at once. It follows the
//! standard with two additions: the end of the body ends an event, and a line that is not a field
//! is returned.

use endstop_wire::stream::sse::Item;

/// An item with owned data.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Event { name: String, data: String, id: String },
    Line(String),
}

impl From<Item<'_>> for Seen {
    fn from(item: Item<'_>) -> Seen {
        match item {
            Item::Event { name, data, id } => {
                Seen::Event { name: name.into(), data: data.into(), id: id.into() }
            }
            Item::Line(line) => Seen::Line(line.into()),
        }
    }
}

/// Returns the items of a body, and the reconnection time that it sets.
pub(crate) fn events(body: &[u8]) -> (Vec<Seen>, Option<u64>) {
    let mut seen = Vec::new();
    let (mut name, mut id, mut retry) = (String::new(), String::new(), None);
    let mut data: Option<Vec<u8>> = None;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let end = |data: &mut Option<Vec<u8>>, name: &mut String, id: &str, seen: &mut Vec<Seen>| {
        let name = std::mem::take(name);
        if let Some(data) = data.take() {
            seen.push(Seen::Event { name, data: text(&data), id: id.to_owned() });
        }
    };
    for line in lines(body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body)) {
        if line.is_empty() {
            end(&mut data, &mut name, &id, &mut seen);
            continue;
        }
        let at = line.iter().position(|b| *b == b':');
        let (field, value) = at.map_or((line, &[][..]), |at| (&line[..at], &line[at + 1..]));
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"" if at.is_some() => {}
            b"data" => match &mut data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => data = Some(value.to_vec()),
            },
            b"event" => name = text(value),
            b"id" if !value.contains(&0) => id = text(value),
            b"id" => {}
            b"retry" if value.iter().all(u8::is_ascii_digit) => {
                retry = text(value).parse().ok().or(retry);
            }
            b"retry" => {}
            _ => seen.push(Seen::Line(text(line))),
        }
    }
    end(&mut data, &mut name, &id, &mut seen);
    (seen, retry)
}

/// Splits a body into lines, which end with CR LF, LF or CR. Text after the last end is a line too,
/// unless it is empty.
fn lines(body: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    let mut rest = body;
    while let Some(at) = rest.iter().position(|b| matches!(b, b'\n' | b'\r')) {
        lines.push(&rest[..at]);
        let end = if rest[at..].starts_with(b"\r\n") { 2 } else { 1 };
        rest = &rest[at + end..];
    }
    if !rest.is_empty() {
        lines.push(rest);
    }
    lines
}
