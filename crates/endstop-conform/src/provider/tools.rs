//! Makes the arguments of a call, in the words of the client's own tool.

use crate::case::ScriptedCall;
use crate::vocabulary::Tool;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Names of tools that run a command.
const SHELLS: [&str; 8] = [
    "shell",
    "Bash",
    "bash",
    "exec_command",
    "shell_command",
    "local_shell",
    "run_shell_command",
    "run",
];

/// Names of tools that start a sub-agent.
const AGENTS: [&str; 7] =
    ["task", "Task", "Agent", "agent", "spawn_agent", "invoke_agent", "generalist"];

/// Names of arguments with the prompt of a sub-agent.
const PROMPTS: [&str; 7] =
    ["prompt", "message", "task", "objective", "instructions", "query", "request"];

/// Returns the names by which a tool of this kind is known, unless a profile names it.
pub fn names(tool: Tool) -> &'static [&'static str] {
    match tool {
        Tool::Shell => &SHELLS,
        Tool::SubAgent => &AGENTS,
        Tool::Permission => &[],
    }
}

/// A call in the words of a client.
pub(super) struct Worded {
    pub(super) name: String,
    pub(super) arguments: String,
}

/// Returns the call, or why the client has no such tool.
pub(super) fn worded(
    call: &ScriptedCall,
    tools: &[(String, Value)],
    names: &BTreeMap<Tool, String>,
    fill: &dyn Fn(&str) -> String,
) -> Result<Worded, String> {
    let kind = match call.tool {
        Tool::Shell => "that runs commands",
        Tool::SubAgent => "that starts a sub-agent",
        Tool::Permission => "that needs a permission",
    };
    let known = self::names(call.tool);
    let named = names.get(&call.tool);
    let found = match named {
        Some(name) => tools.iter().find(|(known, _)| known == name),
        None => known.iter().find_map(|known| tools.iter().find(|(name, _)| name == known)),
    };
    let (name, schema) = found.ok_or_else(|| {
        let key = call.tool.name();
        let offered: Vec<&str> = tools.iter().map(|(name, _)| name.as_str()).take(20).collect();
        match (named, offered.is_empty()) {
            (_, true) => format!("the program offers no tool {kind}"),
            (Some(name), _) => format!(
                "the program offers no tool `{name}`, which `tools.{key}` of the profile names; it offers {}",
                offered.join(", ")
            ),
            (None, _) => format!(
                "the program offers no tool {kind} by a known name; name one of {} in `tools.{key}` of a profile",
                offered.join(", ")
            ),
        }
    })?;
    let fields = schema["properties"].as_object().cloned().unwrap_or_default();
    let input = fill(&call.input);
    let arguments = match call.tool {
        Tool::Shell => shell(&fields, &input, call.background),
        Tool::SubAgent => sub_agent(name, schema, &fields, &input),
        Tool::Permission => {
            let key = fields.keys().next().map_or("target", String::as_str);
            json!({ key: input })
        }
    };
    let arguments = match &call.raw {
        // Inside a JSON string the command needs no escapes: the suite's own folder has none.
        Some(raw) => fill(&raw.replace("{key}", key_of(&fields))),
        None => arguments.to_string(),
    };
    Ok(Worded { name: name.clone(), arguments })
}

/// Returns the name of the first of these tools, and its key for a command, for a call that is written as text.
pub(super) fn shell_words<'a>(
    tools: &'a [(String, Value)],
    names: &BTreeMap<Tool, String>,
) -> (&'a str, String) {
    let named = names.get(&Tool::Shell).map(String::as_str);
    let known = named.into_iter().chain(SHELLS);
    let found = known.into_iter().find_map(|known| tools.iter().find(|(name, _)| name == known));
    let Some((name, schema)) = found else { return ("shell", "command".to_owned()) };
    let fields = schema["properties"].as_object().cloned().unwrap_or_default();
    (name, key_of(&fields).to_owned())
}

/// Returns the name of the argument that is a command, or the first one.
pub(super) fn command_key(schema: &Value) -> &str {
    schema["properties"].as_object().map_or("command", key_of)
}

