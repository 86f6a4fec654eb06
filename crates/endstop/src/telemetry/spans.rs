//! The spans of runs and of their calls: `invoke_agent` for a run, `chat` for each attempt at a model call.
//!
//! Each loop opens them here: that of agents by `trace.rs`, and those of other programs themselves. A bridge to
//! OpenTelemetry reads the name, the kind and the status of a span from `otel.name`, `otel.kind` and
//! `otel.status_code`.

use super::content;
use super::facts::{Answer, CallFacts, RunFacts};
use super::parent::TraceParent;
use endstop_core::{Message, NanoUsd, Outcome, Usage};
use endstop_wire::redact::KnownKeys;
use tracing::field::Empty;
use tracing::{Span, info_span};

/// The span of a run. It closes when all of its clones and all of its calls are dropped.
#[derive(Clone, Debug)]
pub struct RunSpan(pub(super) Span);

impl Default for RunSpan {
    /// The span of a run that is not shown.
    fn default() -> RunSpan {
        RunSpan(Span::none())
    }
}

impl RunSpan {
    /// Opens the span of a run, under the span that the caller is in.
    pub fn begin(facts: &RunFacts<'_>) -> RunSpan {
        RunSpan(info_span!(
            target: "endstop",
            "invoke_agent",
            otel.name = facts.agent.map(|agent| format!("invoke_agent {agent}")),
            otel.kind = "internal",
            otel.status_code = Empty,
            gen_ai.operation.name = "invoke_agent",
            gen_ai.provider.name = facts.provider.map(convention),
            gen_ai.request.model = facts.model,
            gen_ai.agent.name = facts.agent,
            gen_ai.conversation.id = facts.id,
            gen_ai.usage.input_tokens = Empty,
            gen_ai.usage.output_tokens = Empty,
            gen_ai.usage.cache_read.input_tokens = Empty,
            gen_ai.usage.cache_write.input_tokens = Empty,
            gen_ai.usage.cache_creation.input_tokens = Empty,
            gen_ai.usage.reasoning.output_tokens = Empty,
            error.type = Empty,
            endstop.run_id = facts.id,
            endstop.termination = Empty,
            endstop.category = Empty,
            endstop.decided_by = Empty,
            endstop.turns = Empty,
            endstop.model_calls = Empty,
            endstop.tool_calls = Empty,
            endstop.cost_usd = Empty,
            endstop.cost_unknown = Empty,
        ))
    }

    /// `true` if no subscriber is interested.
    pub fn is_disabled(&self) -> bool {
        self.0.is_disabled()
    }

    /// Names the provider and the model of a run that began without them.
    pub fn name(&self, provider: &str, model: &str) {
        self.0.record("gen_ai.provider.name", convention(provider));
        if !model.is_empty() {
            self.0.record("gen_ai.request.model", model);
        }
    }

    /// Opens the span of an attempt at a call.
    pub fn call(&self, facts: &CallFacts<'_>) -> CallSpan {
        if self.is_disabled() {
            return CallSpan::default();
        }
        let operation = facts.operation.as_str();
        CallSpan(info_span!(
            target: "endstop",
            parent: &self.0,
            "chat",
            // Trimmed, because a call without a model name would end the name with a space.
            otel.name = format!("{operation} {}", facts.model).trim_end(),
            otel.kind = "client",
            otel.status_code = Empty,
            gen_ai.operation.name = operation,
            gen_ai.provider.name = convention(facts.provider),
            gen_ai.request.model = facts.model,
            gen_ai.request.max_tokens = facts.output_cap.map(|tokens| tokens as i64),
            gen_ai.request.stream = facts.streaming.then_some(true),
            gen_ai.conversation.id = facts.run_id,
            gen_ai.response.model = Empty,
            gen_ai.response.id = Empty,
            gen_ai.response.finish_reasons = Empty,
            gen_ai.usage.input_tokens = Empty,
            gen_ai.usage.output_tokens = Empty,
            gen_ai.usage.cache_read.input_tokens = Empty,
            gen_ai.usage.cache_write.input_tokens = Empty,
            gen_ai.usage.cache_creation.input_tokens = Empty,
            gen_ai.usage.reasoning.output_tokens = Empty,
            gen_ai.input.messages = Empty,
            gen_ai.output.messages = Empty,
            server.address = facts.server.map(|(host, _)| host),
            server.port = facts.server.map(|(_, port)| i64::from(port)),
            error.type = Empty,
            endstop.turn = facts.turn.map(i64::from),
            endstop.attempt = facts.attempt.map(i64::from),
            endstop.thread = facts.thread,
            endstop.signal = Empty,
            endstop.aborted = Empty,
            endstop.cost_usd = Empty,
        ))
    }

    /// Records the ending.
    pub fn end(&self, outcome: &Outcome) {
        let run = &self.0;
        if let Some(id) = &outcome.run_id {
            run.record("endstop.run_id", id.as_str());
            run.record("gen_ai.conversation.id", id.as_str());
        }
        // The other attributes are recorded only now, because they are known only at the end.
        run.record("endstop.termination", outcome.termination.as_str());
        run.record("endstop.category", outcome.category().as_str());
        let by = &outcome.decided_by;
        run.record("endstop.decided_by", format!("{}:{}", by.layer, by.decision));
        run.record("endstop.turns", i64::from(outcome.turns));
        run.record("endstop.model_calls", i64::from(outcome.model_calls));
        run.record("endstop.tool_calls", i64::from(outcome.tool_calls));
        if let Some(cost) = outcome.known_cost() {
            run.record("endstop.cost_usd", cost.to_usd());
        }
        if outcome.cost_unknown {
            run.record("endstop.cost_unknown", true);
        }
        used(run, &outcome.usage);
        if !outcome.is_success() {
            error(run, outcome.termination.as_str());
        }
    }
}

