//! Reads requests of Converse, and of Amazon's own models in InvokeModel.

use crate::codec::request::cap::CapPlace;
use crate::codec::request::fields::Fields;
use crate::codec::request::members::Holds::{Any, Messages, Nothing, Object, Parts, Tools};
use crate::codec::request::members::{Member, Members, THINKING, TIER};
use crate::codec::request::parts::{
    call, message_of, result, stand_in, str_of, take_joined, take_text, text,
};
use crate::codec::request::read::{RequestHead, RequestReader};
use crate::codec::request::tools::tools_of;
use crate::dialect::WireFormat;
use crate::route::Delivery;
use endstop_core::{Message, Part};
use serde_json::Value;

const MEMBERS: &[Member] = &[
    ("modelId", Any),
    ("schemaVersion", Any),
    ("messages", Messages),
    ("system", Parts),
    ("toolConfig", Object(&[("tools", Tools), ("toolChoice", Any)])),
    ("outputConfig", Any),
    (
        "inferenceConfig",
        Object(&[
            ("temperature", Any),
            ("topP", Any),
            ("topK", Any),
            ("stopSequences", Any),
            ("top_p", Any),
            ("top_k", Any),
        ]),
    ),
    (
        "additionalModelRequestFields",
        Object(&[
            ("temperature", Any),
            ("top_p", Any),
            ("top_k", Any),
            ("thinking", THINKING),
            ("reasoning_config", THINKING),
            ("reasoning_effort", Any),
            ("output_config", Any),
            ("anthropic_beta", Any),
        ]),
    ),
    ("additionalModelResponseFieldPaths", Any),
    ("requestMetadata", Any),
    ("performanceConfig", TIER),
    ("serviceTier", TIER),
    ("promptVariables", Nothing),
];

/// The reader of requests.
pub(crate) static READER: RequestReader = RequestReader {
    format: WireFormat::BedrockConverse,
    cap: CapPlace {
        // Amazon's own models have another name inside InvokeModel than in Converse.
        name_inside: Some("max_new_tokens"),
        ..CapPlace::within(&["inferenceConfig"], &["maxTokens", "max_new_tokens"])
    },
    members: Members { rows: MEMBERS, also_in_snake_case: false },
    streams_by_default: false,
    streamed: Delivery::Frames,
    text_type: None,
    matches_results_by_name: false,
    head,
    message: read_message,
};

fn head<'a>(fields: &Fields<'a>) -> RequestHead<'a> {
    let tools = fields.object("toolConfig");
    let choice = tools.object("toolChoice");
    RequestHead {
        schema: fields.object("outputConfig").has("textFormat"),
        tool_choice: choice.raw("any").is_some() || choice.raw("tool").is_some(),
        tools: tools_of(&tools, "tools"),
        messages: fields.list("messages"),
        ..RequestHead::of(fields)
    }
}

fn read_message(value: &mut Value) -> Message {
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
