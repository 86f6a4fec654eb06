//! Streams whose format is recognised on the way.

use endstop_core::SignalReason;
use endstop_guest::response::{Body, split_calls};
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
        let (decoded, api) = stream.finish(false);
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
        let (decoded, _) = stream.finish(false);
        assert!(decoded.error.is_some(), "{body}");
        // A second call returns the same, and later bytes are ignored.
        stream.push(CHAT.as_bytes(), |_| ());
        assert_eq!(stream.finish(true).0, decoded, "{body}");
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
    let (_, api) = body(claude).decode_as_last("anthropic-messages").unwrap();
    assert_eq!(api, "anthropic-messages");
    assert!(body(claude).decode_as_last("openai-chat").is_none());
    assert!(body(claude).decode_as_last("").is_none(), "before the first response");
    assert_eq!(body(claude).decode(None).unwrap().1, "anthropic-messages");
    assert!(body("<html>").decode(None).is_err());
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
        let (runnable, cut) = split_calls(&body.decode(None).unwrap().0);
        (runnable.len(), cut.len())
    };
    assert_eq!((of("tool_calls"), of("length")), ((1, 0), (0, 1)));
}
