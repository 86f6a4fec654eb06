//! A layer forwards every method of the provider below, and a stop reaches the call below.

use endstop::core::ImageTokens;
use endstop::provider::layer::{ProviderExt as _, ProviderLayer};
use endstop::provider::{
    CallSpec, CallStream, Confidence, KnownKeys, ModelSession, ParamError, Provider, Response,
    SessionSpec, SignalReason, TerminationSignal, UnsupportedMedia,
};
use endstop::testkit::{ScriptedModel, Turn};
use endstop::{Agent, AgentEventKind, Attachment, Image, NanoUsd, Price, Termination};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A provider of which no method returns the default.
struct Peculiar;

const PRICE: Price = Price {
    input: NanoUsd(3_000_000),
    output: NanoUsd(5_000_000),
    cached_input: None,
    cache_write: None,
    cache_write_1h: None,
    long_prompts: endstop_core::LongPrompts::NONE,
};

impl Provider for Peculiar {
    fn name(&self) -> &str {
        "peculiar"
    }
    fn model(&self) -> &str {
        "one"
    }
    fn open(&self, spec: SessionSpec) -> Box<dyn ModelSession> {
        ScriptedModel::new([Turn::text(spec.system.unwrap_or_default())])
            .open(SessionSpec::default())
    }
    fn check_params(&self, spec: &SessionSpec) -> Result<(), ParamError> {
        match spec.params.seed {
            Some(_) => Err(ParamError::none_taken("seed", "peculiar")),
            None => Ok(()),
        }
    }
    fn is_terminal(&self, _: &Response) -> bool {
        true
    }
    fn detect_termination(&self, _: &Response) -> Option<TerminationSignal> {
        Some(TerminationSignal::new(SignalReason::ContentFiltered, Confidence::High))
    }
    fn context_window(&self) -> Option<u64> {
        Some(1234)
    }
    fn max_output(&self) -> Option<u64> {
        Some(77)
    }
    fn image_tokens(&self) -> ImageTokens {
        ImageTokens::Flat(11)
    }
    fn check_attachment(&self, _: &Attachment) -> Result<(), UnsupportedMedia> {
        Err(UnsupportedMedia::new("it is blind"))
    }
    fn wire_format(&self) -> Option<&str> {
        Some("peculiar-format")
    }
    fn known_keys(&self) -> KnownKeys {
        KnownKeys::new(["sk-proj-4fQ9xTz71LmN0pWv"])
    }
    fn server(&self) -> Option<(&str, u16)> {
        Some(("peculiar.example", 8443))
    }
    fn price(&self) -> Option<Price> {
        Some(PRICE)
    }
}

/// A layer that changes nothing.
struct Nothing;
impl ProviderLayer for Nothing {}

fn is_peculiar(provider: &dyn Provider) {
    let response = Response::text("hello");
    assert_eq!((provider.name(), provider.model()), ("peculiar", "one"));
    let seeded = endstop::ModelParams { seed: Some(1), ..Default::default() };
    assert!(provider.check_params(&SessionSpec { params: seeded, ..Default::default() }).is_err());
    let warm = endstop::ModelParams { temperature: Some(0.5), ..Default::default() };
    assert!(provider.check_params(&SessionSpec { params: warm, ..Default::default() }).is_ok());
    assert!(provider.is_terminal(&response));
    let signal = provider.detect_termination(&response).unwrap();
    assert_eq!(signal.reason, SignalReason::ContentFiltered);
    assert_eq!((provider.context_window(), provider.max_output()), (Some(1234), Some(77)));
    assert_eq!(provider.image_tokens(), ImageTokens::Flat(11));
    assert!(provider.check_attachment(&image()).is_err());
    assert_eq!(provider.known_keys().out_of_text("sk-proj-4fQ9xTz71LmN0pWv"), "[redacted]");
    assert_eq!(provider.wire_format(), Some("peculiar-format"));
    assert_eq!(provider.server(), Some(("peculiar.example", 8443)));
    assert_eq!(provider.price(), Some(PRICE));
}

fn image() -> Attachment {
    Attachment::Image(Image::Url("https://example.com/a.png".to_owned()))
}

#[test]
fn layer_forwards_every_method() {
    is_peculiar(&Peculiar);
    is_peculiar(&Peculiar.layer(Nothing));
    is_peculiar(&Peculiar.layer(Nothing).layer(Nothing));
    let shared: Arc<dyn Provider> = Arc::new(Peculiar);
    is_peculiar(&shared);
    is_peculiar(&shared.layer(Nothing));
    let debug = format!("{:?}", Peculiar.layer(Nothing));
    assert!(!debug.contains("sk-proj"), "{debug}");
}

/// Counts the sessions and the calls, and marks its place in the list.
#[derive(Clone, Default)]
struct Count(Arc<AtomicU32>, Arc<AtomicU32>);

impl ProviderLayer for Count {
    fn open(&self, inner: &Arc<dyn Provider>, spec: SessionSpec) -> Box<dyn ModelSession> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::new(Counted(inner.open(spec), self.clone()))
    }
}

struct Counted(Box<dyn ModelSession>, Count);

impl ModelSession for Counted {
    fn call(&mut self, call: CallSpec<'_>) -> CallStream {
        self.1.1.fetch_add(1, Ordering::SeqCst);
        self.0.call(call)
    }
}

#[tokio::test]
async fn layered_provider_runs_as_before() {
    let count = Count::default();
    let script = [Turn::text("Half").finish("length").usage(10, 20)];
    let model = ScriptedModel::new(script).price(PRICE).layer(Nothing).layer(count.clone());
    let outcome = Agent::builder(model).build().unwrap().run("Hello.").unwrap().outcome().await;
    assert_eq!(outcome.termination, Termination::ErrorOutputTruncated);
    assert_eq!(outcome.cost, NanoUsd(10 * 3 + 20 * 5));
    assert_eq!((count.0.load(Ordering::SeqCst), count.1.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test]
async fn cancel_reaches_the_call_below() {
    let slow = Turn::text("one two three").pace(Duration::from_secs(3600));
    let model = ScriptedModel::new([slow]).layer(Nothing).layer(Count::default());
    let mut run = Agent::builder(model).build().unwrap().run("Hello.").unwrap();
    while let Some(event) = run.next().await {
        if let AgentEventKind::TextDelta { .. } = event.kind {
            run.cancel();
        }
    }
    assert_eq!(run.outcome().await.termination, Termination::Cancelled);
}
