//! A conversation, written in each dialect.

use super::talk::{Asked, Talk};
use serde_json::{Value, json};

pub(super) fn lines(records: impl IntoIterator<Item = Value>) -> String {
    records.into_iter().map(|record| format!("{record}\n")).collect()
}

pub(super) fn at(second: usize) -> String {
    format!("2026-01-01T00:{:02}:{:02}Z", second / 60, second % 60)
}

/// Messages in OpenAI's form; `result` writes the result of a call.
fn messages(talk: &Talk, result: impl Fn(&str, &Asked) -> Value) -> Vec<Value> {
    let mut list = vec![json!({"role": "user", "content": talk.prompt})];
    for (nth, (said, _)) in talk.turns.iter().enumerate() {
        let calls = talk.calls(nth, |id, call| {
            let function = json!({"name": call.name, "arguments": call.arguments.to_string()});
            json!({"id": id, "type": "function", "function": function})
        });
        list.push(json!({"role": "assistant", "content": said, "tool_calls": calls}));
        list.extend(talk.results(nth).into_iter().map(|(id, call)| result(&id, call)));
    }
    list.push(json!({"role": "assistant", "content": talk.answer}));
    list
}

fn openai(talk: &Talk) -> String {
    let list = messages(
        talk,
        |id, call| json!({"role": "tool", "tool_call_id": id, "content": call.told}),
    );
    json!({"messages": list}).to_string()
}

fn openai_lines(talk: &Talk) -> String {
    lines(messages(
        talk,
        |id, call| json!({"role": "tool", "tool_call_id": id, "content": [{"type": "text", "text": call.told}]}),
    ))
}

fn tau_bench(talk: &Talk) -> String {
    let list = messages(
        talk,
        |id, call| json!({"role": "tool", "tool_call_id": id, "name": call.name, "content": call.told}),
    );
    json!([{"task_id": 1, "reward": 0.0, "info": {"reward_info": {}}, "traj": list}]).to_string()
}

fn tau2(talk: &Talk) -> String {
    let list = messages(talk, |id, call| {
        json!({"role": "tool", "id": id, "content": call.told, "error": call.failed,
               "requestor": "assistant"})
    });
    let run = json!({"id": "s", "task_id": "1", "termination_reason": "agent_stop",
                     "messages": list});
    json!({"info": {}, "tasks": [], "simulations": [run]}).to_string()
}

fn anthropic(talk: &Talk) -> String {
    let mut list = vec![json!({"role": "user", "content": talk.prompt})];
    for (nth, (said, _)) in talk.turns.iter().enumerate() {
        let mut parts = Vec::new();
        if !said.is_empty() {
            parts.push(json!({"type": "text", "text": said}));
        }
        parts.extend(talk.calls(
            nth,
            |id, call| json!({"type": "tool_use", "id": id, "name": call.name, "input": call.arguments}),
        ));
        list.push(json!({"role": "assistant", "content": parts}));
        let results = talk.results(nth).into_iter().map(|(id, call)| {
            json!({"type": "tool_result", "tool_use_id": id, "is_error": call.failed,
                   "content": [{"type": "text", "text": call.told}]})
        });
        list.push(json!({"role": "user", "content": results.collect::<Vec<_>>()}));
    }
    list.push(json!({"role": "assistant", "content": [{"type": "text", "text": talk.answer}]}));
    json!({"system": "Be brief.", "messages": list}).to_string()
}

fn neutral(talk: &Talk) -> String {
    let mut steps = vec![json!({"role": "user", "text": talk.prompt})];
    for (nth, (said, _)) in talk.turns.iter().enumerate() {
        let calls = talk.calls(
            nth,
            |id, call| json!({"id": id, "name": call.name, "arguments": call.arguments}),
        );
        let results = talk.results(nth).into_iter().map(
            |(id, call)| json!({"call_id": id, "content": call.told, "is_error": call.failed}),
        );
        steps.push(json!({"role": "agent", "text": said, "tool_calls": calls,
                          "tool_results": results.collect::<Vec<_>>()}));
    }
    steps.push(json!({"role": "agent", "text": talk.answer}));
    json!({"schema": "neutral-traj/1", "run_id": "r", "steps": steps}).to_string()
}

