//! Tests the endings that an audit reports for recorded failures.

use crate::common::{parsed, runs};
use endstop_core::Termination as T;
use endstop_trajectory::Prices;
use endstop_trajectory::audit::{Ended, How, Session};
use serde_json::{Value, json};

fn ended(file: &str) -> Ended {
    Session::of(&runs(file)[0], &Prices::new()).ended
}

#[test]
fn cut_stream_is_not_terminated() {
    let ended = ended("pi/cut_streams.jsonl");
    assert_eq!(ended.native.as_deref(), Some("terminated"));
    assert_eq!(ended.termination, Some(T::ErrorDuringExecution));
}

/// Reads a session from its lines.
fn written(format: &str, lines: &[Value]) -> Ended {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let run = parsed("s.jsonl", text).remove(0);
    assert_eq!(run.origin.format, format);
    Session::of(&run, &Prices::new()).ended
}

fn claude_code(error: &str, status: Option<u16>) -> Ended {
    let message =
        |role: &str, text: &str| json!({"role": role, "content": [{"type": "text", "text": text}]});
    written(
        "claude-code",
        &[
            json!({"type": "user", "uuid": "a", "parentUuid": null, "sessionId": "s", "message": message("user", "go")}),
            json!({"type": "assistant", "uuid": "b", "parentUuid": "a", "sessionId": "s", "isApiErrorMessage": true,
                "apiErrorStatus": status, "message": message("assistant", error)}),
        ],
    )
}

fn qwen_code(error: &str, status: Option<u16>) -> Ended {
    let event =
        json!({"event.name": "qwen-code.api_error", "error_message": error, "status_code": status});
    written(
        "qwen-code",
        &[
            json!({"uuid": "a", "parentUuid": null, "sessionId": "s", "type": "user", "message": {"parts": [{"text": "go"}]}}),
            json!({"uuid": "b", "parentUuid": "a", "sessionId": "s", "type": "system", "subtype": "ui_telemetry",
                "systemPayload": {"uiEvent": event}}),
        ],
    )
}

fn opencode(error: &str, status: Option<u16>) -> Ended {
    let failed = json!({"name": "APIError", "data": {"message": error, "statusCode": status}});
    written(
        "opencode",
        &[json!({"info": {"id": "ses_1"}, "messages": [
            {"info": {"role": "user"}, "parts": [{"type": "text", "text": "go"}]},
            {"info": {"role": "assistant", "error": failed}, "parts": []},
        ]})],
    )
}

fn codex(error: &str, status: Option<u16>) -> Ended {
    let line = |kind: &str, payload: Value| json!({"timestamp": "2026-01-01T00:00:00Z", "type": kind, "payload": payload});
    let kind = json!({"http_connection_failed": {"http_status_code": status}});
    written(
        "codex",
        &[
            line("session_meta", json!({"id": "s", "cli_version": "1"})),
            line(
                "response_item",
                json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]}),
            ),
            line(
                "event_msg",
                json!({"type": "task_complete", "last_agent_message": null,
                "error": {"message": error, "codex_error_info": kind}}),
            ),
        ],
    )
}

#[test]
fn recorded_status_decides_provider_failure() {
    for of in [claude_code, qwen_code, opencode, codex] {
        assert_eq!(of("It failed.", Some(401)).termination, Some(T::ErrorProviderAuth));
        assert_eq!(of("It failed.", Some(413)).termination, Some(T::ErrorPromptTooLong));
        assert_eq!(of("It failed.", None).termination, Some(T::ErrorDuringExecution));
        assert_eq!(of("403 It failed.", None).termination, Some(T::ErrorProviderAuth));
    }
}

#[test]
fn stop_by_guard_is_recognised() {
    let sentence = "Run stopped by endstop: error_max_turns (3 turns).";
    for of in [claude_code, qwen_code, opencode, codex] {
        for (error, status) in [
            (sentence.to_owned(), None),
            (sentence.to_owned(), Some(429)),
            (format!("402 {sentence}"), Some(402)),
            (format!("API Error: 402 {sentence}"), Some(402)),
            (json!({"error": {"message": sentence}}).to_string(), None),
        ] {
            let ended = of(&error, status);
            assert_eq!((ended.how, ended.termination), (How::Limit, Some(T::ErrorMaxTurns)));
            assert_eq!(ended.native.as_deref(), Some(sentence), "{error}");
        }
        assert_eq!(of(&format!("It wrote: {sentence}"), None).how, How::Failed);
    }
    // Sessions that the programs wrote: stopped by an error, and by an answer.
    for file in ["pi/overloaded.jsonl", "pi/filtered.jsonl", "opencode/rejected.json"] {
        let ended = ended(file);
        assert_eq!((ended.how, ended.termination), (How::Limit, Some(T::ErrorMaxTurns)), "{file}");
    }
}

