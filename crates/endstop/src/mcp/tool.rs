//! Lists the tools of an MCP server and wraps each as a [`Tool`].
//!
//! ```text
//! let tools = all(&server, &connection, deadline).await?;
//! assert_eq!(name_of("files", "read file"), "files__read_file");
//! ```

use super::connection::Connection;
use super::error::{McpError, McpErrorKind};
use super::server::{McpServer, Place};
use crate::tool::{Tool, ToolContext, ToolFuture, ToolOutput};
use endstop_core::limits::unknown_key;
use rmcp::model::{PaginatedRequestParams, Tool as Described};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The most tools that a server may have. No model accepts more.
const MOST_TOOLS: usize = 1000;

/// The longest tool name that providers accept.
const LONGEST_NAME: usize = 64;

/// The largest schema of a tool's arguments, in bytes of JSON.
const LARGEST_SCHEMA: usize = 64 * 1024;

/// The most bytes of all schemas of a server, because each model call contains all of them.
const MOST_SCHEMAS: usize = 1024 * 1024;

/// The longest name that a server may give a tool, in bytes.
const LONGEST_REMOTE_NAME: usize = 256;

/// The longest description in bytes, because each model call pays for it. A longer one is cut.
const LONGEST_DESCRIPTION: usize = 8 * 1024;

struct McpTool {
    name: String,
    /// The server's own name for the tool.
    remote: String,
    description: String,
    schema: Value,
    repeatable: bool,
    parallel_safe: bool,
    touches_machine: bool,
    timeout: Option<Duration>,
    connection: Arc<Connection>,
}

impl Tool for McpTool {
    fn name(&self) -> &str {
        &self.name
    }
    fn description(&self) -> &str {
        &self.description
    }
    fn schema(&self) -> Value {
        self.schema.clone()
    }
    fn call(&self, arguments: Map<String, Value>, context: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            // A call that was cancelled before it started must not reach the server.
            if context.is_cancelled() {
                return ToolOutput::error("stopped before it started");
            }
            self.connection.call(&self.remote, arguments, &context).await
        })
    }
    fn parallel_safe(&self) -> bool {
        self.parallel_safe
    }
    fn repeatable(&self) -> bool {
        self.repeatable
    }
    fn touches_machine(&self) -> bool {
        self.touches_machine
    }
    fn timeout(&self) -> Option<Duration> {
        self.timeout
    }
}

/// Returns the server's tools, or those that were requested, and the reasons for which others were
/// left out.
pub(super) async fn all(
    server: &McpServer,
    connection: &Arc<Connection>,
    deadline: Instant,
) -> Result<(Vec<Arc<dyn Tool>>, Vec<String>), McpError> {
    let wrong = |problem: String| McpError::new(&server.name, McpErrorKind::Tools, problem);
    let only = server.only.as_deref();
    let listed = timeout_at(deadline, list(connection, only)).await;
    let Listed { tools: listed, names, left_out, .. } = match listed {
        Ok(listed) => listed?,
        Err(_) => return Err(connection.late("it did not list its tools", server.ready_within)),
    };
    if let Some(only) = only {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for name in only {
            if !names.contains(&name.as_str()) {
                return Err(wrong(format!("tool `{name}`: {}", unknown_key(name, &names))));
            }
        }
        // The tool was requested by name, so leaving it out silently would be wrong.
        if let Some(problem) = left_out.first() {
            return Err(wrong(problem.clone()));
        }
    }
    if listed.is_empty() {
        return Err(wrong(match left_out.first() {
            Some(problem) => format!("none of its tools can be used: {problem}"),
            None => "it has no tools".to_owned(),
        }));
    }
    let mut taken: HashMap<String, String> = HashMap::new();
    let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
    for described in listed {
        let name = name_of(&server.name, &described.name);
        if let Some(other) = taken.insert(name.clone(), described.name.to_string()) {
            return Err(wrong(format!(
                "its tools `{other}` and `{}` would both be named `{name}`; select only one of them",
                described.name
            )));
        }
        tools.push(Arc::new(tool(server, name, described, connection)));
    }
    Ok((tools, left_out))
}

/// The tools that a server has listed so far.
#[derive(Default)]
struct Listed {
    tools: Vec<Described>,
    /// The names of all tools, including those that were not requested.
    names: Vec<String>,
    /// The reasons for which tools are not among `tools`.
    left_out: Vec<String>,
    /// Total bytes of the schemas.
    schemas: usize,
}

