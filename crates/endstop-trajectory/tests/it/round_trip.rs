//! Tests that runs are unchanged after they are written as ATIF and read again.

use crate::common::{fixtures, read_bytes};
use endstop_trajectory::read::{Options, for_each};
use endstop_trajectory::{
    Call, CallResult, Ending, ModelCall, Origin, Recorded, Role, Step, Totals, Trajectory, Usage,
    write,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::fs;

/// Removes the origin, which is not written.
fn bare(mut run: Trajectory<'static>) -> Trajectory<'static> {
    run.origin = Origin::default();
    run.children = run.children.into_iter().map(bare).collect();
    run
}

fn again(run: &Trajectory<'_>) -> Trajectory<'static> {
    let mut line = Vec::new();
    write::atif(run, &mut line).unwrap();
    assert!(!line.contains(&b'\n'), "one line");
    let (mut runs, problems) = read_bytes("again.json", line.clone(), &Options::default());
    assert_eq!(problems, [], "{}", String::from_utf8_lossy(&line));
    assert_eq!(runs.len(), 1);
    bare(runs.remove(0))
}

#[test]
fn fixtures_survive_atif_round_trip() {
    let mut number = 0;
    for path in fixtures() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let (runs, _) = read_bytes(name, fs::read(&path).unwrap(), &Options::default());
        for run in runs {
            let run = bare(run);
            assert_eq!(again(&run), run, "{name}: {}", run.run_id);
            number += 1;
        }
    }
    assert!(number >= 30, "{number}");
}

/// Reads the folder in `ENDSTOP_RUNS`, for recordings that are not fixtures.
#[test]
fn folder_runs_survive_atif_round_trip() {
    let Some(folder) = std::env::var_os("ENDSTOP_RUNS") else { return };
    let mut number = 0u64;
    for_each(folder, &Options::default(), &mut |run| {
        let Ok(run) = run else { return };
        let run = bare(run.into_owned());
        assert_eq!(again(&run), run, "{}", run.run_id);
        number += 1;
    })
    .unwrap();
    println!("{number} runs");
    assert!(number > 0);
}

type Text = Cow<'static, str>;

fn text() -> impl Strategy<Value = Text> {
    prop_oneof![
        Just("".to_owned()),
        Just("unknown".to_owned()),
        "[a-z]{1,8}",
        "\\PC{0,12}",
        Just("a\nb\t\"c\\".to_owned()),
    ]
    .prop_map(Cow::Owned)
}

fn name() -> impl Strategy<Value = Text> {
    prop_oneof!["[a-z]{1,6}".prop_map(Cow::Owned), Just("unknown".into())]
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(0.0),
        Just(1.0),
        -1e6..1e6,
        any::<f64>().prop_filter("finite", |n| n.is_finite())
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        number().prop_map(Value::from),
        text().prop_map(|text| Value::from(text.into_owned())),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((key(), inner), 0..4).prop_map(|list| Value::Object(list.into_iter().collect())),
        ]
    })
}

/// Generates member names, many of them with a meaning in ATIF or in Endstop's extension.
fn key() -> impl Strategy<Value = String> {
    const KNOWN: &[&str] = &[
        "endstop",
        "extra",
        "outcome",
        "termination",
        "reward",
        "success",
        "reason",
        "limits",
        "message",
        "content",
        "is_error",
        "exit_code",
        "session_id",
        "notes",
        "agent",
        "tags",
        "labels",
        "task_id",
        "trial",
        "total_steps",
        "turns",
        "wall_s",
        "logprobs",
        "finish_reason",
        "stop_reason",
        "llm_call_count",
        "reasoning_effort",
        "reasoning_tokens",
        "tool_result_is_error",
        "subagent_trajectory_ref",
        "continued_trajectory_ref",
        "cache_creation_input_tokens",
        "name",
        "tool_calls",
        "metrics",
        "total_cost_usd",
        "step_id",
        "observation",
        "source",
    ];
    prop_oneof![proptest::sample::select(KNOWN).prop_map(str::to_owned), "[a-z_]{1,5}",]
}

fn object() -> impl Strategy<Value = Map<String, Value>> {
    vec((key(), value()), 0..5).prop_map(|list| list.into_iter().collect())
}

fn extra() -> impl Strategy<Value = Option<Box<Map<String, Value>>>> {
    object().prop_map(|object| (!object.is_empty()).then(|| Box::new(object)))
}

