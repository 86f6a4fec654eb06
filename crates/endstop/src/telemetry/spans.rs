//! The spans themselves: `invoke_agent` for a run, `chat` for each attempt at a model call,
//! `execute_tool` for each call of a tool.
//!
//! ```text
//! invoke_agent
//! ├── chat MODEL             one each attempt: a retry is one of its own
//! └── execute_tool NAME
//!     └── invoke_agent       where the tool runs an agent
//! ```
//!
//! `otel.name`, `otel.kind` and `otel.status_code` are what a bridge to OpenTelemetry makes the
//! name, the kind and the status of.

use crate::provider::{Provider, Response};
use endstop_core::{
    EffectId, ErrorClass, Outcome, RunEvent, TerminationSignal, ToolStart, ToolStatus, Usage,
};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tracing::field::Empty;
use tracing::instrument::Instrumented;
use tracing::{Instrument, Span, info_span};

/// The spans of a run; `None` where nobody listens.
#[derive(Default)]
pub(crate) struct Trace(Option<Box<Spans>>);

struct Spans {
    run: Span,
    provider: String,
    model: String,
    server: Option<(String, u16)>,
    streaming: bool,
    call: Option<Span>,
    /// The call was stopped by the run; it closes with the step that stopped it.
    cut: bool,
    /// Those that run, with the provider's ids of their calls.
    tools: HashMap<EffectId, (Span, String)>,
    /// The tool whose end the run is being told of.
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
        if run.is_disabled() {
            return Trace(None);
        }
        // The user's code: a panic of it costs these two attributes, and nothing else.
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

    /// An attempt at a model call begins.
    pub(crate) fn call_begins(&mut self, turn: u32, attempt: u32, output_cap: Option<u64>) {
        let Some(spans) = &mut self.0 else { return };
        let call = info_span!(
            target: "endstop",
            parent: &spans.run,
            "chat",
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

    /// The response of the call is whole.
    pub(crate) fn answered(&mut self, response: &Response, signal: &TerminationSignal) {
        let Some(call) = self.take_call() else { return };
        respond(&call, response);
        let raw = signal.provider_specific.original_value.as_str();
        if !raw.is_empty() {
            call.record("gen_ai.response.finish_reasons", raw);
        }
        call.record("endstop.signal", signal.reason.as_str());
    }

    /// The call failed, with what there was of a response.
    pub(crate) fn failed(&mut self, class: ErrorClass, partial: Option<&Response>) {
        let Some(call) = self.take_call() else { return };
        if let Some(partial) = partial {
            respond(&call, partial);
        }
        error(&call, class.as_str());
    }

    /// The provider panicked in the call.
    pub(crate) fn call_panicked(&mut self) {
        if let Some(call) = self.take_call() {
            error(&call, "panic");
        }
    }

    /// The run stops the call; if it failed, an event of this step says so.
    pub(crate) fn aborted(&mut self) {
        if let Some(spans) = &mut self.0 {
            spans.cut = spans.call.is_some();
        }
    }

    fn take_call(&mut self) -> Option<Span> {
        self.0.as_mut()?.call.take()
    }

    /// A tool begins.
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

    /// What a tool does, within its span: what it opens is a child of it.
    pub(crate) fn of_tool<F>(&self, id: EffectId, work: F) -> Instrumented<F> {
        let tool = self.0.as_ref().and_then(|spans| spans.tools.get(&id));
        work.instrument(tool.map_or_else(Span::none, |(span, _)| span.clone()))
    }

    /// A tool has ended, by its own account; the run may know better, and says so in this step.
    pub(crate) fn tool_ends(&mut self, id: EffectId, status: ToolStatus) {
        if let Some(spans) = &mut self.0 {
            spans.ending = Some((id, status));
        }
    }

    /// A tool panicked.
    pub(crate) fn tool_panicked(&mut self, id: EffectId) {
        if let Some((tool, _)) = self.0.as_mut().and_then(|spans| spans.tools.remove(&id)) {
            tool.record("endstop.tool_status", ToolStatus::Error.as_str());
            error(&tool, "panic");
        }
    }

    /// What hooks, people and compactors do, within the run's span.
    pub(crate) fn of_run<F>(&self, work: F) -> Instrumented<F> {
        work.instrument(self.0.as_ref().map_or_else(Span::none, |spans| spans.run.clone()))
    }

    /// What the run tells of a step.
    pub(crate) fn told(&mut self, event: &RunEvent) {
        let Some(spans) = &mut self.0 else { return };
        match event {
            // It was stopped for having failed: it stalled, or took too long.
            RunEvent::AttemptFailed { error: problem, .. } if spans.cut => {
                if let Some(call) = spans.call.take() {
                    error(&call, problem.class.as_str());
                }
            }
            RunEvent::ToolEnded { status, call_id, .. } => match &mut spans.ending {
                Some((_, known)) => *known = *status,
                // It was told to stop and did not: the run goes on without it.
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

    /// A step was performed: what it ended closes.
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

    /// The run has ended: so has all that was within it.
    pub(crate) fn ended(&mut self, outcome: &Outcome) {
        self.aborted();
        self.settle();
        let Some(spans) = self.0.take() else { return };
        for (tool, _) in spans.tools.values() {
            tool_ended(tool, ToolStatus::Aborted);
        }
        let run = &spans.run;
        if let Some(id) = &outcome.run_id {
            run.record("endstop.run_id", id.as_str());
        }
        run.record("endstop.termination", outcome.termination.as_str());
        run.record("endstop.category", outcome.category().as_str());
        let by = &outcome.decided_by;
        run.record("endstop.decided_by", format!("{}:{}", by.layer, by.name));
        run.record("endstop.turns", i64::from(outcome.turns));
        run.record("endstop.model_calls", i64::from(outcome.model_calls));
        run.record("endstop.tool_calls", i64::from(outcome.tool_calls));
        run.record("endstop.cost_usd", outcome.cost.to_usd());
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

/// The counts of tokens; what was not reported is not there.
fn used(span: &Span, usage: &Usage) {
    let counts = [
        // The convention counts cached tokens among the prompt's, and reasoning among the output's.
        ("gen_ai.usage.input_tokens", usage.input_tokens.map(|_| usage.prompt_tokens())),
        ("gen_ai.usage.output_tokens", usage.generated_tokens()),
        ("gen_ai.usage.cache_read.input_tokens", usage.cached_input_tokens),
        ("gen_ai.usage.cache_creation.input_tokens", usage.cache_write_tokens),
        ("gen_ai.usage.reasoning.output_tokens", usage.reasoning_tokens),
    ];
    for (name, count) in counts {
        if let Some(count) = count {
            // Attributes are signed; a bridge would make a text of what is not.
            span.record(name, count as i64);
        }
    }
}

/// The convention's name of a provider, where it has one of its own.
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

    #[global_allocator]
    static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

    #[test]
    fn a_run_that_nobody_listens_to_asks_for_no_memory() {
        let model = ScriptedModel::new([]);
        let response = Response::text("The answer.");
        let signal = TerminationSignal::new(SignalReason::NaturalCompletion, Confidence::High);
        let start = ToolStart {
            id: EffectId(2),
            call: ToolCall { id: "c".into(), name: "look".into(), arguments: "{}".into() },
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
        // Other tests of this program ask for memory meanwhile, but not without a pause.
        assert_eq!((0..10_000).map(asked).min(), Some(0));
    }

    #[test]
    fn providers_have_the_names_that_the_convention_gives_them() {
        // Every name of the convention's that is not ours, beside the provider that it is of.
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
