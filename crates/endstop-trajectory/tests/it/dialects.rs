//! Writes one conversation in every dialect that records calls and results, and tests that each
//! reader returns the same turns, calls and results, in whatever order the results come.

use crate::common::{parsed, read_bytes};
use endstop_trajectory::audit::Session;
use endstop_trajectory::backtest::{Backtest, Candidate};
use endstop_trajectory::read::Options;
use endstop_trajectory::{Origin, Prices, Role, Trajectory, write};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A tool call with its result.
#[derive(Clone, Debug)]
struct Asked {
    name: String,
    arguments: Value,
    /// The result; it begins with `Error: ` if the call failed, because some dialects have no flag.
    told: String,
    failed: bool,
    /// The rank of the result among those of the turn.
    rank: u8,
}

#[derive(Clone, Debug)]
struct Talk {
    prompt: String,
    /// The text of each turn with its calls, which are at least one.
    turns: Vec<(String, Vec<Asked>)>,
    answer: String,
}

impl Talk {
    fn id(turn: usize, call: usize) -> String {
        format!("call-{turn}-{call}")
    }

    /// The results of a turn with their call ids, in the order in which they were recorded.
    fn results(&self, turn: usize) -> Vec<(String, &Asked)> {
        let calls = self.turns[turn].1.iter().enumerate();
        let mut results: Vec<_> = calls.map(|(at, call)| (Talk::id(turn, at), call)).collect();
        results.sort_by_key(|(_, call)| call.rank);
        results
    }

    /// The calls of a turn, each as `make` writes it.
    fn calls(&self, turn: usize, make: impl Fn(String, &Asked) -> Value) -> Vec<Value> {
        let calls = self.turns[turn].1.iter().enumerate();
        calls.map(|(at, call)| make(Talk::id(turn, at), call)).collect()
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z ]{1,12}",
        "\\PC{1,8}",
        Just("é\u{2028}\u{1f600} \"quoted\" \\ \t end".to_owned()),
        Just("two\nlines".to_owned()),
    ]
    .prop_filter("a plain word at both ends", |text| {
        !text.starts_with("Error") && !text.trim().is_empty()
    })
}

fn asked() -> impl Strategy<Value = Asked> {
    let argument = prop_oneof![
        text().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(json!({"nested": [1, null, {"b": "c"}]})),
        Just(Value::Null),
    ];
    ("[a-z_]{1,8}", vec(("[a-z]{1,4}", argument), 0..3), text(), any::<bool>(), any::<u8>())
        .prop_map(|(name, arguments, told, failed, rank)| Asked {
            name,
            arguments: arguments.into_iter().collect(),
            told: if failed { format!("Error: {told}") } else { told },
            failed,
            rank,
        })
}

fn talk() -> impl Strategy<Value = Talk> {
    let said = prop_oneof![Just(String::new()), text()];
    let turns = vec((said, vec(asked(), 1..4)), 0..4);
    (text(), turns, text()).prop_map(|(prompt, turns, answer)| Talk { prompt, turns, answer })
}

fn lines(records: impl IntoIterator<Item = Value>) -> String {
    records.into_iter().map(|record| format!("{record}\n")).collect()
}

