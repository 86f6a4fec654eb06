//! The names of the tools in a request, in any format.

use super::fields::{Fields, any_of, elements_of, parsed};
use super::hosted::SERVER_TOOLS;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The most names that are read.
const MOST: usize = 4096;
/// The longest name, in characters.
const LONGEST: usize = 256;

/// A tool in any format. Schemas are skipped.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: Option<String>,
    name: Option<String>,
    #[serde(borrow)]
    function: Option<&'a RawValue>,
    #[serde(borrow)]
    custom: Option<&'a RawValue>,
    #[serde(borrow, rename = "toolSpec")]
    spec: Option<&'a RawValue>,
    #[serde(borrow, alias = "function_declarations", rename = "functionDeclarations")]
    declarations: Option<&'a RawValue>,
    /// The tools of a namespace.
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
}

/// Returns the names of the tools in a field that the client runs.
pub(super) fn tools_of(fields: &Fields<'_>, name: &str) -> Vec<String> {
    let mut names = Vec::new();
    for text in fields.list(name) {
        add(&mut names, text, true);
    }
    names
}

fn add(names: &mut Vec<String>, text: &str, outer: bool) {
    // A tool of an unknown shape is still a tool, and makes the call a turn.
    let Some(tool) = parsed::<Tool<'_>>(text) else { return push(names, "") };
    let kind = tool.kind.as_deref().unwrap_or_default();
    // The names in a group count, not the group. Groups do not nest.
    if let Some(list) = tool.declarations.or(tool.tools) {
        if outer {
            for text in elements_of(list.get()) {
                add(names, text, false);
            }
        }
        return;
    }
    let inner = tool.function.or(tool.custom).or(tool.spec).map(|raw| any_of::<Named>(raw.get()));
    match inner.map(|named| named.name).or(tool.name) {
        // A call that has only these is a lookup of a client, and not a turn of an agent.
        _ if SERVER_TOOLS.iter().any(|server| kind.starts_with(server)) => {}
        Some(name) => push(names, &name),
        // Tools such as `local_shell` have no name but their type. One without a type is a tool of
        // Google's servers.
        None if !kind.is_empty() => push(names, kind),
        None => {}
    }
}

fn push(names: &mut Vec<String>, name: &str) {
    if names.len() < MOST {
        names.push(name.chars().take(LONGEST).collect());
    }
}
