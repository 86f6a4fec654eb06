//! Decodes a row.

use crate::model::{Call, CallResult, Ending, Role, Step, Trajectory};
use crate::read::build::conversation::Conversation;
use crate::read::build::fields::{
    Fields, arguments, content, extra, id_text, list, object, text, without_nulls,
};
use crate::read::format::{Place, Sink};
use crate::read::io::json_lines::record;
use crate::read::problem::Problem;
use crate::time::iso_8601;
use serde_json::{Map, Value};
use std::collections::HashMap;

pub(super) fn read_one(bytes: &[u8], _: &Place<'_>, sink: &mut Sink<'_>) {
    read(bytes, sink);
}

pub(super) fn read(bytes: &[u8], sink: &mut Sink<'_>) {
    sink(record(bytes).and_then(run));
}

fn run(mut row: Fields) -> Result<Trajectory<'static>, Problem> {
    let mut run = Trajectory::default();
    if let Some(id) = row.get("run_id").and_then(id_text) {
        run.run_id = id.into();
        row.shift_remove("run_id");
    }
    run.task_id = text(&mut row, "task_id").map(Into::into);
    run.model = text(&mut row, "model").map(Into::into);
    if let Some(labels) = row.shift_remove("labels") {
        run.labels.insert("labels".to_owned(), labels);
    }
    let mut nodes = Vec::new();
    for (at, node) in list(&mut row, "nodes").unwrap_or_default().into_iter().enumerate() {
        let Value::Object(node) = node else {
            return Err(Problem::malformed(format!("nodes[{at}]: expected an object")));
        };
        nodes.push(
            Node::of(node).map_err(|what| Problem::malformed(format!("nodes[{at}]: {what}")))?,
        );
    }
    let mut steps = Conversation::default();
    let mut tree = Tree::default();
    for node in in_order(nodes, &mut steps.notes) {
        tree.grow(node, &mut steps);
    }
    run.ending = tree.ending;
    (run.steps, run.notes) = steps.finish();
    run.extra = without_nulls(row);
    Ok(run)
}

/// A message and its position in the tree.
struct Node {
    id: Option<u64>,
    parent: Option<u64>,
    time: u64,
    role: String,
    text: String,
    call: Option<Fields>,
    /// Members that no other field holds.
    rest: Fields,
}

impl Node {
    fn of(mut map: Fields) -> Result<Node, String> {
        let mut data = object(&mut map, "node_data").ok_or("missing `node_data`")?;
        let mut message = object(&mut data, "message").ok_or("missing `message`")?;
        let role = text(&mut message, "role").ok_or("a message without its `role`")?;
        let mut rest = Map::new();
        for key in ["node_id", "parent_node_id", "branch_id"] {
            if let Some(value) = map.get(key).filter(|value| !value.is_null()) {
                rest.insert(key.to_owned(), value.clone());
            }
        }
        let whole =
            |map: &Fields, key: &str| map.get(key).and_then(crate::read::build::record::count);
        let time = whole(&data, "first_called_at");
        if time.is_some() {
            data.shift_remove("first_called_at");
        }
        let mut others = Vec::new();
        let node = Node {
            id: whole(&map, "node_id"),
            parent: whole(&map, "parent_node_id"),
            time: time.unwrap_or_default(),
            role,
            text: content(message.shift_remove("content"), &mut others),
            call: object(&mut message, "function_call"),
            rest,
        };
        if !others.is_empty() {
            message.insert("content".to_owned(), Value::Array(others));
        }
        let metadata = object(&mut data, "metadata").map(without_nulls);
        let mut rest = node.rest;
        rest.extend(without_nulls(data));
        rest.extend(without_nulls(message));
        if let Some(metadata) = metadata.filter(|metadata| !metadata.is_empty()) {
            rest.insert("metadata".to_owned(), Value::Object(metadata));
        }
        Ok(Node { rest, ..node })
    }
}

