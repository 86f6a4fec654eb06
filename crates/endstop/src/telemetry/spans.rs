//! Opens and closes the spans: `invoke_agent` for a run, `chat` for each attempt at a model call,
//! `execute_tool` for each tool call.
//!
//! ```text
//! invoke_agent
//! ├── chat MODEL             one per attempt, also for each retry
//! └── execute_tool NAME
//!     └── invoke_agent       if the tool runs an agent
//! ```
//!
//! A bridge to OpenTelemetry reads the name, the kind and the status of a span from `otel.name`,
//! `otel.kind` and `otel.status_code`.

use crate::provider::{Provider, Response};
use endstop_core::{
    EffectId, ErrorClass, Outcome, RunEvent, TerminationSignal, ToolStart, ToolStatus, Usage,
};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tracing::field::Empty;
use tracing::instrument::Instrumented;
use tracing::{Instrument, Span, info_span};

/// The spans of a run; `None` if no subscriber is interested.
#[derive(Default)]
pub(crate) struct Trace(Option<Box<Spans>>);

struct Spans {
    run: Span,
    provider: String,
    model: String,
    server: Option<(String, u16)>,
    streaming: bool,
    call: Option<Span>,
    /// `true` if the run aborted the call. The span closes at the end of the step that aborted it.
    cut: bool,
    /// Running tools, with the provider's ids of their calls.
    tools: HashMap<EffectId, (Span, String)>,
    /// The tool whose end the kernel is handling in this step.
    ending: Option<(EffectId, ToolStatus)>,
}

impl Trace {
    /// Opens the span of a run, under the span that the caller is in.
    pub(crate) fn begin(
        asked: &dyn Provider,
        (provider, model): (Option<&str>, Option<&str>),
        streaming: bool,
        run_id: Option<&str>,
    ) -> Trace {
        let provider = convention(provider.unwrap_or("_OTHER"));
        let run = info_span!(
            target: "endstop",
            "invoke_agent",
            otel.kind = "internal",
            otel.status_code = Empty,
            gen_ai.operation.name = "invoke_agent",
            gen_ai.provider.name = provider,
            gen_ai.request.model = model,
            gen_ai.usage.input_tokens = Empty,
            gen_ai.usage.output_tokens = Empty,
            gen_ai.usage.cache_read.input_tokens = Empty,
            gen_ai.usage.cache_write.input_tokens = Empty,
            gen_ai.usage.cache_creation.input_tokens = Empty,
            gen_ai.usage.reasoning.output_tokens = Empty,
            error.type = Empty,
            endstop.run_id = run_id,
            endstop.termination = Empty,
            endstop.category = Empty,
            endstop.decided_by = Empty,
            endstop.turns = Empty,
            endstop.model_calls = Empty,
            endstop.tool_calls = Empty,
            endstop.cost_usd = Empty,
            endstop.cost_unknown = Empty,
        );
        // Without a subscriber nothing is allocated, so that the feature costs nothing if unused.
        if run.is_disabled() {
            return Trace(None);
        }
        // `server` is user code. If it panics, only these two attributes are lost.
        let server = catch_unwind(AssertUnwindSafe(|| {
            asked.server().map(|(host, port)| (host.to_owned(), port))
        }));
        Trace(Some(Box::new(Spans {
            run,
            provider: provider.to_owned(),
            model: model.unwrap_or_default().to_owned(),
            server: server.ok().flatten(),
            streaming,
            call: None,
            cut: false,
            tools: HashMap::new(),
            ending: None,
        })))
    }

    /// Names another provider and model in the spans of the calls from now on.
    pub(crate) fn switched(&mut self, to: &dyn Provider) {
        let Some(spans) = &mut self.0 else { return };
        // The provider is user code. If it panics, the attributes stay those of the model before.
        let named = catch_unwind(AssertUnwindSafe(|| {
            let server = to.server().map(|(host, port)| (host.to_owned(), port));
            (convention(to.name()).to_owned(), to.model().to_owned(), server)
        }));
        if let Ok((provider, model, server)) = named {
            (spans.provider, spans.model, spans.server) = (provider, model, server);
        }
    }

