//! Bodies and streams of InvokeModel, in each vendor's format.

use super::*;

// --- InvokeModel ---

#[test]
fn invoke_bodies_of_each_model_decode() {
    let natural = "natural_completion";
    let limit = "token_limit_reached";
    for (body, text, reason, field, tokens) in [
        (
            json!({"inputTextTokenCount": 5, "results": [{"tokenCount": 7, "outputText": "Hi", "completionReason": "FINISH"}]}),
            "Hi",
            natural,
            "completionReason",
            (Some(5), Some(7)),
        ),
        (
            json!({"inputTextTokenCount": 5, "results": [{"tokenCount": 7, "outputText": "Hi", "completionReason": "LENGTH"}]}),
            "Hi",
            limit,
            "completionReason",
            (Some(5), Some(7)),
        ),
        (
            json!({"results": [{"outputText": "Hi", "completionReason": "CONTENT_FILTERED"}]}),
            "Hi",
            "content_filtered",
            "completionReason",
            (None, None),
        ),
        (
            json!({"results": [{"outputText": "Hi", "completionReason": "RAG_QUERY_WHEN_RAG_DISABLED"}]}),
            "Hi",
            "unknown",
            "completionReason",
            (None, None),
        ),
        (
            json!({"generation": "Hi", "prompt_token_count": 5, "generation_token_count": 7, "stop_reason": "stop"}),
            "Hi",
            natural,
            "stop_reason",
            (Some(5), Some(7)),
        ),
        (
            json!({"generation": "Hi", "prompt_token_count": 5, "generation_token_count": 7, "stop_reason": "length"}),
            "Hi",
            limit,
            "stop_reason",
            (Some(5), Some(7)),
        ),
        (
            json!({"outputs": [{"text": "Hi", "stop_reason": "stop"}]}),
            "Hi",
            natural,
            "stop_reason",
            (None, None),
        ),
        (
            json!({"choices": [{"text": "Hi", "stop_reason": "length"}]}),
            "Hi",
            limit,
            "stop_reason",
            (None, None),
        ),
        (
            json!({"generations": [{"text": "Hi", "finish_reason": "COMPLETE"}], "id": "x"}),
            "Hi",
            natural,
            "finish_reason",
            (None, None),
        ),
        (
            json!({"text": "Hi", "finish_reason": "ERROR_TOXIC"}),
            "Hi",
            "content_filtered",
            "finish_reason",
            (None, None),
        ),
        // Calls in an unsupported format are not a natural end.
        (
            json!({"text": "Hi", "finish_reason": "COMPLETE", "tool_calls": [{"name": "f"}]}),
            "Hi",
            "unknown",
            "finish_reason",
            (None, None),
        ),
        (
            json!({"completions": [{"data": {"text": "Hi"}, "finishReason": {"reason": "endoftext"}}]}),
            "Hi",
            natural,
            "finishReason.reason",
            (None, None),
        ),
        (
            json!({"type": "completion", "completion": " Hi", "stop_reason": "stop_sequence", "stop": "\n\nHuman:"}),
            " Hi",
            natural,
            "stop_reason",
            (None, None),
        ),
        (
            json!({"type": "completion", "completion": " Hi", "stop_reason": "stop_sequence", "stop": "END"}),
            " Hi",
            "stop_sequence",
            "stop_reason",
            (None, None),
        ),
        (
            json!({"output": {"message": {"role": "assistant", "content": [{"text": "Hi"}]}}, "stopReason": "max_tokens", "usage": {"inputTokens": 5, "outputTokens": 7}}),
            "Hi",
            limit,
            "stopReason",
            (Some(5), Some(7)),
        ),
        (
            json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 5, "completion_tokens": 7}}),
            "Hi",
            natural,
            "finish_reason",
            (Some(5), Some(7)),
        ),
        (
            json!({"type": "message", "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn", "usage": {"input_tokens": 5, "output_tokens": 7}}),
            "Hi",
            natural,
            "stop_reason",
            (Some(5), Some(7)),
        ),
    ] {
        let d = decode("bedrock-invoke", body.to_string().as_bytes());
        let (got, confidence, by, _) = signal(&d);
        assert_eq!((got.as_str(), said(&d).as_str()), (reason, text), "{body}");
        assert!(by.ends_with(field), "{body}: {by}");
        assert!(reason == "unknown" || confidence == "high", "{body}");
        let usage = d.turn.unwrap().usage;
        assert_eq!((usage.input_tokens, usage.output_tokens), tokens, "{body}");
    }
}

