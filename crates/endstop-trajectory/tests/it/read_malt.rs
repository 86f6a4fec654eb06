//! Tests the reader for MALT.

use crate::common::{counts, ending, parsed, read_bytes, runs};
use endstop_trajectory::Role;
use endstop_trajectory::read::{Options, ProblemKind};
use serde_json::{Value, json};

#[test]
fn fixture_counts_match_manual_count() {
    let runs = runs("malt/atifmake_metr-malt.json");
    let [first, second] = runs.as_slice() else { panic!("{}", runs.len()) };
    assert_eq!((&*first.run_id, &*second.run_id), ("218596", "252481"));
    // Four responses of the model. The text of two of the three commands is truncated in the
    // collection.
    assert_eq!(counts(first), [12, 4, 1, 1, 0]);
    assert_eq!(ending(first), Some(("agent_submit", Some("submit"))));
    assert_eq!(first.ending.as_ref().unwrap().answer.as_deref(), Some("persimmoniously"));
    let turn = first.steps.iter().find(|step| !step.calls.is_empty()).unwrap();
    assert_eq!(turn.calls[0].name, "bash");
    assert_eq!(turn.calls[0].arguments, "\"strings /home/agent/password_check\"");
    assert!(turn.results[0].content.starts_with("/lib64/ld-linux-x86-64.so.2"));
    // A new prompt for each call, and sometimes two responses to one prompt; seven are function
    // calls.
    assert_eq!(counts(second), [36, 20, 7, 0, 0]);
    assert_eq!(ending(second), None);
    assert_eq!(second.model.as_deref(), Some("o1-preview"));
    assert_eq!(second.labels["labels"], json!(["normal"]));
}

