//! Extracts the facts about a turn, a tool and a whole run from span attributes, under the names of
//! each convention.
//!
//! ```text
//! let usage = facts::usage(&span);
//! facts::of_agent(&span, &mut run);
//! ```

use super::message;
use super::span::Span;
use crate::model::{Ending, Step, Totals, Trajectory, Usage};
use crate::read::build::fields::{Fields, peek};
use crate::time::iso_8601;
use endstop_core::bounded_json;
use serde_json::Value;
use std::borrow::Cow;

/// Attributes of a tool's span that describe its call, in each convention.
pub(super) const IDS_OF_CALLS: &[&str] =
    &["gen_ai.tool.call.id", "tool_call.id", "tool.id", "ai.toolCall.id"];
pub(super) const NAMES_OF_TOOLS: &[&str] = &[
    "gen_ai.tool.name",
    "tool.name",
    "tool_call.function.name",
    "ai.toolCall.name",
    "traceloop.entity.name",
];
pub(super) const ARGUMENTS: &[&str] = &[
    "gen_ai.tool.call.arguments",
    "tool_arguments",
    "tool_call.function.arguments",
    "ai.toolCall.args",
    "traceloop.entity.input",
    "input.value",
];
pub(super) const RESULTS: &[&str] = &[
    "gen_ai.tool.call.result",
    "tool_response",
    "ai.toolCall.result",
    "traceloop.entity.output",
    "output.value",
];

pub(super) fn name_of(span: &Span) -> Option<&str> {
    span.text(&[
        "gen_ai.agent.name",
        "agent.name",
        "agent_name",
        "graph.node.id",
        "traceloop.entity.name",
        "ai.telemetry.functionId",
    ])
    .or_else(|| Some(span.name.as_str()).filter(|name| !name.is_empty()))
}

/// Applies the facts of the agent's span to the whole run.
pub(super) fn of_agent(span: &Span, run: &mut Trajectory<'static>) {
    run.agent = name_of(span).map(|name| name.to_owned().into());
    let model = ["gen_ai.request.model", "gen_ai.response.model", "model_name", "ai.model.id"];
    if run.model.is_none() {
        run.model = span.text(&model).map(|model| model.to_owned().into());
    }
    // The aggregated usage comes first, because the plain one may be that of a single call.
    let of_all = |kind: &str| {
        let names = [format!("gen_ai.aggregated_usage.{kind}"), format!("gen_ai.usage.{kind}")];
        span.count(&[&names[0], &names[1]])
    };
    run.totals = Totals {
        prompt_tokens: of_all("input_tokens")
            .or_else(|| span.count(&["ai.usage.inputTokens", "ai.usage.promptTokens"])),
        completion_tokens: of_all("output_tokens")
            .or_else(|| span.count(&["ai.usage.outputTokens", "ai.usage.completionTokens"])),
        wall_s: match (span.start, span.end) {
            (Some(start), Some(end)) => Some(end.saturating_sub(start) as f64 / 1e9),
            _ => None,
        },
        ..Totals::default()
    };
    if let Some(ending) = ending_of_agent(span) {
        run.ending = Some(ending);
    } else if run.steps.is_empty()
        && let Some(native) = finish_reason(span)
    {
        // The model calls are in other traces, so the agent's span is the only source for the last
        // answer.
        let answer = span.text(&["ai.response.text", "ai.response.object"]).unwrap_or_default();
        run.ending = of_reason(&native, false, answer);
    }
    for (name, value) in &span.attributes {
        if !message::is_said(name) {
            run.extra.insert(name.clone(), value.clone());
        }
    }
}

fn ending_of_agent(span: &Span) -> Option<Ending<'static>> {
    if span.failed {
        let native = span.text(&["error.type"]).unwrap_or("ERROR");
        return Some(Ending {
            failure_mode: span.message.clone().map(Into::into),
            ..ending("agent_error", native)
        });
    }
    // This attribute is not part of the conventions, so unknown values are expected.
    if let Some(native) = span.text(&["gen_ai.agent.finish_reason"]) {
        let reason = match native {
            "completed" => "final",
            "max_iterations" => "max_turns",
            "time_budget" => "timeout",
            "max_tokens" => "token_limit",
            "handoff" => "handoff",
            "cancelled" => "cancelled",
            "error" | "tool_failure" => "agent_error",
            _ => "unknown",
        };
        return Some(ending(reason, native));
    }
    let answer = span.text(&["final_result"])?;
    Some(Ending { answer: Some(answer.to_owned().into()), ..ending("final", "final_result") })
}

