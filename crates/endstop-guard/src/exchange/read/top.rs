//! The facts about a call that the fields of its body contain, apart from its messages.

use super::caps::cap_place;
use super::fields::{Fields, parsed};
use crate::exchange::signs::Signs;
use endstop_wire::WireFormat;
use serde_json::Value;

/// Tools that a client declares to receive its answer, because prose would break its parser: of
/// Claude Code's `--json-schema`, of Gemini CLI's sub-agents, of pydantic-ai and smolagents.
const ANSWER_TOOLS: &[&str] =
    &["StructuredOutput", "complete_task", "final_result", "final_answer"];

/// The sign that a client expects more than prose, so that a final text would break it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Structured {
    /// The request has a schema, or asks for JSON.
    Schema,
    /// The model must call a tool.
    ToolChoice,
    /// A tool exists for the answer, or is the only one that the model may call.
    Tool(String),
    /// The request was not read.
    Unknown,
}

impl Structured {
    /// `true` if a call of this tool is the answer itself. Its client need not send a result.
    pub(crate) fn is_answer(&self, tool: &str) -> bool {
        let named = matches!(self, Structured::Tool(name) if name == tool);
        named || ANSWER_TOOLS.contains(&tool)
    }
}

/// The fields of a call in any format.
#[derive(Debug, Default)]
pub(super) struct Top<'a> {
    pub(super) model: Option<String>,
    pub(super) stream: Option<bool>,
    pub(super) output_cap: Option<u64>,
    /// Names of the tools that the client itself runs.
    pub(super) tools: Vec<String>,
    pub(super) schema: bool,
    pub(super) tool_choice: bool,
    /// The tool that the model must call, as programs that extract data ask.
    pub(super) named_tool: Option<String>,
    pub(super) thinking: Option<u64>,
    pub(super) choices: Option<u64>,
    /// `false` if the answer's stream has no usage.
    pub(super) usage_omitted: bool,
    pub(super) previous_response: Option<String>,
    /// `true` if the provider stores the conversation.
    pub(super) stored: bool,
    /// `true` if the provider answers at once and works on.
    pub(super) background: bool,
    pub(super) signs: Signs,
    /// The texts of the messages.
    pub(super) messages: Vec<&'a str>,
}

impl<'a> Top<'a> {
    /// Reads the fields that most formats spell alike.
    pub(super) fn new(shape: WireFormat, fields: &Fields<'a>) -> Top<'a> {
        Top {
            model: fields.string("model"),
            stream: fields.flag("stream"),
            output_cap: output_cap(shape, fields),
            ..Top::default()
        }
    }

    pub(super) fn structured(&self) -> Option<Structured> {
        let answer = |name: &&String| ANSWER_TOOLS.contains(&name.as_str());
        if self.schema {
            Some(Structured::Schema)
        } else if let Some(name) = &self.named_tool {
            Some(Structured::Tool(name.clone()))
        } else if self.tool_choice {
            Some(Structured::ToolChoice)
        } else {
            self.tools.iter().find(answer).map(|name| Structured::Tool(name.clone()))
        }
    }
}

/// Returns the cap of a body; of several the largest, because a server may take any of them.
fn output_cap(shape: WireFormat, fields: &Fields<'_>) -> Option<u64> {
    let place = cap_place(shape);
    let inside;
    let holder = match place.objects.iter().find(|name| fields.has(name)) {
        Some(name) => {
            inside = fields.object(name);
            &inside
        }
        None if place.objects.is_empty() => fields,
        None => return None,
    };
    // Some clients write `1e6`. Negative numbers mean "no cap".
    let caps = holder.all(place.names).filter_map(parsed::<f64>);
    caps.filter(|cap| *cap >= 0.0).map(|cap| cap as u64).max()
}

/// `true` if a choice of tools, in the spelling of most formats, makes the model call one.
pub(super) fn forces_tool(choice: &Value) -> bool {
    let forcing = |word: &str| matches!(word, "required" | "any" | "tool" | "function" | "custom");
    match choice {
        Value::String(word) => forcing(word),
        Value::Object(members) => match members.get("type").and_then(Value::as_str) {
            Some("allowed_tools") => {
                members.get("mode").and_then(Value::as_str).is_some_and(forcing)
            }
            // Any other type names one tool that must be called, for example `mcp`.
            Some(kind) => forcing(kind) || !matches!(kind, "auto" | "none"),
            // Some servers take only the function's name.
            None => !members.is_empty(),
        },
        _ => false,
    }
}

/// Returns the name in a choice of one tool.
pub(super) fn named_tool(choice: &Value) -> Option<String> {
    if !matches!(choice.get("type")?.as_str()?, "function" | "tool" | "custom") {
        return None;
    }
    // Chat Completions has it in an object of its own.
    let name = choice.get("name").or_else(|| choice.get("function")?.get("name"));
    name.and_then(Value::as_str).map(str::to_owned)
}

/// `true` if a format's field asks for JSON.
pub(super) fn asks_for_json(format: &Value) -> bool {
    // `text` is the default that some clients send.
    let kind = format.get("type").and_then(Value::as_str);
    kind.is_some_and(|kind| kind != "text")
}
