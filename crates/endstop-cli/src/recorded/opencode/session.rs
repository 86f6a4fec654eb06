//! Assembles a session of opencode from the rows of its database.

use super::database::{Database, Tree};
use endstop::core::bounded_json;
use endstop_trajectory::Trajectory;
use endstop_trajectory::read::opencode_session;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Maximum nesting depth of subagents that are loaded: one more than a run accepts, so that it can
/// note that there are deeper ones.
const DEEPEST: usize = 17;

/// Loads a session with its subagents; `None` if it has no message.
pub(super) fn load(
    database: &Database,
    tree: &Tree,
    id: &str,
) -> Result<Option<Trajectory<'static>>, String> {
    database.begin();
    Ok(opencode_session(document(database, tree, id, 0)?))
}

/// Builds the document of a session, in the form of `opencode export`.
fn document(
    database: &Database,
    tree: &Tree,
    id: &str,
    depth: usize,
) -> Result<Map<String, Value>, String> {
    let mut parts: HashMap<String, Vec<Value>> = HashMap::new();
    for (message, data) in database.parts(id)? {
        parts.entry(message).or_default().push(parsed(data, "part", id)?);
    }
    let mut messages = Vec::new();
    for (message, data) in database.messages(id)? {
        let parts = parts.remove(&message).unwrap_or_default();
        messages.push(json!({"info": parsed(data, "message", &message)?, "parts": parts}));
    }
    let mut children = Vec::new();
    if depth < DEEPEST {
        for child in tree.children(id) {
            children.push(Value::Object(document(database, tree, child, depth + 1)?));
        }
    }
    let mut info = Map::from_iter([("id".to_owned(), Value::String(id.to_owned()))]);
    if let Some(version) = database.version(id)? {
        info.insert("version".to_owned(), Value::String(version));
    }
    let members = [
        ("info", Value::Object(info)),
        ("messages", messages.into()),
        ("children", children.into()),
    ];
    Ok(members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn parsed(data: Option<String>, what: &str, id: &str) -> Result<Value, String> {
    let data = data.ok_or_else(|| format!("a {what} of `{id}` has no data"))?;
    bounded_json::from_str(&data)
        .map_err(|error| format!("a {what} of `{id}` is not JSON: {error}"))
}
