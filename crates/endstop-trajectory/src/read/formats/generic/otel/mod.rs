//! Reader for OpenTelemetry spans of generative AI: OTLP as JSON, or spans as SDKs print them, in
//! one document or one per line. Supports the attributes of the GenAI conventions, of
//! OpenInference, of the AI SDK and of OpenLLMetry.
//!
//! ```text
//! {"resourceSpans":[{"resource":{…},"scopeSpans":[{"scope":{…},"spans":[{"traceId":…, …}]}]}]}
//! {"name":"chat gpt","context":{"trace_id":"0x…","span_id":"0x…"},"parent_id":…,"attributes":{…}}
//! ```
//!
//! A trace is a run; if it has several agents at the top, each of them is one. Spans of model calls
//! are turns, ordered by start time. Spans of tools are results, and a status of `ERROR` marks a
//! failure. The spans below a tool span are a child run if they include a model call.
//!
//! Quirks:
//!
//! - Spans are written when they end, so children come before their parents, and the spans of a
//!   trace may be spread over many lines. The reader keeps the file's bytes and decodes one trace
//!   at a time.
//! - Each model call repeats the conversation: a user message becomes a step only the first time.
//! - Message content is often not recorded. In that case a tool's span is also used as its call.
//! - A tool's span of OpenInference has no call id: it is matched to the open call with the same
//!   name and arguments.
//! - A model call that failed without output is not a turn.
//! - The conventions do not record why the agent stopped: `gen_ai.agent.finish_reason` and
//!   pydantic-ai's `final_result` are used if present, otherwise the last call's finish reason.

mod assemble;
mod facts;
mod message;
mod span;
mod tree;

use crate::read::build::fields::Fields;
use crate::read::format::{Format, Head, Place, Shape, Sink};
use crate::read::io::json_lines;
use crate::read::problem::{Problem, ProblemKind};
use endstop_core::bounded_json;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::HashMap;

pub(crate) const FORMATS: &[Format] = &[Format {
    name: "otel",
    about: "OpenTelemetry: spans of the GenAI conventions, OpenInference and the AI SDK, as JSON",
    recognises,
    of_a_person: false,
    shape: Some(Shape::Whole(read)),
}];

/// Prefixes of attributes; every span of generative AI has at least one of them.
const MARKS: &[&str] =
    &["\"gen_ai.", "openinference.", "\"llm.", "\"ai.operationId\"", "\"traceloop."];

fn recognises(head: &Head<'_>) -> bool {
    // Searching the raw bytes is enough here, and works if the document is longer than the part
    // inspected.
    let has = |text: &str| memchr::memmem::find(head.bytes, text.as_bytes()).is_some();
    let is_shaped = head.first.map_or_else(
        || {
            let is_list = head.bytes.trim_ascii_start().starts_with(b"[");
            is_list || has("\"resourceSpans\"") || has("\"resource_spans\"")
        },
        |value| has_spans(value, 0),
    );
    is_shaped
        && ["\"traceId\"", "\"trace_id\""].iter().any(|key| has(key))
        && MARKS.iter().any(|mark| has(mark))
}

const RESOURCES: &[&str] = &["resourceSpans", "resource_spans", "batches"];
const SCOPES: &[&str] =
    &["scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans"];

fn has_spans(value: &Value, depth: u8) -> bool {
    match value {
        Value::Object(map) => {
            RESOURCES.iter().any(|key| map.contains_key(*key))
                || span::is_one(map)
                || (depth < 2
                    && map.values().any(|value| value.is_array() && has_spans(value, depth + 1)))
        }
        Value::Array(list) => list.first().is_some_and(|value| has_spans(value, depth + 1)),
        _ => false,
    }
}

/// The location of each trace's spans in the file.
#[derive(Default)]
struct Traces<'a> {
    all: Vec<Trace<'a>>,
    by_id: HashMap<String, usize>,
}

struct Trace<'a> {
    id: String,
    spans: Vec<&'a RawValue>,
    /// Attributes of the resource that sent the first span.
    resource: Option<&'a RawValue>,
}