/// The span of an attempt at a call. It closes when all of its clones are dropped.
#[derive(Clone, Debug)]
pub struct CallSpan(pub(super) Span);

impl Default for CallSpan {
    /// The span of a call that is not shown.
    fn default() -> CallSpan {
        CallSpan(Span::none())
    }
}

impl CallSpan {
    /// `true` if no subscriber is interested.
    pub fn is_disabled(&self) -> bool {
        self.0.is_disabled()
    }

    /// Shows the messages of the request, without these secrets. They are given from the newest to the oldest, because
    /// the newest are kept if all are too long.
    pub fn ask<'a>(&self, newest_first: impl Iterator<Item = &'a Message>, keys: &KnownKeys) {
        if !self.is_disabled() {
            self.0.record("gen_ai.input.messages", content::input(newest_first, keys));
        }
    }

    /// Records an answer, or the part of one that arrived, without these secrets.
    pub fn answer(&self, answer: &Answer<'_>, keys: &KnownKeys) {
        if self.is_disabled() {
            return;
        }
        let Answer { model, id, usage, cost, signal, parts } = *answer;
        // A server chooses these values, and could echo a key.
        for (name, value) in [("gen_ai.response.model", model), ("gen_ai.response.id", id)] {
            if let Some(value) = value {
                self.0.record(name, &*keys.out_of_text(value));
            }
        }
        if let Some(usage) = usage {
            used(&self.0, usage);
        }
        if let Some(cost) = cost {
            self.cost(cost);
        }
        let raw = signal.map(|signal| signal.provider_specific.original_value.as_str());
        let finish = keys.out_of_text(raw.unwrap_or_default());
        if !finish.is_empty() {
            self.0.record("gen_ai.response.finish_reasons", &*finish);
        }
        if let Some(signal) = signal {
            self.0.record("endstop.signal", signal.reason.as_str());
        }
        if !parts.is_empty() {
            self.0.record("gen_ai.output.messages", content::output(parts, &finish, keys));
        }
    }

    /// Records the cost.
    pub fn cost(&self, cost: NanoUsd) {
        self.0.record("endstop.cost_usd", cost.to_usd());
    }

    /// Records a failure of this kind.
    pub fn fail(&self, kind: &str) {
        error(&self.0, kind);
    }

    /// Records that the run stopped the call.
    pub fn abort(&self) {
        self.0.record("endstop.aborted", true);
    }

    /// Connects the call with a span of another program.
    pub fn link(&self, to: &TraceParent) {
        #[cfg(feature = "opentelemetry")]
        tracing_opentelemetry::OpenTelemetrySpanExt::add_link(&self.0, to.context());
        #[cfg(not(feature = "opentelemetry"))]
        let _ = to;
    }

    /// The place of the call, for the server that it goes to. `None` without the feature `opentelemetry`, or
    /// without a bridge to OpenTelemetry.
    pub fn place(&self) -> Option<TraceParent> {
        #[cfg(feature = "opentelemetry")]
        {
            use opentelemetry::trace::TraceContextExt as _;
            let context = tracing_opentelemetry::OpenTelemetrySpanExt::context(&self.0);
            TraceParent::of(context.span().span_context())
        }
        #[cfg(not(feature = "opentelemetry"))]
        None
    }
}

pub(super) fn error(span: &Span, kind: &str) {
    span.record("error.type", kind);
    span.record("otel.status_code", "ERROR");
}

/// Records the token counts; a count that was not reported is left out.
fn used(span: &Span, usage: &Usage) {
    let counts = [
        // The convention includes cached tokens in the input, and reasoning tokens in the output.
        ("gen_ai.usage.input_tokens", usage.input_tokens.map(|_| usage.prompt_tokens())),
        ("gen_ai.usage.output_tokens", usage.generated_tokens()),
        ("gen_ai.usage.cache_read.input_tokens", usage.cached_input_tokens),
        ("gen_ai.usage.cache_write.input_tokens", usage.cache_write_tokens),
        // The name of the convention until 2026, which many tools still read.
        ("gen_ai.usage.cache_creation.input_tokens", usage.cache_write_tokens),
        ("gen_ai.usage.reasoning.output_tokens", usage.reasoning_tokens),
    ];
    for (name, count) in counts {
        if let Some(count) = count {
            // Attributes are signed 64-bit integers; a bridge turns an unsigned value into a
            // string.
            span.record(name, count as i64);
        }
    }
}

/// Returns the convention's name for a provider, or the provider's own id if it has none.
fn convention(provider: &str) -> &str {
    match provider {
        "azure" => "azure.ai.openai",
        "bedrock" => "aws.bedrock",
        "gemini" => "gcp.gemini",
        "mistral" => "mistral_ai",
        "moonshot" => "moonshot_ai",
        "vertex" => "gcp.vertex_ai",
        "xai" => "x_ai",
        other => other,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::convention;

    #[test]
    fn provider_names_follow_the_convention() {
        // The names of the convention that differ from the provider's id.
        let theirs = ["azure.ai.openai", "aws.bedrock", "gcp.gemini", "gcp.vertex_ai"];
        let theirs = theirs.into_iter().chain(["mistral_ai", "moonshot_ai", "x_ai"]);
        let mut named: Vec<&str> = endstop_wire::catalog::providers::PROVIDERS
            .iter()
            .map(|provider| convention(provider.id))
            .filter(|name| name.contains(['.', '_']))
            .collect();
        let mut theirs: Vec<&str> = theirs.collect();
        named.sort_unstable();
        theirs.sort_unstable();
        assert_eq!(named, theirs);
    }
}
