//! Decodes one message, in OpenAI's form, in Anthropic's, or in one of the similar forms.
//!
//! ```text
//! let message: Message = record::read(line)?;
//! message.join(&mut talk);
//! ```

use super::arguments;
use super::parts::{Content, joined};
use super::record::{self, List, Of, Record, Text, count, lift, object, owned_name};
use super::talk::Talk;
use crate::model::{Call, CallResult, Role, Step, Usage};
use endstop_core::bounded_json;
use serde::de::{Error as _, MapAccess};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;

#[derive(Default)]
pub(crate) struct Message<'a> {
    pub(crate) role: Cow<'a, str>,
    content: Content<'a>,
    reasoning: Option<Cow<'a, str>>,
    calls: Vec<Asked<'a>>,
    function_call: Option<Asked<'a>>,
    call_id: Option<Cow<'a, str>>,
    name: Option<Cow<'a, str>>,
    id: Option<Cow<'a, str>>,
    failed: Option<bool>,
    usage: Option<Map<String, Value>>,
    cost: Option<f64>,
    at: Option<Cow<'a, str>>,
    finish_reason: Option<Cow<'a, str>>,
    model: Option<Cow<'a, str>>,
    requestor: Option<Cow<'a, str>>,
    /// Several results in one message.
    results: Vec<Message<'a>>,
    /// The turn number, if the recording has one.
    pub(crate) turn: Option<i64>,
    other: Map<String, Value>,
}

impl<'a> Record<'a> for Message<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "role" => self.role = record::text(map)?.unwrap_or_default(),
            "content" => self.content = map.next_value()?,
            // Some servers write both names, and one of them may be empty.
            "reasoning_content" | "reasoning" => match map.next_value::<Content<'a>>()? {
                Content::Text(text) if text.is_empty() && self.reasoning.is_some() => {}
                Content::Text(text) => self.reasoning = Some(text),
                Content::Nothing => {}
                Content::Parts(parts) => self.keep(name, Value::Array(parts)),
                Content::Other(value) => self.keep(name, value),
            },
            "tool_calls" => self.calls = map.next_value::<List<Asked<'a>>>()?.0,
            "function_call" => {
                self.function_call = map.next_value::<Option<Of<Asked<'a>>>>()?.map(|of| of.0);
            }
            "tool_call_id" => self.call_id = record::name(map)?,
            "name" => self.name = record::name(map)?,
            "id" => self.id = record::name(map)?,
            "is_error" | "error" => match map.next_value::<Value>()? {
                Value::Bool(failed) => self.failed = Some(failed),
                value => self.keep(name, value),
            },
            "usage" => self.usage = object(map)?,
            "cost" => match map.next_value::<Value>()? {
                Value::Number(number) => self.cost = number.as_f64(),
                value => self.keep(name, value),
            },
            "timestamp" | "created_at" => match map.next_value::<Content<'a>>()? {
                Content::Text(text) => self.at = Some(text),
                Content::Nothing => {}
                Content::Parts(parts) => self.keep(name, Value::Array(parts)),
                Content::Other(value) => self.keep(name, value),
            },
            // vLLM writes both, and `stop_reason` is usually `null`.
            "finish_reason" | "stop_reason" => {
                self.finish_reason = record::name(map)?.or(self.finish_reason.take());
            }
            "model" => self.model = record::name(map)?,
            "requestor" => self.requestor = record::text(map)?,
            "tool_messages" => self.results = map.next_value::<List<Self>>()?.0,
            "turn_idx" => match map.next_value::<Value>()? {
                Value::Number(number) if number.is_i64() => self.turn = number.as_i64(),
                value => self.keep(name, value),
            },
            _ => {
                let value = map.next_value()?;
                self.keep(name, value);
            }
        }
        Ok(())
    }
}

/// A call of a message: with its function in a nested object, or flat.
#[derive(Default)]
struct Asked<'a> {
    id: Option<Cow<'a, str>>,
    name: Cow<'a, str>,
    arguments: Option<&'a RawValue>,
    other: Map<String, Value>,
}

