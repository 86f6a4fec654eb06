//! The tokens that a ceiling counts, from the usage of each format.

use crate::bodies::of;
use endstop_core::TokensCounted;
use endstop_wire::{Headers, RequestFacts, WireFormat, decode_body};
use serde_json::{Value, json};

/// A response with 1000 prompt tokens, 900 of them cached, and 50 generated ones, 20 of them reasoning.
fn response(format: WireFormat) -> Option<Value> {
    Some(match format {
        WireFormat::OpenAiChat => json!({
            "choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}],
            "usage": {
                "prompt_tokens": 1000, "completion_tokens": 50,
                "prompt_tokens_details": {"cached_tokens": 900},
                "completion_tokens_details": {"reasoning_tokens": 20},
            },
        }),
        WireFormat::OpenAiResponses => json!({
            "id": "r", "status": "completed",
            "output": [{"type": "message", "id": "m", "content": [{"type": "output_text", "text": "a"}]}],
            "usage": {
                "input_tokens": 1000, "output_tokens": 50,
                "input_tokens_details": {"cached_tokens": 900},
                "output_tokens_details": {"reasoning_tokens": 20},
            },
        }),
        // Its prompt tokens exclude those that were read from a cache or written to one.
        WireFormat::Anthropic => json!({
            "type": "message", "content": [{"type": "text", "text": "a"}], "stop_reason": "end_turn",
            "usage": {
                "input_tokens": 60, "cache_read_input_tokens": 900,
                "cache_creation_input_tokens": 40, "output_tokens": 50,
            },
        }),
        // Its generated tokens exclude reasoning.
        WireFormat::Gemini => json!({
            "candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}],
            "usageMetadata": {
                "promptTokenCount": 1000, "cachedContentTokenCount": 900,
                "candidatesTokenCount": 30, "thoughtsTokenCount": 20,
            },
        }),
        WireFormat::BedrockConverse => json!({
            "output": {"message": {"content": [{"text": "a"}]}}, "stopReason": "end_turn",
            "usage": {
                "inputTokens": 60, "cacheReadInputTokens": 900, "cacheWriteInputTokens": 40,
                "outputTokens": 50,
            },
        }),
        WireFormat::CohereV2 => json!({
            "id": "r", "finish_reason": "COMPLETE",
            "message": {"content": [{"type": "text", "text": "a"}]},
            "usage": {"tokens": {"input_tokens": 1000, "output_tokens": 50}, "cached_tokens": 900},
        }),
        _ => return None,
    })
}

fn counted(format: WireFormat, body: &Value) -> [u64; 3] {
    let (headers, facts) = (Headers::new(), RequestFacts::default());
    let decoded = decode_body(of(format), 200, &headers, body.to_string().as_bytes(), &facts);
    let turn = decoded.turn.unwrap_or_else(|| panic!("{format:?} has no turn"));
    TokensCounted::ALL.map(|counts| counts.of(&turn.usage))
}

const FORMATS: [WireFormat; 6] = [
    WireFormat::OpenAiChat,
    WireFormat::OpenAiResponses,
    WireFormat::Anthropic,
    WireFormat::Gemini,
    WireFormat::BedrockConverse,
    WireFormat::CohereV2,
];

#[test]
fn cached_tokens_count_in_no_format() {
    for format in FORMATS {
        let body = response(format).unwrap();
        assert_eq!(counted(format, &body), [1050, 150, 50], "{format:?}");
    }
}

#[test]
fn cached_tokens_never_exceed_their_prompt() {
    let mut body = response(WireFormat::OpenAiChat).unwrap();
    body["usage"]["prompt_tokens_details"]["cached_tokens"] = json!(5_000);
    assert_eq!(counted(WireFormat::OpenAiChat, &body), [1050, 50, 50]);
}

fn stream(events: &[Value]) -> String {
    let events: Vec<String> = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    events.concat()
}

fn chat(events: &[Value]) -> (Option<u64>, Option<u64>) {
    let facts = RequestFacts::default();
    let body = stream(events) + "data: [DONE]\n\n";
    let d = decode_body(
        WireFormat::OpenAiChat.dialect(),
        200,
        &Headers::new(),
        body.as_bytes(),
        &facts,
    );
    let usage = d.turn.unwrap().usage;
    (usage.input_tokens, usage.output_tokens)
}

#[test]
fn zero_is_no_report_for_content() {
    let said =
        |delta: Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let usage = |prompt: u64, output: u64| json!({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": output}});
    let text = said(json!({"content": "It is Paris."}));
    let call = said(
        json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "ls", "arguments": "{}"}}]}),
    );
    for (events, counted) in [
        (vec![text.clone(), end.clone(), usage(0, 0)], (None, None)),
        (vec![call, end.clone(), usage(0, 0)], (None, None)),
        (vec![text.clone(), end.clone(), usage(1500, 0)], (Some(1500), None)),
        (vec![text.clone(), end.clone(), usage(0, 40)], (None, Some(40))),
        (vec![text.clone(), end.clone(), usage(1500, 40)], (Some(1500), Some(40))),
        // Nothing was said, so nothing was counted.
        (vec![end.clone(), usage(1500, 0)], (Some(1500), Some(0))),
        // Neither does a later zero, or a lower count, replace a count.
        (vec![text.clone(), usage(1500, 40), end.clone(), usage(0, 0)], (Some(1500), Some(40))),
        (vec![text, usage(1500, 40), end, usage(9, 50)], (Some(1500), Some(50))),
    ] {
        assert_eq!(chat(&events), counted, "{events:?}");
    }
}

#[test]
fn count_of_message_start_is_not_replaced_by_zero() {
    let usage = |input: u64, output: u64| json!({"input_tokens": input, "output_tokens": output});
    let events = [
        json!({"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": usage(1500, 1)}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Paris"}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage(0, 12)}),
        json!({"type": "message_stop"}),
    ];
    let body = stream(&events);
    let facts = RequestFacts::default();
    let d =
        decode_body(WireFormat::Anthropic.dialect(), 200, &Headers::new(), body.as_bytes(), &facts);
    let usage = d.turn.unwrap().usage;
    assert_eq!((usage.input_tokens, usage.output_tokens), (Some(1500), Some(12)));
}
