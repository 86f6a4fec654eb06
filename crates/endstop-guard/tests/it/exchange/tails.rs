//! The end of a cut stream: at every byte it is whole, or there is none.

use super::answers::{CALLS, STAMP, decoded, reply_to};
use endstop_guard::exchange::Delivery;
use endstop_guard::exchange::answer::{Ending, final_turn};

const NOTE: &str = " [cut \"here\"]";

#[test]
fn text_cut_anywhere_ends_as_whole_answer() {
    for (dialect, target, body) in CALLS {
        let reply = reply_to(target, "", body);
        let text = "One, two, three.";
        let stream = final_turn(&reply, text, STAMP).unwrap().chunks.concat();
        let mut ends = 0;
        let mut slow = reply.tail(STAMP);
        for at in 0..=stream.len() {
            if let Some(before) = at.checked_sub(1) {
                slow.push(&stream[before..at]);
            }
            for note in ["", NOTE] {
                // In one chunk, and byte by byte.
                let mut tail = reply.tail(STAMP);
                tail.push(&stream[..at]);
                let ending = tail.end(note);
                assert_eq!(slow.end(note), ending);
                let Ending::Now(rest) = ending else { continue };
                ends += 1;
                let whole = [&stream[..at], &rest].concat();
                let found = decoded(dialect, 200, &[], &whole);
                let what = format!("{target} at {at}: {found:?}");
                assert_eq!(found.signal.reason.as_str(), "natural_completion", "{what}");
                assert!(found.complete && found.error.is_none(), "{what}");
                let shown = found.turn.unwrap().text();
                assert!(shown.ends_with(note), "{what}");
                assert!(text.starts_with(&shown[..shown.len() - note.len()]), "{what}");
            }
        }
        // A stream of Gemini is one object here, which ends the turn itself; an array and Base64 in
        // frames have no clean end.
        let streamed = !matches!(reply.delivery, Delivery::Whole | Delivery::Array);
        let can_end = streamed && !["gemini", "bedrock-invoke"].contains(dialect);
        assert_eq!(ends > 0, can_end, "{target} {body}: {ends}");
    }
}

/// Streams with text before a tool call: the dialect's target, and the stream up to the call, the
/// call, and its end.
const WITH_CALL: &[(&str, &str, [&str; 3])] = &[
    (
        "/v1/chat/completions",
        r#"{"stream":true}"#,
        [
            "data: {\"id\":\"chatcmpl-9\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}\n\n",
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\
             \"function\":{\"name\":\"bash\",\"arguments\":\"{\"}}]}}]}\n\n",
            "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n",
        ],
    ),
    (
        "/v1/messages",
        r#"{"stream":true}"#,
        [
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[]}}\n\n\
             event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\
             \"content_block\":{\"type\":\"text\",\"text\":\"Hi\"}}\n\n",
            "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n\
             data: {\"type\":\"content_block_start\",\"index\":1,\
             \"content_block\":{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"Bash\",\"input\":{}}}\n\n",
            "data: {\"type\":\"content_block_stop\",\"index\":1}\n\n",
        ],
    ),
    (
        "/v1/responses",
        r#"{"stream":true}"#,
        [
            "data: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"r\"}}\n\n",
            "data: {\"type\":\"response.output_item.added\",\"output_index\":0,\
             \"item\":{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"x\"}}\n\n",
            "data: {\"type\":\"response.output_item.done\",\"output_index\":0,\
             \"item\":{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"x\"}}\n\n",
        ],
    ),
    (
        "/v1beta/models/g:streamGenerateContent?alt=sse",
        "{}",
        [
            "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hi\"}]}}]}\r\n\r\n",
            "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"x\"}}]}}]}\r\n\r\n",
            "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"!\"}]}}]}\r\n\r\n",
        ],
    ),
    (
        "/api/chat",
        "{}",
        [
            "{\"message\":{\"role\":\"assistant\",\"content\":\"Hi\"},\"done\":false}\n",
            "{\"message\":{\"tool_calls\":[{\"function\":{\"name\":\"x\",\"arguments\":{}}}]},\"done\":false}\n",
            "{\"message\":{\"content\":\"\"},\"done\":false}\n",
        ],
    ),
    (
        "/v2/chat",
        r#"{"stream":true}"#,
        [
            "event: message-start\ndata: {\"type\":\"message-start\",\"id\":\"c\"}\n\n\
             event: content-start\ndata: {\"type\":\"content-start\",\"index\":0,\"delta\":\
             {\"message\":{\"content\":{\"type\":\"text\",\"text\":\"Hi\"}}}}\n\n\
             event: content-end\ndata: {\"type\":\"content-end\",\"index\":0}\n\n",
            "event: tool-call-start\ndata: {\"type\":\"tool-call-start\",\"index\":0,\"delta\":{\"message\":\
             {\"tool_calls\":{\"id\":\"t\",\"function\":{\"name\":\"x\",\"arguments\":\"\"}}}}}\n\n",
            "event: tool-call-end\ndata: {\"type\":\"tool-call-end\",\"index\":0}\n\n",
        ],
    ),
];