    /// Opens the span of an attempt at a model call.
    pub(crate) fn call_begins(&mut self, turn: u32, attempt: u32, output_cap: Option<u64>) {
        let Some(spans) = &mut self.0 else { return };
        let call = info_span!(
            target: "endstop",
            parent: &spans.run,
            "chat",
            // Trimmed, because a provider without a model name would end the name with a space.
            otel.name = format!("chat {}", spans.model).trim_end(),
            otel.kind = "client",
            otel.status_code = Empty,
            gen_ai.operation.name = "chat",
            gen_ai.provider.name = spans.provider,
            gen_ai.request.model = spans.model,
            gen_ai.request.max_tokens = output_cap.map(|tokens| tokens as i64),
            gen_ai.request.stream = spans.streaming.then_some(true),
            gen_ai.response.model = Empty,
            gen_ai.response.id = Empty,
            gen_ai.response.finish_reasons = Empty,
            gen_ai.usage.input_tokens = Empty,
            gen_ai.usage.output_tokens = Empty,
            gen_ai.usage.cache_read.input_tokens = Empty,
            gen_ai.usage.cache_write.input_tokens = Empty,
            gen_ai.usage.cache_creation.input_tokens = Empty,
            gen_ai.usage.reasoning.output_tokens = Empty,
            server.address = spans.server.as_ref().map(|(host, _)| host.as_str()),
            server.port = spans.server.as_ref().map(|(_, port)| i64::from(*port)),
            error.type = Empty,
            endstop.turn = i64::from(turn),
            endstop.attempt = i64::from(attempt),
            endstop.signal = Empty,
            endstop.aborted = Empty,
        );
        (spans.call, spans.cut) = (Some(call), false);
    }

    /// Runs the provider's code within the span of the call.
    pub(crate) fn in_call<T>(&self, code: impl FnOnce() -> T) -> T {
        match self.0.as_ref().and_then(|spans| spans.call.as_ref()) {
            Some(call) => call.in_scope(code),
            None => code(),
        }
    }

    /// Closes the span of the call with its complete response.
    pub(crate) fn answered(&mut self, response: &Response, signal: &TerminationSignal) {
        let Some(call) = self.take_call() else { return };
        respond(&call, response);
        let raw = signal.provider_specific.original_value.as_str();
        if !raw.is_empty() {
            call.record("gen_ai.response.finish_reasons", raw);
        }
        call.record("endstop.signal", signal.reason.as_str());
    }

    /// Closes the span of a failed call, with the part of the response that arrived.
    pub(crate) fn failed(&mut self, class: ErrorClass, partial: Option<&Response>) {
        let Some(call) = self.take_call() else { return };
        if let Some(partial) = partial {
            respond(&call, partial);
        }
        error(&call, class.as_str());
    }

    /// Closes the span of a call in which the provider panicked.
    pub(crate) fn call_panicked(&mut self) {
        if let Some(call) = self.take_call() {
            error(&call, "panic");
        }
    }

    /// Marks the call as aborted by the run. If the run aborts it because it failed, a later event
    /// of the same step reports the failure, so the span stays open until then.
    pub(crate) fn aborted(&mut self) {
        if let Some(spans) = &mut self.0 {
            spans.cut = spans.call.is_some();
        }
    }

    fn take_call(&mut self) -> Option<Span> {
        self.0.as_mut()?.call.take()
    }

    /// Opens the span of a tool call.
    pub(crate) fn tool_begins(&mut self, start: &ToolStart) {
        let Some(spans) = &mut self.0 else { return };
        let tool = info_span!(
            target: "endstop",
            parent: &spans.run,
            "execute_tool",
            otel.name = format!("execute_tool {}", start.call.name),
            otel.kind = "internal",
            otel.status_code = Empty,
            gen_ai.operation.name = "execute_tool",
            gen_ai.tool.name = start.call.name,
            gen_ai.tool.call.id = start.call.id,
            gen_ai.tool.type = "function",
            error.type = Empty,
            endstop.tool_status = Empty,
        );
        spans.tools.insert(start.id, (tool, start.call.id.clone()));
    }

    /// Runs the work of a tool within its span, so that spans opened there are its children.
    pub(crate) fn of_tool<F>(&self, id: EffectId, work: F) -> Instrumented<F> {
        let tool = self.0.as_ref().and_then(|spans| spans.tools.get(&id));
        work.instrument(tool.map_or_else(Span::none, |(span, _)| span.clone()))
    }

    /// Records the status that a tool ended with. The kernel may correct it in the same step, so
    /// the span stays open until the step ends.
    pub(crate) fn tool_ends(&mut self, id: EffectId, status: ToolStatus) {
        if let Some(spans) = &mut self.0 {
            spans.ending = Some((id, status));
        }
    }

    /// Closes the span of a tool that panicked.
    pub(crate) fn tool_panicked(&mut self, id: EffectId) {
        if let Some((tool, _)) = self.0.as_mut().and_then(|spans| spans.tools.remove(&id)) {
            tool.record("endstop.tool_status", ToolStatus::Error.as_str());
            error(&tool, "panic");
        }
    }

