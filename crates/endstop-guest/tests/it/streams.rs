//! Streams whose format is recognised on the way.

use endstop_core::SignalReason;
use endstop_guest::response::{Body, Chunks, Detection};
use endstop_guest::stream::Stream;
use endstop_wire::{Headers, RequestFacts};
use proptest::prelude::*;

const CHAT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\ndata: \
    {\"choices\":[{\"delta\":{\"content\":\"lo\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

fn stream() -> Stream {
    Stream::new(None, 200, Headers::new(), RequestFacts::default())
}

fn text_of(delta: endstop_wire::Delta<'_>, text: &mut String) {
    if let endstop_wire::Delta::Text(more) = delta {
        text.push_str(more);
    }
}

proptest! {
    #[test]
    fn chunks_do_not_change_the_turn(
        blanks in 0_usize..200_000,
        cuts in proptest::collection::vec(0..CHAT.len(), 0..20),
    ) {
        let mut stream = stream();
        let mut text = String::new();
        stream.push(&vec![b'\n'; blanks], |_| ());
        let mut cuts = cuts;
        cuts.extend([0, CHAT.len()]);
        cuts.sort_unstable();
        for pair in cuts.windows(2) {
            stream.push(&CHAT.as_bytes()[pair[0]..pair[1]], |delta| text_of(delta, &mut text));
        }
        prop_assert!(stream.is_complete());
        let Detection { decoded, api } = stream.finish(false);
        prop_assert_eq!(decoded.signal.reason, SignalReason::NaturalCompletion);
        prop_assert_eq!((api, stream.api()), ("openai-chat", Some("openai-chat")));
        prop_assert_eq!(decoded.turn.unwrap().text(), "Hello");
        // The bytes from before the format was known are not lost.
        prop_assert_eq!(text, "Hello");
    }
}

#[test]
fn unknown_format_is_never_success() {
    for body in ["", "<html>no", "{\"choices\": 3}"] {
        let mut stream = stream();
        stream.push(body.as_bytes(), |_| ());
        let found = stream.finish(false);
        assert!(found.decoded.error.is_some(), "{body}");
        // A second call returns the same, and later bytes are ignored.
        stream.push(CHAT.as_bytes(), |_| ());
        assert_eq!(stream.finish(true), found, "{body}");
    }
}

#[test]
fn last_format_is_tried_first() {
    let headers = Headers::new();
    let request = RequestFacts::default();
    let body = |text: &'static str| Body {
        bytes: text.as_bytes(),
        status: Some(200),
        headers: &headers,
        request: &request,
    };
    let claude = r#"{"id":"m","type":"message","role":"assistant","model":"c","content":
        [{"type":"text","text":"Hi"}],"stop_reason":"end_turn",
        "usage":{"input_tokens":1,"output_tokens":1}}"#;
    for last in ["anthropic-messages", "openai-chat", ""] {
        assert_eq!(body(claude).detect(None, last).unwrap().api, "anthropic-messages", "{last}");
    }
    assert!(body("<html>").detect(None, "").is_err());
}

#[test]
fn calls_of_cut_response_are_cut() {
    let of = |finish: &str| {
        let call = r#"{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}"#;
        let body = format!(
            r#"{{"choices":[{{"message":{{"tool_calls":[{call}]}},"finish_reason":"{finish}"}}]}}"#
        );
        let (headers, request) = (Headers::new(), RequestFacts::default());
        let body = Body {
            bytes: body.as_bytes(),
            status: Some(200),
            headers: &headers,
            request: &request,
        };
        let (runnable, cut) = body.detect(None, "").unwrap().split_calls();
        (runnable.len(), cut.len())
    };
    assert_eq!((of("tool_calls"), of("length")), ((1, 0), (0, 1)));
}

#[test]
fn one_event_is_not_a_response() {
    let (headers, request) = (Headers::new(), RequestFacts::default());
    let detect = |text: &str| {
        let (bytes, status) = (text.as_bytes(), None);
        Body { bytes, status, headers: &headers, request: &request }.detect(None, "")
    };
    for event in [
        r#"{"object":"chat.completion.chunk","choices":[{"delta":{"content":"Hi"},"index":0}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}"#,
        r#"{"type":"message_start","message":{"content":[]}}"#,
        r#"{"type":"response.output_text.delta","delta":"Hi"}"#,
        r#"{"type":"content-delta","delta":{"message":{"content":{"text":"Hi"}}}}"#,
        r#"{"contentBlockDelta":{"delta":{"text":"Hi"}}}"#,
        r#"{"model":"m","message":{"content":"Hi"},"done":false}"#,
    ] {
        let problem = detect(event).unwrap_err().to_string();
        assert!(problem.starts_with("this is one event of a stream"), "{event}: {problem}");
        // With its frame, it is a stream that was cut.
        let framed = format!("data: {event}\n\n");
        let found = detect(&framed).unwrap();
        assert!(
            found.decoded.signal.reason != SignalReason::NaturalCompletion
                || event.contains("stop")
        );
    }
}

#[test]
fn list_of_whole_responses_is_refused() {
    let wholes = [
        r#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}"#,
        r#"{"object":"response","output":[]}"#,
        r#"{"type":"message","content":[],"stop_reason":"end_turn"}"#,
        r#"{"output":{"message":{}},"stopReason":"end_turn"}"#,
        r#"{"message":{},"finish_reason":"COMPLETE"}"#,
        r#"{"model":"m","message":{},"done":true}"#,
    ];
    for whole in wholes {
        let mut chunks = Chunks::default();
        chunks.add(whole.as_bytes()).unwrap();
        let problem = chunks.add(whole.as_bytes()).unwrap_err().to_string();
        assert!(problem.starts_with("this is a list of several responses"), "{whole}: {problem}");
    }
    let of =
        |id: &str| format!(r#"{{"responseId":"{id}","candidates":[{{"finishReason":"STOP"}}]}}"#);
    let mut chunks = Chunks::default();
    for id in ["a", "a"] {
        chunks.add(of(id).as_bytes()).unwrap();
    }
    assert!(chunks.add(of("b").as_bytes()).is_err());
    // Events of a stream, and the last object of Ollama's.
    let mut chunks = Chunks::default();
    for done in [false, false, true] {
        chunks.add(format!(r#"{{"model":"m","message":{{}},"done":{done}}}"#).as_bytes()).unwrap();
    }
}
