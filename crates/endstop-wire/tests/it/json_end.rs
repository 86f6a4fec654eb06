//! The end of a JSON value: the one that a parser finds if the text is valid, and a stated one if not.

use endstop_wire::stream::json_end::JsonEnd;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Map, Value};

/// Texts in which strings, escapes and brackets are dense.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("\""),
        Just("\\"),
        Just("{"),
        Just("}"),
        Just("["),
        Just("]"),
        Just(","),
        Just(":"),
        Just("\n"),
        Just("\u{0}"),
        Just("é"),
        Just("\u{2028}"),
        Just("a"),
        Just(" "),
    ];
    vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            vec((text(), inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Returns the end of the first value in `text`, which comes in chunks of at most `chunk` bytes.
fn end(text: &[u8], chunk: usize) -> Option<usize> {
    let mut scan = JsonEnd::default();
    let mut before = 0;
    for piece in text.chunks(chunk) {
        if let Some(len) = scan.feed(piece) {
            return Some(before + len);
        }
        before += piece.len();
    }
    None
}

proptest! {
    #[test]
    fn valid_value_ends_as_serde_says(
        value in value(),
        pretty in any::<bool>(),
        blanks in "[ \t\r\n]{0,3}",
        next in prop_oneof![Just(","), Just("]"), Just("}"), Just("\n"), Just(" "), Just(" {")],
        chunk in 1_usize..9,
    ) {
        let json = if pretty {
            serde_json::to_string_pretty(&value).unwrap()
        } else {
            value.to_string()
        };
        let text = format!("{blanks}{json}{next}");
        let mut parser = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        prop_assert!(parser.next().unwrap().is_ok(), "{}", text);
        prop_assert_eq!(end(text.as_bytes(), chunk), Some(parser.byte_offset()), "{}", text);
        // A proper prefix has no end, unless the value is a number or a literal, whose end only
        // the next byte shows.
        let whole = blanks.len() + json.len();
        for cut in 0..whole {
            prop_assert_eq!(end(&text.as_bytes()[..cut], chunk), None, "{} at {}", text, cut);
        }
    }

    #[test]
    fn end_does_not_depend_on_chunks(bytes in vec(
        prop_oneof![
            Just(b'"'), Just(b'\\'), Just(b'{'), Just(b'}'), Just(b'['), Just(b']'), Just(b','),
            Just(b' '), Just(b'1'), any::<u8>(),
        ],
        0..40,
    )) {
        let whole = end(&bytes, usize::MAX);
        for chunk in 1..6 {
            prop_assert_eq!(end(&bytes, chunk), whole);
        }
    }
}

#[test]
fn malformed_values_end_by_the_table() {
    for (text, want) in [
        // Brackets are counted and not compared, because the parser reports the wrong one.
        ("{]x", Some(2)),
        ("[1}x", Some(3)),
        ("{\"a\":]}", Some(6)),
        ("{[}]x", Some(4)),
        // A closing bracket without an opening one is a value of its own.
        ("}x", Some(1)),
        (" ]]", Some(2)),
        // Inside brackets, only strings and brackets matter.
        ("{,,:nul}x", Some(8)),
        ("[1 2\n3]", Some(7)),
        ("{\"a\" \"}\" tru]", Some(13)),
        ("[\u{feff}]", Some(5)),
        // A string may contain raw control characters and unknown escapes.
        ("\"a\nb\"x", Some(5)),
        ("\"\\q\\\"\"x", Some(6)),
        ("\"\\u12\"x", Some(6)),
        // Any other word ends before a blank, a bracket, a quote, a comma or a colon.
        ("nul,", Some(3)),
        ("1\"a\"", Some(1)),
        ("tru e", Some(3)),
        ("- 1", Some(1)),
        ("1:2", Some(1)),
        ("'a{'", Some(2)),
        (",,", Some(1)),
        // Nothing ends these: strings and brackets that stay open, a word without a next byte.
        ("", None),
        (" \n", None),
        ("\"a", None),
        ("\"a\\\"", None),
        ("{\"a\": \"}", None),
        ("[[]", None),
        ("[\"]\\\\\\\"]", None),
        ("nul", None),
    ] {
        for chunk in [1, 2, 3, usize::MAX] {
            assert_eq!(end(text.as_bytes(), chunk), want, "{text:?} in chunks of {chunk}");
        }
    }
}
