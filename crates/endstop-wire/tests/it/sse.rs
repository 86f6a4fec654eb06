//! Server-sent events as the WHATWG specifies them, for every chunk size, and this decoder's
//! extensions.

use endstop_wire::stream::sse::{Caps, Item, SseDecoder, SseError};
use proptest::prelude::*;

/// Events as `(name, data, id)`, and lines outside the protocol as `("line", text, "")`.
type Seen = Vec<(String, String, String)>;

fn run(chunks: &[&[u8]]) -> Seen {
    let mut seen = Seen::new();
    let mut sse = SseDecoder::new();
    let mut take = |item: Item<'_>| {
        seen.push(match item {
            Item::Event { name, data, id } => (name.into(), data.into(), id.into()),
            Item::Line(line) => ("line".into(), line.into(), String::new()),
        });
    };
    for chunk in chunks {
        sse.push(chunk, &mut take).unwrap();
    }
    sse.finish(&mut take).unwrap();
    seen
}

/// Name of the case, its bytes, and the expected events.
type Case = (&'static str, &'static [u8], &'static [(&'static str, &'static str, &'static str)]);

const TABLE: &[Case] = &[
    ("one event", b"data: a\n\n", &[("", "a", "")]),
    ("no space after the colon", b"data:a\n\n", &[("", "a", "")]),
    ("one space only is cut", b"data:  a\n\n", &[("", " a", "")]),
    ("several lines", b"data: a\ndata: b\ndata\n\n", &[("", "a\nb\n", "")]),
    ("CRLF", b"data: a\r\ndata: b\r\n\r\n", &[("", "a\nb", "")]),
    ("CR alone", b"data: a\rdata: b\r\rdata: c\r\r", &[("", "a\nb", ""), ("", "c", "")]),
    (
        "mixed ends",
        b"data: a\n\r\ndata: b\r\n\ndata: c\r\r\n",
        &[("", "a", ""), ("", "b", ""), ("", "c", "")],
    ),
    ("byte order mark", b"\xef\xbb\xbfdata: a\n\n", &[("", "a", "")]),
    ("a mark later is data", b"data: \xef\xbb\xbfa\n\n", &[("", "\u{feff}a", "")]),
    ("half a mark is not a mark", b"\xef\xbbdata: a\n\n", &[("line", "\u{fffd}data: a", "")]),
    ("half a mark alone", b"\xef\xbb", &[("line", "\u{fffd}", "")]),
    ("comment", b": hi\ndata: a\n:\n\n", &[("", "a", "")]),
    ("named", b"event: x\ndata: a\n\ndata: b\n\n", &[("x", "a", ""), ("", "b", "")]),
    ("the last name counts", b"event: x\nevent: y\ndata: a\n\n", &[("y", "a", "")]),
    ("a name without data is dropped", b"event: x\n\ndata: a\n\n", &[("", "a", "")]),
    ("field without colon", b"data\n\n", &[("", "", "")]),
    ("two empty lines of data", b"data\ndata\n\n", &[("", "\n", "")]),
    ("empty data", b"data:\n\n", &[("", "", "")]),
    (
        "id stays",
        b"id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n",
        &[("", "a", "1"), ("", "b", "1"), ("", "c", "")],
    ),
    ("id with NUL is ignored", b"id: 1\nid: a\0b\ndata: a\n\n", &[("", "a", "1")]),
    ("retry makes no event", b"retry: 10\n\nretry: x\n\ndata: a\n\n", &[("", "a", "")]),
    ("blank lines", b"\n\n\ndata: a\n\n\n\n", &[("", "a", "")]),
    (
        "a bare error",
        b"data: a\n\nerror: {\"x\":1}\n{\"y\":2}\n\n",
        &[("", "a", ""), ("line", "error: {\"x\":1}", ""), ("line", "{\"y\":2}", "")],
    ),
    ("a space before the field", b" data: a\n\n", &[("line", " data: a", "")]),
    ("end without blank line", b"data: a\ndata: b", &[("", "a\nb", "")]),
    ("end after the line", b"event: x\ndata: a\n", &[("x", "a", "")]),
    ("end without data", b"event: x", &[]),
    ("bad UTF-8", b"data: a\xffb\xe2\x82\n\n", &[("", "a\u{fffd}b\u{fffd}", "")]),
    ("wide characters", "data: é😀\n\n".as_bytes(), &[("", "é😀", "")]),
    ("nothing", b"", &[]),
];