impl<'a> Record<'a> for Asked<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "id" => self.id = record::name(map)?,
            "name" => self.name = record::text(map)?.unwrap_or_default(),
            "arguments" | "args" => {
                let raw = record::raw(map)?;
                // A `null` must not replace arguments under the other name.
                if raw.get() != "null" || self.arguments.is_none() {
                    self.arguments = Some(raw);
                }
            }
            // `function` is either an object with the name, or the name itself.
            "function" => {
                let raw = record::raw(map)?.get();
                if let Ok(Text(name)) = bounded_json::from_str(raw) {
                    self.name = name;
                } else if let Some(Of(function)) =
                    bounded_json::from_str::<Option<Of<Asked<'a>>>>(raw)
                        .map_err(M::Error::custom)?
                {
                    self.name = function.name;
                    // The arguments may also be next to the function.
                    self.arguments = function.arguments.or(self.arguments);
                    self.other.extend(function.other);
                }
            }
            "type" => {
                let kind: Value = map.next_value()?;
                // `function` is the default type and would be noise in `extra`.
                if kind != "function" && !kind.is_null() {
                    self.other.insert(name.to_owned(), kind);
                }
            }
            _ => {
                let value: Value = map.next_value()?;
                let default = name == "requestor" && value == "assistant";
                if !value.is_null() && !default {
                    self.other.insert(name.to_owned(), value);
                }
            }
        }
        Ok(())
    }
}

impl<'a> Asked<'a> {
    fn call(self) -> Call<'a> {
        Call {
            id: self.id.filter(|id| !id.is_empty()),
            name: self.name,
            arguments: self.arguments.map_or(Cow::Borrowed("{}"), arguments::of_raw),
            extra: (!self.other.is_empty()).then(|| Box::new(self.other)),
        }
    }
}

impl<'a> Message<'a> {
    fn keep(&mut self, name: &str, value: Value) {
        if !value.is_null() {
            self.other.insert(name.to_owned(), value);
        }
    }

    /// Adds the message to a conversation, as a step or as the results of an earlier step.
    pub(crate) fn join(mut self, talk: &mut Talk<'a>) {
        let results = std::mem::take(&mut self.results);
        let several = !results.is_empty() && matches!(self.content, Content::Nothing);
        for result in results {
            result.into_result(talk);
        }
        match &*self.role {
            "tool" | "function" if several => {}
            "tool" | "function" => self.into_result(talk),
            "assistant" | "agent" | "model" | "ai" => self.into_step(Role::Agent, talk),
            "system" | "developer" => self.into_step(Role::System, talk),
            "user" | "human" => self.into_step(Role::User, talk),
            other => {
                let other = other.to_owned();
                // An unknown role is read as the user's: as the model's it would count as a turn.
                talk.note("unknown role", || other);
                self.into_step(Role::User, talk);
            }
        }
    }

    fn into_result(mut self, talk: &mut Talk<'a>) {
        let by = match self.requestor.as_deref() {
            Some("user") => Some(Role::User),
            Some("assistant") => Some(Role::Agent),
            _ => None,
        };
        let content = std::mem::take(&mut self.content);
        let (text, parts) = content.split();
        // If there is no call id, the message's own id is the call's.
        let id = self.call_id.take().or_else(|| self.id.take()).filter(|id| !id.is_empty());
        let is_error = self.failed.unwrap_or_else(|| says_error(&text));
        let mut extra = std::mem::take(&mut self.other);
        if let Some(parts) = parts {
            extra.insert("content".to_owned(), parts);
        }
        let more = [("name", self.name), ("timestamp", self.at), ("id", self.id)];
        for (name, text) in more {
            if let Some(text) = text {
                extra.insert(name.to_owned(), text.into_owned().into());
            }
        }
        if let Some(turn) = self.turn {
            extra.insert("turn_idx".to_owned(), turn.into());
        }
        let result = CallResult {
            call_id: id,
            content: text,
            is_error,
            exit_code: None,
            extra: (!extra.is_empty()).then(|| Box::new(extra)),
        };
        talk.result(result, by);
    }