#[test]
fn invoke_streams_of_each_model_decode() {
    let metrics = json!({"inputTokenCount": 5, "outputTokenCount": 7, "invocationLatency": 1});
    let titan = |text: &str, reason: Value| json!({"outputText": text, "index": 0, "totalOutputTextTokenCount": null, "completionReason": reason});
    let nova = |key: &str, inner: Value| json!({key: inner});
    let cases = [
        vec![titan("Hel", json!(null)), titan("lo", json!("FINISH"))],
        vec![
            json!({"generation": "Hel", "prompt_token_count": 5, "generation_token_count": 1, "stop_reason": null}),
            json!({"generation": "lo", "prompt_token_count": null, "generation_token_count": 7, "stop_reason": "stop"}),
        ],
        vec![
            json!({"outputs": [{"text": "Hel", "stop_reason": null}]}),
            json!({"outputs": [{"text": "lo", "stop_reason": "stop"}]}),
        ],
        vec![
            json!({"text": "Hel", "is_finished": false}),
            json!({"text": "lo", "is_finished": false}),
            json!({"is_finished": true, "finish_reason": "COMPLETE"}),
        ],
        vec![
            nova("messageStart", json!({"role": "assistant"})),
            nova("contentBlockDelta", json!({"contentBlockIndex": 0, "delta": {"text": "Hel"}})),
            nova("contentBlockDelta", json!({"contentBlockIndex": 0, "delta": {"text": "lo"}})),
            nova("messageStop", json!({"stopReason": "end_turn"})),
            nova("metadata", json!({"usage": {"inputTokens": 5, "outputTokens": 7}})),
        ],
        vec![
            json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hel"}}]}),
            json!({"choices": [{"index": 0, "delta": {"content": "lo"}, "finish_reason": "stop"}]}),
        ],
        vec![
            json!({"type": "message_start", "message": {"usage": {"input_tokens": 5}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hel"}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}),
            json!({"type": "message_stop"}),
        ],
    ];
    for mut events in cases {
        events.last_mut().unwrap()["amazon-bedrock-invocationMetrics"] = metrics.clone();
        let bytes: Vec<u8> = events.iter().flat_map(chunk).collect();
        for cut in [1, 13, usize::MAX] {
            let (d, shown) = streamed("bedrock-invoke", &bytes, cut);
            assert_eq!((signal(&d).0.as_str(), shown.as_str()), ("natural_completion", "Hello"));
            assert!(d.streamed && d.complete && d.error.is_none(), "{events:?}");
            let usage = d.turn.unwrap().usage;
            assert_eq!((usage.input_tokens, usage.output_tokens), (Some(5), Some(7)), "{events:?}");
        }
        // A stream without its last events has no end.
        let cut: Vec<u8> = events[..1].iter().flat_map(chunk).collect();
        let (d, _) = streamed("bedrock-invoke", &cut, 13);
        assert_eq!(class(&d), Some(ErrorClass::IncompleteStream), "{events:?}");
        // An exception ends a stream without success, at any position.
        let failed = [exception("throttlingException", "Slow down."), bytes].concat();
        let (d, _) = streamed("bedrock-invoke", &failed, 13);
        assert_eq!(class(&d), Some(ErrorClass::RateLimit), "{events:?}");
    }
}

#[test]
fn unreadable_chunk_breaks_the_stream() {
    let end = chunk(&json!({"generation": "x", "stop_reason": "stop"}));
    for bad in [
        event("chunk", &json!({"bytes": "not base64!"})),
        event("chunk", &json!({"bytes": STANDARD.encode([0xff])})),
        event("chunk", &json!({"bytes": STANDARD.encode("{\"generation\": ")})),
        event("chunk", &json!({})),
        frame(&[(":message-type", "event"), (":event-type", "chunk")], &[0xff]),
    ] {
        for bytes in [[bad.clone(), end.clone()].concat(), [end.clone(), bad].concat()] {
            let (d, _) = streamed("bedrock-invoke", &bytes, 9);
            assert_eq!(d.signal.reason.as_str(), "error_termination");
            assert!(d.error.is_some());
        }
    }
}

#[test]
fn halves_of_a_character_join_in_the_envelope() {
    let inner = |text: &str| {
        let json = format!(
            r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{text}"}}}}"#
        );
        event("chunk", &json!({"bytes": STANDARD.encode(json)}))
    };
    let end = chunk(&json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}));
    for (pieces, want) in [
        (&[r"ok \ud83d", r"\ude00 done"][..], "ok 😀 done"),
        (&[r"ok \ud83d"], "ok \u{fffd}"),
        (&[r"\ud83d", "x"], "\u{fffd}x"),
    ] {
        let mut bytes: Vec<u8> = pieces.iter().flat_map(|piece| inner(piece)).collect();
        bytes.extend(&end);
        assert_eq!(decode("bedrock-invoke", &bytes).turn.unwrap().text(), want, "{pieces:?}");
    }
    // The last event of a stream that was cut.
    let cut = decode("bedrock-invoke", &inner(r"ok \ud83d"));
    assert_eq!(cut.turn.unwrap().text(), "ok \u{fffd}");
}