fn call() -> impl Strategy<Value = Call<'static>> {
    let arguments = prop_oneof![
        object().prop_map(|object| Value::Object(object).to_string()),
        Just("{\"raw\": \"x\"}".to_owned()),
        Just("{ \"a\" : 1.50, \"a\": 1E+2 }".to_owned()),
        text().prop_map(|text| Value::from(text.into_owned()).to_string()),
    ];
    (option::of(name()), text(), arguments, extra()).prop_map(|(id, name, arguments, extra)| Call {
        id,
        name,
        arguments: arguments.into(),
        extra,
    })
}

fn result() -> impl Strategy<Value = CallResult<'static>> {
    (option::of(name()), text(), any::<bool>(), option::of(any::<i64>()), extra()).prop_map(
        |(call_id, content, is_error, exit_code, extra)| CallResult {
            call_id,
            content,
            is_error,
            exit_code,
            extra,
        },
    )
}

fn tokens() -> impl Strategy<Value = Option<u64>> {
    option::of(0..u64::MAX)
}

fn usage() -> impl Strategy<Value = Option<Box<Usage>>> {
    let some = (tokens(), tokens(), tokens(), tokens(), tokens(), object()).prop_map(
        |(prompt, completion, cached, write, reasoning, mut extra)| {
            extra.retain(|_, value| !value.is_null());
            Box::new(Usage {
                prompt_tokens: prompt,
                completion_tokens: completion,
                cached_tokens: cached,
                cache_write_tokens: write,
                reasoning_tokens: reasoning,
                extra,
            })
        },
    );
    option::of(prop_oneof![3 => some, 1 => Just(Box::default())])
}

fn step() -> impl Strategy<Value = Step<'static>> {
    let role = prop_oneof![2 => Just(Role::Agent), 1 => Just(Role::User), 1 => Just(Role::System)];
    let at = prop_oneof![Just("2026-01-02T03:04:05.67Z".into()), Just("then".into())];
    let said = (role, text(), option::of(text()), option::of(at), any::<bool>(), extra());
    let done = (vec(call(), 0..4), vec(result(), 0..4), usage());
    let more = (option::of(number()), option::of(number()), option::of(text()));
    let who = (option::of(name()), option::of(name()));
    (said, done, more, who).prop_map(
        |(
            (role, text, reasoning, at, copied, extra),
            (calls, results, usage),
            (cost_usd, reward, finish_reason),
            (agent, model),
        )| Step {
            role,
            text,
            reasoning,
            calls,
            results,
            usage,
            cost_usd,
            reward,
            at,
            finish_reason,
            agent,
            model,
            copied,
            extra,
        },
    )
}

fn ending() -> impl Strategy<Value = Ending<'static>> {
    let texts = (option::of(text()), option::of(text()), option::of(text()));
    (name(), texts, option::of(any::<u16>())).prop_map(
        |(reason, (native, failure_mode, answer), http_status)| Ending {
            reason,
            native,
            failure_mode,
            http_status,
            answer,
        },
    )
}

fn totals() -> impl Strategy<Value = Totals> {
    let extra = object().prop_map(|mut extra| {
        extra.retain(|_, value| !value.is_null());
        extra
    });
    let model = option::of("[a-z]{0,4}");
    let call = (model, usage(), option::of(number())).prop_map(|(model, usage, cost_usd)| {
        let usage = usage.map(|usage| *usage).unwrap_or_default();
        ModelCall { model, usage, cost_usd }
    });
    let tokens = (tokens(), tokens(), tokens(), tokens());
    (tokens, option::of(number()), option::of(number()), vec(call, 0..3), extra).prop_map(
        |((prompt, completion, cached, turns), cost_usd, wall_s, outside_turns, extra)| Totals {
            prompt_tokens: prompt,
            completion_tokens: completion,
            cached_tokens: cached,
            cost_usd,
            wall_s,
            turns,
            outside_turns,
            extra,
        },
    )
}