    fn into_step(self, role: Role, talk: &mut Talk<'a>) {
        let mut step = Step::new(role);
        let mut extra = self.other;
        let mut results = Vec::new();
        step.calls = self.calls.into_iter().map(Asked::call).collect();
        step.calls.extend(self.function_call.map(Asked::call));
        step.reasoning = self.reasoning.filter(|text| !text.is_empty());
        match self.content {
            Content::Parts(parts) => take_apart(parts, &mut step, &mut results, &mut extra),
            content => {
                let (text, other) = content.split();
                step.text = text;
                if let Some(other) = other {
                    extra.insert("content".to_owned(), other);
                }
            }
        }
        step.usage = self.usage.map(|usage| Box::new(usage_of(usage)));
        step.cost_usd = self.cost;
        step.at = self.at;
        step.finish_reason = self.finish_reason;
        step.agent = self.name;
        step.model = self.model;
        if let Some(turn) = self.turn {
            extra.insert("turn_idx".to_owned(), turn.into());
        }
        if !matches!(&*self.role, "assistant" | "system" | "user") {
            extra.insert("role".to_owned(), self.role.into_owned().into());
        }
        let same = |last: &Step<'_>, id: &str| {
            let known = last.extra.as_ref().and_then(|extra| extra.get("id"));
            last.role == Role::Agent && known.and_then(Value::as_str) == Some(id)
        };
        if let Some(id) = &self.id {
            extra.insert("id".to_owned(), id.to_string().into());
            // Further messages of the same response are added to its turn.
            if role == Role::Agent && talk.last().is_some_and(|last| same(last, id)) {
                step.extra = (!extra.is_empty()).then(|| Box::new(extra));
                merge(talk, step);
                for result in results {
                    talk.result(result, None);
                }
                return;
            }
        }
        step.extra = (!extra.is_empty()).then(|| Box::new(extra));
        if role == Role::Agent {
            talk.step(step);
            for result in results {
                talk.result(result, None);
            }
            return;
        }
        // Text next to results comes after them; a message that contains only results is not a
        // step.
        let has_parts = step.extra.as_ref().is_some_and(|extra| extra.contains_key("content"));
        let only_results =
            !results.is_empty() && step.text.is_empty() && step.calls.is_empty() && !has_parts;
        if only_results && let Some(first) = results.first_mut() {
            // Its other members belong to the first result, as those of a message of one result.
            let at = step.at.take().map(|at| ("timestamp".to_owned(), at.into_owned().into()));
            for (name, value) in step.extra.take().into_iter().flat_map(|extra| *extra).chain(at) {
                first.extra.get_or_insert_default().entry(name).or_insert(value);
            }
        }
        for result in results {
            talk.result(result, None);
        }
        if !only_results {
            talk.step(step);
        }
    }
}

/// Adds the content of a further message of the same response.
fn merge<'a>(talk: &mut Talk<'a>, more: Step<'a>) {
    talk.more_calls(more.calls);
    let Some(step) = talk.last() else { return };
    append(&mut step.text, more.text);
    match (&mut step.reasoning, more.reasoning) {
        (Some(reasoning), Some(more)) => append(reasoning, more),
        (reasoning, more) => *reasoning = reasoning.take().or(more),
    }
    // Each message repeats the usage of the response.
    step.usage = more.usage.or(step.usage.take());
    step.finish_reason = more.finish_reason.or(step.finish_reason.take());
    step.cost_usd = more.cost_usd.or(step.cost_usd);
    for (name, value) in more.extra.map(|extra| *extra).unwrap_or_default() {
        let extra = step.extra.get_or_insert_default();
        match (extra.get_mut(&name), value) {
            // The parts of each message are different ones.
            (Some(Value::Array(parts)), Value::Array(more)) if name == "content" => {
                parts.extend(more);
            }
            (Some(_), _) => {}
            (None, value) => {
                extra.insert(name, value);
            }
        }
    }
}

fn append<'a>(text: &mut Cow<'a, str>, more: Cow<'a, str>) {
    if text.is_empty() {
        *text = more;
    } else if !more.is_empty() {
        let text = text.to_mut();
        text.push('\n');
        text.push_str(&more);
    }
}

/// Splits content parts into texts, reasoning, calls and results. Other members of a part stay in
/// `content` of the step's `extra`.
fn take_apart<'a>(
    parts: Vec<Value>,
    step: &mut Step<'a>,
    results: &mut Vec<CallResult<'a>>,
    extra: &mut Map<String, Value>,
) {
    let mut texts: Vec<Value> = Vec::new();
    let mut reasoning = String::new();
    let mut rest: Vec<Value> = Vec::new();
    for part in parts {
        let Value::Object(mut map) = part else {
            if part.is_string() {
                texts.push(part);
            } else {
                rest.push(part);
            }
            continue;
        };
        // A part without a type is text.
        let kind = map.get("type").and_then(Value::as_str).unwrap_or("text").to_owned();
        match &*kind {
            "text" | "input_text" | "output_text"
                if map.get("text").is_some_and(Value::is_string) =>
            {
                let more = map.keys().any(|name| !matches!(name.as_str(), "type" | "text"));
                if more {
                    rest.push(Value::Object(map.clone()));
                }
                texts.push(Value::Object(map));
            }
            "thinking" | "reasoning" => {
                let names = ["thinking", "reasoning", "text"];
                let text = names.iter().find_map(|name| map.get(*name)?.as_str());
                if let Some(text) = text {
                    if !reasoning.is_empty() {
                        reasoning.push('\n');
                    }
                    reasoning.push_str(text);
                }
                // A signature, for example, is kept, because it is needed to send the block again.
                if text.is_none() || map.len() > 2 {
                    rest.push(Value::Object(map));
                }
            }
            "tool_use" | "server_tool_use" | "mcp_tool_use" | "tool_call" => {
                let arguments = map.shift_remove("input").or_else(|| map.shift_remove("arguments"));
                map.shift_remove("type");
                let mut call = Call {
                    id: lift(&mut map, "id", owned_name),
                    name: lift(&mut map, "name", owned_name).unwrap_or_default(),
                    arguments: of_value(arguments.as_ref()).into(),
                    extra: None,
                };
                if kind != "tool_use" {
                    map.insert("type".to_owned(), kind.into());
                }
                call.extra = (!map.is_empty()).then(|| Box::new(map));
                step.calls.push(call);
            }
            kind if kind.ends_with("tool_result") => results.push(result_of(map)),
            _ => rest.push(Value::Object(map)),
        }
    }
    step.text = joined(&texts).into();
    if !reasoning.is_empty() {
        step.reasoning = Some(reasoning.into());
    }
    if !rest.is_empty() {
        extra.insert("content".to_owned(), Value::Array(rest));
    }
}

