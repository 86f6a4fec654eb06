//! The spans of an agent's run, as its driver opens and closes them.
//!
//! ```text
//! invoke_agent
//! ├── chat MODEL             one per attempt, also for each retry
//! └── execute_tool NAME
//!     └── invoke_agent       if the tool runs an agent
//! ```

use super::facts::{Answer, CallFacts, RunFacts, SpanSettings};
use super::parent::TraceParent;
use super::spans::{CallSpan, RunSpan, error};
use crate::provider::{Provider, Response};
use endstop_core::{
    EffectId, ErrorClass, Message, Outcome, Price, RunEvent, TerminationSignal, ToolStart,
    ToolStatus,
};
use endstop_wire::redact::KnownKeys;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tracing::field::Empty;
use tracing::instrument::Instrumented;
use tracing::{Instrument, Span, info_span};

/// The spans of a run; `None` if no subscriber is interested.
#[derive(Default)]
pub(crate) struct Trace(Option<Box<Spans>>);

struct Spans {
    run: RunSpan,
    provider: String,
    model: String,
    server: Option<(String, u16)>,
    /// The id of the run, if it is known from the start.
    id: Option<String>,
    streaming: bool,
    /// The secrets that content is shown without; `None` if no content is shown.
    content: Option<KnownKeys>,
    propagates: bool,
    call: Option<CallSpan>,
    /// `true` if the run aborted the call. The span closes at the end of the step that aborted it.
    cut: bool,
    /// Running tools, with the provider's ids of their calls.
    tools: HashMap<EffectId, (Span, String)>,
    /// The tool whose end the kernel is handling in this step.
    ending: Option<(EffectId, ToolStatus)>,
}

impl Trace {
    /// Opens the span of a run, under the span that the caller is in. `keys` are not shown.
    pub(crate) fn begin(
        asked: &dyn Provider,
        facts: &RunFacts<'_>,
        streaming: bool,
        settings: &SpanSettings,
        keys: impl FnOnce() -> KnownKeys,
    ) -> Trace {
        let provider = facts.provider.unwrap_or("_OTHER");
        let agent = settings.agent.as_deref();
        let run = RunSpan::begin(&RunFacts { provider: Some(provider), agent, ..*facts });
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
            model: facts.model.unwrap_or_default().to_owned(),
            server: server.ok().flatten(),
            id: facts.id.map(str::to_owned),
            streaming,
            content: settings.content.then(keys),
            propagates: settings.propagate,
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
            (to.name().to_owned(), to.model().to_owned(), server)
        }));
        if let Ok((provider, model, server)) = named {
            (spans.provider, spans.model, spans.server) = (provider, model, server);
        }
    }

    /// Opens the span of an attempt at a model call.
    pub(crate) fn call_begins(&mut self, turn: u32, attempt: u32, output_cap: Option<u64>) {
        let Some(spans) = &mut self.0 else { return };
        let call = spans.run.call(&CallFacts {
            provider: &spans.provider,
            model: &spans.model,
            server: spans.server.as_ref().map(|(host, port)| (host.as_str(), *port)),
            run_id: spans.id.as_deref(),
            streaming: spans.streaming,
            output_cap,
            turn: Some(turn),
            attempt: Some(attempt),
            ..CallFacts::default()
        });
        (spans.call, spans.cut) = (Some(call), false);
    }

    /// Shows the messages of the new call, if content is shown. Returns its place in the trace, if that is
    /// sent to the provider.
    pub(crate) fn asks(&self, messages: &[Message]) -> Option<TraceParent> {
        let spans = self.0.as_ref()?;
        let call = spans.call.as_ref()?;
        if let Some(keys) = &spans.content {
            call.ask(messages.iter().rev(), keys);
        }
        spans.propagates.then(|| call.place()).flatten()
    }

    /// Runs the provider's code within the span of the call.
    pub(crate) fn in_call<T>(&self, code: impl FnOnce() -> T) -> T {
        match self.0.as_ref().and_then(|spans| spans.call.as_ref()) {
            Some(call) => call.0.in_scope(code),
            None => code(),
        }
    }

    /// Closes the span of the call with its complete response.
    pub(crate) fn answered(
        &mut self,
        response: &Response,
        signal: &TerminationSignal,
        price: impl FnOnce() -> Option<Price>,
    ) {
        let Some(call) = self.take_call() else { return };
        self.respond(&call, response, Some(signal), price);
    }

    /// Closes the span of a failed call, with the part of the response that arrived.
    pub(crate) fn failed(
        &mut self,
        class: ErrorClass,
        partial: Option<&Response>,
        price: impl FnOnce() -> Option<Price>,
    ) {
        let Some(call) = self.take_call() else { return };
        if let Some(partial) = partial {
            self.respond(&call, partial, None, price);
        }
        call.fail(class.as_str());
    }

    fn respond(
        &self,
        call: &CallSpan,
        response: &Response,
        signal: Option<&TerminationSignal>,
        price: impl FnOnce() -> Option<Price>,
    ) {
        let content = self.0.as_ref().and_then(|spans| spans.content.as_ref());
        let cost = response.cost.or_else(|| Some(price()?.cost(&response.usage)));
        let answer = Answer {
            model: response.model.as_deref(),
            id: response.id.as_deref(),
            usage: Some(&response.usage),
            cost,
            signal,
            parts: content.map_or(&[], |_| &response.parts),
        };
        call.answer(&answer, content.unwrap_or(&KnownKeys::default()));
    }

    /// Closes the span of a call in which the provider panicked.
    pub(crate) fn call_panicked(&mut self) {
        if let Some(call) = self.take_call() {
            call.fail("panic");
        }
    }

    /// Marks the call as aborted by the run. If the run aborts it because it failed, a later event
    /// of the same step reports the failure, so the span stays open until then.
    pub(crate) fn aborted(&mut self) {
        if let Some(spans) = &mut self.0 {
            spans.cut = spans.call.is_some();
        }
    }

    fn take_call(&mut self) -> Option<CallSpan> {
        self.0.as_mut()?.call.take()
    }

    /// Opens the span of a tool call.
    pub(crate) fn tool_begins(&mut self, start: &ToolStart) {
        let Some(spans) = &mut self.0 else { return };
        let tool = info_span!(
            target: "endstop",
            parent: &spans.run.0,
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
        work.instrument(self.0.as_ref().map_or_else(Span::none, |spans| spans.run.0.clone()))
    }

    /// Reads an event that the kernel emitted in this step.
    pub(crate) fn told(&mut self, event: &RunEvent) {
        let Some(spans) = &mut self.0 else { return };
        match event {
            // The run aborted the call because it stalled or took too long.
            RunEvent::AttemptFailed { error: problem, .. } if spans.cut => {
                if let Some(call) = spans.call.take() {
                    call.fail(problem.class.as_str());
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
            call.abort();
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
        spans.run.end(outcome);
    }
}

fn tool_ended(tool: &Span, status: ToolStatus) {
    tool.record("endstop.tool_status", status.as_str());
    if status.is_error() {
        error(tool, status.as_str());
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
        let facts =
            RunFacts { provider: Some("openai"), model: Some("gpt"), ..RunFacts::default() };
        let (settings, none) = (SpanSettings::default(), KnownKeys::default);
        let asked = |_| {
            let counted = Region::new(COUNTING);
            let mut trace = Trace::begin(&model, &facts, true, &settings, none);
            trace.call_begins(1, 1, Some(100));
            trace.in_call(|| ());
            trace.asks(&[]);
            trace.answered(&response, &signal, || None);
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
}
