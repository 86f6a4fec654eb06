//! Hostile bodies for every wire format, complete and in chunks: a typed signal, never a panic,
//! never a success, and bounded memory and time.

use super::bodies::{answer, calls, filled, of};
use endstop_core::{Confidence, ErrorClass as C, Part, SignalReason as R};
use endstop_wire::detect::printed;
use endstop_wire::redact::EXCERPT_CHARS;
use endstop_wire::{
    Decoded, Dialect, Eof, Headers, RequestFacts, StreamDecoder, WireFormat, decode_body,
};
use serde_json::{Value, json};

fn with(dialect: &'static Dialect, headers: &Headers, body: &[u8], cut: usize) -> Decoded {
    let mut s = StreamDecoder::new(dialect, 200, headers.clone(), RequestFacts::default());
    for piece in body.chunks(cut) {
        if s.push(piece, &mut |_| ()).is_err() {
            break;
        }
    }
    s.finish(Eof::Clean)
}

/// Decodes complete and in chunks, and checks the properties that every result must have.
fn decode(family: WireFormat, body: &[u8]) -> Decoded {
    let dialect = of(family);
    let none = Headers::new();
    let whole = decode_body(dialect, 200, &none, body, &RequestFacts::default());
    for cut in [7, 4096] {
        assert_eq!(whole, with(dialect, &none, body, cut), "{family} in chunks of {cut}");
    }
    if let Some(e) = &whole.error {
        assert_eq!(whole.signal.reason, R::ErrorTermination);
        assert!(e.message.chars().count() <= EXCERPT_CHARS, "{e}");
        let kept = &whole.signal.provider_specific.original_value;
        assert!(kept.chars().count() <= EXCERPT_CHARS, "{kept}");
    }
    let line = Value::Object(printed(&whole)).to_string();
    assert!(serde_json::from_str::<Value>(&line).is_ok(), "a line that reads back: {line}");
    whole
}

fn is_success(d: &Decoded) -> bool {
    matches!(d.signal.reason, R::NaturalCompletion | R::StopSequence)
}

fn text(d: &Decoded) -> String {
    d.turn.as_ref().map(endstop_core::ModelTurn::text).unwrap_or_default()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(bytes).unwrap();
    gz.finish().unwrap()
}