impl Listed {
    /// Adds a tool, unless it was not requested or is too large.
    fn take(&mut self, described: Described, only: Option<&[String]>) {
        let name = &described.name;
        if name.len() > LONGEST_REMOTE_NAME {
            let problem = format!(
                "tool `{}` is left out: its name has {} bytes, but at most {LONGEST_REMOTE_NAME} are allowed",
                cut(name, 64),
                name.len()
            );
            self.names.push(cut(name, 64));
            return self.left_out.push(problem);
        }
        self.names.push(name.to_string());
        if only.is_some_and(|only| only.iter().all(|asked| asked != name)) {
            return;
        }
        let bytes = serde_json::to_string(&described.input_schema).map_or(0, |json| json.len());
        let problem = if bytes > LARGEST_SCHEMA {
            format!("its schema has {bytes} bytes, but at most {LARGEST_SCHEMA} are allowed")
        } else if self.schemas + bytes > MOST_SCHEMAS {
            format!("its schema and those before it have more than {MOST_SCHEMAS} bytes")
        } else {
            self.schemas += bytes;
            return self.tools.push(described);
        };
        self.left_out.push(format!("tool `{name}` is left out: {problem}"));
    }
}

async fn list(connection: &Connection, only: Option<&[String]>) -> Result<Listed, McpError> {
    let mut listed = Listed::default();
    let mut cursor = None;
    loop {
        let asked = PaginatedRequestParams::default().with_cursor(cursor);
        let page = connection.list(asked).await?;
        // A page without tools ends the list, because a server could otherwise send empty pages for
        // ever.
        let more = page.next_cursor.filter(|_| !page.tools.is_empty());
        page.tools.into_iter().for_each(|tool| listed.take(tool, only));
        if listed.names.len() > MOST_TOOLS {
            let problem = format!("it has more than {MOST_TOOLS} tools");
            return Err(McpError::new(connection.name(), McpErrorKind::Tools, problem));
        }
        match more {
            Some(more) => cursor = Some(more),
            None => return Ok(listed),
        }
    }
}

/// Wraps a tool. A server's annotations are hints that it may get wrong. Two of them are used:
/// `readOnlyHint`, which allows the tool to run in parallel and to be repeated, and
/// `idempotentHint`, which allows it to be repeated.
fn tool(
    server: &McpServer,
    name: String,
    described: Described,
    connection: &Arc<Connection>,
) -> McpTool {
    let hints = described.annotations.unwrap_or_default();
    let reads = hints.read_only_hint == Some(true);
    let mut schema = (*described.input_schema).clone();
    // Providers refuse a schema of arguments without a `type`.
    schema.entry("type").or_insert_with(|| "object".into());
    McpTool {
        remote: described.name.into_owned(),
        description: shortened(
            described.description.as_deref().or(described.title.as_deref()).unwrap_or(&name),
        ),
        name,
        schema: Value::Object(schema),
        repeatable: reads || hints.idempotent_hint == Some(true),
        parallel_safe: reads,
        // A server process runs on this machine; a server at an address does not change its files.
        touches_machine: matches!(server.place, Place::Process { .. }),
        timeout: server.timeout,
        connection: Arc::clone(connection),
    }
}

fn shortened(text: &str) -> String {
    cut(text, LONGEST_DESCRIPTION)
}

/// Returns at most `most` bytes of the text, with a mark if it was cut.
fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most).rfind(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{} …", &text[..end])
}

/// Returns the name `SERVER__TOOL` in the form that providers accept. A name that is too long keeps
/// its beginning; a hash of the whole name replaces the rest.
fn name_of(server: &str, tool: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let tool: String = tool.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    let name = format!("{server}__{tool}");
    if name.len() <= LONGEST_NAME {
        return name;
    }
    // FNV-1a is stable across processes, unlike Rust's default hasher, so that a resumed run has
    // the same tool names.
    let number = name
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{}_{number:08x}", &name[..LONGEST_NAME - 9])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_names_fit_provider_rules() {
        assert_eq!(name_of("git", "log"), "git__log");
        assert_eq!(name_of("git", "a.b/c d\u{e9}"), "git__a_b_c_d_");
        let long = |end: &str| name_of("server", &format!("{}{end}", "x".repeat(80)));
        assert_eq!(long("a").len(), 64);
        assert_ne!(long("a"), long("b"));
        assert_eq!(long("a"), long("a"));
    }

    #[test]
    fn description_is_cut_between_characters() {
        let text = "é".repeat(LONGEST_DESCRIPTION);
        let short = shortened(&text);
        assert!(short.len() < LONGEST_DESCRIPTION + 8 && short.ends_with("é …"));
        assert_eq!(shortened("brief"), "brief");
    }
}