fn at(second: usize) -> String {
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

const DIALECTS: &[(&str, &str, fn(&Talk) -> String)] = &[
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

fn read_in(format: &str, name: &str, text: String) -> Trajectory<'static> {
    let mut options = Options::default();
    // Requested, because a conversation without calls fits several formats.
    options.format = Some(format.to_owned());
    let (mut runs, problems) = read_bytes(name, text.clone(), &options);
    assert_eq!(problems, [], "{format}: {text}");
    assert_eq!(runs.len(), 1, "{format}: {text}");
    runs.remove(0)
}

fn check(talk: &Talk, run: &Trajectory<'_>, format: &str) {
    let prompts: Vec<&str> =
        run.steps.iter().filter(|s| s.role == Role::User).map(|s| &*s.text).collect();
    assert_eq!(prompts, [&talk.prompt], "{format}");
    let turns: Vec<_> = run.turns().collect();
    assert_eq!(turns.len(), talk.turns.len() + 1, "{format}");
    for (nth, (step, (said, calls))) in turns.iter().zip(&talk.turns).enumerate() {
        assert_eq!(&*step.text, said, "{format}");
        assert_eq!(step.calls.len(), calls.len(), "{format}");
        assert_eq!(step.results.len(), calls.len(), "{format}");
        for (at, asked) in calls.iter().enumerate() {
            let call = &step.calls[at];
            assert_eq!(call.id.as_deref(), Some(&*Talk::id(nth, at)), "{format}");
            assert_eq!(&*call.name, asked.name, "{format}");
            let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
            assert_eq!(arguments, asked.arguments, "{format}");
            let result = step.result_of(at).unwrap();
            assert_eq!(
                (&*result.content, result.is_error),
                (&*asked.told, asked.failed),
                "{format}"
            );
        }
    }
    assert_eq!(&*turns.last().unwrap().text, talk.answer, "{format}");
    assert_eq!(turns.last().unwrap().calls.len(), 0, "{format}");
    assert_eq!(run.notes, [""; 0], "{format}");
    let answer = run.ending.as_ref().and_then(|ending| ending.answer.as_deref());
    assert!(answer.is_none_or(|answer| answer == talk.answer), "{format}: {answer:?}");
}

fn bare(mut run: Trajectory<'static>) -> Trajectory<'static> {
    run.origin = Origin::default();
    run
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn all_dialects_give_one_conversation(talk in talk()) {
        for (format, name, encode) in DIALECTS {
            let run = read_in(format, name, encode(&talk));
            check(&talk, &run, format);
            let mut line = Vec::new();
            write::atif(&run, &mut line).unwrap();
            prop_assert_eq!(bare(parsed("again.json", line).remove(0)), bare(run), "{}", format);
        }
    }

    #[test]
    fn all_dialects_are_judged_alike(talk in talk()) {
        let mut backtest = Backtest::new(&Candidate::reference().unwrap()).unwrap();
        let mut first: Option<(Vec<Option<u32>>, u64, u64)> = None;
        for (format, name, encode) in DIALECTS {
            let run = read_in(format, name, encode(&talk));
            let session = Session::of(&run, &Prices::new());
            let now = (backtest.judge(&run).fired, session.calls, session.failures);
            // Results in another order may be other actions; the calls and failures are the same.
            let want = first.get_or_insert_with(|| now.clone());
            prop_assert_eq!(&now, want, "{}", format);
        }
    }
}

/// Two calls of one step, the results of which are recorded in all orders, with and without ids.
#[test]
fn results_without_ids_fill_open_calls() {
    let call = |id: &str| json!({"id": id, "function": {"name": "f", "arguments": "{}"}});
    for (results, want) in [
        (vec![(Some("a"), "1"), (Some("b"), "2")], ["1", "2"]),
        (vec![(Some("b"), "2"), (Some("a"), "1")], ["1", "2"]),
        (vec![(None, "1"), (None, "2")], ["1", "2"]),
        (vec![(Some("a"), "1"), (None, "2")], ["1", "2"]),
        (vec![(Some("b"), "2"), (None, "1")], ["1", "2"]),
        (vec![(None, "1"), (Some("b"), "2")], ["1", "2"]),
    ] {
        let mut list = vec![
            json!({"role": "user", "content": "go"}),
            json!({"role": "assistant", "content": "", "tool_calls": [call("a"), call("b")]}),
        ];
        for (id, told) in &results {
            list.push(json!({"role": "tool", "tool_call_id": id, "content": told}));
        }
        let run = parsed("a.json", json!({"messages": list}).to_string()).remove(0);
        let step = &run.steps[1];
        let found = [0, 1].map(|nth| step.result_of(nth).map_or("", |result| &*result.content));
        assert_eq!(found, want, "{results:?}");
        assert_eq!(run.notes, [""; 0], "{results:?}");
    }
}

/// Members that are absent, `null` or empty must not replace one that is present.
#[test]
fn null_members_do_not_erase_values() {
    let call = json!({"id": "c", "name": "f", "arguments": {"a": 1}, "args": null});
    for (what, message) in [
        ("stop reasons", json!({"finish_reason": "stop", "stop_reason": null})),
        ("stop reasons", json!({"stop_reason": null, "finish_reason": "stop"})),
        ("reasoning", json!({"reasoning": "because", "reasoning_content": ""})),
        ("reasoning", json!({"reasoning_content": "because", "reasoning": null})),
        ("times", json!({"timestamp": "2026-01-01T00:00:00Z", "created_at": null})),
        ("arguments", json!({"tool_calls": [call]})),
        ("calls", json!({"tool_calls": [{"id": "c", "name": "f"}], "function_call": null})),
        ("ids", json!({"tool_calls": null, "function_call": {"name": "f", "arguments": "{}"}})),
        ("usage", json!({"usage": {"prompt_tokens": 5, "prompt_tokens_details": null}})),
    ] {
        let mut message = message;
        message["role"] = "assistant".into();
        message["content"] = "a".into();
        let list = json!({"messages": [{"role": "user", "content": "go"}, message]});
        let run = parsed("a.json", list.to_string()).remove(0);
        let step = &run.steps[1];
        match what {
            "stop reasons" => assert_eq!(step.finish_reason.as_deref(), Some("stop"), "{list}"),
            "reasoning" => assert_eq!(step.reasoning.as_deref(), Some("because"), "{list}"),
            "times" => assert_eq!(step.at.as_deref(), Some("2026-01-01T00:00:00Z"), "{list}"),
            "arguments" => assert_eq!(step.calls[0].arguments, r#"{"a":1}"#, "{list}"),
            "usage" => {
                let usage = step.usage.as_deref().unwrap();
                assert_eq!((usage.prompt_tokens, usage.extra.len()), (Some(5), 0), "{list}");
            }
            _ => assert_eq!((step.calls.len(), &*step.calls[0].name), (1, "f"), "{list}"),
        }
    }
}

/// Arguments are one line in every dialect, because they are embedded in files of lines.
#[test]
fn pretty_arguments_become_one_line() {
    let pretty = " {\n  \"a\": \"x\\ny\",\r\n  \"b\": [1, 2.50]\n}\n";
    let want = r#"{"a":"x\ny","b":[1,2.50]}"#;
    let record =
        |kind: &str, payload: Value| json!({"timestamp": at(0), "type": kind, "payload": payload});
    let codex = lines([
        record("session_meta", json!({"id": "s"})),
        record(
            "response_item",
            json!({"type": "function_call", "call_id": "c", "name": "f",
                                       "arguments": pretty}),
        ),
    ]);
    let assistant = json!({"role": "assistant", "content": "",
        "tool_calls": [{"id": "c", "function": "f", "arguments": pretty}]});
    let sample = json!({"id": 1, "epoch": 1, "messages": [assistant]});
    let inspect = json!({"version": 2, "status": "success", "eval": {}, "samples": [sample]});
    let event = json!({"type": "assistant.message", "timestamp": at(0), "id": "e", "data":
        {"content": "", "toolRequests": [{"toolCallId": "c", "name": "f", "arguments": pretty}]}});
    let spans = json!([{"type": "tool_call", "id": "c", "name": "f", "arguments": pretty}]);
    let spans = json!([{"role": "assistant", "parts": spans}]).to_string();
    let otel = json!({"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "t", "spanId": "s",
        "name": "chat", "attributes": {"gen_ai.operation.name": "chat",
        "gen_ai.output.messages": spans}}]}]}]});
    let openai = json!({"messages": [{"role": "user", "content": "go"}, {"role": "assistant",
        "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": pretty}}]}]});
    for (format, text) in [
        ("codex", codex),
        ("inspect", inspect.to_string()),
        ("copilot", format!("{event}\n")),
        ("otel", otel.to_string()),
        ("openai-messages", openai.to_string()),
    ] {
        let run = read_in(format, "a.jsonl", text);
        let call = run.turns().flat_map(|step| &step.calls).next().unwrap();
        assert_eq!(call.arguments, want, "{format}");
    }
}

