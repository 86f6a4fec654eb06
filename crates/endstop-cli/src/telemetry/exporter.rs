//! The exporters: an HTTP client for those of OTLP, a wrapper that redacts keys from spans before they
//! are sent, and one that notes if metrics are lost.
//!
//! Both work on the exporter's own thread, never on that of the run.

use endstop::wire::redact::KnownKeys;
use endstop_http::{Decoded, Full};
use http::HeaderValue;
use opentelemetry::{Array, Context, KeyValue, StringValue, Value};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{MetricExporter, SpanExporter};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::trace::{BatchSpanProcessor, Span, SpanData, SpanProcessor};
use std::borrow::Cow;
use std::error::Error;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::error::Elapsed;
use url::Url;

/// Maximum number of bytes that are read of an answer, whose body is not used.
const MOST_OF_AN_ANSWER: usize = 64 << 10;

/// The data that did not reach the collector.
#[derive(Debug, Default)]
pub(super) struct Lost {
    state: Mutex<State>,
    /// Number of spans that have ended, and of those that the collector has.
    ended: AtomicUsize,
    arrived: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    /// Number of reports with metrics.
    items: usize,
    /// The last problem, in this module's own words, because an error of the client may contain
    /// credentials.
    why: String,
}

impl Lost {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn went_wrong(&self, why: String) {
        self.state().why = why;
    }

    /// Returns the number of lost items and the reason, or `None` if no loss is known. `is_over` unless some are
    /// still on their way.
    pub(super) fn told(&self, is_over: bool) -> Option<(usize, String)> {
        let state = self.state();
        let arrived = self.arrived.load(Ordering::Relaxed);
        let spans = self.ended.load(Ordering::Relaxed).saturating_sub(arrived);
        let why = match state.why.as_str() {
            "" if is_over => "they came faster than it takes them",
            why => why,
        };
        let lost = state.items + spans;
        (lost > 0 && !why.is_empty()).then(|| (lost, why.to_owned()))
    }
}

/// Counts the spans that end, before the queue of the exporter drops those that it has no room for.
#[derive(Debug)]
pub(super) struct Counted {
    queue: BatchSpanProcessor,
    lost: Arc<Lost>,
}

impl Counted {
    pub(super) fn new(exporter: Exporter, lost: Arc<Lost>) -> Counted {
        Counted { queue: BatchSpanProcessor::builder(exporter).build(), lost }
    }
}

impl SpanProcessor for Counted {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.queue.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        self.lost.ended.fetch_add(1, Ordering::Relaxed);
        self.queue.on_end(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.queue.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.queue.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.queue.set_resource(resource);
    }
}

/// Redacts keys from spans, and converts attributes to the types that the semantic conventions
/// require.
#[derive(Debug)]
pub(super) struct Exporter {
    to: SpanExporter,
    secrets: KnownKeys,
    lost: Arc<Lost>,
}

impl Exporter {
    pub(super) fn new(to: SpanExporter, secrets: KnownKeys, lost: Arc<Lost>) -> Exporter {
        Exporter { to, secrets, lost }
    }

    fn dress(&self, span: &mut SpanData) {
        if let Cow::Owned(name) = self.secrets.out_of_text(&span.name) {
            span.name = name.into();
        }
        for KeyValue { key, value, .. } in &mut span.attributes {
            let Value::String(text) = value else { continue };
            // Model names and finish values come from the provider, which could echo a key.
            let text: StringValue = match key.as_str() {
                // In JSON a secret may be escaped.
                "gen_ai.input.messages" | "gen_ai.output.messages" => {
                    self.secrets.out_of_json_text(text.to_string()).into()
                }
                _ => match self.secrets.out_of_text(text.as_str()) {
                    Cow::Owned(clean) => clean.into(),
                    Cow::Borrowed(_) => text.clone(),
                },
            };
            // A `tracing` field has one value, but the convention requires a list with one reason
            // for each generation.
            *value = match key.as_str() {
                "gen_ai.response.finish_reasons" => Value::Array(Array::String(vec![text])),
                _ => Value::String(text),
            };
        }
    }
}

