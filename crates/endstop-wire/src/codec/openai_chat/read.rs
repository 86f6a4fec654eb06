//! Reads requests of Chat Completions.

use crate::codec::request::cap::CapPlace;
use crate::codec::request::fields::Fields;
use crate::codec::request::members::Holds::{Any, Count, Messages, Nothing, Object, Text, Tools};
use crate::codec::request::members::{Member, Members, ONE, REASONING, THINKING, TIER};
use crate::codec::request::parts::{
    call, elements, elements_mut, message, result, role, stand_in, str_of, take_joined, take_text,
    text,
};
use crate::codec::request::read::{
    RequestHead, RequestReader, asks_for_json, forces_tool, named_tool,
};
use crate::codec::request::tools::tools_of;
use crate::dialect::WireFormat;
use crate::route::Delivery;
use endstop_core::{Message, Part, Role};
use serde_json::Value;

const MEMBERS: &[Member] = &[
    ("model", Any),
    ("messages", Messages),
    ("tools", Tools),
    ("tool_choice", Any),
    ("parallel_tool_calls", Any),
    ("functions", Any),
    ("function_call", Any),
    ("stream", Any),
    ("stream_options", Any),
    ("n", Count),
    ("temperature", Any),
    ("top_p", Any),
    ("top_k", Any),
    ("min_p", Any),
    ("top_a", Any),
    ("typical_p", Any),
    ("frequency_penalty", Any),
    ("presence_penalty", Any),
    ("repetition_penalty", Any),
    ("logit_bias", Any),
    ("logprobs", Any),
    ("top_logprobs", Any),
    ("stop", Any),
    ("stop_token_ids", Any),
    ("min_tokens", Any),
    ("ignore_eos", Any),
    ("seed", Any),
    ("random_seed", Any),
    ("response_format", Any),
    ("guided_json", Any),
    ("guided_regex", Any),
    ("guided_choice", Any),
    ("guided_grammar", Any),
    ("structured_outputs", Any),
    ("reasoning", REASONING),
    ("reasoning_effort", Any),
    ("reasoning_format", Any),
    ("include_reasoning", Any),
    ("thinking", THINKING),
    ("enable_thinking", Any),
    ("thinking_budget", Any),
    (
        "chat_template_kwargs",
        Object(&[("enable_thinking", Any), ("thinking", Any), ("reasoning_effort", Any)]),
    ),
    ("verbosity", Any),
    ("user", Any),
    ("metadata", Any),
    ("store", Any),
    ("usage", Object(&[("include", Any)])),
    ("transforms", Any),
    ("safe_prompt", Any),
    ("prompt_mode", Any),
    ("safety_identifier", Any),
    ("prompt_cache_key", Any),
    ("prompt_cache_retention", Any),
    ("cache_control", Any),
    ("service_tier", TIER),
    ("modalities", Text),
    ("best_of", ONE),
    ("use_beam_search", Nothing),
    ("audio", Nothing),
    ("prediction", Nothing),
    ("models", Nothing),
    ("fallbacks", Nothing),
    ("plugins", Nothing),
    ("mcp_servers", Nothing),
    ("extra_body", Nothing),
];

/// The reader of requests.
pub(crate) static READER: RequestReader = RequestReader {
    format: WireFormat::OpenAiChat,
    cap: CapPlace {
        older_name: Some("max_tokens"),
        ..CapPlace::at_top(&["max_completion_tokens", "max_tokens"])
    },
    members: Members { rows: MEMBERS, also_in_snake_case: false },
    streams_by_default: false,
    streamed: Delivery::Events,
    text_type: Some("text"),
    matches_results_by_name: false,
    head,
    message: read_message,
};

pub(crate) fn head<'a>(fields: &Fields<'a>) -> RequestHead<'a> {
    let mut tools = tools_of(fields, "tools");
    // The older spelling of tools.
    tools.extend(tools_of(fields, "functions"));
    let usage = fields.object("stream_options").flag("include_usage");
    RequestHead {
        tools,
        schema: asks_for_json(&fields.value("response_format")),
        tool_choice: forces_tool(&fields.value("tool_choice")),
        named_tool: named_tool(&fields.value("tool_choice")),
        choices: fields.value("n").as_u64(),
        usage_omitted: usage != Some(true),
        messages: fields.list("messages"),
        ..RequestHead::of(fields)
    }
}

pub(crate) fn read_message(value: &mut Value) -> Message {
    let role = role(str_of(value, "role"));
    if role == Role::Tool {
        let content = take_joined(value, "content");
        let id = str_of(value, "tool_call_id");
        let name = value.get("name").or_else(|| value.get("tool_name"));
        let name = name.and_then(Value::as_str).unwrap_or_default();
        return message(role, vec![result(id, name, content, false)]);
    }
    let mut parts = Vec::new();
    // Servers of open models return their reasoning under one of these names.
    let reasoning = ["reasoning_content", "reasoning", "thinking"];
    if let Some(text) = reasoning.iter().find_map(|name| value.get(name)?.as_str()) {
        parts.push(Part::Reasoning { text: text.to_owned() });
    }
    let content = value.get_mut("content").map(elements_mut).unwrap_or_default();
    parts.extend(content.iter_mut().map(content_part));
    if let Some(refusal) = value.get("refusal").and_then(Value::as_str) {
        parts.push(Part::Refusal { text: refusal.to_owned() });
    }
    parts.extend(calls_of(value));
    message(role, parts)
}

/// Returns the calls of a message.
pub(crate) fn calls_of(value: &Value) -> impl Iterator<Item = Part> + '_ {
    elements(value.get("tool_calls").unwrap_or(&Value::Null)).iter().map(|one| {
        let function = one.get("function").or_else(|| one.get("custom")).unwrap_or(&Value::Null);
        // A custom tool takes plain text as its input.
        let arguments = function.get("arguments").or_else(|| function.get("input"));
        call(str_of(one, "id"), str_of(function, "name"), arguments.unwrap_or(&Value::Null))
    })
}

/// Returns a part of a message's content.
pub(crate) fn content_part(part: &mut Value) -> Part {
    text(take_text(part).unwrap_or_else(|| stand_in(part)))
}