#[test]
fn refusal_is_a_failure() {
    let text = json!([{"type": "text", "text": ""}]);
    let ended = written(
        "claude-code",
        &[
            json!({"type": "user", "uuid": "a", "sessionId": "s", "message": {"role": "user", "content": "go"}}),
            json!({"type": "assistant", "uuid": "b", "parentUuid": "a", "sessionId": "s",
                "message": {"id": "m", "role": "assistant", "content": text, "stop_reason": "refusal"}}),
        ],
    );
    assert_eq!((ended.how, ended.termination), (How::Failed, Some(T::ErrorContentFiltered)));
}

/// Reads a trace with one model call that has these attributes in addition.
fn traced(more: Value) -> Session {
    let mut attributes = json!({"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-5",
        "gen_ai.response.finish_reasons": ["stop"], "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.output_tokens": 200});
    for (key, value) in more.as_object().unwrap() {
        attributes[key] = value.clone();
    }
    let span = json!({"traceId": "t", "spanId": "a", "parentSpanId": "", "name": "chat", "startTimeUnixNano": "1",
        "endTimeUnixNano": "2", "attributes": attributes});
    let document = json!({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]});
    Session::of(&parsed("s.json", document.to_string()).remove(0), &Prices::new())
}

#[test]
fn filtered_endings_have_the_names_of_providers() {
    for name in [
        "content_filter",
        "content-filter",
        "refusal",
        "SAFETY",
        "PROHIBITED_CONTENT",
        "RECITATION",
        "SPII",
    ] {
        let session = traced(json!({"gen_ai.response.finish_reasons": [name]}));
        assert_eq!(session.ended.how, How::Failed, "{name}");
        assert_eq!(session.ended.termination, Some(T::ErrorContentFiltered), "{name}");
    }
    let session = traced(json!({"gen_ai.response.finish_reasons": ["banana"]}));
    assert_eq!(session.ended.how, How::Unknown);
}

#[test]
fn content_that_is_not_recorded_is_no_missing_answer() {
    let said = |text: &str| {
        json!([{"role": "assistant", "parts": [{"type": "text", "content": text}]}]).to_string()
    };
    for (more, how, in_question) in [
        (json!({}), How::Unknown, false),
        (
            json!({"gen_ai.input.messages": json!([{"role": "user", "parts": []}]).to_string()}),
            How::Unknown,
            false,
        ),
        (json!({"gen_ai.response.finish_reasons": []}), How::Unknown, false),
        (json!({"gen_ai.response.finish_reasons": ["tool_calls"]}), How::Unknown, false),
        (json!({"gen_ai.output.messages": said("Paris.")}), How::Answered, false),
        (json!({"gen_ai.output.messages": said("")}), How::NoAnswer, true),
        (json!({"gen_ai.response.finish_reasons": ["length"]}), How::Cut, true),
    ] {
        let session = traced(more.clone());
        assert_eq!(session.ended.how, how, "{more}: {:?}", session.ended);
        assert_eq!(session.in_question().tokens() > 0, in_question, "{more}");
    }
    assert!(traced(json!({})).ended.words.contains("not recorded"));
}

#[test]
fn cached_tokens_next_to_the_input_are_counted() {
    for (cached, written, tokens) in
        [(0, 0, 1200), (900, 0, 1200), (5000, 0, 6200), (800, 300, 2300), (0, 5000, 6200)]
    {
        let session = traced(json!({"gen_ai.usage.cache_read.input_tokens": cached,
            "gen_ai.usage.cache_creation.input_tokens": written}));
        assert_eq!(session.spent.tokens(), tokens, "{cached} {written}");
    }
}

#[test]
fn call_in_the_last_text_is_not_an_answer() {
    let session = |last: &str| {
        let part = |part: Value| json!([part]);
        let call = json!({"type": "tool_use", "id": "t", "name": "Bash", "input": {}});
        let result = json!({"type": "tool_result", "tool_use_id": "t", "content": "x"});
        written(
            "claude-code",
            &[
                json!({"type": "user", "uuid": "a", "sessionId": "s", "message": {"role": "user", "content": "go"}}),
                json!({"type": "assistant", "uuid": "b", "parentUuid": "a", "sessionId": "s",
                    "message": {"id": "m", "role": "assistant", "content": part(call), "stop_reason": "tool_use"}}),
                json!({"type": "user", "uuid": "c", "parentUuid": "b", "sessionId": "s",
                    "message": {"role": "user", "content": part(result)}}),
                json!({"type": "assistant", "uuid": "d", "parentUuid": "c", "sessionId": "s",
                    "message": {"id": "n", "role": "assistant", "stop_reason": "end_turn",
                        "content": part(json!({"type": "text", "text": last}))}}),
            ],
        )
        .how
    };
    for (last, how) in [
        ("Done.", How::Answered),
        (
            "court\n<invoke name=\"Bash\">\n<parameter name=\"command\">ls</parameter>\n</invoke>",
            How::NoAnswer,
        ),
        ("{\"name\": \"Bash\", \"arguments\": {}}", How::NoAnswer),
        ("{\"name\": \"Read\", \"arguments\": {}}", How::Answered),
        ("<think>Hm.</think>", How::NoAnswer),
        ("Use `<invoke name=\"Bash\">` for that.", How::Answered),
    ] {
        assert_eq!(session(last), how, "{last}");
    }
}