#[test]
fn tool_call_is_never_ended() {
    for (target, body, [text, call, end]) in WITH_CALL {
        let mut tail = reply_to(target, "", body).tail(STAMP);
        assert_eq!(tail.end(""), Ending::Later, "{target}: nothing was sent");
        tail.push(text.as_bytes());
        assert!(matches!(tail.end(""), Ending::Now(_)), "{target}: text");
        for part in [call, end] {
            let (half, rest) = part.split_at(part.len() / 2);
            tail.push(half.as_bytes());
            assert!(!matches!(tail.end(""), Ending::Now(_)), "{target}: in the call");
            tail.push(rest.as_bytes());
            assert_eq!(tail.end(""), Ending::Never, "{target}: after the call");
        }
    }
}

#[test]
fn reasoning_is_not_ended() {
    let thinking = "data: {\"type\":\"message_start\",\"message\":{}}\n\n\
        data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\"}}\n\n";
    let mut tail = reply_to("/v1/messages", "", r#"{"stream":true}"#).tail(STAMP);
    tail.push(thinking.as_bytes());
    assert_eq!(tail.end(NOTE), Ending::Later);
    tail.push(b"data: {\"type\":\"content_block_stop\",\"index\":0}\n\n");
    assert!(matches!(tail.end(NOTE), Ending::Now(_)));
}

#[test]
fn ended_stream_keeps_its_id_and_items() {
    let mut tail = reply_to("/v1/chat/completions", "", r#"{"stream":true}"#).tail(STAMP);
    tail.push(WITH_CALL[0].2[0].as_bytes());
    let Ending::Now(rest) = tail.end("") else { panic!("no end") };
    assert!(String::from_utf8(rest).unwrap().contains("\"id\":\"chatcmpl-9\""));
    let mut tail = reply_to("/v1/responses", "", r#"{"stream":true}"#).tail(STAMP);
    let item = r#"{"type":"reasoning","id":"rs_1","encrypted_content":"x"}"#;
    let events = format!(
        "{}data: {{\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{item}}}\n\n",
        WITH_CALL[2].2[0]
    );
    tail.push(events.as_bytes());
    let Ending::Now(rest) = tail.end(NOTE) else { panic!("no end") };
    let rest = String::from_utf8(rest).unwrap();
    let last = rest.lines().rfind(|line| line.starts_with("data: ")).unwrap();
    let last: serde_json::Value = serde_json::from_str(&last[6..]).unwrap();
    assert_eq!(last["response"]["id"], "r");
    assert_eq!(last["response"]["output"][0]["encrypted_content"], "x");
    assert_eq!(last["response"]["output"][1]["content"][0]["text"], NOTE);
}