fn key_of(fields: &Map<String, Value>) -> &str {
    let known = ["command", "cmd"].into_iter().find(|key| fields.contains_key(*key));
    known.or_else(|| fields.keys().next().map(String::as_str)).unwrap_or("command")
}

fn shell(fields: &Map<String, Value>, command: &str, in_background: bool) -> Value {
    let key = key_of(fields);
    let value = match fields.get(key) {
        Some(field) if field["type"] == "array" => json!(["bash", "-lc", command]),
        _ => json!(command),
    };
    let mut arguments = json!({ key: value });
    if fields.contains_key("description") {
        arguments["description"] = "run a step".into();
    }
    for key in ["background", "run_in_background", "is_background"] {
        // One of them is required, also if it is false.
        if fields.contains_key(key) && (in_background || key == "is_background") {
            arguments[key] = in_background.into();
        }
    }
    arguments
}

fn sub_agent(name: &str, schema: &Value, fields: &Map<String, Value>, prompt: &str) -> Value {
    let is_required = |key: &str| {
        schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == key))
    };
    let mut arguments = Map::new();
    for key in fields.keys() {
        let value = match key.as_str() {
            key if PROMPTS.contains(&key) => prompt,
            "description" => "a sub task",
            "subagent_type" if name == "task" => "general",
            "subagent_type" => "general-purpose",
            "agent_name" => "generalist",
            "task_name" => "sub_1",
            key if is_required(key) => "x",
            _ => continue,
        };
        arguments.insert(key.clone(), value.into());
    }
    Value::Object(arguments)
}

/// Replaces the words of a case in a command or a text.
pub(super) fn filled(text: &str, number: usize, folder: &Path) -> String {
    let folder = folder.display().to_string();
    let mut filled = text.replace("{n}", &number.to_string()).replace("{folder}", &folder);
    while let Some(at) = filled.find("{started ") {
        let Some(length) = filled[at..].find('}') else { break };
        let name = filled[at + "{started ".len()..at + length].to_owned();
        // Its output is not shown, because the name differs each time.
        let command = format!("mktemp -q {folder}/{name}.XXXXXX >/dev/null");
        filled.replace_range(at..=at + length, &command);
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(tool: Tool, input: &str) -> ScriptedCall {
        ScriptedCall { tool, input: input.to_owned(), background: false, raw: None, id: None }
    }

    #[test]
    fn calls_fit_schemas_of_clients() {
        let schema = |properties: Value| json!({"properties": properties, "required": ["kind"]});
        let tools = [
            ("Read".to_owned(), schema(json!({"path": {}}))),
            ("Bash".to_owned(), schema(json!({"command": {"type": "string"}, "description": {}}))),
            ("Task".to_owned(), schema(json!({"prompt": {}, "subagent_type": {}, "kind": {}}))),
        ];
        let none = BTreeMap::new();
        let fill = |text: &str| filled(text, 2, Path::new("/f"));
        let made = worded(&call(Tool::Shell, "{started a}; echo {n}"), &tools, &none, &fill);
        let made = made.unwrap_or_else(|problem| panic!("{problem}"));
        assert_eq!(made.name, "Bash");
        let arguments: Value = serde_json::from_str(&made.arguments).unwrap();
        assert_eq!(arguments["command"], "mktemp -q /f/a.XXXXXX >/dev/null; echo 2");
        assert_eq!(arguments["description"], "run a step");
        let made = worded(&call(Tool::SubAgent, "do it"), &tools, &none, &fill);
        let made: Value =
            serde_json::from_str(&made.unwrap_or_else(|p| panic!("{p}")).arguments).unwrap();
        assert_eq!(
            made,
            json!({"prompt": "do it", "subagent_type": "general-purpose", "kind": "x"})
        );
        let missing = worded(&call(Tool::Permission, "x"), &tools, &none, &fill);
        assert!(missing.err().is_some_and(|problem| problem.contains("permission")));
    }

    #[test]
    fn array_commands_have_a_shell() {
        let fields = json!({"command": {"type": "array"}}).as_object().cloned().unwrap_or_default();
        assert_eq!(shell(&fields, "ls", false)["command"], json!(["bash", "-lc", "ls"]));
    }
}
