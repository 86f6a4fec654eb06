//! Metrics: durations, tokens, costs and endings, measured from the spans of a run when they close.
//!
//! ```text
//! invoke_agent   gen_ai.invoke_agent.duration, endstop.run.cost, endstop.runs
//! chat           gen_ai.client.operation.duration, gen_ai.client.token.usage
//! execute_tool   gen_ai.execute_tool.duration
//! ```
//!
//! The attributes are a fixed list. Ids, and models as a server names them, are not among them,
//! because each of their values would begin another series.

use endstop::wire::redact::KnownKeys;
use opentelemetry::metrics::{Counter, Histogram, Meter};
use opentelemetry::{KeyValue, Value};
use std::time::Instant;
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// Seconds of a call, as the convention sets them.
const OF_CALLS: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
/// Seconds of a run, up to a working day. The convention sets none.
const OF_RUNS: [f64; 14] =
    [0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0, 14_400.0, 28_800.0];
/// Tokens of a call, as the convention sets them.
const OF_TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];
/// US dollars of a run.
const OF_COSTS: [f64; 14] =
    [0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 50.0, 100.0];

/// Attributes of a run's metrics.
const RUN: [&str; 6] = [
    "gen_ai.agent.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "endstop.termination",
    "endstop.category",
    "error.type",
];
/// Attributes of a call's metrics.
const CALL: [&str; 6] = [
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "server.address",
    "server.port",
    "error.type",
];
/// Attributes of a tool's metric.
const TOOL: [&str; 3] = ["gen_ai.operation.name", "gen_ai.tool.name", "error.type"];

const INPUT: &str = "gen_ai.usage.input_tokens";
const OUTPUT: &str = "gen_ai.usage.output_tokens";
const COST: &str = "endstop.cost_usd";
const COST_UNKNOWN: &str = "endstop.cost_unknown";

/// Measures the spans of this program.
pub(super) struct MeterLayer {
    instruments: Instruments,
    secrets: KnownKeys,
}

struct Instruments {
    runs: Counter<u64>,
    run_time: Histogram<f64>,
    run_cost: Histogram<f64>,
    call_time: Histogram<f64>,
    call_tokens: Histogram<u64>,
    tool_time: Histogram<f64>,
}

/// The operation of a span.
#[derive(Clone, Copy, PartialEq)]
enum Operation {
    Run,
    Call,
    Tool,
}

/// An open span, with the attributes that it has so far.
struct Measured {
    operation: Operation,
    began: Instant,
    /// `true` for a run that a tool of another run started.
    nested: bool,
    fields: Vec<(&'static str, Value)>,
}

impl MeterLayer {
    pub(super) fn new(meter: &Meter, secrets: KnownKeys) -> MeterLayer {
        let seconds = |name: &'static str, what: &'static str, bounds: &[f64]| {
            let named = meter.f64_histogram(name).with_unit("s").with_description(what);
            named.with_boundaries(bounds.to_vec()).build()
        };
        let instruments = Instruments {
            runs: meter
                .u64_counter("endstop.runs")
                .with_unit("{run}")
                .with_description("Runs that have ended.")
                .build(),
            run_time: seconds("gen_ai.invoke_agent.duration", "Duration of a run.", &OF_RUNS),
            run_cost: meter
                .f64_histogram("endstop.run.cost")
                .with_unit("{USD}")
                .with_description("Cost of a run in US dollars.")
                .with_boundaries(OF_COSTS.to_vec())
                .build(),
            call_time: seconds(
                "gen_ai.client.operation.duration",
                "Duration of an attempt at a model call.",
                &OF_CALLS,
            ),
            call_tokens: meter
                .u64_histogram("gen_ai.client.token.usage")
                .with_unit("{token}")
                .with_description("Tokens of an attempt at a model call.")
                .with_boundaries(OF_TOKENS.to_vec())
                .build(),
            tool_time: seconds(
                "gen_ai.execute_tool.duration",
                "Duration of a tool call.",
                &OF_CALLS,
            ),
        };
        MeterLayer { instruments, secrets }
    }

    fn record(&self, span: &Measured) {
        let to = &self.instruments;
        let seconds = span.began.elapsed().as_secs_f64();
        match span.operation {
            Operation::Run => {
                let mut attributes = self.attributes(span, &RUN);
                // The cost of an inner run is part of its outer run's.
                attributes.push(KeyValue::new("endstop.nested", span.nested));
                to.runs.add(1, &attributes);
                to.run_time.record(seconds, &attributes);
                // A lower bound would pull down every average.
                let is_known = !matches!(span.get(COST_UNKNOWN), Some(Value::Bool(true)));
                if let (Some(Value::F64(cost)), true) = (span.get(COST), is_known) {
                    to.run_cost.record(*cost, &attributes);
                }
            }
            Operation::Call => {
                let mut attributes = self.attributes(span, &CALL);
                to.call_time.record(seconds, &attributes);
                // The convention has no type of error for tokens.
                attributes.retain(|attribute| attribute.key.as_str() != "error.type");
                for (field, kind) in [(INPUT, "input"), (OUTPUT, "output")] {
                    if let Some(Value::I64(tokens)) = span.get(field)
                        && let Ok(tokens) = u64::try_from(*tokens)
                    {
                        attributes.push(KeyValue::new("gen_ai.token.type", kind));
                        to.call_tokens.record(tokens, &attributes);
                        attributes.pop();
                    }
                }
            }
            Operation::Tool => to.tool_time.record(seconds, &self.attributes(span, &TOOL)),
        }
    }

    /// Returns the attributes with these names that the span has, without secrets.
    fn attributes(&self, span: &Measured, names: &[&'static str]) -> Vec<KeyValue> {
        let attribute = |name: &&'static str| {
            let value = match span.get(name)? {
                // The user names models and tools, and could paste a key.
                Value::String(text) => self.secrets.out_of_text(text.as_str()).into_owned().into(),
                other => other.clone(),
            };
            Some(KeyValue::new(*name, value))
        };
        names.iter().filter_map(attribute).collect()
    }
}

impl Measured {
    fn get(&self, name: &str) -> Option<&Value> {
        self.fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    fn set(&mut self, field: &Field, value: Value) {
        let wanted = [&RUN[..], &CALL, &TOOL, &[INPUT, OUTPUT, COST, COST_UNKNOWN]];
        let name = wanted.into_iter().flatten().find(|name| **name == field.name());
        let Some(name) = name else { return };
        match self.fields.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value,
            None => self.fields.push((name, value)),
        }
    }
}

impl Visit for Measured {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value.to_owned().into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, Value::I64(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, Value::F64(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, Value::Bool(value));
    }

    // No field that is measured has another type.
    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for MeterLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let operation = match attributes.metadata().name() {
            "invoke_agent" => Operation::Run,
            "chat" => Operation::Call,
            "execute_tool" => Operation::Tool,
            _ => return,
        };
        let Some(span) = context.span(id) else { return };
        // Only the program's own spans pass the filter, so an outer one belongs to an outer run.
        let nested = span.parent().is_some();
        let began = Instant::now();
        let mut measured = Measured { operation, began, nested, fields: Vec::new() };
        attributes.record(&mut measured);
        span.extensions_mut().insert(measured);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(measured) = span.extensions_mut().get_mut::<Measured>() {
            values.record(measured);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let measured =
            context.span(&id).and_then(|span| span.extensions_mut().remove::<Measured>());
        if let Some(measured) = measured {
            self.record(&measured);
        }
    }
}
