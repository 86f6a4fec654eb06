//! Tests the readers of Gemini CLI, Qwen Code, pi and opencode, and current sessions of Claude Code
//! and Codex, on sessions that the programs wrote. The expected figures were counted by hand.

use crate::common::{counts, parsed, read_bytes, runs};
use endstop_trajectory::audit::{Audit, How, Session};
use endstop_trajectory::read::{Options, ProblemKind, opencode_session};
use endstop_trajectory::{Prices, Role};
use serde_json::{Value, json};

#[test]
fn sessions_match_manual_counts() {
    // File: turns, calls, results and failures; tokens; ending; model.
    let (gemini, qwen, pi) = ("gemini-3.8-flash", "qwen3-coder-plus", "mock-model");
    for (file, counted, tokens, how, model) in [
        ("gemini_cli/answered.jsonl", [2, 1, 1, 0], 2240, How::Answered, gemini),
        ("gemini_cli/unanswered.jsonl", [1, 1, 1, 0], 1020, How::NoAnswer, gemini),
        // The call in which it was killed is not in the file.
        ("gemini_cli/killed.jsonl", [1, 0, 0, 0], 1020, How::Answered, gemini),
        // Guard stopped this one, as the text of its last turn says.
        ("qwen_code/answered.jsonl", [2, 1, 1, 0], 2240, How::Limit, qwen),
        ("qwen_code/api_errors.jsonl", [1, 1, 1, 0], 1020, How::Failed, qwen),
        ("qwen_code/cancelled.jsonl", [1, 1, 1, 1], 1020, How::Stopped, qwen),
        ("pi/answered.jsonl", [3, 2, 2, 0], 3660, How::Answered, pi),
        ("pi/overloaded.jsonl", [1, 1, 1, 0], 1020, How::Limit, pi),
        ("pi/filtered.jsonl", [2, 1, 1, 0], 2240, How::Limit, pi),
        // Four failed calls were paid for too.
        ("pi/cut_streams.jsonl", [1, 1, 1, 0], 1020 + 4 * 1201, How::Failed, pi),
        ("opencode/filtered.json", [2, 1, 1, 0], 2240, How::Limit, pi),
        ("opencode/invalid_arguments.json", [4, 3, 3, 1], 5280, How::Answered, pi),
        ("opencode/rejected.json", [1, 1, 1, 0], 1020, How::Limit, pi),
        ("opencode/killed.json", [1, 1, 1, 0], 1020, How::NoAnswer, "claude-sonnet-4-5"),
        ("opencode/subagent.json", [2, 1, 1, 0], 2240, How::Answered, pi),
        (
            "claude_code/agent_clis_subagent.jsonl",
            [2, 1, 1, 0],
            2240,
            How::Answered,
            "claude-opus-5-5",
        ),
        ("codex/agent_clis_stream_closed.jsonl", [1, 1, 1, 0], 1020, How::Failed, "gpt-5.1-codex"),
        ("codex/agent_clis_interrupted.jsonl", [1, 1, 1, 1], 1020, How::Stopped, "gpt-5.1-codex"),
        ("codex/agent_clis_killed.jsonl", [1, 1, 0, 0], 1020, How::Interrupted, "gpt-5.1-codex"),
    ] {
        let all = runs(file);
        assert_eq!(all.len(), 1, "{file}");
        let run = &all[0];
        assert_eq!(counts(run)[1..], counted, "{file}: {:?}", run.notes);
        let session = Session::of(run, &Prices::new());
        assert_eq!((session.spent.tokens(), session.ended.how), (tokens, how), "{file}");
        assert_eq!(run.model.as_deref(), Some(model), "{file}");
        let subagent = file.contains("subagent");
        assert_eq!(session.subagent, subagent, "{file}");
        let task = "Run the steps with your shell tool and then report.";
        assert_eq!(session.task.contains(task), !subagent, "{file}: {}", session.task);
    }
}

#[test]
fn failed_first_call_is_provider_failure() {
    let run = runs("claude_code/agent_clis_api_errors.jsonl").remove(0);
    assert_eq!(counts(&run)[1..], [0, 0, 0, 0]);
    let session = Session::of(&run, &Prices::new());
    assert_eq!(session.ended.how, How::Failed);
    assert!(session.ended.native.as_ref().unwrap().contains("ECONNREFUSED"));
    // No turn names the model, but the requests do.
    assert_eq!(session.main_model(), Some("claude-opus-5-5"));
    let mut audit = Audit::new(1);
    audit.add(session);
    assert_eq!(audit.agents.keys().collect::<Vec<_>>(), ["claude-code, claude-opus-5-5"]);
    assert!(audit.models.is_empty(), "nothing was spent");
}