#[test]
fn non_answers_are_errors_everywhere() {
    let repeat = |text: &str, n: usize| text.repeat(n).into_bytes();
    let nested = |n: usize| ["[".repeat(n), "]".repeat(n)].concat();
    let objects = |n: usize| ["{\"a\":".repeat(n), "1".to_owned(), "}".repeat(n)].concat();
    let table: Vec<(&str, Vec<u8>)> = vec![
        ("nothing", vec![]),
        ("a byte order mark", b"\xef\xbb\xbf".to_vec()),
        ("a mark and blanks", b"\xef\xbb\xbf \n".to_vec()),
        ("two marks", b"\xef\xbb\xbf\xef\xbb\xbf".to_vec()),
        ("null", b"null".to_vec()),
        ("a string", b"\"\"".to_vec()),
        ("a number", b"0".to_vec()),
        ("a NUL", b"\0".to_vec()),
        ("NULs in lines", repeat("\0\n", 1000)),
        ("a lone CR", b"\r".to_vec()),
        ("CRs", repeat("\r", 5000)),
        ("blank lines", repeat("\n", 5000)),
        ("empty events", repeat("data:\n\n", 5000)),
        ("events of blanks", repeat("data:  \n\n", 5000)),
        ("events of nothing", repeat("data: {}\n\n", 5000)),
        ("comments", repeat(": ping\n\n", 5000)),
        ("names alone", repeat("event: message\n\n", 5000)),
        ("an event of null", b"data: null\n\n".to_vec()),
        ("an event of a list", b"data: []\n\n".to_vec()),
        ("an event of a string", b"data: \"\"\n\n".to_vec()),
        ("an event of a number", b"data: 0\n\n".to_vec()),
        ("a page", b"<!DOCTYPE html><html><body>Please log in</body></html>".to_vec()),
        ("a page behind blanks", b"\r\n\r\n  <html><h1>502 Bad Gateway</h1></html>".to_vec()),
        ("a page as an event", b"data: <html></html>\n\n".to_vec()),
        ("zlib", b"\x78\x9c\x03\x00\x00\x00\x00\x01".to_vec()),
        ("zstd", b"\x28\xb5\x2f\xfd\x20\x00\x01\x00\x00".to_vec()),
        ("brotli", b"\x0b\x02\x80\x61\x62\x03".to_vec()),
        ("UTF-16", b"\xff\xfe{\0}\0".to_vec()),
        ("brackets", nested(10_000).into_bytes()),
        ("brackets as an event", format!("data: {}\n\n", nested(10_000)).into_bytes()),
        ("objects as an event", format!("data: {}\n\n", objects(10_000)).into_bytes()),
        ("an open bracket", repeat("[", 10_000)),
        ("a deep error", format!("{{\"error\":{}}}", nested(10_000)).into_bytes()),
        ("a deep message", format!("{{\"error\":{{\"message\":{}}}}}", objects(10_000)).into_bytes()),
        ("a deep error as an event", format!("event: error\ndata: {{\"error\":{}}}\n\n", nested(10_000)).into_bytes()),
        ("a deep error in a line", format!("error: {}\n\n", nested(10_000)).into_bytes()),
        ("half a surrogate in an error", b"{\"error\":{\"message\":\"\\ud83d\"}}".to_vec()),
        ("a long text where a list is", format!("{{\"choices\":\"{0}\",\"content\":\"{0}\",\"candidates\":\"{0}\",\"output\":\"{0}\"}}", "x".repeat(100_000)).into_bytes()),
        ("a key where a list is", b"{\"choices\":\"sk-abcdef1234567890\",\"content\":\"sk-abcdef1234567890\",\"candidates\":\"sk-abcdef1234567890\",\"output\":\"sk-abcdef1234567890\"}".to_vec()),
    ];
    for family in WireFormat::ALL {
        for (what, body) in &table {
            let d = decode(*family, body);
            let e = d.error.unwrap_or_else(|| panic!("{what} in {family}: {:?}", d.signal));
            assert!(!e.message.contains("sk-abcdef"), "{what} in {family}: {e}");
            // Whatever the headers claim.
            for (name, value) in [
                ("content-encoding", "gzip"),
                ("content-type", "application/json"),
                ("content-type", "text/event-stream"),
            ] {
                let headers = Headers::from_iter([(name, value)]);
                let d = decode_body(of(*family), 200, &headers, body, &RequestFacts::default());
                assert!(d.error.is_some(), "{what} in {family} as {value}");
            }
        }
        let deep = objects(10_000);
        for body in ["[]", "[null]", "[[]]", "[{}]", "{}", "[0,\"\"]", &deep] {
            let d = decode(*family, body.as_bytes());
            assert!(!is_success(&d) && d.signal.should_terminate, "{body} in {family}: {d:?}");
            assert!(d.error.is_some() || d.signal.reason == R::Unknown, "{body} in {family}");
        }
    }
}

#[test]
fn headers_do_not_change_the_result() {
    for family in WireFormat::ALL {
        for body in answer(*family).into_iter().flatten() {
            let body = filled(&body, b"Hello");
            let plain = decode(*family, &body);
            assert!(is_success(&plain) && text(&plain) == "Hello", "{family}: {plain:?}");
            for (name, value) in [
                ("content-encoding", "gzip"),
                ("content-type", "text/html"),
                ("content-type", "application/octet-stream"),
                ("content-length", "1"),
            ] {
                let headers = Headers::from_iter([(name, value)]);
                assert_eq!(plain, with(of(*family), &headers, &body, 9), "{family}: {name}");
            }
            let packed = decode(*family, &gzip(&body));
            let e = packed.error.unwrap();
            assert_eq!((e.class, e.message.contains("compressed")), (C::UnknownError, true), "{e}");
            // A byte order mark and whitespace before the body are ignored.
            for before in ["\u{feff}", "\r\n \n", "\u{feff}\n\n"] {
                let d = decode(*family, &[before.as_bytes(), &body].concat());
                assert_eq!(text(&d), "Hello", "{family}: {before:?}");
            }
        }
    }
}

#[test]
fn truncated_answer_is_not_success() {
    for family in WireFormat::ALL {
        let Some([whole, stream]) = answer(*family) else { continue };
        let whole = filled(&whole, b"Hello");
        for end in 0..whole.len() {
            let d = decode(*family, &whole[..end]);
            assert!(d.error.is_some(), "{family}: {:?}", std::str::from_utf8(&whole[..end]));
        }
        let stream = filled(&stream, b"Hello");
        for end in 0..stream.len() {
            let d = decode(*family, &stream[..end]);
            assert!(!is_success(&d) || d.complete, "{family}: {d:?}");
            assert!(!is_success(&d) || text(&d) == "Hello", "{family}: {d:?}");
        }
    }
}