    /// Runs the work of hooks, prompts and compactors within the span of the run.
    pub(crate) fn of_run<F>(&self, work: F) -> Instrumented<F> {
        work.instrument(self.0.as_ref().map_or_else(Span::none, |spans| spans.run.clone()))
    }

    /// Reads an event that the kernel emitted in this step.
    pub(crate) fn told(&mut self, event: &RunEvent) {
        let Some(spans) = &mut self.0 else { return };
        match event {
            // The run aborted the call because it stalled or took too long.
            RunEvent::AttemptFailed { error: problem, .. } if spans.cut => {
                if let Some(call) = spans.call.take() {
                    error(&call, problem.class.as_str());
                }
            }
            RunEvent::ToolFinished { status, call_id, .. } => match &mut spans.ending {
                Some((_, known)) => *known = *status,
                // The tool did not stop when it was aborted, and the run continues without it.
                None if *status == ToolStatus::Timeout => {
                    let mut running = spans.tools.iter();
                    spans.ending = running
                        .find(|(_, (_, known))| known == call_id)
                        .map(|(id, _)| (*id, *status));
                    self.settle_tool();
                }
                None => {}
            },
            _ => {}
        }
    }

    /// Closes the spans that ended in this step, after all of its effects were performed.
    pub(crate) fn settle(&mut self) {
        let Some(spans) = &mut self.0 else { return };
        if std::mem::take(&mut spans.cut)
            && let Some(call) = spans.call.take()
        {
            call.record("endstop.aborted", true);
        }
        self.settle_tool();
    }

    fn settle_tool(&mut self) {
        if let Some(spans) = &mut self.0
            && let Some((id, status)) = spans.ending.take()
            && let Some((tool, _)) = spans.tools.remove(&id)
        {
            tool_ended(&tool, status);
        }
    }

    /// Closes the span of the run and everything that is still open within it.
    pub(crate) fn ended(&mut self, outcome: &Outcome) {
        self.aborted();
        self.settle();
        let Some(spans) = self.0.take() else { return };
        // The kernel has ended; it will not report on tools that still run.
        for (tool, _) in spans.tools.values() {
            tool_ended(tool, ToolStatus::Aborted);
        }
        let run = &spans.run;
        if let Some(id) = &outcome.run_id {
            run.record("endstop.run_id", id.as_str());
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

fn error(span: &Span, kind: &str) {
    span.record("error.type", kind);
    span.record("otel.status_code", "ERROR");
}

fn tool_ended(tool: &Span, status: ToolStatus) {
    tool.record("endstop.tool_status", status.as_str());
    if status.is_error() {
        error(tool, status.as_str());
    }
}

fn respond(call: &Span, response: &Response) {
    if let Some(model) = &response.model {
        call.record("gen_ai.response.model", model.as_str());
    }
    if let Some(id) = &response.id {
        call.record("gen_ai.response.id", id.as_str());
    }
    used(call, &response.usage);
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
    use super::*;
    use crate::testkit::ScriptedModel;
    use endstop_core::{Confidence, SignalReason, ToolCall};
    use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
    use std::alloc::System;
    use std::sync::Arc;

    #[global_allocator]
    static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

    #[test]
    fn run_without_subscriber_allocates_nothing() {
        let model = ScriptedModel::new([]);
        let response = Response::text("The answer.");
        let signal = TerminationSignal::new(SignalReason::NaturalCompletion, Confidence::High);
        let start = ToolStart {
            id: EffectId(2),
            call: Arc::new(ToolCall {
                id: "c".into(),
                name: "look".into(),
                arguments: "{}".into(),
            }),
            arguments: serde_json::Map::new(),
        };
        let names = (Some("openai"), Some("gpt"));
        let asked = |_| {
            let counted = Region::new(COUNTING);
            let mut trace = Trace::begin(&model, names, true, Some("1"));
            trace.call_begins(1, 1, Some(100));
            trace.in_call(|| ());
            trace.answered(&response, &signal);
            trace.tool_begins(&start);
            let work = trace.of_tool(start.id, std::future::ready(()));
            trace.tool_ends(start.id, ToolStatus::Ok);
            trace.settle();
            drop((work, trace));
            counted.change().allocations
        };
        // Other tests of this program allocate meanwhile, but not in every one of the 10,000
        // rounds.
        assert_eq!((0..10_000).map(asked).min(), Some(0));
    }

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