fn expected(want: &[(&str, &str, &str)]) -> Seen {
    want.iter().map(|(n, d, i)| ((*n).into(), (*d).into(), (*i).into())).collect()
}

#[test]
fn cases_are_chunk_independent() {
    for (what, bytes, want) in TABLE {
        let want = expected(want);
        assert_eq!(run(&[bytes]), want, "{what}");
        for at in 0..=bytes.len() {
            let (a, b) = bytes.split_at(at);
            assert_eq!(run(&[a, b]), want, "{what} cut at {at}");
            for to in at..=bytes.len() {
                assert_eq!(run(&[a, &bytes[at..to], &bytes[to..]]), want, "{what} at {at}, {to}");
            }
        }
        let bytewise: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(run(&bytewise), want, "{what} byte by byte");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_chunk_independent(
        parts in proptest::collection::vec(
            prop_oneof![
                Just(b"data: ".to_vec()), Just(b"\n".to_vec()), Just(b"\r".to_vec()),
                Just(b"\r\n".to_vec()), Just(b"event: x".to_vec()), Just(b"id: 1".to_vec()),
                Just(b":".to_vec()), Just(b"\xef\xbb\xbf".to_vec()), Just(b"{\"a\":1}".to_vec()),
                proptest::collection::vec(any::<u8>(), 0..6),
            ],
            0..24,
        ),
        cuts in proptest::collection::vec(0usize..12, 0..40),
    ) {
        let bytes = parts.concat();
        let mut chunks = Vec::new();
        let mut rest = &bytes[..];
        for n in cuts {
            let (a, b) = rest.split_at(n.min(rest.len()));
            chunks.push(a);
            rest = b;
        }
        chunks.push(rest);
        prop_assert_eq!(run(&[&bytes]), run(&chunks));
    }
}

#[test]
fn event_in_one_chunk_is_borrowed() {
    let chunk = b"event: a\ndata: {\"x\":1}\n\n";
    let range = chunk.as_ptr_range();
    let mut borrowed = false;
    let mut take = |item: Item<'_>| {
        if let Item::Event { data, .. } = item {
            borrowed = range.contains(&data.as_ptr());
        }
    };
    SseDecoder::new().push(chunk, &mut take).unwrap();
    assert!(borrowed);
}

#[test]
fn oversized_lines_and_events_fail() {
    let caps = Caps { line: 64, event: 100 };
    let mut sse = SseDecoder::with_caps(caps);
    let long = [b'a'; 40];
    assert_eq!(sse.push(&long, &mut |_| ()), Ok(()));
    assert_eq!(sse.push(&long, &mut |_| ()), Err(SseError::LineTooLong(64)));
    assert_eq!(sse.push(b"\n", &mut |_| ()), Err(SseError::LineTooLong(64)));
    assert_eq!(sse.finish(&mut |_| ()), Err(SseError::LineTooLong(64)));

    let mut sse = SseDecoder::with_caps(caps);
    let line = format!("data: {}\n", "b".repeat(50));
    assert_eq!(sse.push(line.as_bytes(), &mut |_| ()), Ok(()));
    assert_eq!(sse.push(line.as_bytes(), &mut |_| ()), Err(SseError::EventTooLong(100)));
}

#[test]
fn retry_time_is_stored() {
    let mut sse = SseDecoder::new();
    sse.push(b"retry: 2500\nretry: 1e3\n", &mut |_| ()).unwrap();
    assert_eq!(sse.retry(), Some(2500));
}

#[test]
fn large_event_takes_linear_time() {
    let mut sse = SseDecoder::new();
    let mut got = 0;
    let piece = [b'x'; 512];
    sse.push(b"data: ", &mut |_| ()).unwrap();
    for _ in 0..20_000 {
        sse.push(&piece, &mut |_| ()).unwrap();
    }
    sse.push(b"\n\n", &mut |item| {
        if let Item::Event { data, .. } = item {
            got = data.len();
        }
    })
    .unwrap();
    assert_eq!(got, 20_000 * 512);
}