impl opentelemetry_sdk::trace::SpanExporter for Exporter {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        for span in &mut batch {
            self.dress(span);
        }
        let sent = self.to.export(batch).await;
        if sent.is_ok() {
            self.lost.arrived.fetch_add(spans, Ordering::Relaxed);
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.to.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.to.set_resource(resource);
    }
}

/// Sends metrics, and notes if the last report was lost. Earlier ones do not matter, because each
/// report has the sums since the start unless a variable asks for differences.
#[derive(Debug)]
pub(super) struct Metrics {
    to: MetricExporter,
    lost: Arc<Lost>,
}

impl Metrics {
    pub(super) fn new(to: MetricExporter, lost: Arc<Lost>) -> Metrics {
        Metrics { to, lost }
    }
}

impl PushMetricExporter for Metrics {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let sent = self.to.export(metrics).await;
        let mut lost = self.lost.state();
        lost.items = match (&sent, self.to.temporality()) {
            (Ok(()), Temporality::Cumulative) => 0,
            (Ok(()), _) => lost.items,
            (Err(_), _) => lost.items + 1,
        };
        sent
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.to.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.to.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.to.temporality()
    }
}

/// An HTTP client with its own runtime, because the exporter's thread has none.
#[derive(Debug)]
pub(super) struct Client {
    http: endstop_http::Client,
    /// Maximum time of a request with its answer.
    timeout: Duration,
    runtime: Runtime,
    lost: Arc<Lost>,
}

impl Client {
    pub(super) fn new(
        endpoint: &Url,
        timeout: Duration,
        lost: Arc<Lost>,
    ) -> Result<Client, String> {
        let not_created = |error| format!("could not create the HTTP client: {error}");
        let http = endstop_http::Client::builder()
            .connect_timeout(timeout)
            .user_agent(HeaderValue::from_static(concat!("endstop/", env!("CARGO_PKG_VERSION"))))
            .build()
            .map_err(not_created)?;
        if endpoint.scheme() == "https" {
            http.load_certificates().map_err(not_created)?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("could not start the async runtime: {error}"))?;
        Ok(Client { http, timeout, runtime, lost })
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        // In the runtime, whose clock the time limit needs.
        let sent = self.runtime.block_on(async {
            let answer = tokio::time::timeout(self.timeout, self.answer(request)).await;
            answer.unwrap_or_else(|elapsed| Err(elapsed.into()))
        });
        let why = match &sent {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("it answered with status {}", response.status().as_u16())),
            Err(error) => Some(reason(&**error).to_owned()),
        };
        if let Some(why) = why {
            self.lost.went_wrong(why);
        }
        sent
    }

    async fn answer(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let request = without_login(request)?.map(Full::new);
        // The headers tell the exporter when a throttled collector accepts spans again.
        let (head, mut body) = Decoded::new(self.http.send(request).await?).into_parts();
        // A long answer is dropped, because a hostile collector could fill the memory.
        let body = body.read(MOST_OF_AN_ANSWER).await?.unwrap_or_default();
        Ok(Response::from_parts(head, Bytes::from(body)))
    }
}

/// Removes the user and the password of the address, which are not sent.
fn without_login(mut request: Request<Bytes>) -> Result<Request<Bytes>, HttpError> {
    let mut url = Url::parse(&request.uri().to_string())?;
    // These fail only for URLs without a host, which http and https do not have.
    let _ = (url.set_username(""), url.set_password(None));
    *request.uri_mut() = url.as_str().parse()?;
    Ok(request)
}

/// Returns the kind of an error, because its text names the address.
fn reason(error: &(dyn Error + Send + Sync + 'static)) -> &'static str {
    let error = match error.downcast_ref::<endstop_http::Error>() {
        None if error.is::<Elapsed>() => return "it did not answer",
        None => return "the connection failed",
        Some(error) => error,
    };
    if error.is_timeout() {
        "it did not answer"
    } else if error.is_connect() {
        "it could not be connected to"
    } else {
        "the connection failed"
    }
}

impl HttpClient for Client {
    fn send_bytes<'life0, 'async_trait>(
        &'life0 self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(ready(self.send(request)))
    }
}