/// Counts that are no counts stay unknown, and are not lost.
#[test]
fn odd_token_counts_are_not_invented() {
    let usage = |format: &str, count: &Value| -> String {
        match format {
            "openai-messages" => json!({"messages": [{"role": "user", "content": "go"},
                {"role": "assistant", "content": "a",
                 "usage": {"prompt_tokens": count, "completion_tokens": 1}}]})
            .to_string(),
            "neutral-traj/1" => json!({"schema": "neutral-traj/1", "run_id": "r", "steps": [
                {"role": "agent", "text": "a",
                 "usage": {"prompt_tokens": count, "completion_tokens": 1}}]})
            .to_string(),
            "atif" => json!({"schema_version": "ATIF-v1.8", "session_id": "s",
                "agent": {"name": "a", "version": "1"}, "steps": [{"step_id": 1, "source": "agent",
                "message": "a", "metrics": {"prompt_tokens": count, "completion_tokens": 1}}]})
            .to_string(),
            "claude-code" => lines([json!({"type": "assistant", "uuid": "u", "parentUuid": null,
                "sessionId": "s", "message": {"id": "m", "role": "assistant",
                "content": [{"type": "text", "text": "a"}],
                "usage": {"input_tokens": count, "output_tokens": 1}}})]),
            "codex" => {
                let last = json!({"input_tokens": count, "output_tokens": 1});
                let info = json!({"total_token_usage": last, "last_token_usage": last});
                let message = json!({"type": "message", "role": "assistant",
                                     "content": [{"type": "output_text", "text": "a"}]});
                lines([
                    json!({"timestamp": at(0), "type": "session_meta", "payload": {"id": "s"}}),
                    json!({"timestamp": at(0), "type": "response_item", "payload": message}),
                    json!({"timestamp": at(0), "type": "event_msg",
                           "payload": {"type": "token_count", "info": info}}),
                ])
            }
            "otel" => {
                let spans = json!([{"traceId": "t", "spanId": "s", "name": "chat", "attributes": {
                    "gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": count,
                    "gen_ai.usage.output_tokens": 1}}]);
                json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).to_string()
            }
            other => panic!("{other}"),
        }
    };
    for (count, want) in [
        (json!(7), Some(7)),
        (json!(0), Some(0)),
        // Tables that were loaded with missing values write counts as fractions.
        (json!(7.0), Some(7)),
        (json!(u64::MAX), Some(u64::MAX)),
        (json!(-7), None),
        (json!(7.5), None),
        (json!(-0.5), None),
        (json!(1e300), None),
        (json!(true), None),
        (json!([7]), None),
        (json!(null), None),
    ] {
        for format in ["openai-messages", "neutral-traj/1", "atif", "claude-code", "codex", "otel"]
        {
            let run = read_in(format, "a.json", usage(format, &count));
            let step = run.turns().next().unwrap();
            let found = step.usage.as_deref().and_then(|usage| usage.prompt_tokens);
            assert_eq!(found, want, "{format}: {count}");
            let output = step.usage.as_deref().and_then(|usage| usage.completion_tokens);
            assert_eq!(output, Some(1), "{format}: {count}");
        }
    }
}