/// Sorts the messages by time, with a parent before its children.
fn in_order(nodes: Vec<Node>, notes: &mut Vec<String>) -> Vec<Node> {
    let known: HashMap<u64, (u64, Option<u64>)> =
        nodes.iter().filter_map(|node| Some((node.id?, (node.time, node.parent)))).collect();
    // If an id occurs twice, it identifies the last message.
    if known.len() < nodes.len() {
        notes.push(format!("nodes without a unique id: {}", nodes.len() - known.len()));
    }
    let orphans =
        nodes.iter().filter(|node| node.parent.is_some_and(|id| !known.contains_key(&id)));
    let orphans = orphans.count();
    if orphans > 0 {
        notes.push(format!("nodes whose parent is missing: {orphans}"));
    }
    // The sort key of each message: the latest time on the path from its root, and its depth. A
    // message recorded late must not come after its children.
    let mut places: HashMap<u64, (u64, u64)> = HashMap::new();
    let mut rounds = 0;
    for id in nodes.iter().filter_map(|node| node.id) {
        let (mut path, mut next) = (Vec::new(), Some(id));
        let mut place = None;
        while let Some((id, (_, parent))) = next.and_then(|id| Some((id, known.get(&id)?))) {
            place = places.get(&id).copied();
            if place.is_some() {
                break;
            }
            // A path longer than the number of messages contains a cycle.
            if path.len() >= known.len() {
                rounds += 1;
                break;
            }
            path.push(id);
            next = *parent;
        }
        // From the root down, so that each message inherits the time of its parent.
        for id in path.into_iter().rev() {
            let (time, depth) = place.map_or((0, 0), |(time, depth)| (time, depth + 1));
            let own = known.get(&id).map_or(0, |(own, _)| *own);
            place = Some((own.max(time), depth));
            places.insert(id, (own.max(time), depth));
        }
    }
    if rounds > 0 {
        notes.push(format!("cyclic parents: {rounds}"));
    }
    let place = |node: &Node| node.id.and_then(|id| places.get(&id)).copied();
    let mut nodes: Vec<_> = nodes.into_iter().map(|node| (place(&node), node.id, node)).collect();
    // The id breaks ties, so that the order is deterministic.
    nodes.sort_by_key(|(place, id, node)| (place.unwrap_or((node.time, 0)), *id));
    nodes.into_iter().map(|(_, _, node)| node).collect()
}

/// The state after the messages so far.
#[derive(Default)]
struct Tree {
    /// Maps a message to the step that contains it.
    told: HashMap<u64, Told>,
    ending: Option<Ending<'static>>,
}

#[derive(Clone, Copy)]
struct Told {
    /// The index of the step.
    step: usize,
    /// The message that the step was created for. The output of a call is in the step that
    /// requested it.
    of: u64,
    parent: Option<u64>,
}

/// Maximum number of messages between a call and its result.
const NEAR: usize = 8;

impl Tree {
    fn grow(&mut self, node: Node, run: &mut Conversation) {
        let is_agent = node.role == "assistant";
        if matches!(node.role.as_str(), "function" | "tool") {
            return self.result(node, run);
        }
        if !is_agent && self.output(&node, run) {
            return;
        }
        let role = match node.role.as_str() {
            "assistant" => Role::Agent,
            "system" | "developer" => Role::System,
            "user" => Role::User,
            other => {
                run.odd.add(&format!("unknown role: {other}"));
                Role::User
            }
        };
        // Overwritten by each turn, because a submission only ends the run if no turn follows.
        if is_agent {
            self.ending = submitted(&node.text);
        }
        let at = (node.time > 0).then(|| iso_8601(node.time.saturating_mul(1_000_000)).into());
        let step = Step { text: node.text.into(), at, extra: extra(node.rest), ..Step::new(role) };
        let at = run.push(step);
        if let Some(id) = node.id {
            self.told.insert(id, Told { step: at, of: id, parent: node.parent });
        }
        if let Some(mut call) = node.call {
            let call = Call {
                id: node.id.map(|id| call_id(id).into()),
                name: text(&mut call, "name").unwrap_or_default().into(),
                arguments: arguments(call.shift_remove("arguments")),
                extra: extra(call),
            };
            run.call(at, call);
        }
    }