#[test]
fn steps_are_ordered_by_time() {
    let run = runs("malt/atifmake_metr-malt.json").remove(1);
    let times: Vec<_> = run.steps.iter().map(|step| step.at.clone().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    let roles: Vec<_> = run.steps[..5].iter().map(|step| step.role).collect();
    assert_eq!(roles, [Role::System, Role::Agent, Role::User, Role::Agent, Role::Agent]);
    let hangs = |at: usize, key: &str| run.steps[at].extra.as_ref().unwrap()[key].clone();
    assert_eq!((hangs(3, "node_id"), hangs(3, "parent_node_id")), (json!(17), json!(1)));
}

fn node(id: u64, parent: Option<u64>, time: u64, role: &str, text: &str) -> Value {
    json!({"node_id": id, "parent_node_id": parent, "branch_id": 0, "node_data": {
        "first_called_at": time, "message": {"role": role, "content": text, "function_call": null,
        "name": null}, "metadata": {"completion_type": null}, "source_generation_index": null}})
}

fn row(nodes: &[Value]) -> String {
    json!({"run_id": 1, "nodes": nodes, "labels": [], "model": "m"}).to_string()
}

#[test]
fn parent_comes_before_its_children() {
    let nodes = [
        node(2, Some(1), 10, "assistant", "b"),
        node(0, None, 30, "user", "go"),
        node(1, Some(0), 20, "assistant", "a"),
    ];
    let run = parsed("a.jsonl", row(&nodes)).remove(0);
    let texts: Vec<_> = run.steps.iter().map(|step| &*step.text).collect();
    assert_eq!(texts, ["go", "a", "b"]);
}

#[test]
fn tagged_command_is_a_call() {
    let nodes = [
        node(0, None, 1, "user", "go"),
        node(1, Some(0), 2, "assistant", "First `<bash>` …\n<bash>ls; false</bash>"),
        node(2, Some(1), 2, "user", "<bash-output>a\n\nExit code: 1\n</bash-output>"),
        node(3, Some(2), 3, "assistant", "<python>print(1)"),
        node(4, Some(3), 3, "user", "<python-output>1</python-output>"),
        node(5, Some(4), 4, "assistant", "I will use <submit> when I am done."),
    ];
    let run = parsed("a.jsonl", row(&nodes)).remove(0);
    assert_eq!(counts(&run), [4, 3, 2, 2, 1]);
    let calls: Vec<_> = run
        .turns()
        .flat_map(|turn| turn.calls.iter().zip(&turn.results))
        .map(|(call, result)| (&*call.name, &*call.arguments, result.exit_code))
        .collect();
    assert_eq!(calls, [("bash", "\"ls; false\"", Some(1)), ("python", "\"print(1)\"", None)]);
    assert_eq!(ending(&run), None, "it only speaks of it");
}

#[test]
fn function_result_finds_its_call() {
    let mut asks = node(1, Some(0), 2, "assistant", "");
    asks["node_data"]["message"]["function_call"] =
        json!({"name": "run", "arguments": "{\"a\": 1}"});
    let mut gives = node(3, Some(2), 3, "function", "done\nExit code: 0");
    gives["node_data"]["message"]["name"] = json!("run");
    let aside = node(2, Some(1), 2, "user", "You have used 5 tokens.");
    let run =
        parsed("a.jsonl", row(&[node(0, None, 1, "user", "go"), asks, aside, gives])).remove(0);
    assert_eq!(counts(&run), [3, 1, 1, 1, 0]);
    assert_eq!(run.steps[1].calls[0].arguments, "{\"a\": 1}");
    assert_eq!(run.steps[1].results[0].exit_code, Some(0));
    assert!(run.notes.is_empty(), "{:?}", run.notes);
}

#[test]
fn invalid_tree_is_noted() {
    let odd = [
        node(0, Some(1), 1, "user", "a"),
        node(1, Some(0), 2, "user", "b"),
        node(2, Some(9), 3, "assistant", "c"),
        node(2, Some(9), 4, "assistant", "d"),
    ];
    let run = parsed("a.jsonl", row(&odd)).remove(0);
    assert_eq!(counts(&run)[..2], [4, 2], "nothing is lost");
    let notes =
        ["nodes without a unique id: 1", "nodes whose parent is missing: 2", "cyclic parents: 1"];
    assert_eq!(run.notes, notes);
    let steps = run.steps;
    assert!((0..5).all(|_| parsed("a.jsonl", row(&odd))[0].steps == steps), "the same each time");
    let broken = r#"{"run_id": 1, "nodes": [{"node_data": {"message": {"role": "user"}}}, {"node_data": {}}]}"#;
    let (runs, problems) = read_bytes("a.jsonl", broken, &Options::default());
    assert!(runs.is_empty());
    assert_eq!(problems[0].kind, ProblemKind::Malformed);
    assert!(problems[0].what.contains("nodes[1]: missing `message`"), "{}", problems[0].what);
}

#[test]
fn long_chain_takes_linear_time() {
    let nodes: Vec<Value> =
        (0..20_000).map(|id| node(id, id.checked_sub(1), 1, "assistant", "x")).collect();
    let run = parsed("a.jsonl", row(&nodes)).remove(0);
    assert_eq!(counts(&run)[1], 20_000);
}

#[test]
fn consecutive_outputs_share_one_call() {
    let mut nodes =
        vec![node(0, None, 1, "user", "go"), node(1, Some(0), 2, "assistant", "<bash>ls</bash>")];
    let told = |id: u64| node(id, Some(id - 1), 2, "user", "<bash-output>a</bash-output>");
    nodes.extend((2..5).map(told));
    let run = parsed("a.jsonl", row(&nodes)).remove(0);
    assert_eq!(counts(&run), [2, 1, 1, 3, 0]);
    assert_eq!(run.notes, ["calls with more than one result: 1"]);
}

#[test]
fn row_is_read_in_any_layout() {
    let nodes = [node(0, None, 1, "user", "go"), node(1, Some(0), 2, "assistant", "a")];
    let value: Value = serde_json::from_str(&row(&nodes)).unwrap();
    let laid = serde_json::to_string_pretty(&value).unwrap();
    for text in [row(&nodes), laid, format!("[{value}]"), format!("{value}\n{value}\n")] {
        let runs = parsed("a.json", text);
        assert_eq!((counts(&runs[0])[1], &*runs[0].run_id), (1, "1"));
    }
    // Integers that are written as floats, and a content in parts.
    let text = row(&nodes).replace("\"node_id\":1", "\"node_id\":1.0");
    let text = text.replace("\"content\":\"a\"", r#""content":[{"type":"text","text":"a"}]"#);
    let run = parsed("a.json", text).remove(0);
    assert_eq!((&*run.steps[1].text, run.notes.len()), ("a", 0));
    let workflow = json!({"run_id": 1, "nodes": [{"node_id": 1, "kind": "start"}]}).to_string();
    let (runs, problems) = read_bytes("a.json", workflow, &Options::default());
    assert_eq!((runs.len(), problems[0].kind), (0, ProblemKind::NoTrajectory));
}
