//! Reads records of unusual shapes, one table for each reader: wrong types, missing and repeated
//! members, results without calls.

use crate::common::{counts, ending, parsed, read_bytes};
use endstop_trajectory::read::{Options, ProblemKind};
use endstop_trajectory::{Role, Trajectory};
use serde_json::{Value, json};

/// Reads one document of one run.
fn one(name: &str, document: &Value) -> Trajectory<'static> {
    let mut runs = parsed(name, document.to_string());
    assert_eq!(runs.len(), 1, "{document}");
    runs.remove(0)
}

fn refused(name: &str, text: &str) -> (ProblemKind, String) {
    let (runs, mut problems) = read_bytes(name, text.to_owned(), &Options::default());
    assert_eq!((runs.len(), problems.len()), (0, 1), "{text}: {problems:?}");
    let problem = problems.remove(0);
    (problem.kind, problem.what)
}

/// A list of messages in which the assistant's message is the given one.
fn said(message: &Value) -> Trajectory<'static> {
    let list = json!({"messages": [{"role": "user", "content": "go"}, message]});
    one("a.json", &list)
}

#[test]
fn call_arguments_are_found_anywhere() {
    for (call, name, arguments) in [
        (
            json!({"id": "c", "function": {"name": "f", "arguments": "{\"a\":1}"}}),
            "f",
            r#"{"a":1}"#,
        ),
        (json!({"id": "c", "function": {"name": "f", "arguments": {"a": 1}}}), "f", r#"{"a":1}"#),
        (json!({"id": "c", "name": "f", "arguments": "{\"a\":1}"}), "f", r#"{"a":1}"#),
        (json!({"id": "c", "name": "f", "args": {"a": 1}}), "f", r#"{"a":1}"#),
        (json!({"id": "c", "function": "f", "args": {"a": 1}}), "f", r#"{"a":1}"#),
        (json!({"id": "c", "arguments": {"a": 1}, "function": {"name": "f"}}), "f", r#"{"a":1}"#),
        (json!({"id": "c", "function": {"name": "f"}, "arguments": {"a": 1}}), "f", r#"{"a":1}"#),
        (json!({"id": "c", "function": {"name": "f"}}), "f", "{}"),
        (json!({"id": "c", "function": {"name": "f", "arguments": null}}), "f", "{}"),
        (json!({"id": "c", "function": {"name": "f", "arguments": ""}}), "f", r#""""#),
        (json!({"id": "c", "function": {"name": "f", "arguments": "ls"}}), "f", r#""ls""#),
        (json!({"id": "c", "function": {"name": "f", "arguments": [1]}}), "f", r#""[1]""#),
        (json!({"id": "c", "function": {"arguments": "{}"}}), "", "{}"),
        (json!({"id": "c", "function": null}), "", "{}"),
    ] {
        let run = said(&json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        let found = &run.steps[1].calls[0];
        assert_eq!((&*found.name, &*found.arguments), (name, arguments), "{call}");
    }
}

#[test]
fn call_ids_may_be_numbers() {
    for (id, want) in [
        (json!("c"), Some("c")),
        (json!(7), Some("7")),
        (json!(u64::MAX), Some("18446744073709551615")),
        (json!(-1), Some("-1")),
        (json!(true), Some("true")),
        (json!(null), None),
        (json!(""), None),
    ] {
        let list = json!({"messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "tool_calls": [{"id": id, "function": {"name": "f"}}]},
            {"role": "tool", "tool_call_id": id, "content": "ok"}]});
        let run = one("a.json", &list);
        assert_eq!(run.steps[1].calls[0].id.as_deref(), want, "{id}");
        assert_eq!(run.steps[1].results.len(), 1, "{id}: {:?}", run.notes);
        assert_eq!(run.notes, [""; 0], "{id}");
    }
}

#[test]
fn contents_of_any_shape_are_kept() {
    for (content, text, rest) in [
        (json!("a"), "a", None),
        (json!(""), "", None),
        (json!(null), "", None),
        (json!([]), "", None),
        (json!(["a", "b"]), "a\nb", None),
        (json!([{"type": "text", "text": "a"}, {"text": "b"}]), "a\nb", None),
        (json!([{"type": "image", "url": "u"}]), "", Some(json!([{"type": "image", "url": "u"}]))),
        (json!([{"type": "text", "text": 5}]), "", Some(json!([{"type": "text", "text": 5}]))),
        (json!([7, null]), "", Some(json!([7, null]))),
        (json!({"a": 1}), r#"{"a":1}"#, Some(json!({"a": 1}))),
        (json!(5), "5", Some(json!(5))),
        (json!(true), "true", Some(json!(true))),
    ] {
        let run = said(&json!({"role": "assistant", "content": content}));
        let step = &run.steps[1];
        assert_eq!(step.text, text, "{content}");
        let stored = step.extra.as_ref().and_then(|extra| extra.get("content")).cloned();
        assert_eq!(stored, rest, "{content}");
    }
}

#[test]
fn messages_of_one_response_merge() {
    let message = |content: Value| json!({"id": "m", "role": "assistant", "content": content});
    let list = json!({"messages": [
        {"role": "user", "content": "go"},
        message(json!([{"type": "text", "text": "a"}, {"type": "image", "url": "1"}])),
        {"id": "m", "role": "assistant", "cost": 0.5, "usage": {"input_tokens": 3},
         "content": [{"type": "text", "text": "b"}, {"type": "image", "url": "2"}], "more": 1},
        message(json!([{"type": "tool_use", "id": "c", "name": "f", "input": {}}])),
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]}]});
    let run = one("a.json", &list);
    assert_eq!(counts(&run), [2, 1, 1, 1, 0]);
    let step = &run.steps[1];
    assert_eq!((&*step.text, step.cost_usd), ("a\nb", Some(0.5)));
    assert_eq!(step.usage.as_ref().unwrap().prompt_tokens, Some(3));
    let extra = step.extra.as_ref().unwrap();
    let images = json!([{"type": "image", "url": "1"}, {"type": "image", "url": "2"}]);
    assert_eq!((&extra["content"], &extra["more"]), (&images, &json!(1)), "nothing is lost");
}

#[test]
fn results_find_their_calls() {
    let call = |id: &str| json!({"id": id, "function": {"name": "f"}});
    let asked = |ids: &[&str]| {
        let calls: Vec<Value> = ids.iter().map(|id| call(id)).collect();
        json!({"role": "assistant", "content": "", "tool_calls": calls})
    };
    let told = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": id});
    for (what, messages, want, notes) in [
        ("in order", vec![asked(&["a", "b"]), told("a"), told("b")], vec![2], 0),
        ("out of order", vec![asked(&["a", "b"]), told("b"), told("a")], vec![2], 0),
        ("late", vec![asked(&["a"]), asked(&["b"]), told("b"), told("a")], vec![1, 1], 0),
        ("missing", vec![asked(&["a"]), asked(&["b"]), told("b")], vec![0, 1], 0),
        ("twice", vec![asked(&["a"]), told("a"), told("a")], vec![2], 1),
        ("unknown", vec![asked(&["a"]), told("z")], vec![1], 1),
        ("reused", vec![asked(&["a"]), told("a"), asked(&["a"]), told("a")], vec![1, 1], 0),
        ("without an id", vec![asked(&["a", "b"]), told(""), told("")], vec![2], 0),
        ("too many", vec![asked(&["a"]), told(""), told("")], vec![2], 1),
    ] {
        let list: Vec<Value> =
            [json!({"role": "user", "content": "go"})].into_iter().chain(messages).collect();
        let run = one("a.json", &json!({"messages": list}));
        let found: Vec<usize> = run.turns().map(|step| step.results.len()).collect();
        assert_eq!((found, run.notes.len()), (want, notes), "{what}: {:?}", run.notes);
    }
}

#[test]
fn usage_counts_of_any_number() {
    for (usage, input, output) in [
        (json!({"prompt_tokens": 3, "completion_tokens": 4}), Some(3), Some(4)),
        (json!({"prompt_tokens": 3.0, "completion_tokens": 4e2}), Some(3), Some(400)),
        (json!({"prompt_tokens": 3.5, "completion_tokens": -4}), None, None),
        (json!({"prompt_tokens": "3", "completion_tokens": [4]}), None, None),
        (json!({"prompt_tokens": u64::MAX}), Some(u64::MAX), None),
        (json!({"prompt_tokens": 1e300}), None, None),
        (json!({"input_tokens": 3, "output_tokens": 4}), Some(3), Some(4)),
        (json!({"input_tokens": 3, "cache_read_input_tokens": 5}), Some(8), None),
        (json!({"input_tokens": u64::MAX, "cache_read_input_tokens": 5}), Some(u64::MAX), None),
        (json!({}), None, None),
    ] {
        let run = said(&json!({"role": "assistant", "content": "a", "usage": usage}));
        let found = run.steps[1].usage.as_ref().unwrap();
        assert_eq!((found.prompt_tokens, found.completion_tokens), (input, output), "{usage}");
        let size = usage.as_object().unwrap().len();
        let taken = [found.prompt_tokens, found.completion_tokens, found.cached_tokens];
        let taken = taken.iter().flatten().count();
        assert_eq!(found.extra.len() + taken, size, "{usage}: nothing is lost");
    }
}

#[test]
fn roles_decide_steps() {
    for (role, want) in [
        ("assistant", Role::Agent),
        ("agent", Role::Agent),
        ("model", Role::Agent),
        ("ai", Role::Agent),
        ("user", Role::User),
        ("human", Role::User),
        ("system", Role::System),
        ("developer", Role::System),
        ("narrator", Role::User),
        ("Assistant", Role::User),
    ] {
        let run = one(
            "a.json",
            &json!({"messages": [
            {"role": "user", "content": "go"}, {"role": "assistant", "content": "yes"},
            {"role": role, "content": "a"}]}),
        );
        assert_eq!(run.steps[2].role, want, "{role}");
        let known = !["narrator", "Assistant"].contains(&role);
        assert_eq!(run.notes.is_empty(), known, "{role}: {:?}", run.notes);
    }
}

#[test]
fn agentdojo_shapes_are_read() {
    let of = |messages: Value, more: Value| {
        let mut file = json!({"suite_name": "s", "pipeline_name": "m", "user_task_id": "u",
            "utility": true, "error": null, "messages": messages});
        file.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        one("a.json", &file)
    };
    let text = |text: &str| json!([{"type": "text", "content": text}]);
    let asked = json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "c", "function": "f", "args": {"a": 1}}, {"function": "g", "args": null}, "odd"]});
    let told = |more: Value| {
        let mut message = json!({"role": "tool", "content": text("ok"), "tool_call_id": "c"});
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        message
    };
    for (what, messages, more, want, reason) in [
        ("empty", json!([]), json!({}), [0, 0, 0, 0, 0], None),
        (
            "answer",
            json!([{"role": "assistant", "content": text("a")}]),
            json!({}),
            [1, 1, 0, 0, 0],
            Some("final"),
        ),
        ("no answer", json!([asked]), json!({}), [1, 1, 3, 0, 0], None),
        ("result", json!([asked, told(json!({}))]), json!({}), [1, 1, 3, 1, 0], None),
        ("error", json!([asked, told(json!({"error": "no"}))]), json!({}), [1, 1, 3, 1, 1], None),
        (
            "error object",
            json!([asked, told(json!({"error": {"a": 1}}))]),
            json!({}),
            [1, 1, 3, 1, 1],
            None,
        ),
        (
            "no error",
            json!([asked, told(json!({"error": null}))]),
            json!({}),
            [1, 1, 3, 1, 0],
            None,
        ),
        ("failed", json!([asked]), json!({"error": "boom"}), [1, 1, 3, 0, 0], Some("unknown")),
        ("odd role", json!([{"role": "judge", "content": "a"}]), json!({}), [1, 0, 0, 0, 0], None),
    ] {
        let run = of(messages, more);
        assert_eq!((counts(&run), ending(&run).map(|e| e.0)), (want, reason), "{what}");
    }
    let calls = &of(json!([asked]), json!({})).steps[0].calls;
    let arguments: Vec<&str> = calls.iter().map(|call| &*call.arguments).collect();
    assert_eq!(arguments, [r#"{"a":1}"#, "{}", r#""odd""#]);
}

#[test]
fn agentdojo_problems_name_the_message() {
    let head = r#"{"suite_name":"s","pipeline_name":"m","user_task_id":"u""#;
    for (rest, kind, what) in [
        ("}", ProblemKind::Malformed, "missing `messages`"),
        (r#","messages":{}}"#, ProblemKind::Malformed, "a list of objects"),
        (r#","messages":[1]}"#, ProblemKind::Malformed, "an object"),
        (r#","messages":[{"content":"a"}]}"#, ProblemKind::Malformed, "message 1: missing `role`"),
        (r#","messages":[{"role":7}]}"#, ProblemKind::Malformed, "message 1: missing `role`"),
        (r#","messages":[{"role":"user"}"#, ProblemKind::Half, "truncated after"),
    ] {
        let (found, said) = refused("a.json", &format!("{head}{rest}"));
        assert!(found == kind && said.contains(what), "{rest}: {found:?}: {said}");
    }
}

#[test]
fn intercode_lists_may_differ_in_length() {
    let of = |history: Value, summary: Value| {
        let run = json!({"0": {"environment": "ic_bash", "dataset": "/x/y/data.json", "task_id": 3,
            "query": "q", "turn_history": history, "summary": summary}});
        one("log.json", &run)
    };
    let lists = |actions: &[&str], observations: Value, rewards: &[f64]| json!({"actions": actions, "observations": observations, "rewards": rewards});
    for (what, history, summary, want, reason) in [
        ("empty", json!({}), json!({}), [1, 0, 0, 0, 0], None),
        ("equal", lists(&["ls"], json!(["a"]), &[0.0]), json!({}), [2, 1, 1, 1, 0], None),
        ("missing", lists(&["ls", "pwd"], json!(["a"]), &[]), json!({}), [3, 2, 2, 1, 0], None),
        ("null", lists(&["ls"], json!([null]), &[]), json!({}), [2, 1, 1, 0, 0], None),
        ("number", lists(&["ls"], json!([7]), &[]), json!({}), [2, 1, 1, 1, 0], None),
        (
            "failure",
            lists(&["x"], json!(["/bin/bash: x: command not found"]), &[]),
            json!({}),
            [2, 1, 1, 1, 1],
            None,
        ),
        (
            "mention",
            lists(&["x"], json!(["grep: command not found"]), &[]),
            json!({}),
            [2, 1, 1, 1, 0],
            None,
        ),
        (
            "rewarded",
            lists(&["ls"], json!(["a"]), &[1.0]),
            json!({}),
            [2, 1, 1, 1, 0],
            Some("reward_threshold"),
        ),
        (
            "submitted",
            lists(&["submit"], json!(["a"]), &[1.0]),
            json!({}),
            [2, 1, 1, 1, 0],
            Some("agent_submit"),
        ),
        ("submits", lists(&["submitted"], json!(["a"]), &[]), json!({}), [2, 1, 1, 1, 0], None),
        (
            "turns",
            lists(&["ls"], json!(["a"]), &[]),
            json!({"turns_max": 1, "turns_taken": 1}),
            [2, 1, 1, 1, 0],
            Some("max_turns"),
        ),
        (
            "odd turns",
            lists(&["ls"], json!(["a"]), &[]),
            json!({"turns_max": "1", "turns_taken": 1}),
            [2, 1, 1, 1, 0],
            None,
        ),
    ] {
        let run = of(history, summary);
        assert_eq!((counts(&run), ending(&run).map(|e| e.0)), (want, reason), "{what}");
        assert_eq!(run.task_id.as_deref(), Some("bash/data.json/3"), "{what}");
    }
    let long = of(lists(&["ls"], json!(["a", "b", "c"]), &[]), json!({}));
    assert_eq!(long.notes, ["observations without an action: 2"]);
}

#[test]
fn intercode_run_fails_alone() {
    let good = r#"{"environment":"ic_sql","query":"q","turn_history":{"actions":["SELECT 1"]}}"#;
    for (bad, what) in [
        ("7", "run `1`: "),
        ("[]", "run `1`: "),
        (r#"{"environment":"ic_sql","query":"q"}"#, "run `1`: missing `turn_history`"),
        (r#"{"environment":"ic_sql","query":5,"turn_history":{}}"#, "run `1`: query"),
        (r#"{"environment":"ic_sql","query":"q","turn_history":{},"reward":"x"}"#, "reward"),
    ] {
        let text = format!("{{\"0\":{good},\"1\":{bad},\"2\":{good}}}");
        let (runs, problems) = read_bytes("log.json", text, &Options::default());
        let ids: Vec<&str> = runs.iter().map(|run| &*run.run_id).collect();
        assert_eq!(ids, ["log/0", "log/2"], "{bad}");
        assert!(problems[0].what.contains(what), "{bad}: {}", problems[0].what);
        assert_eq!(problems[0].at, Some(2), "{bad}");
    }
}

#[test]
fn swe_agent_steps_of_any_shape() {
    let of = |steps: Value, history: Value| {
        one("task-1.traj", &json!({"trajectory": steps, "history": history, "info": {}}))
    };
    let step = |action: &str| json!({"action": action, "observation": "o", "thought": "t", "response": "t"});
    let turn = |action: &str, id: &str| {
        json!({"role": "assistant", "content": "t", "agent": "main", "action": action, "tool_calls": [
            {"id": id, "type": "function", "function": {"name": "bash", "arguments": "{\"command\":\"ls\"}"}}]})
    };
    for (what, steps, history, want, notes) in [
        ("plain", json!([step("ls"), step("pwd")]), json!([]), [2, 2, 2, 2, 0], 0),
        ("no action", json!([step("")]), json!([]), [1, 1, 0, 1, 0], 0),
        ("blank action", json!([step(" \n")]), json!([]), [1, 1, 0, 1, 0], 0),
        (
            "no observation",
            json!([{"action": "ls", "thought": "t"}]),
            json!([]),
            [1, 1, 1, 0, 0],
            0,
        ),
        ("with calls", json!([step("ls")]), json!([turn("ls", "c")]), [1, 1, 1, 1, 0], 0),
        (
            "repeated",
            json!([step("ls")]),
            json!([turn("no", "a"), turn("ls", "c")]),
            [1, 1, 1, 1, 0],
            1,
        ),
        (
            "left over",
            json!([step("ls")]),
            json!([turn("ls", "c"), turn("x", "d")]),
            [1, 1, 1, 1, 0],
            1,
        ),
    ] {
        let run = of(steps, history);
        assert_eq!((counts(&run), run.notes.len()), (want, notes), "{what}: {:?}", run.notes);
        assert_eq!(run.task_id.as_deref(), Some("task-1"), "{what}");
        for step in run.turns() {
            let ids: Vec<_> = step.results.iter().map(|result| &result.call_id).collect();
            let asked = step.calls.last().and_then(|call| call.id.clone());
            assert!(ids.iter().all(|id| **id == asked), "{what}");
        }
    }
}

#[test]
fn tothf_entries_of_any_shape() {
    let of = |trace: Value| {
        one("a.json", &json!({"run_id": "r", "condition_id": "c", "item_id": "1", "trace": trace}))
    };
    for (what, trace, want, notes) in [
        ("empty", json!([]), [1, 0, 0, 0, 0], 0),
        ("text", json!(["STEP 1 MODEL: hm"]), [2, 1, 0, 0, 0], 0),
        ("call", json!(["STEP 1 MODEL: ACTION: f x", "STEP 1 OBSERVATION: 1"]), [2, 1, 1, 1, 0], 0),
        ("CRLF", json!(["STEP 1 MODEL: a\r\nACTION: f x\r\n"]), [2, 1, 1, 0, 0], 1),
        ("no arguments", json!(["STEP 1 MODEL: ACTION: f"]), [2, 1, 1, 0, 0], 1),
        (
            "error",
            json!(["STEP 1 MODEL: ACTION: f", "STEP 1 OBSERVATION: error: no"]),
            [2, 1, 1, 1, 1],
            0,
        ),
        ("early", json!(["STEP 1 OBSERVATION: 1"]), [1, 0, 0, 0, 0], 1),
        (
            "twice",
            json!(["STEP 1 MODEL: ACTION: f", "STEP 1 OBSERVATION: 1", "STEP 1 OBSERVATION: 2"]),
            [2, 1, 1, 2, 0],
            1,
        ),
        (
            "no action",
            json!(["STEP 1 MODEL: hm", "STEP 1 OBSERVATION: no-action"]),
            [2, 1, 0, 0, 0],
            0,
        ),
        ("huge step", json!(["STEP 18446744073709551616 MODEL: a"]), [1, 0, 0, 0, 0], 1),
        (
            "odd kinds",
            json!([7, null, {"a": 1}, "STEP x MODEL: a", "STEP 1 JUDGE: a", "STEP 1"]),
            [1, 0, 0, 0, 0],
            1,
        ),
    ] {
        let run = of(trace);
        assert_eq!((counts(&run), run.notes.len()), (want, notes), "{what}: {:?}", run.notes);
    }
}

#[test]
fn malt_trees_of_any_shape() {
    let node = |id: Value, parent: Value, role: &str, content: &str| {
        json!({"node_id": id, "parent_node_id": parent,
            "node_data": {"message": {"role": role, "content": content}, "first_called_at": 5}})
    };
    let call = |id: u64| {
        json!({"node_id": id, "parent_node_id": 0, "node_data": {"message": {"role": "assistant",
            "content": "", "function_call": {"name": "bash", "arguments": "{\"command\":\"ls\"}"}}}})
    };
    let ask = node(json!(0), json!(null), "user", "go");
    for (what, nodes, want, notes) in [
        (
            "chain",
            json!([ask, call(1), node(json!(2), json!(1), "function", "a")]),
            [2, 1, 1, 1, 0],
            0,
        ),
        (
            "child first",
            json!([node(json!(2), json!(1), "function", "a"), call(1), ask]),
            [2, 1, 1, 1, 0],
            0,
        ),
        (
            "exit code",
            json!([ask, call(1), node(json!(2), json!(1), "function", "a\nExit code: 2")]),
            [2, 1, 1, 1, 1],
            0,
        ),
        ("no result", json!([ask, call(1)]), [2, 1, 1, 0, 0], 1),
        ("no call", json!([ask, node(json!(2), json!(0), "function", "a")]), [2, 0, 0, 1, 0], 1),
        (
            "cycle",
            json!([node(json!(1), json!(2), "user", "a"), node(json!(2), json!(1), "user", "b")]),
            [2, 0, 0, 0, 0],
            1,
        ),
        ("own parent", json!([node(json!(1), json!(1), "user", "a")]), [1, 0, 0, 0, 0], 1),
        ("missing parent", json!([node(json!(1), json!(9), "user", "a")]), [1, 0, 0, 0, 0], 1),
        ("same ids", json!([ask, node(json!(0), json!(null), "user", "b")]), [2, 0, 0, 0, 0], 1),
        ("no ids", json!([node(json!(null), json!(null), "user", "a")]), [1, 0, 0, 0, 0], 1),
        ("huge ids", json!([node(json!(u64::MAX), json!(null), "user", "a")]), [1, 0, 0, 0, 0], 0),
        ("odd role", json!([node(json!(1), json!(null), "judge", "a")]), [1, 0, 0, 0, 0], 1),
    ] {
        let run =
            one("a.json", &json!({"run_id": 1, "nodes": nodes, "has_chain_of_thought": true}));
        assert_eq!((counts(&run), run.notes.len()), (want, notes), "{what}: {:?}", run.notes);
    }
}

#[test]
fn cursor_records_of_any_shape() {
    let ask = r#"{"role":"user","message":{"content":[{"type":"text","text":"go"}]}}"#;
    let answer = r#"{"role":"assistant","message":{"content":[{"type":"text","text":"yes"}]}}"#;
    for (line, want, what) in [
        ("", [2, 1, 0, 0, 0], None),
        ("7", [2, 1, 0, 0, 0], Some("expected a JSON object, found a number")),
        ("{", [2, 1, 0, 0, 0], Some("invalid JSON")),
        (r#"{"role":"user"}"#, [2, 1, 0, 0, 0], Some("found nothing")),
        (r#"{"role":"user","message":null}"#, [2, 1, 0, 0, 0], Some("found null")),
        (r#"{"role":"user","message":[]}"#, [2, 1, 0, 0, 0], Some("found a list")),
        (
            r#"{"role":"tool","message":{"content":[]}}"#,
            [2, 1, 0, 0, 0],
            Some("unknown role `tool`"),
        ),
        (r#"{"role":"system","message":{"content":"be brief"}}"#, [3, 1, 0, 0, 0], None),
        (r#"{"role":"user","message":{}}"#, [3, 1, 0, 0, 0], None),
        (r#"{"type":"ping"}"#, [2, 1, 0, 0, 0], None),
    ] {
        let text = [ask, line, answer].join("\r\n");
        let (runs, problems) = read_bytes("a.jsonl", text, &Options::default());
        assert_eq!(counts(&runs[0]), want, "{line}");
        let found: Vec<&str> = problems.iter().map(|problem| &*problem.what).collect();
        match what {
            None => assert_eq!(found, [""; 0], "{line}"),
            Some(what) => assert!(found[0].contains(what), "{line}: {found:?}"),
        }
    }
}

#[test]
fn openhands_logs_of_any_shape() {
    let of = |more: Value| {
        let mut log = json!({"messages": [{"role": "user", "content": "go"}], "kwargs": {}, "cost": 0.5,
            "timestamp": 1.5, "response": {"choices": [{"message": {"content": "done"}}]}});
        log.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        log.to_string()
    };
    for (more, at) in [
        (json!({}), Some("1970-01-01T00:00:01.500000000Z")),
        (json!({"timestamp": "1.5"}), None),
        (json!({"timestamp": -1}), None),
        (json!({"timestamp": 1e300}), None),
        (json!({"timestamp": null}), None),
        (json!({"timestamp": 0}), Some("1970-01-01T00:00:00.000000000Z")),
    ] {
        let run = parsed("a.json", of(more.clone())).remove(0);
        assert_eq!(run.steps[1].at.as_deref(), at, "{more}");
        let known = at.is_some() || more["timestamp"].is_null();
        assert_eq!(run.extra.contains_key("timestamp"), !known, "{more}: nothing is lost");
    }
    for (more, what) in [
        (json!({"cost": "free"}), "cost"),
        (json!({"messages": [{"content": "a"}]}), "message 1: missing `role`"),
        (json!({"response": {"choices": [{}]}}), "missing `response.choices[0].message`"),
        (json!({"messages": [7]}), "messages"),
    ] {
        let (kind, found) = refused("a.json", &of(more.clone()));
        assert!(kind == ProblemKind::Malformed && found.contains(what), "{more}: {found}");
    }
}

#[test]
fn children_without_ids_stay_apart() {
    let child = |text: &'static str| Trajectory {
        steps: vec![endstop_trajectory::Step {
            text: text.into(),
            ..endstop_trajectory::Step::new(Role::Agent)
        }],
        ..Trajectory::new("")
    };
    let named = |id: &'static str| Trajectory::new(id);
    for (children, want) in [
        (vec![child("a")], vec!["run"]),
        (vec![child("a"), child("b"), child("c")], vec!["run", "run#2", "run#3"]),
        (vec![named("x"), named("x"), child("a")], vec!["x", "x#2", "run"]),
        (vec![named("run"), child("a"), named("run#2")], vec!["run", "run#2", "run#2#2"]),
    ] {
        let run = Trajectory { children, ..Trajectory::new("r") };
        let mut line = Vec::new();
        endstop_trajectory::write::atif(&run, &mut line).unwrap();
        let document: Value = serde_json::from_slice(&line).unwrap();
        let list = document["subagent_trajectories"].as_array().unwrap();
        let ids: Vec<&str> =
            list.iter().map(|child| child["trajectory_id"].as_str().unwrap()).collect();
        assert_eq!(ids, want);
        let again = parsed("a.json", line).remove(0);
        let kept: Vec<_> = again.children.iter().map(|child| child.run_id.clone()).collect();
        let before: Vec<_> = run.children.iter().map(|child| child.run_id.clone()).collect();
        // A chunk names every run that has no id only at the top, so empty ids stay empty.
        assert_eq!(kept, before);
    }
}