    /// Attaches a function's result to the closest call above it.
    fn result(&mut self, node: Node, run: &mut Conversation) {
        let mut above = node.parent;
        let mut asked = None;
        for _ in 0..NEAR {
            let Some(id) = above else { break };
            if run.has_call(&call_id(id)) {
                asked = Some(call_id(id));
                break;
            }
            above = self.told.get(&id).and_then(|told| told.parent);
        }
        self.is_told_with(&node);
        run.result(CallResult {
            call_id: asked.map(Into::into),
            exit_code: exit_code(&node.text),
            is_error: exit_code(&node.text).is_some_and(|code| code != 0),
            content: node.text.into(),
            extra: extra(node.rest),
        });
    }

    /// Handles a message that is the output of a command in the text above; returns `false` if it
    /// is not.
    fn output(&mut self, node: &Node, run: &mut Conversation) -> bool {
        let Some((tool, told)) = output_of(&node.text) else { return false };
        let Some(above) = node.parent.and_then(|parent| self.told.get(&parent)) else {
            return false;
        };
        let (at, asked) = (above.step, call_id(above.of));
        // Parallel outputs of the same text are results of one call.
        if !run.has_call(&asked) {
            let step = &run.steps[at];
            let Some(command) = last_tagged(&step.text, tool).filter(|_| step.role == Role::Agent)
            else {
                run.odd.add("tool outputs without a call in the text before");
                return false;
            };
            let call = Call {
                id: Some(asked.clone().into()),
                name: tool.to_owned().into(),
                arguments: arguments(Some(command.into())),
                extra: None,
            };
            run.call(at, call);
        }
        self.is_told_with(node);
        let exit_code = exit_code(told);
        run.result(CallResult {
            call_id: Some(asked.into()),
            content: told.to_owned().into(),
            is_error: exit_code.is_some_and(|code| code != 0),
            exit_code,
            extra: extra(node.rest.clone()),
        });
        true
    }

    /// Records that the message is in the same step as its parent.
    fn is_told_with(&mut self, node: &Node) {
        let above = node.parent.and_then(|parent| self.told.get(&parent)).copied();
        if let (Some(id), Some(above)) = (node.id, above) {
            self.told.insert(id, Told { parent: node.parent, ..above });
        }
    }
}

fn call_id(node: u64) -> String {
    format!("node-{node}")
}

/// Splits `<bash-output>…</bash-output>` into the tool and its output.
fn output_of(text: &str) -> Option<(&str, &str)> {
    let (tool, told) = text.trim_start().strip_prefix('<')?.split_once("-output>")?;
    let is_name = !tool.is_empty() && tool.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let end = format!("</{tool}-output>");
    let told = told.trim_end();
    is_name.then(|| (tool, told.strip_suffix(end.as_str()).unwrap_or(told)))
}

/// Returns the content of the last `<bash>…</bash>` of a text; the end tag may be missing.
fn last_tagged<'t>(text: &'t str, tool: &str) -> Option<&'t str> {
    let start = format!("<{tool}>");
    let inside = &text[text.rfind(&start)? + start.len()..];
    let end = inside.find(&format!("</{tool}>")).unwrap_or(inside.len());
    Some(inside[..end].trim())
}

/// Returns the answer that a text submits with a tag at the beginning of a line.
fn submitted(text: &str) -> Option<Ending<'static>> {
    // A tag within a line is usually a mention in the model's reasoning.
    let begins_line =
        |at: usize| text[..at].trim_end_matches([' ', '\t']).ends_with('\n') || at == 0;
    text.rfind("<submit>").filter(|at| begins_line(*at))?;
    let answer = last_tagged(text, "submit")?;
    Some(Ending {
        reason: "agent_submit".into(),
        native: Some("submit".into()),
        answer: Some(answer.to_owned().into()),
        ..Ending::default()
    })
}

/// Returns the last exit code that an output contains on a separate line.
fn exit_code(told: &str) -> Option<i64> {
    told.lines().rev().find_map(|line| line.strip_prefix("Exit code: ")?.trim().parse().ok())
}
