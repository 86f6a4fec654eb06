//! The tools in a request, in any format: the names of those that the client runs, and those that the provider runs
//! itself. Each use of the latter has a price of its own, and puts text into the prompt whose size the request does
//! not show.

use super::fields::{Fields, any_of, elements_of, parsed};
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
pub(crate) fn tools_of(fields: &Fields<'_>, name: &str) -> Vec<String> {
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

/// Beginnings of the types of tools that the provider runs, in the formats of OpenAI, Anthropic and xAI. Types carry a
/// date or a version, for example `web_search_20250305`.
const SERVER_TOOLS: &[&str] = &[
    "web_search",
    "web_fetch",
    "code_execution",
    "file_search",
    "code_interpreter",
    "image_generation",
];
/// Types of tools that the client runs itself, or that cost nothing. What is not known is the provider's.
const TYPES_OF_CLIENT: &[&str] =
    &["function", "custom", "local_shell", "apply_patch", "computer", "tool_search", "namespace"];
/// Beginnings of such types, before a date or a version.
const DATED: &[&str] = &["bash_", "text_editor_", "memory_", "computer_", "tool_search_tool_"];

/// Members of tools without a type: of Anthropic and others, of groups of Google's and Amazon's.
const OF_CLIENT: &[&str] = &[
    "name",
    "description",
    "input_schema",
    "input_examples",
    "parameters",
    "function",
    "strict",
    "cache_control",
    "defer_loading",
    "eager_input_streaming",
    "allowed_callers",
    "toolSpec",
    "cachePoint",
    "functionDeclarations",
    "function_declarations",
    "computerUse",
    "computer_use",
];

/// Returns the name of the first tool in a list that the provider runs.
pub fn tool_of_provider(list: &str) -> Option<String> {
    elements_of(list).into_iter().find_map(name_of)
}

/// Returns the name of a tool if the provider runs it.
fn name_of(text: &str) -> Option<String> {
    let tool: Fields<'_> = parsed(text)?;
    let short = |name: &str| Some(name.chars().take(64).collect());
    if let Some(kind) = tool.string("type") {
        let is_client = TYPES_OF_CLIENT.contains(&kind.as_str())
            || DATED.iter().any(|start| kind.starts_with(start));
        if !is_client || tool.is_ambiguous("type") {
            return short(&kind);
        }
        // The tools of a namespace.
        return tool.raw("tools").and_then(tool_of_provider);
    }
    // Amazon's system tools, by their name.
    if tool.has("systemTool") {
        return Some(tool.object("systemTool").string("name").unwrap_or_default());
    }
    let other = tool.names().find(|name| !OF_CLIENT.contains(name) && tool.has(name));
    other.and_then(short)
}

#[cfg(test)]
mod tests {
    use super::tool_of_provider;

    #[test]
    fn tools_of_providers_are_found() {
        for (list, expected) in [
            (
                r#"[{"name":"bash"},{"type":"web_search_20250305","name":"s"}]"#,
                "web_search_20250305",
            ),
            (r#"[{"type":"web_search_preview"}]"#, "web_search_preview"),
            (r#"[{"type":"Function"}]"#, "Function"),
            (r#"[{"type":"function_of_server"}]"#, "function_of_server"),
            (r#"[{"type":"custom_search"}]"#, "custom_search"),
            (r#"[{"type":"web_search","type":"function"}]"#, "function"),
            (r#"[{"type":"mcp","server_url":"https://x"}]"#, "mcp"),
            (
                r#"[{"type":"namespace","name":"n","tools":[{"type":"function"},{"type":"web_search"}]}]"#,
                "web_search",
            ),
            (r#"[{"functionDeclarations":[],"googleSearch":{}}]"#, "googleSearch"),
            (r#"[{"name":"x","googleSearch":{}}]"#, "googleSearch"),
            (r#"[{"url_context":{}}]"#, "url_context"),
            (r#"[{"systemTool":{"name":"nova_grounding"}}]"#, "nova_grounding"),
        ] {
            assert_eq!(tool_of_provider(list).as_deref(), Some(expected), "{list}");
        }
    }

    #[test]
    fn tools_of_clients_are_not_hosted() {
        for list in [
            r#"[{"name":"web_search","input_schema":{},"defer_loading":true,"eager_input_streaming":true}]"#,
            r#"[{"type":"function","function":{"name":"web_search"}}]"#,
            r#"[{"type":"bash_20250124","name":"bash"},{"type":"local_shell"},{"type":"custom","name":"x"}]"#,
            r#"[{"type":"namespace","name":"n","tools":[{"type":"function","name":"web_search"}]}]"#,
            r#"[{"type":"tool_search_tool_regex_20251119","name":"t"}]"#,
            r#"[{"functionDeclarations":[{"name":"googleSearch"}],"googleSearch":null}]"#,
            r#"[{"toolSpec":{"name":"x"}},{"cachePoint":{"type":"default"}}]"#,
            r#"["x",4,null]"#,
            "[]",
        ] {
            assert_eq!(tool_of_provider(list), None, "{list}");
        }
    }
}
