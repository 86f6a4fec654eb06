//! Bodies that are not an answer: never a success, never a panic, and always described.

use endstop_core::ErrorClass as C;
use endstop_core::SignalReason;
use endstop_wire::dialect::{ANTHROPIC, DIALECTS, OPENAI_CHAT, OPENAI_RESPONSES};
use endstop_wire::redact::EXCERPT_CHARS;
use endstop_wire::{Dialect, Eof, Headers, RequestFacts, StreamDecoder, decode_body};
use proptest::prelude::*;

fn decode(dialect: &'static Dialect, body: &[u8]) -> endstop_wire::Decoded {
    decode_body(dialect, 200, &Headers::new(), body, &RequestFacts::default())
}

#[test]
fn bad_bodies_have_expected_error() {
    let deep_array = [&b"{\"choices\":"[..], &b"[".repeat(10_000)].concat();
    let deep_closed = [b"[".repeat(10_000), b"]".repeat(10_000)].concat();
    let deep_event = [&b"data: {\"choices\":"[..], &b"[".repeat(10_000), b"\n\n"].concat();
    let long_text = [&b"<html>"[..], &b"x".repeat(100_000)].concat();
    let table: Vec<(&str, &[u8], &[C])> = vec![
        ("nothing", b"", &[C::IncompleteStream]),
        ("blanks", b" \n\r\n ", &[C::IncompleteStream]),
        ("half a mark", b"\xef\xbb", &[C::IncompleteStream]),
        ("a page", b"<!DOCTYPE html><html><body>Please log in</body></html>", &[C::NotFound]),
        ("a long page", &long_text, &[C::NotFound]),
        ("gzip", b"\x1f\x8b\x08\0\0\0\0\0", &[C::UnknownError]),
        ("NULs", b"\0\0\0\0", &[C::UnknownError]),
        ("binary", b"\xff\xfe\x80", &[C::UnknownError]),
        ("text", b"Internal error, sorry.", &[C::IncompleteStream]),
        ("a cut body", br#"{"choices":[{"message":{"content":"Hel"#, &[C::IncompleteStream]),
        ("a cut event", b"data: {\"choices\":[{\"delta\":{\"content\":\"Hel\n\n", &[C::IncompleteStream]),
        ("an empty object", b"{}", &[C::ServerError]),
        ("a list", b"[]", &[C::ServerError, C::IncompleteStream]),
        ("a string", b"\"stop\"", &[C::IncompleteStream]),
        ("null", b"null", &[C::IncompleteStream]),
        ("bad UTF-8 inside", b"{\"choices\":[{\"message\":{\"content\":\"\xff\"},\"finish_reason\":\"stop\"}]}", &[C::ServerError]),
        ("a raw NUL inside", b"{\"choices\":[{\"message\":{\"content\":\"\0\"},\"finish_reason\":\"stop\"}]}", &[C::ServerError]),
        ("deep", &deep_array, &[C::IncompleteStream, C::ServerError]),
        ("deep and closed", &deep_closed, &[C::ServerError]),
        ("deep in an event", &deep_event, &[C::IncompleteStream, C::ServerError]),
        ("duplicate keys", br#"{"choices":[],"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"content":[],"content":[]}"#, &[C::ServerError]),
        ("rubbish between good events", b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"type\":\"x\"}\n\ndata: {rubbish}\n\ndata: [DONE]\n\n", &[C::ServerError]),
        ("an error alone", br#"{"error":{"message":"no","code":500}}"#, &[C::ServerError]),
        ("a flat error", br#"{"code":429,"message":"slow","type":"error","error":{"type":"rate_limit_error","message":"slow"}}"#, &[C::RateLimit]),
        ("a bare line of error", b"data: {\"choices\":[],\"type\":\"ping\"}\n\n{\"error\":{\"code\":503,\"message\":\"busy\"}}\n", &[C::Overloaded]),
        ("an error over lines", b"data: {\"choices\":[],\"type\":\"ping\"}\n\n{\n  \"error\": {\n    \"code\": 429,\n    \"message\": \"slow\"\n  }\n}\n", &[C::RateLimit]),
        ("a field named error", b"data: {\"choices\":[],\"type\":\"ping\"}\n\nerror: {\"detail\":\"failed to decode\"}\n\n", &[C::ServerError]),
        ("an event named error", b"event: error\ndata: {\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n", &[C::Overloaded]),
        ("comments alone", b": keep-alive\n\n: keep-alive\n\n", &[C::IncompleteStream]),
    ];
    for dialect in [OPENAI_CHAT, ANTHROPIC, OPENAI_RESPONSES] {
        for (what, body, classes) in &table {
            let d = decode(dialect, body);
            let e = d.error.unwrap_or_else(|| panic!("{what} in {}: {:?}", dialect.name, d.signal));
            assert!(classes.contains(&e.class), "{what} in {}: {e}", dialect.name);
            assert_eq!(d.signal.reason, SignalReason::ErrorTermination, "{what}");
            assert!(d.signal.should_terminate, "{what}");
            assert!(e.message.chars().count() <= EXCERPT_CHARS, "{what}");
            let kept = d.signal.provider_specific.original_value;
            assert!(kept.chars().count() <= EXCERPT_CHARS, "{what}");
        }
    }
}

#[test]
fn unknown_finish_value_is_not_success() {
    for (dialect, body) in [
        (OPENAI_CHAT, r#"{"choices":[]}"#),
        (OPENAI_CHAT, r#"{"choices":[{"message":{"content":""},"finish_reason":null}]}"#),
        (OPENAI_CHAT, r#"{"choices":[{"message":{"content":"x"},"finish_reason":"banana"}]}"#),
        (OPENAI_CHAT, r#"{"choices":[{"message":{"content":""},"finish_reason":"tool_calls"}]}"#),
        (ANTHROPIC, r#"{"type":"message","content":[],"stop_reason":null}"#),
        (
            ANTHROPIC,
            r#"{"type":"message","content":[{"type":"text","text":"x"}],"stop_reason":"END_TURN"}"#,
        ),
    ] {
        let d = decode(dialect, body.as_bytes());
        assert_eq!(d.signal.reason, SignalReason::Unknown, "{body}");
    }
}

#[test]
fn odd_numbers_keep_the_answer() {
    let body = br#"{"choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}],
        "usage":{"prompt_tokens":99999999999999999999999,"completion_tokens":-3,"prompt_tokens_details":7}}"#;
    let d = decode(OPENAI_CHAT, body);
    let turn = d.turn.unwrap();
    assert_eq!(d.signal.reason, SignalReason::NaturalCompletion);
    assert_eq!((turn.usage.input_tokens, turn.usage.output_tokens), (Some(u64::MAX), None));
}

#[test]
fn oversized_body_is_an_error() {
    let mut stream = StreamDecoder::new(OPENAI_CHAT, 200, Headers::new(), RequestFacts::default());
    let piece = vec![b'x'; 1 << 20];
    stream.push(b"data: ", &mut |_| ()).unwrap();
    let refused = (0..100).find(|_| stream.push(&piece, &mut |_| ()).is_err());
    assert_eq!(refused, Some(15), "a line of 16 MiB is the most");
    let d = stream.finish(Eof::Clean);
    assert_eq!(d.error.unwrap().class, C::ServerError);
}

#[test]
fn reset_connection_keeps_partial_turn() {
    let half = b"data: {\"model\":\"m\",\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\n";
    let run = |bytes: &[u8], eof| {
        let mut s = StreamDecoder::new(OPENAI_CHAT, 200, Headers::new(), RequestFacts::default());
        s.push(bytes, &mut |_| ()).unwrap();
        s.finish(eof)
    };
    let (clean, reset) = (run(half, Eof::Clean), run(half, Eof::Reset));
    for d in [&clean, &reset] {
        assert_eq!(d.error.as_ref().unwrap().class, C::IncompleteStream);
        assert_eq!(d.turn.as_ref().unwrap().text(), "Hel");
        assert!(!d.complete);
    }
    assert_ne!(clean.error.unwrap().message, reset.error.unwrap().message);
    // If the end marker arrived, it does not matter how the connection ended.
    let whole = [&half[..], b"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"]
        .concat();
    assert!(run(&whole, Eof::Reset).error.is_none());
}

proptest! {
    #[test]
    fn any_bytes_decode_without_panic(
        status in prop_oneof![Just(200u16), Just(0), any::<u16>()],
        body in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..200),
            "(data: |event: |error|\\{\"(choices|type|error|content|delta|usage)\":|[\\[\\]{}\",:0-9a-z\n]){0,30}"
                .prop_map(String::into_bytes),
        ],
        which in 0usize..DIALECTS.len(),
        cut in 1usize..20,
    ) {
        let dialect = &DIALECTS[which];
        let whole = decode_body(dialect, status, &Headers::new(), &body, &RequestFacts::default());
        let mut s = StreamDecoder::new(dialect, status, Headers::new(), RequestFacts::default());
        for piece in body.chunks(cut) {
            // Bytes after a bad frame cannot be read, and `finish` returns the same error.
            if s.push(piece, &mut |_| ()).is_err() {
                break;
            }
        }
        prop_assert_eq!(whole, s.finish(Eof::Clean));
    }
}