fn atif(talk: &Talk) -> String {
    let mut steps = vec![json!({"step_id": 1, "source": "user", "message": talk.prompt})];
    for (nth, (said, _)) in talk.turns.iter().enumerate() {
        let calls = talk.calls(nth, |id, call| {
            json!({"tool_call_id": id, "function_name": call.name, "arguments": call.arguments})
        });
        let results = talk.results(nth).into_iter().map(|(id, call)| {
            json!({"source_call_id": id, "content": call.told,
                   "extra": {"tool_result_is_error": call.failed}})
        });
        let results: Vec<_> = results.collect();
        steps.push(json!({"step_id": nth + 2, "source": "agent", "message": said,
                          "tool_calls": calls, "observation": {"results": results}}));
    }
    let last = talk.turns.len() + 2;
    steps.push(json!({"step_id": last, "source": "agent", "message": talk.answer}));
    let agent = json!({"name": "a", "version": "1"});
    json!({"schema_version": "ATIF-v1.6", "session_id": "s", "agent": agent, "steps": steps})
        .to_string()
}

fn codex(talk: &Talk) -> String {
    let item =
        |payload: Value| json!({"timestamp": at(0), "type": "response_item", "payload": payload});
    let said = |role: &str, kind: &str, text: &str| {
        item(json!({"type": "message", "role": role, "content": [{"type": kind, "text": text}]}))
    };
    let mut records = vec![
        json!({"timestamp": at(0), "type": "session_meta", "payload": {"id": "s"}}),
        said("user", "input_text", &talk.prompt),
    ];
    for (nth, (text, _)) in talk.turns.iter().enumerate() {
        if !text.is_empty() {
            records.push(said("assistant", "output_text", text));
        }
        records.extend(talk.calls(nth, |id, call| {
            item(json!({"type": "function_call", "call_id": id, "name": call.name,
                        "arguments": call.arguments.to_string()}))
        }));
        records.extend(talk.results(nth).into_iter().map(|(id, call)| {
            let output = json!({"content": call.told, "success": !call.failed});
            item(json!({"type": "function_call_output", "call_id": id, "output": output}))
        }));
    }
    records.push(said("assistant", "output_text", &talk.answer));
    lines(records)
}

fn claude_code(talk: &Talk) -> String {
    let mut records = Vec::new();
    let mut push = |kind: &str, message: Value| {
        let nth = records.len();
        let parent = nth.checked_sub(1).map(|parent| format!("u{parent}"));
        records.push(json!({"type": kind, "uuid": format!("u{nth}"), "parentUuid": parent,
                            "sessionId": "s", "timestamp": at(nth), "message": message}));
    };
    push("user", json!({"role": "user", "content": talk.prompt}));
    for (nth, (said, _)) in talk.turns.iter().enumerate() {
        let mut parts = Vec::new();
        if !said.is_empty() {
            parts.push(json!({"type": "text", "text": said}));
        }
        parts.extend(talk.calls(
            nth,
            |id, call| json!({"type": "tool_use", "id": id, "name": call.name, "input": call.arguments}),
        ));
        // Claude Code writes one record for each block of a response.
        for part in parts {
            push(
                "assistant",
                json!({"id": format!("m{nth}"), "role": "assistant",
                                     "content": [part]}),
            );
        }
        for (id, call) in talk.results(nth) {
            let result = json!({"type": "tool_result", "tool_use_id": id, "content": call.told,
                                "is_error": call.failed});
            push("user", json!({"role": "user", "content": [result]}));
        }
    }
    let answer = json!([{"type": "text", "text": talk.answer}]);
    push("assistant", json!({"id": "last", "role": "assistant", "content": answer}));
    lines(records)
}

fn copilot(talk: &Talk) -> String {
    let mut records = Vec::new();
    let mut push = |kind: &str, data: Value| {
        let nth = records.len();
        records.push(json!({"type": kind, "data": data, "timestamp": at(nth),
                            "id": format!("e{nth}")}));
    };
    push("user.message", json!({"content": talk.prompt}));
    for (nth, (said, _)) in talk.turns.iter().enumerate() {
        let calls = talk.calls(
            nth,
            |id, call| json!({"toolCallId": id, "name": call.name, "arguments": call.arguments}),
        );
        push("assistant.message", json!({"content": said, "toolRequests": calls}));
        for (id, call) in talk.results(nth) {
            let data = if call.failed {
                json!({"toolCallId": id, "success": false, "error": {"message": call.told}})
            } else {
                json!({"toolCallId": id, "success": true, "result": {"content": call.told}})
            };
            push("tool.execution_complete", data);
        }
    }
    push("assistant.message", json!({"content": talk.answer}));
    lines(records)
}