/// Converts the arguments of a call that were parsed as a value.
pub(crate) fn of_value(arguments: Option<&Value>) -> String {
    match arguments {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(Value::String(text)) => arguments::of_text(text),
        Some(object @ Value::Object(_)) => object.to_string(),
        Some(other) => arguments::quoted(&other.to_string()),
    }
}

fn result_of(mut map: Map<String, Value>) -> CallResult<'static> {
    let kind = map.shift_remove("type");
    let mut result = CallResult {
        call_id: lift(&mut map, "tool_use_id", owned_name),
        is_error: lift(&mut map, "is_error", Value::as_bool).unwrap_or_default(),
        ..CallResult::default()
    };
    match map.shift_remove("content") {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => result.content = text.into(),
        Some(Value::Array(parts)) => {
            let (text, rest) = Content::Parts(parts).split();
            result.content = text.into_owned().into();
            if let Some(rest) = rest {
                map.insert("content".to_owned(), rest);
            }
        }
        Some(other) => {
            // A server tool reports a failure as an object with an error code.
            let failed = other.get("error_code").is_some();
            result.is_error |= failed;
            result.content = other.to_string().into();
            map.insert("content".to_owned(), other);
        }
    }
    map.retain(|_, value| !value.is_null());
    if let Some(kind) = kind.filter(|kind| *kind != "tool_result") {
        map.insert("type".to_owned(), kind);
    }
    result.extra = (!map.is_empty()).then(|| Box::new(map));
    result
}

/// Returns `true` if a result without an error flag is a failure: if its text begins with the word
/// `Error`.
pub(crate) fn says_error(content: &str) -> bool {
    // `Errors: 0` is not a failure message.
    content.strip_prefix("Error").is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
}

/// Converts the usage of a model call, under OpenAI's names or Anthropic's.
pub(crate) fn usage_of(mut map: Map<String, Value>) -> Usage {
    map.retain(|_, value| !value.is_null());
    let detail = |map: &mut Map<String, Value>, part: &str, name: &str| {
        let Some(Value::Object(details)) = map.get_mut(part) else { return None };
        let number = lift(details, name, count);
        if details.is_empty() {
            map.shift_remove(part);
        }
        number
    };
    let cached = lift(&mut map, "cached_tokens", count)
        .or_else(|| detail(&mut map, "prompt_tokens_details", "cached_tokens"));
    let reasoning = lift(&mut map, "reasoning_tokens", count)
        .or_else(|| detail(&mut map, "completion_tokens_details", "reasoning_tokens"));
    let mut usage = Usage {
        prompt_tokens: lift(&mut map, "prompt_tokens", count),
        completion_tokens: lift(&mut map, "completion_tokens", count),
        cached_tokens: cached,
        cache_write_tokens: lift(&mut map, "cache_write_tokens", count),
        reasoning_tokens: reasoning,
        extra: Map::new(),
    };
    // Anthropic's input count excludes tokens read from or written to a cache.
    if usage.prompt_tokens.is_none()
        && let Some(input) = lift(&mut map, "input_tokens", count)
    {
        let read = lift(&mut map, "cache_read_input_tokens", count);
        let written = lift(&mut map, "cache_creation_input_tokens", count);
        usage.cached_tokens = usage.cached_tokens.or(read);
        usage.cache_write_tokens = usage.cache_write_tokens.or(written);
        let all = input.saturating_add(read.unwrap_or(0)).saturating_add(written.unwrap_or(0));
        usage.prompt_tokens = Some(all);
    }
    if usage.completion_tokens.is_none() {
        usage.completion_tokens = lift(&mut map, "output_tokens", count);
    }
    usage.extra = map;
    usage
}