pub(super) fn ending(reason: &'static str, native: &str) -> Ending<'static> {
    Ending { reason: reason.into(), native: Some(native.to_owned().into()), ..Ending::default() }
}

/// Derives the ending from the model's last response.
pub(super) fn of_the_last_call(steps: &[Step<'static>]) -> Option<Ending<'static>> {
    let last = steps.last().filter(|step| step.is_turn())?;
    of_reason(last.finish_reason.as_deref()?, !last.calls.is_empty(), &last.text)
}

fn of_reason(native: &str, has_calls: bool, answer: &str) -> Option<Ending<'static>> {
    let reason = match native {
        // Some providers report `stop` although the response requests tools, so the run continues.
        "stop" | "end_turn" | "STOP" if has_calls => return None,
        "stop" | "end_turn" | "STOP" => "final",
        "length" | "max_tokens" | "MAX_TOKENS" => "output_length",
        "tool_call" | "tool_calls" | "tool-calls" | "tool_use" => return None,
        "error" => "provider_error",
        _ => "unknown",
    };
    let mut ending = ending(reason, native);
    if reason == "final" && !answer.is_empty() {
        ending.answer = Some(answer.to_owned().into());
    }
    Some(ending)
}

pub(super) fn value_of(arguments: &str) -> Value {
    bounded_json::from_str(arguments).unwrap_or_default()
}

pub(super) fn at(span: &Span) -> Option<Cow<'static, str>> {
    span.start.map(|start| iso_8601(start).into())
}

pub(super) fn model(span: &Span) -> Option<Cow<'static, str>> {
    const NAMES: &[&str] =
        &["gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "ai.model.id"];
    span.text(NAMES).map(|model| model.to_owned().into())
}

pub(super) fn finish_reason(span: &Span) -> Option<String> {
    for name in ["gen_ai.response.finish_reasons", "llm.finish_reason", "ai.response.finishReason"]
    {
        match span.attributes.get(name) {
            Some(Value::Array(list)) => {
                if let Some(reason) = list.first().and_then(Value::as_str) {
                    return Some(reason.to_owned());
                }
            }
            // A list is sometimes encoded as a JSON string.
            Some(Value::String(text)) => {
                let list: Option<Vec<String>> = bounded_json::from_str(text).ok();
                return list.map_or(Some(text.clone()), |list| list.into_iter().next());
            }
            _ => {}
        }
    }
    None
}

pub(super) fn usage(span: &Span) -> Option<Usage> {
    let mut usage = Usage {
        prompt_tokens: span.count(&[
            "gen_ai.usage.input_tokens",
            "gen_ai.usage.prompt_tokens",
            "llm.token_count.prompt",
            "ai.usage.inputTokens",
            "ai.usage.promptTokens",
        ]),
        completion_tokens: span.count(&[
            "gen_ai.usage.output_tokens",
            "gen_ai.usage.completion_tokens",
            "llm.token_count.completion",
            "ai.usage.outputTokens",
            "ai.usage.completionTokens",
        ]),
        cached_tokens: span.count(&[
            "gen_ai.usage.cache_read.input_tokens",
            "gen_ai.usage.details.cache_read_tokens",
            "gen_ai.usage.cache_read_input_tokens",
            "llm.token_count.prompt_details.cache_read",
            "ai.usage.cachedInputTokens",
        ]),
        cache_write_tokens: span.count(&[
            "gen_ai.usage.cache_write.input_tokens",
            "gen_ai.usage.cache_creation.input_tokens",
            "gen_ai.usage.details.cache_write_tokens",
            "gen_ai.usage.cache_creation_input_tokens",
            "llm.token_count.prompt_details.cache_write",
        ]),
        reasoning_tokens: span.count(&[
            "gen_ai.usage.reasoning.output_tokens",
            "gen_ai.usage.details.reasoning_tokens",
            "llm.token_count.completion_details.reasoning",
            "ai.usage.reasoningTokens",
        ]),
        extra: Fields::new(),
    };
    // A part cannot be larger than the whole, so these are counted in addition to the prompt, as
    // Anthropic's API does.
    let (read, written) = (usage.cached_tokens.unwrap_or(0), usage.cache_write_tokens.unwrap_or(0));
    let cached = read.saturating_add(written);
    usage.prompt_tokens = usage
        .prompt_tokens
        .map(|prompt| if cached > prompt { prompt.saturating_add(cached) } else { prompt });
    (usage != Usage::default()).then_some(usage)
}

/// Returns the tools that were offered to the model.
pub(super) fn tools_of(span: &Span) -> Vec<Value> {
    let of = |value: &Value| match value {
        Value::String(text) => bounded_json::from_str(text).unwrap_or_else(|_| value.clone()),
        other => other.clone(),
    };
    for name in ["gen_ai.tool.definitions", "ai.prompt.tools"] {
        if let Some(Value::Array(tools)) = message::json(span, name) {
            return tools.iter().map(of).collect();
        }
    }
    let tools = span.attributes.iter();
    let tools = tools
        .filter(|(name, _)| name.starts_with("llm.tools.") && name.ends_with(".tool.json_schema"));
    tools.map(|(_, tool)| of(tool)).collect()
}

/// Returns the attributes of a tool's span that no other field holds.
pub(super) fn rest_of_tool(span: &Span) -> Fields {
    let attributes = span.attributes.iter();
    let is_taken = |name: &str| {
        NAMES_OF_TOOLS.contains(&name)
            || IDS_OF_CALLS.contains(&name)
            || ARGUMENTS.contains(&name)
            || RESULTS.contains(&name)
            || message::is_said(name)
    };
    let rest = attributes.filter(|(name, _)| !is_taken(name));
    rest.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Returns the attributes that no other field holds.
pub(super) fn rest(span: &Span) -> Fields {
    // These two repeat the messages, unless they are all that is recorded.
    let is_value = |name: &str| matches!(name, "input.value" | "output.value");
    let said = peek(&span.attributes, "llm.output_messages.0.message.role").is_some()
        || span.attributes.contains_key("gen_ai.output.messages");
    let attributes = span.attributes.iter();
    let rest = attributes.filter(|(name, _)| !(message::is_said(name) || said && is_value(name)));
    rest.map(|(name, value)| (name.clone(), value.clone())).collect()
}