fn run() -> impl Strategy<Value = Trajectory<'static>> {
    let leaf = (
        (name(), option::of(text()), option::of(text()), option::of(text())),
        (option::of(text()), option::of(text()), option::of(number()), option::of(any::<bool>())),
        (option::of(ending()), object(), totals(), object()),
        (vec(text(), 0..3), vec(value(), 0..3), vec(step(), 0..4), vec("[a-z: ]{1,9}", 0..3)),
        object(),
    )
        .prop_map(|(names, more, what, lists, extra)| Trajectory {
            run_id: names.0,
            task_id: names.1,
            trial: names.2,
            model: names.3,
            agent: more.0,
            agent_version: more.1,
            recorded: Recorded { reward: more.2, success: more.3 },
            ending: what.0,
            limits: what.1,
            totals: what.2,
            labels: what.3,
            tags: lists.0,
            tools: lists.1,
            steps: lists.2,
            notes: lists.3,
            extra,
            ..Trajectory::default()
        })
        .boxed();
    (leaf.clone(), vec(leaf, 0..3)).prop_map(|(run, children)| Trajectory { children, ..run })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn generated_runs_survive_atif_round_trip(run in run()) {
        prop_assert_eq!(again(&run), run);
    }
}

#[test]
fn written_document_has_expected_members() {
    let call = |id: Option<&'static str>, arguments: &'static str| Call {
        id: id.map(Into::into),
        name: "f".into(),
        arguments: arguments.into(),
        extra: None,
    };
    let mut run = Trajectory::new("r");
    run.recorded = Recorded { reward: Some(1.0), success: Some(true) };
    run.ending = Some(Ending { reason: "max_steps".into(), ..Ending::default() });
    run.limits.insert("max_steps".to_owned(), 5.into());
    run.task_id = Some("t".into());
    run.steps.push(Step {
        text: "a".into(),
        calls: vec![call(Some("call-1"), "{\"x\": 1}"), call(None, "\"ls\"")],
        results: vec![CallResult {
            call_id: Some("call-1".into()),
            is_error: true,
            ..CallResult::default()
        }],
        reward: Some(0.5),
        finish_reason: Some("stop".into()),
        ..Step::new(Role::Agent)
    });
    let mut line = Vec::new();
    write::atif(&run, &mut line).unwrap();
    assert!(String::from_utf8_lossy(&line).contains("{\"x\": 1}"), "as it was written");
    let document: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(
        document,
        json!({
            "schema_version": "ATIF-v1.8", "session_id": "r", "trajectory_id": "r",
            "agent": {"name": "unknown", "version": "unknown"},
            "steps": [{
                "step_id": 1, "source": "agent", "message": "a",
                "tool_calls": [
                    {"tool_call_id": "call-1", "function_name": "f", "arguments": {"x": 1}},
                    {"tool_call_id": "call-2", "function_name": "f", "arguments": {"raw": "ls"},
                     "extra": {"endstop": {"no_id": true, "raw_arguments": true}}}],
                "observation": {"results": [
                    {"source_call_id": "call-1", "content": "", "extra": {"is_error": true}}]},
                "extra": {"reward": 0.5, "finish_reason": "stop"}
            }],
            "final_metrics": {"total_steps": 1},
            "extra": {"outcome": {"reward": 1.0, "success": true},
                      "termination": {"reason": "max_steps", "limits": {"max_steps": 5}},
                      "task_id": "t"}
        })
    );
}

#[test]
fn equal_children_get_distinct_ids() {
    // Some recorders give all subagents one id, and others number them as this writer does.
    let ids = |ids: &[&'static str]| -> Vec<String> {
        let children = ids.iter().map(|id| Trajectory::new(*id)).collect();
        let run = Trajectory { children, ..Trajectory::new("r") };
        let mut line = Vec::new();
        write::atif(&run, &mut line).unwrap();
        let document: Value = serde_json::from_slice(&line).unwrap();
        let read: Vec<_> = again(&run).children.into_iter().map(|child| child.run_id).collect();
        assert_eq!(read, ids, "the recorded ids are read back");
        let list = document["subagent_trajectories"].as_array().unwrap();
        list.iter().map(|child| child["trajectory_id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&["a", "a", "b", "a"]), ["a", "a#2", "b", "a#3"]);
    assert_eq!(ids(&["a#2", "a", "a", "a#2"]), ["a#2", "a", "a#3", "a#2#2"]);
    assert_eq!(ids(&["", "run", ""]), ["run", "run#2", "run#3"]);
    let started = std::time::Instant::now();
    let many = ids(&["a"; 30_000]);
    assert_eq!(many.iter().collect::<std::collections::HashSet<_>>().len(), 30_000);
    assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
}
