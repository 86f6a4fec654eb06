use crate::cache::Cache;
use crate::fallback::Fallback;
use crate::log::{Ended, Log};
use endstop::core::{LongPrompts, Part};
use endstop::provider::layer::ProviderExt as _;
use endstop::provider::{
    CallEvent, CallSpec, CallStream, Confidence, ErrorClass, ModelError, ModelSession, Provider,
    Response, SessionSpec, SignalReason, TerminationSignal, stream_of,
};
use endstop::testkit::{ScriptedModel, Turn};
use endstop::{
    Agent, AgentEventKind, Limits, ModelParams, NanoUsd, Outcome, Price, Termination, Usage,
    provider::TurnDelta,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DEAR: Price = price(30, 150);
const CHEAP: Price = price(1, 5);

/// A price in nano-dollars per token.
const fn price(input: u64, output: u64) -> Price {
    Price {
        input: NanoUsd(input * 1_000_000),
        output: NanoUsd(output * 1_000_000),
        cached_input: None,
        cache_write: None,
        cache_write_1h: None,
        long_prompts: LongPrompts::NONE,
    }
}

fn agent(provider: impl Provider + 'static) -> Agent {
    let limits = Limits { max_retries: Some(0), ..Limits::default() };
    Agent::builder(provider).limits(limits).finish_tool(false).build().unwrap()
}

async fn ask(agent: &Agent, task: &str) -> Outcome {
    agent.run(task).unwrap().outcome().await
}

type Lines = Arc<Mutex<Vec<String>>>;

/// A log that stores one word for each call.
fn logged() -> (Log<impl Fn(Duration, Ended) + Clone + Send + Sync>, Lines) {
    let lines = Lines::default();
    let to = Arc::clone(&lines);
    let log = Log(move |_, ended| {
        to.lock().unwrap().push(match ended {
            Ended::Response(signal) => signal.unwrap().reason.to_string(),
            Ended::Failed(error) => error.class.to_string(),
            Ended::Aborted => "aborted".to_owned(),
        });
    });
    (log, lines)
}

/// Cancels the run at its first text.
async fn cancelled(agent: &Agent) -> Outcome {
    let mut run = agent.run("Hello.").unwrap();
    while let Some(event) = run.next().await {
        if let AgentEventKind::TextDelta { .. } = event.kind {
            run.cancel();
        }
    }
    run.outcome().await
}

/// An answer that never ends.
fn endless() -> Turn {
    Turn::text("one two three").pace(Duration::from_secs(3600))
}

#[tokio::test]
async fn log_has_every_ending_of_a_call() {
    let (log, lines) = logged();
    let script = [Turn::text("Yes."), Turn::error(400, "no"), endless()];
    let agent = agent(ScriptedModel::new(script).layer(log));
    assert_eq!(ask(&agent, "One.").await.termination, Termination::Stop);
    assert_eq!(ask(&agent, "Two.").await.termination, Termination::ErrorProviderRejected);
    assert_eq!(cancelled(&agent).await.termination, Termination::Cancelled);
    assert_eq!(*lines.lock().unwrap(), ["natural_completion", "invalid_request", "aborted"]);
}

#[tokio::test]
async fn cached_answer_is_not_charged() {
    let (log, lines) = logged();
    let script = [Turn::text("Paris is it.").usage(100, 10), Turn::text("Rome.").usage(100, 10)];
    let agent = agent(ScriptedModel::new(script).price(DEAR).layer(log).layer(Cache::default()));
    let first = ask(&agent, "France?").await;
    assert_eq!(first.cost, NanoUsd(100 * 30 + 10 * 150));
    let mut run = agent.run("France?").unwrap();
    let mut shown = String::new();
    while let Some(event) = run.next().await {
        if let AgentEventKind::TextDelta { text, .. } = event.kind {
            shown += &text;
        }
    }
    let again = run.outcome().await;
    assert_eq!((again.cost, again.cost_unknown), (NanoUsd::ZERO, false));
    assert_eq!(again.usage.total_tokens(), 0);
    assert_eq!(again.termination, Termination::Stop);
    assert_eq!(again.signal, first.signal);
    assert_eq!((again.last_text, &*shown), (first.last_text, "Paris is it."));
    assert_eq!(ask(&agent, "Italy?").await.last_text.as_deref(), Some("Rome."));
    assert_eq!(lines.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn incomplete_answer_is_not_cached() {
    let script = [
        Turn::text("Half an ans").finish("length"),
        Turn::error(400, "no"),
        endless(),
        Turn::text("Whole."),
    ];
    let agent = agent(ScriptedModel::new(script).layer(Cache::default()));
    assert_eq!(ask(&agent, "Hello.").await.termination, Termination::ErrorOutputTruncated);
    assert_eq!(ask(&agent, "Hello.").await.termination, Termination::ErrorProviderRejected);
    assert_eq!(cancelled(&agent).await.termination, Termination::Cancelled);
    assert_eq!(ask(&agent, "Hello.").await.last_text.as_deref(), Some("Whole."));
}

#[tokio::test]
async fn different_parameters_are_different_requests() {
    let model = ScriptedModel::new([Turn::text("Warm."), Turn::text("Cold.")]);
    let cache = Cache::default();
    for (temperature, text) in [(1.0, "Warm."), (0.0, "Cold."), (1.0, "Warm.")] {
        let params = ModelParams { temperature: Some(temperature), ..ModelParams::default() };
        let agent =
            Agent::builder(model.clone().layer(cache.clone())).params(params).build().unwrap();
        assert_eq!(ask(&agent, "Hello.").await.last_text.as_deref(), Some(text));
    }
}

/// A provider with a detection of its own, which answers or fails after these events.
struct Odd(Vec<CallEvent>);

impl Provider for Odd {
    fn name(&self) -> &'static str {
        "odd"
    }
    fn model(&self) -> &'static str {
        "odd"
    }
    fn open(&self, _: SessionSpec) -> Box<dyn ModelSession> {
        Box::new(Odd(self.0.clone()))
    }
    fn is_terminal(&self, _: &Response) -> bool {
        true
    }
    fn detect_termination(&self, _: &Response) -> Option<TerminationSignal> {
        let signal = TerminationSignal::new(SignalReason::ContentFiltered, Confidence::High);
        Some(signal.from_field("odd", "withheld"))
    }
    fn price(&self) -> Option<Price> {
        Some(CHEAP)
    }
}

impl ModelSession for Odd {
    fn call(&mut self, _: CallSpec<'_>) -> CallStream {
        stream_of(self.0.clone())
    }
}

fn counted(text: &str) -> Response {
    let usage = Usage { input_tokens: Some(100), output_tokens: Some(10), ..Usage::default() };
    Response { usage, parts: vec![Part::Text { text: text.into() }], ..Response::default() }
}

#[tokio::test]
async fn fallback_answers_with_its_own_signal_and_price() {
    let first = ScriptedModel::new([Turn::error(529, "busy"), Turn::text("Yes.").usage(100, 10)]);
    let second = Odd(vec![CallEvent::Ended(Box::new(counted("No.")))]);
    let model = first.price(DEAR).layer(Fallback::to(second));
    assert_eq!(model.price(), Some(DEAR));
    let agent = agent(model);
    let outcome = ask(&agent, "Hello.").await;
    assert_eq!(outcome.termination, Termination::ErrorContentFiltered);
    assert_eq!(outcome.signal.unwrap().provider_specific.original_value, "withheld");
    assert_eq!(outcome.cost, NanoUsd(100 + 10 * 5));
    assert_eq!(outcome.usage.total_tokens(), 110);
    // The next call goes to the first provider again.
    let outcome = ask(&agent, "Hello.").await;
    assert_eq!(outcome.termination, Termination::Stop);
    assert_eq!(outcome.cost, NanoUsd(100 * 30 + 10 * 150));
}

#[tokio::test]
async fn fatal_error_does_not_fall_back() {
    let (log, lines) = logged();
    let second = ScriptedModel::new([Turn::text("Yes.")]).layer(log);
    let model = ScriptedModel::new([Turn::error(401, "no")]).layer(Fallback::to(second));
    assert_eq!(ask(&agent(model), "Hello.").await.termination, Termination::ErrorProviderAuth);
    assert!(lines.lock().unwrap().is_empty());
}

#[tokio::test]
async fn failure_after_output_or_cost_does_not_fall_back() {
    let broken = || ModelError::new(ErrorClass::IncompleteStream, "it broke");
    let shown = CallEvent::Delta(TurnDelta::Text("Hal".into()));
    let ping = CallEvent::Delta(TurnDelta::Text(String::new()));
    for (events, falls_back) in [
        (vec![CallEvent::Failed(broken(), None)], true),
        (vec![ping, CallEvent::Failed(broken(), None)], true),
        (vec![shown, CallEvent::Failed(broken(), None)], false),
        (vec![CallEvent::Failed(broken(), Some(Box::new(counted(""))))], false),
    ] {
        let (log, lines) = logged();
        let second = ScriptedModel::new([Turn::text("Yes.")]).layer(log);
        let outcome = ask(&agent(Odd(events).layer(Fallback::to(second))), "Hello.").await;
        assert_eq!(outcome.termination == Termination::Stop, falls_back, "{outcome}");
        assert_eq!(lines.lock().unwrap().len(), usize::from(falls_back));
    }
}

#[tokio::test]
async fn cancel_reaches_the_provider_that_answers() {
    let (log, lines) = logged();
    let second = ScriptedModel::new([endless()]).layer(log);
    let first = ScriptedModel::new([Turn::error(503, "no")]);
    let agent = agent(first.layer(Fallback::to(second)).layer(Cache::default()));
    assert_eq!(cancelled(&agent).await.termination, Termination::Cancelled);
    assert_eq!(*lines.lock().unwrap(), ["aborted"]);
}