/// OTLP encodes numbers as JSON strings or as numbers.
#[test]
fn otlp_numbers_may_be_strings() {
    for (value, tokens, cost) in [
        (json!({"intValue": "12"}), Some(12), Some(12.0)),
        (json!({"intValue": 12}), Some(12), Some(12.0)),
        (json!({"doubleValue": 12}), Some(12), Some(12.0)),
        (json!({"doubleValue": "12"}), Some(12), Some(12.0)),
        (json!({"doubleValue": 0.25}), None, Some(0.25)),
        (json!({"doubleValue": "0.25"}), None, Some(0.25)),
        (json!({"stringValue": "12"}), Some(12), Some(12.0)),
        (json!({"doubleValue": "NaN"}), None, None),
        (json!({"doubleValue": "Infinity"}), None, None),
        (json!({"stringValue": "many"}), None, None),
        (json!({}), None, None),
    ] {
        let entry = |key: &str, value: &Value| json!({"key": key, "value": value});
        let attributes = json!([
            entry("gen_ai.operation.name", &json!({"stringValue": "chat"})),
            entry("gen_ai.usage.input_tokens", &value),
            entry("gen_ai.usage.cost", &value),
        ]);
        let span = json!({"traceId": "t", "spanId": "s", "name": "chat", "attributes": attributes});
        let text = json!({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).to_string();
        let run = read_in("otel", "a.json", text);
        let step = run.turns().next().unwrap();
        let found = step.usage.as_deref().and_then(|usage| usage.prompt_tokens);
        assert_eq!((found, step.cost_usd), (tokens, cost), "{value}");
    }
}

/// The answer of `codex exec` is what the model said last, not what it said before a call.
#[test]
fn exec_answer_follows_the_last_call() {
    let item = |kind: &str, more: Value| {
        let mut item = json!({"id": format!("{kind}{}", more.to_string().len()), "type": kind});
        item.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"type": "item.completed", "item": item})
    };
    let said = |text: &str| item("agent_message", json!({"text": text}));
    let ran = || {
        item("command_execution", json!({"command": "ls", "exit_code": 0, "status": "completed"}))
    };
    let begun = || json!({"type": "turn.started"});
    let done = || json!({"type": "turn.completed", "usage": {"input_tokens": 5}});
    for (what, events, answer) in [
        ("an answer", vec![begun(), said("Yes."), done()], Some("Yes.")),
        (
            "after a call",
            vec![begun(), said("Let me look."), ran(), said("Yes."), done()],
            Some("Yes."),
        ),
        ("before a call", vec![begun(), said("Let me look."), ran(), done()], None),
        ("only a call", vec![begun(), ran(), done()], None),
        ("nothing", vec![begun(), done()], None),
        ("of the prompt before", vec![begun(), said("Yes."), done(), begun(), done()], None),
        (
            "of the second prompt",
            vec![begun(), said("Yes."), done(), begun(), said("No."), done()],
            Some("No."),
        ),
        (
            "with a search by the provider",
            vec![begun(), item("web_search", json!({"query": "x"})), said("Yes."), done()],
            Some("Yes."),
        ),
    ] {
        let head = json!({"type": "thread.started", "thread_id": "t"});
        let run = read_in("codex", "a.jsonl", lines([vec![head], events].concat()));
        let ending = run.ending.unwrap();
        assert_eq!((&*ending.reason, ending.answer.as_deref()), ("final", answer), "{what}");
    }
}

