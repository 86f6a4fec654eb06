//! The members of an ATIF document, before its `extra` objects are interpreted.
//!
//! ```text
//! let document: Document = record::read(bytes)?;
//! ```

use crate::model::{Call, CallResult};
use crate::read::build::arguments;
use crate::read::build::parts::Content;
use crate::read::build::record::{self, List, Of, Record, count, object};
use endstop_core::bounded_json;
use serde::de::MapAccess;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;

#[derive(Default)]
pub(super) struct Document<'a> {
    pub(super) version: Option<Cow<'a, str>>,
    pub(super) session_id: Option<Cow<'a, str>>,
    pub(super) trajectory_id: Option<Cow<'a, str>>,
    pub(super) agent: Option<Agent<'a>>,
    pub(super) steps: Option<Vec<Fields<'a>>>,
    pub(super) children: Vec<Document<'a>>,
    pub(super) final_metrics: Option<Map<String, Value>>,
    pub(super) extra: Map<String, Value>,
    /// Members that no field holds.
    pub(super) other: Map<String, Value>,
}

impl<'a> Record<'a> for Document<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "schema_version" => self.version = record::text(map)?,
            "session_id" => self.session_id = record::name(map)?,
            "trajectory_id" => self.trajectory_id = record::name(map)?,
            "agent" => self.agent = map.next_value::<Option<Of<Agent<'a>>>>()?.map(|of| of.0),
            "steps" => self.steps = Some(map.next_value::<List<Fields<'a>>>()?.0),
            "subagent_trajectories" => self.children = map.next_value::<List<Self>>()?.0,
            "final_metrics" => self.final_metrics = object(map)?,
            "extra" => self.extra = object(map)?.unwrap_or_default(),
            _ => record::keep_other(&mut self.other, name, map)?,
        }
        Ok(())
    }
}

#[derive(Default)]
pub(super) struct Agent<'a> {
    pub(super) name: Option<Cow<'static, str>>,
    pub(super) version: Option<Cow<'static, str>>,
    pub(super) model: Option<Cow<'a, str>>,
    pub(super) tools: Vec<Value>,
    pub(super) other: Map<String, Value>,
}

impl<'a> Record<'a> for Agent<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            // Owned, because the name may be replaced by the caller.
            "name" => self.name = record::name(map)?.map(|text| text.into_owned().into()),
            "version" => self.version = record::name(map)?.map(|text| text.into_owned().into()),
            "model_name" => self.model = record::text(map)?,
            "tool_definitions" => {
                self.tools = map.next_value::<Option<Vec<Value>>>()?.unwrap_or_default();
            }
            _ => record::keep_other(&mut self.other, name, map)?,
        }
        Ok(())
    }
}

/// One step of the document.
#[derive(Default)]
pub(super) struct Fields<'a> {
    pub(super) step_id: Option<u64>,
    pub(super) source: Option<Cow<'a, str>>,
    pub(super) message: Content<'a>,
    pub(super) timestamp: Option<Cow<'a, str>>,
    pub(super) model: Option<Cow<'a, str>>,
    pub(super) reasoning: Option<Cow<'a, str>>,
    pub(super) calls: Vec<Call<'a>>,
    pub(super) results: Vec<CallResult<'a>>,
    pub(super) metrics: Option<Map<String, Value>>,
    pub(super) copied: bool,
    pub(super) extra: Map<String, Value>,
    pub(super) other: Map<String, Value>,
}

impl<'a> Record<'a> for Fields<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            // Parsed leniently, because a wrong number is noted and not an error.
            "step_id" => self.step_id = count(&map.next_value::<Value>()?),
            "source" => self.source = record::text(map)?,
            "message" => self.message = map.next_value()?,
            "timestamp" => self.timestamp = record::name(map)?,
            "model_name" => self.model = record::text(map)?,
            "reasoning_content" => self.reasoning = record::text(map)?,
            "tool_calls" => {
                let calls = map.next_value::<List<ToolCall<'a>>>()?.0;
                self.calls = calls.into_iter().map(ToolCall::call).collect();
            }
            "observation" => {
                if let Some(Of(observation)) = map.next_value::<Option<Of<Observation<'a>>>>()? {
                    self.results = observation.results;
                    // Only the results have a field in the model; other members of the observation
                    // are stored as they are.
                    if !observation.other.is_empty() {
                        let other = Value::Object(observation.other);
                        self.other.insert("observation".to_owned(), other);
                    }
                }
            }
            "metrics" => self.metrics = object(map)?,
            "is_copied_context" => {
                self.copied = map.next_value::<Option<bool>>()?.unwrap_or_default();
            }
            "extra" => self.extra = object(map)?.unwrap_or_default(),
            _ => record::keep_other(&mut self.other, name, map)?,
        }
        Ok(())
    }
}