#[test]
fn prompt_names_model_without_turn() {
    let model = json!({"providerID": "p", "modelID": "m-1"});
    let session = json!({"info": {"id": "ses_1"}, "messages": [
        {"info": {"role": "user", "model": model}, "parts": [{"type": "text", "text": "go"}]},
        {"info": {"role": "assistant"}, "parts": []},
    ]});
    let run = parsed("export.json", session.to_string()).remove(0);
    let session = Session::of(&run, &Prices::new());
    assert_eq!((session.spent.turns, session.main_model()), (0, Some("m-1")));
}

#[test]
fn parts_of_response_are_one_turn() {
    let run = runs("qwen_code/agent-general-purpose.jsonl").remove(0);
    assert_eq!(counts(&run)[1..], [2, 1, 1, 0]);
    assert_eq!((&*run.steps[1].text, run.steps[1].calls.len()), ("Step 1.", 1));
    assert!(run.is_tagged("subagent"));
    assert_eq!(run.extra["sessionId"], "fd88bf11-fb63-4cc4-aa95-d9f714a50225");
}

#[test]
fn failed_calls_count_in_totals() {
    let run = runs("pi/cut_streams.jsonl").remove(0);
    assert_eq!(run.totals.prompt_tokens, Some(1000 + 4 * 1200));
    assert_eq!(run.totals.completion_tokens, Some(20 + 4));
    assert!(run.notes.contains(&"model calls that failed: 4".to_owned()), "{:?}", run.notes);
    let failed = &run.totals.outside_turns;
    assert_eq!((failed.len(), failed[0].model.as_deref()), (4, Some("mock-model")));
    assert_eq!(failed[0].usage.prompt_tokens, Some(1200));
}

#[test]
fn compactions_are_paid_without_turn() {
    let tokens =
        |input: u64| json!({"input": input, "output": 4, "cache": {"read": 0, "write": 0}});
    let finish = |input: u64| json!({"type": "step-finish", "tokens": tokens(input)});
    let text = json!({"type": "text", "text": "x"});
    let summary = |parts: Value| json!({"info": {"role": "assistant", "modelID": "small", "summary": true, "tokens": tokens(70)}, "parts": parts});
    let session = json!({"info": {"id": "ses_1"}, "messages": [
        {"info": {"role": "user"}, "parts": [text]},
        {"info": {"role": "assistant", "modelID": "m", "finish": "stop", "tokens": tokens(10)}, "parts": [text]},
        summary(json!([text])),
        // The message has only the tokens of its last response.
        summary(json!([text, finish(50), finish(70)])),
        // A call that failed after it was paid for, and one that cost nothing.
        {"info": {"role": "assistant", "modelID": "m", "tokens": tokens(30)}, "parts": []},
        {"info": {"role": "assistant", "modelID": "m", "tokens": {"input": 0, "output": 0}}, "parts": []},
    ]});
    let run = parsed("export.json", session.to_string()).remove(0);
    let session = Session::of(&run, &Prices::new());
    assert_eq!((session.spent.turns, session.spent.tokens()), (1, 14 + 74 + 54 + 74 + 34));
    assert_eq!((session.models["small"].turns, session.models["small"].tokens()), (0, 202));
}

#[test]
fn recorded_cost_is_used() {
    let run = runs("opencode/killed.json").remove(0);
    let session = Session::of(&run, &Prices::new());
    assert_eq!((session.spent.usd.to_usd(), session.cost_recorded), (0.0033, true));
    // A cost of 0 means that the program has no price.
    assert_eq!(runs("opencode/filtered.json")[0].steps[1].cost_usd, None);
}

