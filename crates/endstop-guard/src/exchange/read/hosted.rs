//! Finds tools that the provider runs itself. Each use has a price of its own, and puts text into the
//! prompt whose size the request does not show.

use super::fields::{Fields, elements_of, parsed};

/// Beginnings of the types of such tools, in the formats of OpenAI, Anthropic and xAI. Types carry a
/// date or a version, for example `web_search_20250305`.
pub(super) const SERVER_TOOLS: &[&str] = &[
    "web_search",
    "web_fetch",
    "code_execution",
    "file_search",
    "code_interpreter",
    "image_generation",
];
/// Fields of a request that make the provider search without a tool in the list: of OpenAI, xAI,
/// OpenRouter and Anthropic.
pub(super) const TOP: &[&str] =
    &["web_search_options", "search_parameters", "plugins", "mcp_servers"];

/// Beginnings of the types of tools that the client runs itself, or that cost nothing. What is not known is the
/// provider's.
const TYPES_OF_CLIENT: &[&str] = &[
    "function",
    "custom",
    "local_shell",
    "apply_patch",
    "computer",
    "bash_",
    "text_editor_",
    "memory_",
    "tool_search",
];

/// Members of tools of Google and Amazon that the provider does not run.
const OF_CLIENT: &[&str] =
    &["functionDeclarations", "function_declarations", "computerUse", "computer_use", "cachePoint"];

/// Returns the name of the first tool that the provider runs.
pub(super) fn hosted_tool(fields: &Fields<'_>) -> Option<String> {
    let top = TOP.iter().find(|name| fields.has(name) && fields.raw(name) != Some("[]"));
    let config = fields.object("toolConfig");
    let lists = [fields.raw("tools"), config.raw("tools")];
    let tools = lists.into_iter().flatten().flat_map(elements_of);
    top.map(|name| (*name).to_owned()).or_else(|| tools.into_iter().find_map(name_of))
}

/// Returns the name of a tool if the provider runs it.
fn name_of(text: &str) -> Option<String> {
    let tool: Fields<'_> = parsed(text)?;
    if let Some(kind) = tool.string("type") {
        let is_client = TYPES_OF_CLIENT.iter().any(|start| kind.starts_with(start));
        return (!is_client).then(|| kind.chars().take(64).collect());
    }
    // Amazon's system tools, by their name.
    if tool.has("systemTool") {
        return Some(tool.object("systemTool").string("name").unwrap_or_default());
    }
    // Tools without a type and a name are Google's: an object with one member for each.
    if ["name", "toolSpec", "function"].iter().any(|name| tool.has(name)) {
        return None;
    }
    let other = tool.names().find(|name| !OF_CLIENT.contains(name));
    other.map(|name| name.chars().take(64).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_of_providers_are_found() {
        for (body, expected) in [
            (
                r#"{"tools":[{"name":"bash"},{"type":"web_search_20250305","name":"s"}]}"#,
                "web_search_20250305",
            ),
            (r#"{"tools":[{"type":"web_search_preview"}]}"#, "web_search_preview"),
            (r#"{"tools":[{"type":"mcp","server_url":"https://x"}]}"#, "mcp"),
            (r#"{"tools":[{"functionDeclarations":[],"googleSearch":{}}]}"#, "googleSearch"),
            (r#"{"tools":[{"url_context":{}}]}"#, "url_context"),
            (
                r#"{"toolConfig":{"tools":[{"systemTool":{"name":"nova_grounding"}}]}}"#,
                "nova_grounding",
            ),
            (r#"{"web_search_options":{}}"#, "web_search_options"),
            (r#"{"plugins":[{"id":"web"}]}"#, "plugins"),
            (r#"{"mcp_servers":[{"type":"url"}]}"#, "mcp_servers"),
        ] {
            assert_eq!(
                hosted_tool(&Fields::of(body).unwrap()).as_deref(),
                Some(expected),
                "{body}"
            );
        }
    }

    #[test]
    fn tools_of_clients_are_not_hosted() {
        for body in [
            r#"{"tools":[{"name":"web_search","input_schema":{}}]}"#,
            r#"{"tools":[{"type":"function","function":{"name":"web_search"}}]}"#,
            r#"{"tools":[{"type":"bash_20250124","name":"bash"},{"type":"local_shell"},{"type":"custom","name":"x"}]}"#,
            r#"{"tools":[{"functionDeclarations":[{"name":"googleSearch"}]}]}"#,
            r#"{"toolConfig":{"tools":[{"toolSpec":{"name":"x"}},{"cachePoint":{"type":"default"}}]}}"#,
            r#"{"tools":[],"plugins":[],"mcp_servers":[],"web_search_options":null}"#,
            r#"{"tools":["x",4,null]}"#,
            "{}",
        ] {
            assert_eq!(hosted_tool(&Fields::of(body).unwrap()), None, "{body}");
        }
    }
}