fn read(bytes: &[u8], place: &Place<'_>, sink: &mut Sink<'_>) {
    let problem = |at, kind, what: String| Problem { file: place.file.to_owned(), at, kind, what };
    let mut traces = Traces::default();
    let mut lines = json_lines::lines(bytes);
    let first_is_whole =
        lines.next().is_some_and(|line| serde_json::from_slice::<&RawValue>(line.bytes).is_ok());
    match serde_json::from_slice::<&RawValue>(bytes) {
        Ok(document) => {
            if !traces.collect(document, None, 0) {
                let what = "a document without spans".to_owned();
                return sink(Err(problem(None, ProblemKind::NoTrajectory, what)));
            }
        }
        // The first line of a pretty-printed document is not a value, so the file is not JSON
        // lines.
        Err(e) if !first_is_whole => {
            let kind = if e.is_eof() { ProblemKind::Half } else { ProblemKind::Malformed };
            return sink(Err(problem(None, kind, format!("invalid JSON: {e}"))));
        }
        Err(_) => {
            for line in json_lines::lines(bytes) {
                match serde_json::from_slice::<&RawValue>(line.bytes) {
                    Ok(record) => {
                        if !traces.collect(record, None, 0) {
                            let what = "a record without spans".to_owned();
                            sink(Err(problem(Some(line.at), ProblemKind::Malformed, what)));
                        }
                    }
                    Err(e) if e.is_eof() && !line.ended => {
                        let what = "truncated record".to_owned();
                        sink(Err(problem(Some(line.at), ProblemKind::Half, what)));
                    }
                    Err(e) => {
                        let what = format!("invalid JSON: {e}");
                        sink(Err(problem(Some(line.at), ProblemKind::Malformed, what)));
                    }
                }
            }
        }
    }
    let (mut runs, mut without) = (0_u64, 0_u64);
    let is_one = traces.all.len() == 1;
    for (at, trace) in (1..).zip(traces.all) {
        let mut spans = Vec::with_capacity(trace.spans.len());
        // Decoded per trace, so that only one trace is held as parsed values.
        for raw in trace.spans {
            match bounded_json::from_str::<Fields>(raw.get())
                .map_err(|e| e.to_string())
                .and_then(span::Span::from)
            {
                Ok(span) => spans.push(span),
                Err(e) => {
                    let what = format!("trace {}: a span that cannot be read: {e}", trace.id);
                    sink(Err(problem(None, ProblemKind::Malformed, what)));
                }
            }
        }
        let resource = trace.resource.and_then(|raw| bounded_json::from_str(raw.get()).ok());
        let resource = resource.map(|mut map: Fields| map.shift_remove("attributes"));
        let trace = tree::Trace {
            id: &trace.id,
            resource: span::attributes(resource.flatten()),
            at: if is_one { None } else { Some(at) },
        };
        let found = tree::runs(&trace, spans, sink);
        runs += found;
        without += u64::from(found == 0);
    }
    if without > 0 || runs == 0 {
        let what = format!("traces without a model call: {without}");
        sink(Err(problem(None, ProblemKind::NoTrajectory, what)));
    }
}

/// The members of a span that identify its trace.
#[derive(Deserialize)]
struct Of {
    #[serde(alias = "traceId")]
    trace_id: Option<Value>,
    #[serde(alias = "spanContext")]
    context: Option<Context>,
}

#[derive(Deserialize)]
struct Context {
    #[serde(alias = "traceId")]
    trace_id: Option<Value>,
}

/// Maximum nesting depth searched for spans: a document, resources, scopes, spans, and the lists of
/// each.
const DEEPEST: u8 = 8;

type Raw<'a> = HashMap<String, &'a RawValue>;

impl<'a> Traces<'a> {
    /// Collects the spans of a document or a part of it; returns `false` if there are none.
    fn collect(&mut self, raw: &'a RawValue, resource: Option<&'a RawValue>, depth: u8) -> bool {
        let text = raw.get();
        if depth > DEEPEST {
            return false;
        }
        if text.starts_with('[') {
            let list: Vec<&'a RawValue> = bounded_json::from_str(text).unwrap_or_default();
            return self.collect_all(list, resource, depth);
        }
        if !text.starts_with('{') {
            return false;
        }
        if self.span(raw, resource) {
            return true;
        }
        let Ok(map) = bounded_json::from_str::<Raw<'a>>(text) else { return false };
        let resource = map.get("resource").copied().or(resource);
        for key in RESOURCES.iter().chain(SCOPES).chain(&["spans"]) {
            if let Some(raw) = map.get(*key) {
                return self.collect(raw, resource, depth + 1);
            }
        }
        // Some SDKs put lists of spans under a name of their choice.
        let lists = map.into_iter().filter(|(_, raw)| raw.get().starts_with('['));
        let mut lists: Vec<_> = lists.collect();
        // Sorted, because the iteration order of a `HashMap` differs between runs.
        lists.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.collect_all(lists.into_iter().map(|(_, raw)| raw), resource, depth)
    }

    fn collect_all(
        &mut self,
        parts: impl IntoIterator<Item = &'a RawValue>,
        resource: Option<&'a RawValue>,
        depth: u8,
    ) -> bool {
        let mut any = false;
        for part in parts {
            any |= self.collect(part, resource, depth + 1);
        }
        any
    }

    fn span(&mut self, raw: &'a RawValue, resource: Option<&'a RawValue>) -> bool {
        let Ok(of) = bounded_json::from_str::<Of>(raw.get()) else { return false };
        let id = of.trace_id.or_else(|| of.context?.trace_id);
        let Some(id) = id.as_ref().and_then(Value::as_str).map(span::plain_id) else {
            return false;
        };
        let index = *self.by_id.entry(id.clone()).or_insert_with(|| {
            self.all.push(Trace { id, spans: Vec::new(), resource });
            self.all.len() - 1
        });
        self.all[index].spans.push(raw);
        true
    }
}