fn lines(all: &[Value]) -> String {
    all.iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn rewound_messages_are_dropped() {
    let said = |id: &str, kind: &str, text: &str| json!({"id": id, "type": kind, "content": text, "timestamp": "2026-01-01T00:00:00Z"});
    let chat = [
        json!({"sessionId": "s", "projectHash": "h", "startTime": "2026-01-01T00:00:00Z"}),
        said("1", "user", "one"),
        said("2", "gemini", "first"),
        said("3", "user", "two"),
        said("4", "gemini", "second"),
        json!({"$rewindTo": "3"}),
        said("5", "user", "three"),
        said("6", "error", "quota exceeded"),
        json!({"$set": {"messages": [said("1", "user", "one"), said("2", "gemini", "first")]}}),
        json!({"$new": 1}),
    ];
    let run = parsed("session-1.jsonl", lines(&chat)).remove(0);
    let texts: Vec<&str> = run.steps.iter().map(|step| &*step.text).collect();
    assert_eq!(texts, ["one", "first", "three"]);
    let ending = run.ending.unwrap();
    assert_eq!(
        (&*ending.reason, ending.failure_mode.as_deref()),
        ("provider_error", Some("quota exceeded"))
    );
    assert_eq!(
        run.notes,
        ["messages that were taken back: 2", "records that are not messages: $new 1, error 1"]
    );
}

#[test]
fn empty_reply_is_not_a_turn() {
    let said = |id: &str, more: Value| {
        let mut message =
            json!({"id": id, "type": "gemini", "content": [], "thoughts": [], "tokens": null});
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        message
    };
    let call = json!({"toolCalls": [{"id": "c", "name": "ls", "status": "success", "result": "a"}], "tokens": {"input": 9, "output": 1}});
    let empty = |more: Value| {
        let chat = [
            json!({"sessionId": "s", "projectHash": "h", "startTime": "2026-01-01T00:00:00Z"}),
            json!({"id": "1", "type": "user", "content": "go"}),
            said("2", call.clone()),
            said("3", more),
        ];
        parsed("session-1.jsonl", lines(&chat)).remove(0)
    };
    let run = empty(json!({}));
    assert_eq!(counts(&run)[1..], [1, 1, 1, 0]);
    assert!(run.notes.contains(&"model calls without a response: 1".to_owned()), "{:?}", run.notes);
    assert_eq!(Session::of(&run, &Prices::new()).ended.how, How::NoAnswer);
    for more in [
        json!({"content": "Done."}),
        json!({"content": [{"inlineData": {}}]}),
        json!({"thoughts": [{"description": "Hm."}]}),
        json!({"tokens": {"input": 9, "output": 0}}),
    ] {
        assert_eq!(empty(more.clone()).turns().count(), 2, "{more}");
    }
}

#[test]
fn early_document_is_one_chat() {
    let document = json!({"sessionId": "s", "projectHash": "h", "startTime": "t", "messages": [
        {"id": "1", "type": "user", "content": "Hi"},
        {"id": "2", "type": "gemini", "content": "Hello.", "tokens": {"input": 9, "output": 2, "thoughts": 3, "cached": 4, "total": 14}},
    ]});
    for text in [document.to_string(), format!("{document:#}")] {
        let run = parsed("session-1.json", text).remove(0);
        assert_eq!(counts(&run), [2, 1, 0, 0, 0]);
        let usage = run.steps[1].usage.as_ref().unwrap();
        assert_eq!((usage.prompt_tokens, usage.completion_tokens), (Some(9), Some(5)));
        assert_eq!((usage.cached_tokens, usage.reasoning_tokens), (Some(4), Some(3)));
    }
}

#[test]
fn abandoned_branches_are_dropped() {
    let pi = |id: &str, on: Option<&str>, role: &str, text: &str| {
        let message = json!({"role": role, "content": [{"type": "text", "text": text}], "stopReason": "stop"});
        json!({"type": "message", "id": id, "parentId": on, "timestamp": "2026-01-01T00:00:00Z", "message": message})
    };
    let head = json!({"type": "session", "version": 3, "id": "s", "timestamp": "t", "cwd": "/"});
    let session = [
        head,
        pi("a", None, "user", "one"),
        pi("b", Some("a"), "assistant", "no"),
        pi("c", Some("a"), "assistant", "yes"),
        json!({"type": "compaction", "id": "d", "parentId": "c", "summary": "x"}),
    ];
    let run = parsed("s.jsonl", lines(&session)).remove(0);
    assert_eq!((run.steps.len(), &*run.steps[1].text), (2, "yes"));
    // A compaction at the end is not a missing answer.
    assert_eq!(Session::of(&run, &Prices::new()).ended.how, How::Answered);
    assert!(run.notes.contains(&"entries on abandoned branches: message 1".to_owned()));

    let qwen = |id: &str, on: Option<&str>, kind: &str, text: &str| {
        json!({"uuid": id, "parentUuid": on, "sessionId": "q", "type": kind, "message": {"parts": [{"text": text}]},
            "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 1, "totalTokenCount": 6}})
    };
    let chat = [
        qwen("a", None, "user", "one"),
        qwen("b", Some("a"), "assistant", "no"),
        qwen("c", Some("a"), "user", "two"),
        qwen("d", Some("c"), "assistant", "yes"),
        json!({"uuid": "e", "parentUuid": "d", "sessionId": "q", "type": "system", "subtype": "chat_compression"}),
        json!({"uuid": "f", "parentUuid": "e", "sessionId": "q", "type": "news"}),
    ];
    let run = parsed("q.jsonl", lines(&chat)).remove(0);
    let texts: Vec<&str> = run.steps.iter().map(|step| &*step.text).collect();
    assert_eq!((run.origin.format, texts), ("qwen-code", vec!["one", "two", "yes"]));
    let usage = run.steps[2].usage.as_ref().unwrap();
    assert_eq!((usage.prompt_tokens, usage.completion_tokens), (Some(3), Some(3)));
    assert_eq!(Session::of(&run, &Prices::new()).ended.how, How::Answered);
}

#[test]
fn several_responses_of_message_are_turns() {
    let tool = |id: &str, status: &str| {
        json!({"type": "tool", "tool": "bash", "callID": id, "state":
        {"status": status, "input": {"command": "ls"}, "output": "a", "error": "no", "metadata": {"exit": 1}}})
    };
    let finish = |reason: &str| {
        json!({"type": "step-finish", "reason": reason, "cost": 0.25,
        "tokens": {"input": 10, "output": 4, "reasoning": 1, "cache": {"read": 5, "write": 0}}})
    };
    let session = json!({"info": {"id": "ses_1", "version": "0.1"}, "messages": [
        {"info": {"role": "user", "time": {"created": 0}}, "parts": [{"type": "text", "text": "go"}]},
        {"info": {"role": "assistant", "modelID": "m", "finish": "stop"}, "parts": [
            {"type": "step-start"}, tool("1", "completed"), finish("tool-calls"),
            {"type": "step-start"}, tool("2", "error"), tool("3", "running"), finish("tool-calls"),
            {"type": "step-start"}, {"type": "text", "text": "Done."}, finish("stop")]},
        {"info": {"role": "user"}, "parts": [{"type": "compaction"}]},
        {"info": {"role": "assistant", "summary": true, "finish": "stop"}, "parts": [{"type": "text", "text": "Summary."}]},
    ], "children": [{"info": {"id": "ses_2"}, "messages": []}, 7]});
    let run = parsed("export.json", session.to_string()).remove(0);
    assert_eq!(counts(&run)[1..], [3, 3, 2, 2]);
    assert_eq!((run.steps[1].cost_usd, run.steps[2].tokens()), (Some(0.25), Some(19)));
    assert_eq!(run.ending.as_ref().unwrap().answer.as_deref(), Some("Done."));
    let audited = Session::of(&run, &Prices::new());
    assert_eq!((audited.ended.how, audited.requests), (How::Answered, 1));
    assert_eq!((run.children.len(), run.children[0].is_tagged("subagent")), (1, true));
}

#[test]
fn nested_subagents_are_bounded() {
    let mut session = json!({"info": {"id": "ses_x"}, "messages": []});
    for _ in 0..40 {
        session = json!({"info": {"id": "ses_x"}, "messages": [{"info": {"role": "user"}, "parts": []}], "children": [session]});
    }
    let Value::Object(session) = session else { unreachable!() };
    let run = opencode_session(session).unwrap();
    let (mut depth, mut at) = (0, &run);
    while let Some(child) = at.children.first() {
        (depth, at) = (depth + 1, child);
    }
    assert_eq!(depth, 16);
    assert_eq!(at.notes, ["subagents below the 16th level: 1"]);
}

#[test]
fn broken_lines_are_problems() {
    let good = json!({"type": "session", "version": 3, "id": "s", "timestamp": "t", "cwd": "/"});
    let said = json!({"type": "message", "id": "a", "parentId": null, "message": {"role": "user", "content": "x"}});
    let text = format!("{good}\n7\n{{\"a\":1}}\n{said}\n{{\"type\":\"mess");
    let (runs, problems) = read_bytes("s.jsonl", text, &Options::default());
    assert_eq!((runs.len(), runs[0].steps.len(), runs[0].steps[0].role), (1, 1, Role::User));
    let kinds: Vec<_> = problems.iter().map(|problem| (problem.at, problem.kind)).collect();
    let malformed = ProblemKind::Malformed;
    assert_eq!(kinds, [(Some(2), malformed), (Some(3), malformed), (Some(5), ProblemKind::Half)]);
    for head in [
        r#"{"sessionId":"s","projectHash":"h","startTime":"t"}"#,
        r#"{"type":"session","id":"s","timestamp":"t","cwd":"/"}"#,
        r#"{"info":{"id":"ses_1"},"messages":[]}"#,
        r#"{"uuid":"a","sessionId":"q","type":"system","systemPayload":{}}"#,
    ] {
        let (runs, problems) = read_bytes("s", head, &Options::default());
        assert_eq!((runs.len(), problems[0].kind), (0, ProblemKind::NoTrajectory), "{head}");
    }
}