#[derive(Default)]
struct ToolCall<'a> {
    call: Call<'a>,
    raw: Option<&'a RawValue>,
    extra: Map<String, Value>,
    other: Map<String, Value>,
}

impl<'a> Record<'a> for ToolCall<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "tool_call_id" => self.call.id = record::name(map)?,
            "function_name" => self.call.name = record::text(map)?.unwrap_or_default(),
            // Kept raw, so that the spelling of numbers and the order of keys are preserved.
            "arguments" => self.raw = Some(record::raw(map)?),
            "extra" => self.extra = object(map)?.unwrap_or_default(),
            _ => record::keep_other(&mut self.other, name, map)?,
        }
        Ok(())
    }
}

/// The wrapper object that Endstop's writer puts around arguments that were not an object.
#[derive(Default)]
struct Wrapped<'a>(Option<&'a RawValue>);

impl<'a> Record<'a> for Wrapped<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        let value = record::raw(map)?;
        if name == "raw" {
            self.0 = Some(value);
        }
        Ok(())
    }
}

impl<'a> ToolCall<'a> {
    fn call(self) -> Call<'a> {
        let ToolCall { mut call, raw, mut extra, other: mut own } = self;
        let mut ours = super::ours::take(&mut extra);
        call.arguments = raw.map_or(Cow::Borrowed("{}"), arguments::of_raw);
        // The id was generated by Endstop's writer, because ATIF requires one.
        if record::lift(&mut ours, "no_id", Value::as_bool) == Some(true) {
            call.id = None;
        }
        // The wrapper is only removed if the flag is set: a tool may have an argument named `raw`.
        if record::lift(&mut ours, "raw_arguments", Value::as_bool) == Some(true) {
            let wrapped =
                raw.and_then(|raw| bounded_json::from_str::<Of<Wrapped<'a>>>(raw.get()).ok());
            if let Some(Of(Wrapped(Some(inner)))) = wrapped {
                call.arguments = arguments::on_one_line(inner.get());
            }
        }
        super::ours::give_back(&mut extra, ours);
        super::ours::beside(&mut own, extra);
        call.extra = (!own.is_empty()).then(|| Box::new(own));
        call
    }
}

#[derive(Default)]
struct Observation<'a> {
    results: Vec<CallResult<'a>>,
    other: Map<String, Value>,
}

impl<'a> Record<'a> for Observation<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "results" => {
                let results = map.next_value::<List<ObservationResult<'a>>>()?.0;
                self.results = results.into_iter().map(ObservationResult::result).collect();
            }
            _ => record::keep_other(&mut self.other, name, map)?,
        }
        Ok(())
    }
}

#[derive(Default)]
struct ObservationResult<'a> {
    result: CallResult<'a>,
    content: Content<'a>,
    extra: Map<String, Value>,
    other: Map<String, Value>,
}

impl<'a> Record<'a> for ObservationResult<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "source_call_id" => self.result.call_id = record::name(map)?,
            "content" => self.content = map.next_value()?,
            "extra" => self.extra = object(map)?.unwrap_or_default(),
            _ => record::keep_other(&mut self.other, name, map)?,
        }
        Ok(())
    }
}

impl<'a> ObservationResult<'a> {
    fn result(self) -> CallResult<'a> {
        let ObservationResult { mut result, content, extra, other: mut own } = self;
        let (text, parts) = content.split();
        result.content = text;
        if let Some(parts) = parts {
            own.insert("content".to_owned(), parts);
        }
        super::ours::beside(&mut own, extra);
        result.extra = (!own.is_empty()).then(|| Box::new(own));
        result
    }
}
