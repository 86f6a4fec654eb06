//! Answers of guard, read by our own decoders and compared with shapes that real clients accepted.

use endstop_core::{ErrorClass, Termination};
use endstop_guard::exchange::answer::{
    AnswerFormat, Stamp, bad_request, final_turn, refusal, stop_message, upgrade_required,
};
use endstop_guard::exchange::{ClientFacts, Request, Structured, route};
use endstop_guard::proxy::Answer;
use endstop_wire::dialect::dialect;
use endstop_wire::stream::sse::{Item, SseDecoder};
use endstop_wire::{Decoded, Eof, Headers, RequestFacts, StreamDecoder};
use serde_json::{Value, json};

pub(crate) const STAMP: Stamp<'static> = Stamp { id: "0a1b2c3d", unix_seconds: 1_795_333_570 };

/// Every format and delivery: the dialect of its decoder, the target, and a body.
pub(crate) const CALLS: &[(&str, &str, &str)] = &[
    ("openai-chat", "/v1/chat/completions", r#"{"model":"gpt \"5\""}"#),
    ("openai-chat", "/v1/chat/completions", r#"{"model":"gpt","stream":true}"#),
    (
        "openai-chat",
        "/v1/chat/completions",
        r#"{"model":"gpt","stream":true,"stream_options":{"include_usage":true}}"#,
    ),
    ("openai-responses", "/v1/responses", r#"{"model":"gpt"}"#),
    ("openai-responses", "/v1/responses", r#"{"model":"gpt","stream":true}"#),
    ("anthropic-messages", "/v1/messages", r#"{"model":"claude"}"#),
    ("anthropic-messages", "/v1/messages", r#"{"model":"claude","stream":true}"#),
    ("gemini", "/v1beta/models/gemini:generateContent", "{}"),
    ("gemini", "/v1beta/models/gemini:streamGenerateContent?alt=sse", "{}"),
    ("gemini", "/v1beta/models/gemini:streamGenerateContent", "{}"),
    ("bedrock-converse", "/model/nova/converse", "{}"),
    ("bedrock-converse", "/model/nova/converse-stream", "{}"),
    ("bedrock-invoke", "/model/claude/invoke", r#"{"anthropic_version":"b"}"#),
    ("bedrock-invoke", "/model/claude/invoke-with-response-stream", r#"{"anthropic_version":"b"}"#),
    ("ollama", "/api/chat", r#"{"model":"llama","stream":false}"#),
    ("ollama", "/api/chat", r#"{"model":"llama"}"#),
    ("cohere-v2", "/v2/chat", r#"{"model":"command"}"#),
    ("cohere-v2", "/v2/chat", r#"{"model":"command","stream":true}"#),
];

/// Terminations with which a guarded run is stopped.
const STOPS: &[Termination] = &[
    Termination::ErrorMaxTurns,
    Termination::ErrorMaxBudgetUsd,
    Termination::ErrorMaxTokens,
    Termination::ErrorTimeout,
    Termination::ErrorConsecutiveMistakes,
    Termination::ErrorPromptTooLong,
    Termination::ErrorNoProgress,
    Termination::ErrorOutputTruncated,
    Termination::ErrorDuringExecution,
    Termination::ErrorContentFiltered,
    Termination::ErrorProviderAuth,
    Termination::Cancelled,
    Termination::Terminated,
];

pub(crate) fn reply_to(target: &str, user_agent: &str, body: &str) -> AnswerFormat {
    let route = route("POST", target).unwrap();
    let request = Request::read(&route, body.as_bytes()).unwrap();
    let headers = [("user-agent", user_agent.as_bytes())];
    let facts = ClientFacts::read(headers, target, &super::client::salt());
    AnswerFormat::to(&request, &facts)
}

pub(crate) fn decoded(
    dialect_name: &str,
    status: u16,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Decoded {
    let dialect = dialect(dialect_name).unwrap();
    let headers: Headers = headers.iter().copied().collect();
    let mut decoder = StreamDecoder::new(dialect, status, headers, RequestFacts::default());
    decoder.push(body, &mut |_| ()).unwrap();
    decoder.finish(Eof::Clean)
}

fn read(dialect: &str, answer: &Answer) -> Decoded {
    let headers: Vec<_> = answer
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
        .collect();
    decoded(dialect, answer.status.as_u16(), &headers, &answer.chunks.concat())
}

#[test]
fn final_turn_is_whole_answer_in_every_format() {
    // Quotes, a line break and characters outside ASCII must survive every encoding.
    let text = stop_message(Termination::ErrorMaxTurns, "25 of 25 \"turns\"\n\\ é 😀", "nightly-1");
    for (dialect, target, body) in CALLS {
        let reply = reply_to(target, "", body);
        let answer = final_turn(&reply, &text, STAMP).unwrap();
        let found = read(dialect, &answer);
        let what = format!("{target} {body}: {found:?}");
        assert_eq!(answer.status, 200);
        assert_eq!(found.signal.reason.as_str(), "natural_completion", "{what}");
        assert!(found.complete && found.error.is_none(), "{what}");
        let found_streamed = found.streamed;
        let turn = found.turn.unwrap();
        assert_eq!(turn.text(), text, "{what}");
        assert_eq!(turn.tool_calls().count(), 0);
        // Clients that ask for the usage get zeros, which our own decoder does not take for a report.
        let bytes = answer.chunks.concat();
        let body = String::from_utf8_lossy(&bytes).to_lowercase();
        let has_zeros = ["tokens\":0", "tokencount\":0", "eval_count\":0"]
            .iter()
            .any(|zero| body.contains(zero));
        // The events of this stream are in Base64.
        let is_packed = *dialect == "bedrock-invoke" && found_streamed;
        assert!(is_packed || has_zeros == reply.usage_requested, "{what} {body}");
        assert_eq!(turn.usage.output_tokens, None, "{what}");
        // These formats do not repeat the model.
        if !["bedrock-converse", "cohere-v2"].contains(dialect) {
            assert_eq!(turn.model.as_deref(), Some(&*reply.model), "{what}");
        }
    }
}

#[test]
fn refusal_is_fatal_error_in_every_format() {
    for termination in STOPS {
        let message = stop_message(*termination, "limit 3", "nightly-1");
        for (dialect, target, body) in CALLS {
            let answer = refusal(&reply_to(target, "opencode/1", body), &message, STAMP);
            assert_eq!(answer.status, 400);
            assert!(answer.headers["x-should-retry"] == "false");
            let found = read(dialect, &answer);
            let error = found.error.unwrap();
            assert_eq!(error.class, ErrorClass::InvalidRequest, "{target} {error:?}");
            assert_eq!(found.should_retry, Some(false));
            assert!(error.message.contains(&message), "{target}: {}", error.message);
            assert!(String::from_utf8(answer.chunks.concat()).unwrap().contains("nightly-1"));
        }
    }
}

#[test]
fn claude_code_is_refused_with_402() {
    let body = r#"{"model":"claude","stream":true}"#;
    let reply = reply_to("/v1/messages", "claude-cli/2.1.330 (external, sdk-cli)", body);
    let answer = refusal(&reply, "Run stopped by endstop: error_max_turns", STAMP);
    assert_eq!(answer.status, 402);
    let body: Value = serde_json::from_slice(&answer.chunks.concat()).unwrap();
    assert_eq!(body["error"]["type"], "billing_error");
    assert_eq!(body["type"], "error");
    let error = read("anthropic-messages", &answer).error.unwrap();
    assert_eq!(error.class, ErrorClass::QuotaExhausted);
}

#[test]
fn claude_code_behind_a_gateway_is_refused_with_402() {
    for (target, kind) in
        [("/v1/messages", "billing_error"), ("/v1/chat/completions", "invalid_request_error")]
    {
        let headers =
            [("x-claude-code-session-id", &b"s-1"[..]), ("user-agent", &b"litellm/1.105.7"[..])];
        let facts = ClientFacts::read(headers, target, &super::client::salt());
        let reply = AnswerFormat::unread(&route("POST", target).unwrap(), &facts);
        let answer = refusal(&reply, "Run stopped by endstop: error_max_turns", STAMP);
        assert_eq!(answer.status, 402);
        // In the format of the gateway, which translates it.
        let body: Value = serde_json::from_slice(&answer.chunks.concat()).unwrap();
        assert_eq!(body["error"]["type"], kind);
    }
}

#[test]
fn refusals_have_shapes_of_providers() {
    let body = |target: &str| {
        let answer = refusal(&reply_to(target, "", r#"{"anthropic_version":"b"}"#), "m", STAMP);
        serde_json::from_slice::<Value>(&answer.chunks.concat()).unwrap()
    };
    let kind = "invalid_request_error";
    let openai = json!({"error": {"message": "m", "type": kind, "param": null, "code": null}});
    assert_eq!(body("/v1/chat/completions"), openai);
    assert_eq!(body("/v1/responses"), openai);
    assert_eq!(
        body("/v1/messages"),
        json!({"type": "error", "error": {"type": kind, "message": "m"}, "request_id": "req_0a1b2c3d"})
    );
    assert_eq!(
        body("/v1/models/g:generateContent"),
        json!({"error": {"code": 400, "message": "m", "status": "INVALID_ARGUMENT"}})
    );
    assert_eq!(body("/model/m/invoke"), json!({"message": "m"}));
    assert_eq!(body("/api/chat"), json!({"error": "m"}));
}

#[test]
fn upgrade_and_bad_request_are_errors() {
    let upgrade = upgrade_required();
    assert_eq!(upgrade.status, 426);
    assert!(upgrade.headers["upgrade"] == "HTTP/1.1");
    let bad = bad_request("invalid run name: \"x\"\n");
    assert_eq!(bad.status, 400);
    for answer in [upgrade, bad] {
        let body: Value = serde_json::from_slice(&answer.chunks.concat()).unwrap();
        assert!(body["error"]["message"].is_string());
    }
}

#[test]
fn structured_answers_are_never_prose() {
    let choice = Some(Structured::ToolChoice);
    let tool = |name: &str| Some(Structured::Tool(name.to_owned()));
    for (target, body, expected) in [
        (
            "/v1/chat/completions",
            json!({"response_format": {"type": "json_schema"}}),
            Some(Structured::Schema),
        ),
        ("/v1/chat/completions", json!({"response_format": {"type": "text"}}), None),
        ("/v1/chat/completions", json!({"tool_choice": "required"}), choice.clone()),
        ("/v1/chat/completions", json!({"tool_choice": "auto"}), None),
        (
            "/v1/chat/completions",
            json!({"tool_choice": {"type": "function", "function": {"name": "f"}}}),
            tool("f"),
        ),
        (
            "/v1/responses",
            json!({"text": {"format": {"type": "json_schema"}}}),
            Some(Structured::Schema),
        ),
        ("/v1/responses", json!({"text": {"format": {"type": "text"}, "verbosity": "low"}}), None),
        ("/v1/responses", json!({"tool_choice": {"type": "allowed_tools", "mode": "auto"}}), None),
        (
            "/v1/responses",
            json!({"tool_choice": {"type": "allowed_tools", "mode": "required"}}),
            choice.clone(),
        ),
        ("/v1/messages", json!({"output_config": {"effort": "medium"}}), None),
        (
            "/v1/messages",
            json!({"output_config": {"format": {"type": "json_schema"}}}),
            Some(Structured::Schema),
        ),
        ("/v1/messages", json!({"tool_choice": {"type": "any"}}), choice.clone()),
        ("/v1/messages", json!({"tool_choice": {"type": "auto"}}), None),
        (
            "/v1/messages",
            json!({"tools": [{"name": "Bash"}, {"name": "StructuredOutput"}]}),
            tool("StructuredOutput"),
        ),
        (
            "/v1/models/g:generateContent",
            json!({"generationConfig": {"responseMimeType": "application/json"}}),
            Some(Structured::Schema),
        ),
        (
            "/v1/models/g:generateContent",
            json!({"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}),
            choice.clone(),
        ),
        (
            "/v1/models/g:generateContent",
            json!({"tools": [{"functionDeclarations": [{"name": "complete_task"}]}]}),
            tool("complete_task"),
        ),
        ("/model/m/converse", json!({"toolConfig": {"toolChoice": {"any": {}}}}), choice),
        ("/model/m/converse", json!({"toolConfig": {"toolChoice": {"auto": {}}}}), None),
        ("/api/chat", json!({"format": "json"}), Some(Structured::Schema)),
    ] {
        let reply = reply_to(target, "", &body.to_string());
        assert_eq!(reply.structured, expected, "{target} {body}");
        assert_eq!(final_turn(&reply, "x", STAMP).is_none(), expected.is_some(), "{body}");
    }
    // A text-only model inside InvokeModel has a format of its own.
    let reply = reply_to("/model/m/invoke", "", r#"{"messages":[]}"#);
    assert!(final_turn(&reply, "x", STAMP).is_none());
}

#[test]
fn unread_request_is_refused_in_its_format() {
    let unread = |target: &str, user_agent: &str| {
        let route = route("POST", target).unwrap();
        let headers = [("user-agent", user_agent.as_bytes())];
        let facts = ClientFacts::read(headers, target, &super::client::salt());
        AnswerFormat::unread(&route, &facts)
    };
    for (target, user_agent, status, field) in [
        ("/v1/messages", "claude-cli/2", 402, "/error/type"),
        ("/v1/messages", "", 400, "/request_id"),
        ("/v1/models/g:generateContent", "", 400, "/error/status"),
        ("/v1/responses/compact", "codex", 400, "/error/message"),
        ("/v1/files", "", 400, "/error/message"),
    ] {
        let reply = unread(target, user_agent);
        assert!(final_turn(&reply, "x", STAMP).is_none());
        let answer = refusal(&reply, "m", STAMP);
        let body: Value = serde_json::from_slice(&answer.chunks.concat()).unwrap();
        assert_eq!(answer.status, status, "{target}");
        assert!(body.pointer(field).is_some(), "{target} {body}");
    }
}

/// The names and kinds of a value's members, without the values.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), shape(value))).collect()
        }
        Value::Array(list) => list.iter().map(shape).collect(),
        Value::String(_) => json!("text"),
        Value::Number(_) => json!(0),
        other => other.clone(),
    }
}

#[test]
fn final_bodies_have_accepted_shapes() {
    // The bodies of a mock provider that ended every known client.
    let usage = json!({"input_tokens": 0, "cache_creation_input_tokens": 0,
                       "cache_read_input_tokens": 0, "output_tokens": 0});
    let anthropic = json!({"id": "", "type": "", "role": "", "model": "",
        "content": [{"type": "", "text": ""}], "stop_reason": "", "stop_sequence": null, "usage": usage});
    let chat = json!({"id": "", "object": "", "created": 1, "model": "",
        "choices": [{"index": 0, "message": {"role": "", "content": ""}, "finish_reason": ""}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}});
    let part = json!({"type": "", "text": "", "annotations": []});
    let responses = json!({"id": "", "object": "", "created_at": 1, "status": "", "model": "",
        "output": [{"type": "", "id": "", "role": "", "status": "", "content": [part]}],
        "error": null, "incomplete_details": null, "instructions": null, "metadata": {},
        "parallel_tool_calls": true, "tool_choice": "", "tools": [], "temperature": 1.0, "top_p": 1.0,
        "usage": {"input_tokens": 0, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 0,
                  "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 0}});
    for (target, expected) in
        [("/v1/messages", anthropic), ("/v1/chat/completions", chat), ("/v1/responses", responses)]
    {
        let answer = final_turn(&reply_to(target, "", r#"{"model":"m"}"#), "x", STAMP).unwrap();
        let body: Value = serde_json::from_slice(&answer.chunks.concat()).unwrap();
        assert_eq!(shape(&body), shape(&expected), "{target}");
    }
}

#[test]
fn final_streams_have_accepted_events() {
    let events = |target: &str| {
        let body = r#"{"model":"m","stream":true,"stream_options":{"include_usage":true}}"#;
        let answer = final_turn(&reply_to(target, "", body), "x", STAMP).unwrap();
        let mut names = Vec::new();
        let mut take = |item: Item<'_>| {
            if let Item::Event { name, data, .. } = item {
                let kind = serde_json::from_str::<Value>(data).ok();
                let kind = kind.and_then(|data| Some(data.get("type")?.as_str()?.to_owned()));
                names.push(kind.unwrap_or_else(|| data.chars().take(6).collect()));
                assert!(name.is_empty() || Some(name) == names.last().map(String::as_str));
            }
        };
        SseDecoder::new().push(&answer.chunks.concat(), &mut take).unwrap();
        names
    };
    assert_eq!(
        events("/v1/messages"),
        [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop"
        ]
    );
    assert_eq!(
        events("/v1/responses"),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed"
        ]
    );
    let chunks = events("/v1/chat/completions");
    assert_eq!((chunks.len(), chunks.last().map(String::as_str)), (5, Some("[DONE]")));
}

#[test]
fn stop_message_has_no_control_characters() {
    let text = stop_message(Termination::ErrorNoProgress, "\u{1b}[2J\r\n", "a\0b");
    assert_eq!(text, "Run stopped by endstop: error_no_progress ( [2J  ), in run a b");
    assert_eq!(
        stop_message(Termination::Cancelled, "", "a"),
        "Run stopped by endstop: cancelled, in run a"
    );
}