fn inspect(talk: &Talk) -> String {
    let mut list = vec![json!({"role": "user", "content": talk.prompt})];
    for (nth, (said, _)) in talk.turns.iter().enumerate() {
        let calls = talk.calls(
            nth,
            |id, call| json!({"id": id, "function": call.name, "arguments": call.arguments}),
        );
        list.push(json!({"role": "assistant", "content": said, "tool_calls": calls}));
        for (id, call) in talk.results(nth) {
            list.push(if call.failed {
                let error = json!({"type": "unknown", "message": call.told});
                json!({"role": "tool", "tool_call_id": id, "content": "", "error": error})
            } else {
                json!({"role": "tool", "tool_call_id": id, "content": call.told})
            });
        }
    }
    list.push(json!({"role": "assistant", "content": talk.answer}));
    let sample = json!({"id": 1, "epoch": 1, "messages": list});
    json!({"version": 2, "status": "success", "eval": {"task": "t"}, "samples": [sample]})
        .to_string()
}

fn agentdojo(talk: &Talk) -> String {
    let part = |text: &str| json!([{"type": "text", "content": text}]);
    let mut list = vec![json!({"role": "user", "content": part(&talk.prompt)})];
    for (nth, (said, _)) in talk.turns.iter().enumerate() {
        let calls = talk.calls(
            nth,
            |id, call| json!({"id": id, "function": call.name, "args": call.arguments}),
        );
        list.push(json!({"role": "assistant", "content": part(said), "tool_calls": calls}));
        for (id, call) in talk.results(nth) {
            let (content, error) =
                if call.failed { ("", json!(call.told)) } else { (&*call.told, Value::Null) };
            list.push(json!({"role": "tool", "tool_call_id": id, "content": part(content),
                             "error": error, "tool_call": {}}));
        }
    }
    list.push(json!({"role": "assistant", "content": part(&talk.answer), "tool_calls": null}));
    json!({"suite_name": "s", "pipeline_name": "m", "user_task_id": "u", "injection_task_id": null,
           "messages": list, "error": null, "utility": true, "security": false})
    .to_string()
}

/// Spans of the GenAI conventions; each model call repeats the prompt.
fn otel(talk: &Talk) -> String {
    let mut spans = Vec::new();
    let mut push = |attributes: Value, failed: bool| {
        let nth = spans.len();
        spans.push(json!({"traceId": "t", "spanId": format!("s{nth}"), "name": "span",
            "startTimeUnixNano": (nth + 1).to_string(), "endTimeUnixNano": (nth + 1).to_string(),
            "attributes": attributes, "status": {"code": if failed { 2 } else { 0 }}}));
    };
    let given = json!([{"role": "user", "parts": [{"type": "text", "content": talk.prompt}]}]);
    let chat = |said: &str, calls: Vec<Value>, push: &mut dyn FnMut(Value, bool)| {
        let mut parts = calls;
        if !said.is_empty() {
            parts.insert(0, json!({"type": "text", "content": said}));
        }
        let answer = json!([{"role": "assistant", "parts": parts, "finish_reason": "stop"}]);
        push(
            json!({"gen_ai.operation.name": "chat", "gen_ai.input.messages": given.to_string(),
                   "gen_ai.output.messages": answer.to_string()}),
            false,
        );
    };
    for (nth, (said, _)) in talk.turns.iter().enumerate() {
        let calls = talk.calls(
            nth,
            |id, call| json!({"type": "tool_call", "id": id, "name": call.name, "arguments": call.arguments}),
        );
        chat(said, calls, &mut push);
        for (id, call) in talk.results(nth) {
            push(
                json!({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.name,
                       "gen_ai.tool.call.id": id, "gen_ai.tool.call.result": call.told}),
                call.failed,
            );
        }
    }
    chat(&talk.answer, Vec::new(), &mut push);
    // Spans are written when they end; the order of the file has no meaning.
    spans.reverse();
    json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).to_string()
}

pub(super) const DIALECTS: &[(&str, &str, fn(&Talk) -> String)] = &[
    ("openai-messages", "a.json", openai),
    ("openai-messages", "a.jsonl", openai_lines),
    ("anthropic-messages", "a.json", anthropic),
    ("tau-bench", "a.json", tau_bench),
    ("tau2-bench", "a.json", tau2),
    ("neutral-traj/1", "a.jsonl", neutral),
    ("atif", "a.json", atif),
    ("codex", "a.jsonl", codex),
    ("claude-code", "a.jsonl", claude_code),
    ("copilot", "a.jsonl", copilot),
    ("inspect", "a.json", inspect),
    ("agentdojo", "a.json", agentdojo),
    ("otel", "a.json", otel),
];
