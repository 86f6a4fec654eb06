//! Events that differ from the one before in their text alone are read without parsing. They must
//! give the same turn as events that are parsed: here, the same events with an escaped text, which
//! is always parsed.

use endstop_wire::dialect::{ANTHROPIC, Dialect, OPENAI_CHAT};
use endstop_wire::{Decoded, Eof, Headers, RequestFacts, StreamDecoder};
use proptest::prelude::*;

/// Writes a JSON string, with every character escaped if `escaped` is set.
fn string(text: &str, escaped: bool) -> String {
    if !escaped {
        return serde_json::to_string(text).unwrap();
    }
    let units = text.encode_utf16().map(|unit| format!("\\u{unit:04x}"));
    format!("\"{}\"", units.collect::<String>())
}

/// Decodes a stream of these events. Also returns its deltas.
fn decoded(dialect: &'static Dialect, events: &[String]) -> (Decoded, Vec<String>) {
    let mut stream = StreamDecoder::new(dialect, 200, Headers::new(), RequestFacts::default());
    let mut deltas = Vec::new();
    for event in events {
        let event = format!("data: {event}\n\n");
        stream.push(event.as_bytes(), &mut |delta| deltas.push(format!("{delta:?}"))).unwrap();
    }
    (stream.finish(Eof::Clean), deltas)
}

/// A text, and a choice of everything else in its event. Most events repeat the choice of others.
type Piece = (String, usize, usize);

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let text = prop_oneof![4 => "[ a-c]{0,4}", 1 => "[\"\\\\\u{1}\n\u{7f}é😀{}:,]{0,3}"];
    let rest = prop_oneof![4 => Just(0_usize), 1 => 0_usize..64];
    proptest::collection::vec((text, rest, 0_usize..8), 1..24)
}

fn chat(pieces: &[Piece], escaped: bool) -> Vec<String> {
    let one = |(text, rest, field): &Piece| {
        let pick = |of: &[&'static str]| of[rest % of.len()];
        let text = string(text, escaped);
        let (mut tier, mut finish, mut usage, mut logprobs) = ("null", "null", "null", "null");
        let (mut more, mut around) = ("", "");
        match field {
            0 => tier = pick(&["null", "\"default\"", "\"flex\"", "\"priority\""]),
            1 => finish = pick(&["null", "\"\"", "\"stop\"", "\"length\""]),
            2 => usage = pick(&["null", "{\"prompt_tokens\":3,\"completion_tokens\":1}", "{}"]),
            3 => logprobs = pick(&["null", "{\"content\":[{\"logprob\":-0.5}]}"]),
            4 => {
                more = pick(&[
                    "",
                    ",\"reasoning\":\"r\"",
                    ",\"reasoning_content\":\"\"",
                    ",\"refusal\":\"no\"",
                    ",\"tool_calls\":[]",
                    ",\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]",
                    ",\"reasoning_details\":[{\"a\":1}]",
                ]);
            }
            5 => around = pick(&["", ",\"error\":null", ",\"x_groq\":{\"id\":\"x\"}"]),
            _ => {}
        }
        format!(
            r#"{{"id":"x","model":"m","service_tier":{tier},"choices":[{{"index":0,"delta":{{"content":{text}{more}}},"logprobs":{logprobs},"finish_reason":{finish}}}],"usage":{usage}{around}}}"#
        )
    };
    pieces.iter().map(one).chain(["[DONE]".to_owned()]).collect()
}

fn anthropic(pieces: &[Piece], escaped: bool) -> Vec<String> {
    let one = |(text, rest, field): &Piece| {
        let (index, text) = (rest % 4, string(text, escaped));
        match field {
            0 => {
                let kind = ["text", "thinking", "tool_use", "server_tool_use"][rest / 4 % 4];
                format!(
                    r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"{kind}","id":"c","name":"f","text":"","thinking":"","input":{{}}}}}}"#
                )
            }
            1 => format!(
                r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"thinking_delta","thinking":{text}}}}}"#
            ),
            2 => r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}"#.to_owned(),
            3 => format!(r#"{{"index":{index},"delta":{{"type":"text_delta","text":{text}}}}}"#),
            _ => format!(
                r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"text_delta","text":{text}}}}}"#
            ),
        }
    };
    let end = r#"{"type":"message_stop"}"#.to_owned();
    pieces.iter().map(one).chain([end]).collect()
}

proptest! {
    #[test]
    fn repeated_frames_decode_like_parsed_ones(pieces in pieces()) {
        let parsed = decoded(OPENAI_CHAT, &chat(&pieces, true));
        prop_assert_eq!(decoded(OPENAI_CHAT, &chat(&pieces, false)), parsed);
        let parsed = decoded(ANTHROPIC, &anthropic(&pieces, true));
        prop_assert_eq!(decoded(ANTHROPIC, &anthropic(&pieces, false)), parsed);
    }
}