#[test]
fn invalid_utf8_never_loses_a_field() {
    for family in WireFormat::ALL {
        let Some([whole, stream]) = answer(*family) else { continue };
        let d = decode(*family, &filled(&whole, b"a\xffb"));
        // A single object may be a stream of objects.
        if matches!(family, WireFormat::CohereV1 | WireFormat::Ollama | WireFormat::BedrockConverse)
        {
            assert_eq!((is_success(&d), text(&d)), (true, "a\u{fffd}b".to_owned()), "{family}");
        } else {
            assert_eq!(d.error.unwrap().class, C::ServerError, "{family}");
        }
        // As the specification of event streams requires.
        let d = decode(*family, &filled(&stream, b"a\xffb"));
        assert_eq!((is_success(&d), text(&d)), (true, "a\u{fffd}b".to_owned()), "{family}");
        // In a key or a deciding value: at most the protocol's end marker is left.
        let decides = ["finish_reason", "stop_reason", "finishReason", "status"];
        let values = ["stop", "end_turn", "STOP", "completed"];
        for word in decides.into_iter().chain(values) {
            for body in [&whole, &stream] {
                let Some(at) = body.find(&format!("\"{word}\"")) else { continue };
                let (before, after) = body.as_bytes().split_at(at + 1 + word.len());
                let d = decode(*family, &[before, b"\xff", after].concat());
                let named =
                    *family == WireFormat::OpenAiResponses && word == "status" && d.streamed;
                let sure = is_success(&d) && d.signal.confidence == Confidence::High;
                assert!(!sure || named, "{family} {word}: {d:?}");
            }
        }
    }
}

#[test]
fn lone_surrogate_costs_one_character() {
    for family in WireFormat::ALL {
        for body in answer(*family).into_iter().flatten() {
            let d = decode(*family, &filled(&body, br"a\ud83d"));
            assert_eq!((is_success(&d), text(&d)), (true, "a\u{fffd}".to_owned()), "{family}");
        }
        for body in calls(*family, r#"{"a":"\ud83d"}"#, 1).into_iter().flatten() {
            let d = decode(*family, body.as_bytes());
            assert_eq!(d.signal.reason, R::ToolUse, "{family}: {d:?}");
        }
    }
}

