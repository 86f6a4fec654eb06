//! OpenTelemetry spans of generative AI: OTLP as JSON, or spans as SDKs print them, in one document or
//! a line each. The attributes of the GenAI conventions, of OpenInference, of the AI SDK and of
//! OpenLLMetry are read.
//!
//! ```text
//! {"resourceSpans":[{"resource":{…},"scopeSpans":[{"scope":{…},"spans":[{"traceId":…, …}]}]}]}
//! {"name":"chat gpt","context":{"trace_id":"0x…","span_id":"0x…"},"parent_id":…,"attributes":{…}}
//! ```
//!
//! A trace is a run; where it has several agents at its top, each is one. Spans of model calls are its
//! turns in the order of their begin, spans of tools their results, and a status of `ERROR` a failure.
//! What happens below the span of a tool is a child, if the model is called there.
//!
//! Its quirks:
//!
//! - Spans come when they end, so that children stand before parents, and those of a trace in several
//!   lines. The file's bytes are kept, and one trace at a time is read from them.
//! - Each call of the model repeats the conversation: a message of the user is a step the first time.
//! - What is said is often not recorded. Then a tool's span is its call too.
//! - A tool's span of OpenInference has no id: it goes to the open call with its name and arguments.
//! - A model call that failed and said nothing is no turn.
//! - Why the agent stopped is not in the conventions: `gen_ai.agent.finish_reason` and
//!   pydantic-ai's `final_result` are read where they are, else the last call's reason.

mod assemble;
mod facts;
mod message;
mod span;
mod tree;

use super::pieces::{self, Fields};
use super::{Format, Head, Place, Problem, ProblemKind, Shape, Sink};
use endstop_core::bounded_json;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::HashMap;

pub(crate) const FORMAT: Format = Format {
    name: "otel",
    about: "OpenTelemetry: spans of the GenAI conventions, OpenInference and the AI SDK, as JSON",
    recognises,
    shape: Shape::Whole(read),
};

/// Prefixes of attributes, one of which spans of generative AI have.
const MARKS: &[&str] =
    &["\"gen_ai.", "openinference.", "\"llm.", "\"ai.operationId\"", "\"traceloop."];

fn recognises(head: &Head<'_>) -> bool {
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

/// Where the spans of a trace are in the file.
#[derive(Default)]
struct Traces<'a> {
    all: Vec<Trace<'a>>,
    by_id: HashMap<String, usize>,
}

struct Trace<'a> {
    id: String,
    spans: Vec<&'a RawValue>,
    /// Attributes of what sent its first span.
    resource: Option<&'a RawValue>,
}

fn read(bytes: &[u8], place: &Place<'_>, sink: &mut Sink<'_>) {
    let problem = |at, kind, what: String| Problem { file: place.file.to_owned(), at, kind, what };
    let mut traces = Traces::default();
    let mut lines = pieces::lines(bytes);
    let first_is_whole =
        lines.next().is_some_and(|line| serde_json::from_slice::<&RawValue>(line.bytes).is_ok());
    match serde_json::from_slice::<&RawValue>(bytes) {
        Ok(document) => {
            if !traces.collect(document, None, 0) {
                let what = "a document without spans".to_owned();
                return sink(Err(problem(None, ProblemKind::NoTrajectory, what)));
            }
        }
        // A document that is laid out over lines is not one a line.
        Err(e) if !first_is_whole => {
            let kind = if e.is_eof() { ProblemKind::Half } else { ProblemKind::Malformed };
            return sink(Err(problem(None, kind, format!("no JSON: {e}"))));
        }
        Err(_) => {
            for line in pieces::lines(bytes) {
                match serde_json::from_slice::<&RawValue>(line.bytes) {
                    Ok(record) => {
                        if !traces.collect(record, None, 0) {
                            let what = "a record without spans".to_owned();
                            sink(Err(problem(Some(line.at), ProblemKind::Malformed, what)));
                        }
                    }
                    Err(e) if e.is_eof() && !line.ended => {
                        let what = "a record that ends in its middle".to_owned();
                        sink(Err(problem(Some(line.at), ProblemKind::Half, what)));
                    }
                    Err(e) => {
                        let what = format!("no JSON: {e}");
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
            file: place.file,
            at: if is_one { None } else { Some(at) },
        };
        let found = tree::runs(&trace, spans, sink);
        runs += found;
        without += u64::from(found == 0);
    }
    if without > 0 || runs == 0 {
        let what = format!("traces without a call of a model: {without}");
        sink(Err(problem(None, ProblemKind::NoTrajectory, what)));
    }
}

/// What of a span says which trace it is of.
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

/// As deep as spans are looked for: a document, resources, scopes, spans, and the lists of each.
const DEEPEST: u8 = 8;

type Raw<'a> = HashMap<String, &'a RawValue>;

impl<'a> Traces<'a> {
    /// The spans of a document, or of a part of it. `false`: there are none.
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
        // Lists of spans by some name.
        let lists = map.into_iter().filter(|(_, raw)| raw.get().starts_with('['));
        let mut lists: Vec<_> = lists.collect();
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