/// Counts that the totals have no field for are kept under their names.
#[test]
fn totals_keep_all_counts() {
    let total = json!({"input_tokens": 9, "output_tokens": 2, "cached_input_tokens": 4,
                       "cache_write_input_tokens": 3, "reasoning_output_tokens": 1, "new_tokens": 7});
    let info = json!({"total_token_usage": total, "last_token_usage": total});
    let rollout = lines([
        json!({"timestamp": at(0), "type": "session_meta", "payload": {"id": "s"}}),
        json!({"timestamp": at(0), "type": "event_msg",
               "payload": {"type": "token_count", "info": info}}),
    ]);
    let exec = lines([
        json!({"type": "thread.started", "thread_id": "t"}),
        json!({"type": "turn.completed", "usage": total}),
    ]);
    for text in [rollout, exec] {
        let totals = read_in("codex", "a.jsonl", text).totals;
        let counts = (totals.prompt_tokens, totals.completion_tokens, totals.cached_tokens);
        assert_eq!(counts, (Some(9), Some(2), Some(4)));
        let extra =
            json!({"cache_write_input_tokens": 3, "reasoning_output_tokens": 1, "new_tokens": 7});
        assert_eq!(json!(totals.extra), extra);
    }
    let result = json!({"type": "result", "subtype": "success", "session_id": "s", "num_turns": 1,
        "result": "Yes.", "usage": {"input_tokens": 2, "output_tokens": 5,
        "cache_read_input_tokens": 4, "cache_creation_input_tokens": 3}});
    let totals = read_in("claude-code", "a.jsonl", lines([result])).totals;
    // Anthropic's input count excludes cached tokens.
    assert_eq!((totals.prompt_tokens, totals.cached_tokens), (Some(9), Some(4)));
    assert_eq!(totals.extra["cache_creation_input_tokens"], 3);
}
