//! Amazon Bedrock Converse, and the shape of Amazon's own models in InvokeModel.

use super::fields::Fields;
use super::parts::{call, message_of, result, stand_in, str_of, take_joined, take_text, text};
use super::tools::tools_of;
use super::top::Top;
use endstop_core::{Message, Part};
use endstop_wire::WireFormat;
use serde_json::Value;

pub(super) fn read<'a>(fields: &Fields<'a>) -> Top<'a> {
    let tools = fields.object("toolConfig");
    let choice = tools.object("toolChoice");
    Top {
        schema: fields.object("outputConfig").has("textFormat"),
        tool_choice: choice.raw("any").is_some() || choice.raw("tool").is_some(),
        tools: tools_of(&tools, "tools"),
        messages: fields.list("messages"),
        ..Top::new(WireFormat::BedrockConverse, fields)
    }
}

pub(super) fn read_message(value: &mut Value) -> Message {
    message_of(value, "content", part)
}

fn part(block: &mut Value) -> Part {
    if let Some(one) = block.get("toolUse") {
        let input = one.get("input").unwrap_or(&Value::Null);
        return call(str_of(one, "toolUseId"), str_of(one, "name"), input);
    }
    if let Some(one) = block.get_mut("toolResult") {
        let content = take_joined(one, "content");
        return result(str_of(one, "toolUseId"), "", content, str_of(one, "status") == "error");
    }
    if let Some(one) = block.get("reasoningContent") {
        let text = one.get("reasoningText").map_or("", |text| str_of(text, "text"));
        return Part::Reasoning { text: text.to_owned() };
    }
    text(take_text(block).unwrap_or_else(|| stand_in(block)))
}
