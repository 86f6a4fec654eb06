//! A tool of a server, and the list of them.
//!
//! ```text
//! let tools = all(&server, &connection, deadline).await?;
//! assert_eq!(name_of("files", "read file"), "files__read_file");
//! ```

use super::connection::Connection;
use super::{McpError, McpErrorKind, McpServer, Place};
use crate::tool::{Tool, ToolContext, ToolFuture, ToolOutput};
use endstop_core::limits::unknown_key;
use rmcp::model::{PaginatedRequestParams, Tool as Described};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How many tools a server may have: more, no model takes.
const MOST_TOOLS: usize = 1000;

/// The longest name that providers take.
const LONGEST_NAME: usize = 64;

/// The largest schema of a tool's arguments, in bytes of JSON.
const LARGEST_SCHEMA: usize = 64 * 1024;

/// The most bytes of schemas of all tools of a server: each call of the model has them all.
const MOST_SCHEMAS: usize = 1024 * 1024;

/// The longest name of a server's own for a tool, in bytes.
const LONGEST_REMOTE_NAME: usize = 256;

/// The longest description, in bytes: a model pays for it with each call.
const LONGEST_DESCRIPTION: usize = 8 * 1024;

struct McpTool {
    name: String,
    /// As the server calls it.
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

/// The server's tools, or those of them that were asked for, and why others were left out.
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
        // It was asked for by name.
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

/// What a server has listed so far.
#[derive(Default)]
struct Listed {
    tools: Vec<Described>,
    /// The names of all, also of those that were not asked for.
    names: Vec<String>,
    /// Why tools are not among `tools`.
    left_out: Vec<String>,
    /// Bytes of the schemas.
    schemas: usize,
}

impl Listed {
    /// Takes the next tool, unless it was not asked for or is too large.
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
        // A page that brings nothing but another would go on for ever.
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

/// What the server says of itself are hints. Believed is what makes a run careful, and that a tool
/// only reads: then it may run beside others, and again.
fn tool(
    server: &McpServer,
    name: String,
    described: Described,
    connection: &Arc<Connection>,
) -> McpTool {
    let hints = described.annotations.unwrap_or_default();
    let reads = hints.read_only_hint == Some(true);
    let mut schema = (*described.input_schema).clone();
    // Providers refuse a schema of arguments that does not say what they are.
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
        touches_machine: matches!(server.place, Place::Process { .. }),
        timeout: server.timeout,
        connection: Arc::clone(connection),
    }
}

fn shortened(text: &str) -> String {
    cut(text, LONGEST_DESCRIPTION)
}

/// A text of at most so many bytes, and a mark where it was cut.
fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most).rfind(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{} …", &text[..end])
}

/// `SERVER__TOOL`, as providers take it. One that is too long keeps its beginning, and a number of
/// the whole in place of the rest.
fn name_of(server: &str, tool: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let tool: String = tool.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    let name = format!("{server}__{tool}");
    if name.len() <= LONGEST_NAME {
        return name;
    }
    // FNV-1a: the same in every run, so that a run that goes on has the same tools.
    let number = name
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{}_{number:08x}", &name[..LONGEST_NAME - 9])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_such_as_providers_take() {
        assert_eq!(name_of("git", "log"), "git__log");
        assert_eq!(name_of("git", "a.b/c d\u{e9}"), "git__a_b_c_d_");
        let long = |end: &str| name_of("server", &format!("{}{end}", "x".repeat(80)));
        assert_eq!(long("a").len(), 64);
        assert_ne!(long("a"), long("b"));
        assert_eq!(long("a"), long("a"));
    }

    #[test]
    fn a_description_is_cut_between_characters() {
        let text = "é".repeat(LONGEST_DESCRIPTION);
        let short = shortened(&text);
        assert!(short.len() < LONGEST_DESCRIPTION + 8 && short.ends_with("é …"));
        assert_eq!(shortened("brief"), "brief");
    }
}