#[test]
fn halves_of_a_character_join_over_events() {
    let events = |family, text: &str, piece: &str| -> String {
        let quoted = format!("\"{piece}\"");
        match family {
            WireFormat::OpenAiChat => format!(
                r#"data: {{"id":"c","choices":[{{"index":0,"delta":{{"{text}":{quoted}}}}}]}}"#
            ),
            WireFormat::Anthropic | WireFormat::BedrockInvoke => format!(
                r#"data: {{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":{quoted}}}}}"#
            ),
            WireFormat::Gemini => format!(
                r#"data: {{"candidates":[{{"content":{{"parts":[{{"text":{quoted}}}]}}}}]}}"#
            ),
            WireFormat::OpenAiResponses => format!(
                r#"data: {{"type":"response.output_text.delta","output_index":0,"delta":{quoted}}}"#
            ),
            WireFormat::CohereV2 => format!(
                r#"data: {{"type":"content-delta","index":0,"delta":{{"message":{{"content":{{"text":{quoted}}}}}}}}}"#
            ),
            WireFormat::CohereV1 => {
                format!(r#"{{"event_type":"text-generation","text":{quoted}}}"#)
            }
            WireFormat::Ollama => {
                format!(r#"{{"message":{{"content":{quoted}}},"done":false}}"#)
            }
            WireFormat::BedrockConverse => format!(
                r#"data: {{"contentBlockDelta":{{"contentBlockIndex":0,"delta":{{"text":{quoted}}}}}}}"#
            ),
            other => panic!("{other}"),
        }
    };
    for family in WireFormat::ALL {
        let Some([_, whole]) = answer(*family) else { panic!("{family}") };
        // The events after the text.
        let rest = whole.replace('@', "").lines().skip(1).collect::<Vec<_>>().join("\n") + "\n\n";
        let rest = if *family == WireFormat::OpenAiResponses {
            // Without the text, which would replace what was streamed.
            r#"data: {"type":"response.completed","response":{"status":"completed"}}"#.to_owned()
        } else {
            rest
        };
        for (pieces, want) in [
            (&["ok \\ud83d", "\\ude00 done"][..], "ok 😀 done"),
            (&["\\uD83D", "\\uDE00"], "😀"),
            (&["\\ud83d", "\\ude00\\ud83d", "\\ude01"], "😀😁"),
            (&["\\ud83d\\ude00", "!"], "😀!"),
            (&["a", "b\\ud83d", "\\ude00c", "d", "e"], "ab😀cde"),
            (&["\\ud83d", "x"], "\u{fffd}x"),
            (&["\\ud83d", "\\ud83d\\ude00"], "\u{fffd}😀"),
            (&["x", "\\ude00"], "x\u{fffd}"),
            (&["\\\\ud83d", "\\ude00"], "\\ud83d\u{fffd}"),
            (&["ok \\ud83d"], "ok \u{fffd}"),
        ] {
            let text: String =
                pieces.iter().map(|piece| events(*family, "content", piece) + "\n\n").collect();
            let d = decode(*family, (text + &rest).as_bytes());
            assert_eq!(self::text(&d), want, "{family}: {pieces:?} {d:?}");
        }
    }
}

#[test]
fn halves_join_in_arguments_and_reasoning() {
    let chat = |delta: &str| format!("data: {{\"choices\":[{{\"delta\":{delta}}}]}}\n\n");
    let call = |index: u64, name: &str, json: &str| {
        chat(&format!(
            r#"{{"tool_calls":[{{"index":{index},"function":{{"name":"{name}","arguments":"{json}"}}}}]}}"#
        ))
    };
    let body = [
        chat(r#"{"reasoning_content":"Hm \ud83d"}"#),
        chat(r#"{"reasoning_content":"\ude00"}"#),
        call(0, "write", r#"{\"a\":\"\ud83d"#),
        call(0, "", r#"\ude01\"}"#),
        call(1, "write", r#"{\"a\":\"\ud83d"#),
        call(1, "", r#"\ude02\"}"#),
        "data: [DONE]\n\n".to_owned(),
    ];
    let d = decode(WireFormat::OpenAiChat, body.concat().as_bytes());
    let turn = d.turn.unwrap();
    let arguments: Vec<&str> = turn.tool_calls().map(|call| call.arguments.as_str()).collect();
    assert_eq!(arguments, [r#"{"a":"😁"}"#, r#"{"a":"😂"}"#]);
    assert_eq!(turn.parts[0], Part::Reasoning { text: "Hm 😀".into() });
}

#[test]
fn unreadable_part_is_reported() {
    for family in WireFormat::ALL {
        for body in answer(*family).into_iter().flatten() {
            let twice = body
                .replace(r#""text":"@""#, r#""text":"x","text":"y""#)
                .replace(r#""content":"@""#, r#""content":"x","content":"y""#);
            let d = decode(*family, twice.as_bytes());
            assert_eq!(d.error.unwrap().class, C::ServerError, "{family}: {twice}");
        }
        for body in calls(*family, "{}", 1).into_iter().flatten() {
            let twice = body.replace(r#""name":"look""#, r#""name":"look","name":"do""#);
            let d = decode(*family, twice.as_bytes());
            assert_eq!(d.error.unwrap().class, C::ServerError, "{family}: {twice}");
        }
        // This applies to a complete body as well.
        if let Some([body, _]) = answer(*family) {
            let twice = format!("{},{}", &body[..body.len() - 1], &body[1..]);
            assert!(decode(*family, twice.as_bytes()).error.is_some(), "{family}");
        }
    }
}

#[test]
fn unreadable_arguments_are_marked() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let twice = r#"{"a":1,"a":2}"#;
    for family in WireFormat::ALL {
        for (arguments, bad) in
            [("{}", false), (twice, false), (&deep, true), (r#"{"a":1e999}"#, true)]
        {
            for body in calls(*family, arguments, 1).into_iter().flatten() {
                let d = decode(*family, body.as_bytes());
                assert_eq!(d.signal.reason, R::ToolUse, "{family}: {:?}", d.signal);
                let told = d.signal.provider_specific.metadata.get("invalid_args");
                assert_eq!(told.is_some(), bad, "{family}: {arguments:.20}");
                let turn = d.turn.unwrap();
                let kept = turn.parts.iter().any(
                    |part| matches!(part, Part::ToolCall(call) if call.arguments == arguments),
                );
                assert!(kept, "{family}: the raw arguments are kept");
            }
        }
    }
}

#[test]
fn absurd_numbers_are_handled() {
    let numbers = [
        "99999999999999999999999",
        "-1",
        "1e999",
        "-1e999",
        "1e30",
        "0.5",
        "\"12\"",
        "\"x\"",
        "[]",
        "{}",
        "null",
        "1099511627776",
    ];
    for family in WireFormat::ALL {
        let bodies = answer(*family).into_iter().chain(calls(*family, "{}", 2)).flatten();
        for body in bodies {
            for number in numbers {
                let usage = format!(
                    r#""usage":{{"prompt_tokens":{number},"completion_tokens":{number},"input_tokens":{number},"output_tokens":{number}}},"usageMetadata":{{"promptTokenCount":{number},"candidatesTokenCount":{number},"thoughtsTokenCount":{number}}}"#
                );
                let used = filled(&body.replacen('{', &format!("{{{usage},"), 1), b"Hello");
                let d = decode(*family, &used);
                assert!(
                    d.error.is_none(),
                    "usage does not cost the answer: {family} {number}: {:?}",
                    d.error
                );
                let mut odd = body.clone();
                for key in ["index", "output_index"] {
                    for n in 0..2 {
                        odd =
                            odd.replace(&format!("\"{key}\":{n}"), &format!("\"{key}\":{number}"));
                    }
                }
                let odd = filled(&odd, b"Hello");
                let d = decode(*family, &odd);
                assert!(!is_success(&d) || text(&d) == "Hello", "{family} {number}: {d:?}");
            }
        }
    }
}

#[test]
fn too_many_calls_are_refused() {
    for family in WireFormat::ALL {
        for body in calls(*family, "{}", 1_000).into_iter().flatten() {
            let d = decode(*family, body.as_bytes());
            assert_eq!(d.signal.reason, R::ToolUse, "{family}: {:?}", d.signal);
            let turn = d.turn.unwrap();
            let calls = turn.parts.iter().filter(|part| matches!(part, Part::ToolCall(_)));
            assert_eq!(calls.count(), 1_000, "{family}");
        }
        for body in calls(*family, "{}", 20_000).into_iter().flatten() {
            let d = decode_body(
                of(*family),
                200,
                &Headers::new(),
                body.as_bytes(),
                &RequestFacts::default(),
            );
            let e = d.error.unwrap_or_else(|| panic!("{family}: {:?}", d.signal));
            assert_eq!(
                (e.class, e.message.contains("more than 16384")),
                (C::ServerError, true),
                "{e}"
            );
        }
    }
}

#[test]
fn endless_whitespace_takes_linear_time() {
    for family in WireFormat::ALL {
        let mut s = StreamDecoder::new(of(*family), 200, Headers::new(), RequestFacts::default());
        // Scanned again with each chunk, these would take minutes.
        let blanks = [b"\r\n".repeat(256), b" ".repeat(512)].concat();
        for _ in 0..8 << 10 {
            s.push(&blanks, &mut |_| ()).unwrap();
        }
        let Some([whole, _]) = answer(*family) else { continue };
        s.push(&filled(&whole, b"Hello"), &mut |_| ()).unwrap();
        let d = s.finish(Eof::Clean);
        assert_eq!((is_success(&d), text(&d)), (true, "Hello".to_owned()), "{family}");
    }
}

#[test]
fn argument_fragments_take_linear_time() {
    // The same name and id in each fragment, and no index. Parsed again with each fragment, these
    // would take an hour.
    let call = |arguments: &str| {
        let call = json!({"id": "c", "function": {"name": "look", "arguments": arguments}});
        format!("data: {}\n\n", json!({"choices": [{"delta": {"tool_calls": [call]}}]}))
    };
    let dialect = of(WireFormat::OpenAiChat);
    let mut s = StreamDecoder::new(dialect, 200, Headers::new(), RequestFacts::default());
    s.push(call("{\"a\":[0").as_bytes(), &mut |_| ()).unwrap();
    let more = call(&",[{}]".repeat(100));
    for _ in 0..20_000 {
        s.push(more.as_bytes(), &mut |_| ()).unwrap();
    }
    s.push(call("]}").as_bytes(), &mut |_| ()).unwrap();
    s.push(call("{}").as_bytes(), &mut |_| ()).unwrap();
    s.push(b"data: {\"choices\":[{\"finish_reason\":\"tool_calls\"}]}\n\n", &mut |_| ()).unwrap();
    let d = s.finish(Eof::Clean);
    let turn = d.turn.unwrap();
    let sizes: Vec<usize> = turn
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::ToolCall(call) => Some(call.arguments.len()),
            _ => None,
        })
        .collect();
    assert_eq!(sizes, [7 + 20_000 * 500 + 2, 2], "what comes behind a whole call is another");
}

#[test]
fn early_arguments_follow_the_name() {
    let chunk = |call: Value| {
        format!("data: {}\n\n", json!({"choices": [{"delta": {"tool_calls": [call]}}]}))
    };
    let body = [
        chunk(json!({"index": 0, "function": {"arguments": "{}"}})),
        chunk(json!({"index": 1, "function": {"arguments": "{\"a\""}})),
        chunk(json!({"index": 1, "id": "c", "function": {"name": "look", "arguments": ":1"}})),
        chunk(json!({"index": 1, "function": {"arguments": "}"}})),
    ]
    .concat();
    let dialect = of(WireFormat::OpenAiChat);
    let mut s = StreamDecoder::new(dialect, 200, Headers::new(), RequestFacts::default());
    let mut seen = Vec::new();
    s.push(body.as_bytes(), &mut |delta| seen.push(format!("{delta:?}"))).unwrap();
    // The call without a name is not a call and has no position.
    assert_eq!(
        seen,
        [
            r#"ToolCallStarted { index: 0, id: "c", name: "look" }"#,
            r#"ToolArguments { index: 0, json: "{\"a\"" }"#,
            r#"ToolArguments { index: 0, json: ":1" }"#,
            r#"ToolArguments { index: 0, json: "}" }"#,
        ]
    );
}

/// Data after the end of a stream is not part of the turn, for every chunk size.
#[test]
fn data_after_end_is_ignored() {
    let chat = |text: &str| {
        format!(
            "data: {}\n\ndata: [DONE]\n\n",
            json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]})
        )
    };
    let claude = |text: &str| {
        [
            json!({"type": "message_start", "message": {"usage": {"input_tokens": 1}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": text}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}),
            json!({"type": "message_stop"}),
        ]
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
        .concat()
    };
    let llama = |text: &str| {
        format!("{}\n", json!({"message": {"content": text}, "done": true, "done_reason": "stop"}))
    };
    for (family, said, more) in [
        (WireFormat::OpenAiChat, chat("so"), chat(" and more")),
        (WireFormat::Anthropic, claude("so"), claude(" and more")),
        (WireFormat::Ollama, llama("so"), llama(" and more")),
        (WireFormat::OpenAiChat, chat("so"), "data: {torn".into()),
    ] {
        let all = format!("{said}{more}");
        let alone = with(of(family), &Headers::new(), said.as_bytes(), 1 << 20);
        assert!(is_success(&alone) && text(&alone) == "so", "{family}: {alone:?}");
        for cut in [1, 7, said.len(), said.len() + 1, all.len()] {
            let d = with(of(family), &Headers::new(), all.as_bytes(), cut);
            assert_eq!(d, alone, "{family}, cut at each {cut}");
        }
    }
}

#[test]
fn generated_text_of_stream_is_bounded() {
    let chat =
        |delta: &str| format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n");
    let long = "x".repeat(1 << 20);
    let first = r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"1"}}]}"#;
    for (what, first, again) in [
        ("text", "{}", format!("{{\"content\":\"{long}\"}}")),
        ("reasoning", "{}", format!("{{\"reasoning_content\":\"{long}\"}}")),
        (
            "arguments",
            first,
            format!(
                "{{\"tool_calls\":[{{\"index\":0,\"function\":{{\"arguments\":\"{long}\"}}}}]}}"
            ),
        ),
    ] {
        let dialect = endstop_wire::dialect::DIALECTS
            .iter()
            .find(|d| d.family == WireFormat::OpenAiChat)
            .unwrap();
        let mut s = StreamDecoder::new(dialect, 200, Headers::new(), RequestFacts::default());
        s.push(chat(first).as_bytes(), &mut |_| ()).unwrap();
        let again = chat(&again);
        let pushed = (0..100).take_while(|_| s.push(again.as_bytes(), &mut |_| ()).is_ok()).count();
        assert_eq!(pushed, if what == "arguments" { 15 } else { 16 }, "{what}");
        let decoded = s.finish(Eof::Clean);
        let error = decoded.error.expect("it is not an answer");
        assert_eq!(error.class, C::ServerError, "{what}");
        assert!(error.to_string().contains("exceeds 16777216 bytes of text"), "{what}: {error}");
    }
}
