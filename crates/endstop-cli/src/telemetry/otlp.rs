//! The spans and metrics of this process, on their way to a collector.

use super::exporter::{Client, Counted, Exporter, Lost, Metrics};
use super::metrics::MeterLayer;
use super::settings::{Settings, Signal};
use crate::output;
use endstop::wire::redact::KnownKeys;
use opentelemetry::InstrumentationScope;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{
    MetricExporter, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Maximum time for sending the remaining data at the end of the command.
const LAST: Duration = Duration::from_secs(3);

/// The name of the scope, and of the service unless the environment sets another.
const NAME: &str = "endstop";

/// The spans and metrics of this process, on their way to a collector.
#[derive(Default)]
pub(crate) struct Telemetry {
    spans: Option<Sent<SdkTracerProvider>>,
    metrics: Option<Sent<SdkMeterProvider>>,
}

struct Sent<P> {
    provider: P,
    /// Host and port of the collector, without credentials.
    to: String,
    lost: Arc<Lost>,
}

impl Telemetry {
    /// Starts sending the data of this process, with these keys redacted.
    pub(crate) fn begin(secrets: &KnownKeys, allow_http: bool) -> Telemetry {
        begun(secrets, allow_http).unwrap_or_else(|problem| {
            output::note(&format!("endstop: telemetry is off: {problem}"));
            Telemetry::default()
        })
    }

    /// Sends the remaining data, and reports what was lost.
    pub(crate) fn end(self) {
        let began = Instant::now();
        // Both at the same time, because a collector that hangs must not delay the exit twice.
        let waiting = self.metrics.map(|sent| {
            let (done, ended) = mpsc::channel();
            let provider = sent.provider;
            // The provider's own time limit cannot be set, so its thread is left behind. Without a
            // thread the sender is dropped, and the metrics count as late.
            let _ =
                std::thread::Builder::new().spawn(move || done.send(provider.shutdown().is_ok()));
            (ended, sent.to, sent.lost)
        });
        let mut losses = Vec::new();
        if let Some(Sent { provider, to, lost }) = self.spans {
            let is_ended = provider.shutdown_with_timeout(LAST).is_ok();
            losses.extend(Loss::of("spans", to, &lost, is_ended));
        }
        if let Some((ended, to, lost)) = waiting {
            let is_ended =
                ended.recv_timeout(LAST.saturating_sub(began.elapsed())).unwrap_or(false);
            losses.extend(Loss::of("metrics", to, &lost, is_ended));
        }
        for line in told(&losses) {
            output::note(&line);
        }
    }
}

/// Data that did not reach its collector, or may not have.
struct Loss {
    what: String,
    to: String,
    /// `None` if the collector took too long.
    why: Option<String>,
}

impl Loss {
    fn of(what: &str, to: String, lost: &Lost, is_ended: bool) -> Option<Loss> {
        match lost.told(is_ended) {
            Some((1, why)) if what == "spans" => {
                Some(Loss { what: "1 span".to_owned(), to, why: Some(why) })
            }
            Some((count, why)) if what == "spans" => {
                Some(Loss { what: format!("{count} spans"), to, why: Some(why) })
            }
            Some((_, why)) => Some(Loss { what: what.to_owned(), to, why: Some(why) }),
            None if !is_ended => Some(Loss { what: what.to_owned(), to, why: None }),
            None => None,
        }
    }
}

/// Returns the lines about losses: one for both kinds of data if their collector and reason are the
/// same.
fn told(losses: &[Loss]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = losses;
    while let Some((first, others)) = rest.split_first() {
        let same = others.first().filter(|one| (&one.to, &one.why) == (&first.to, &first.why));
        let what = match same {
            Some(second) => format!("{} and {}", first.what, second.what),
            None => first.what.clone(),
        };
        rest = if same.is_some() { &others[1..] } else { others };
        let to = &first.to;
        lines.push(match &first.why {
            Some(why) => format!("endstop: {what} did not reach the collector at {to}: {why}"),
            None => format!(
                "endstop: the collector at {to} took longer than {} s: {what} may be missing there",
                LAST.as_secs()
            ),
        });
    }
    lines
}

fn begun(secrets: &KnownKeys, allow_http: bool) -> Result<Telemetry, String> {
    let settings = |signal| Settings::of(&|name| std::env::var(name).ok(), allow_http, signal);
    let (of_spans, of_metrics) = (settings(Signal::Spans)?, settings(Signal::Metrics)?);
    let spans = of_spans.map(|settings| spans(&settings, secrets)).transpose()?;
    let metrics = of_metrics.map(|settings| metrics(&settings)).transpose()?;
    if spans.is_none() && metrics.is_none() {
        return Ok(Telemetry::default());
    }
    let scope = InstrumentationScope::builder(NAME).with_version(env!("CARGO_PKG_VERSION")).build();
    // Only the attributes of the spans: no source location, thread or timing of this program.
    let bridge = spans.as_ref().map(|sent| {
        tracing_opentelemetry::layer()
            .with_tracer(sent.provider.tracer_with_scope(scope.clone()))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_target(false)
            .with_level(false)
    });
    let meter = metrics
        .as_ref()
        .map(|sent| MeterLayer::new(&sent.provider.meter_with_scope(scope), secrets.clone()));
    // Only this program's spans: those of the HTTP client are irrelevant, and the exporter's own
    // requests would create new ones without end.
    let ours = Targets::new().with_target(NAME, LevelFilter::INFO);
    tracing_subscriber::registry()
        .with(ours)
        .with(bridge)
        .with(meter)
        .try_init()
        .map_err(|_| "a tracing subscriber is already installed".to_owned())?;
    Ok(Telemetry { spans, metrics })
}

/// The exporters read endpoint, headers and compression from the environment. Their errors are
/// dropped, because they may quote a credential.
fn not_created<E>(_: E) -> String {
    "could not create the exporter; check the variables that begin with OTEL_EXPORTER_OTLP"
        .to_owned()
}

fn resource(settings: &Settings) -> Resource {
    let resource = Resource::builder();
    if settings.named { resource.build() } else { resource.with_service_name(NAME).build() }
}

fn spans(settings: &Settings, secrets: &KnownKeys) -> Result<Sent<SdkTracerProvider>, String> {
    let lost = Arc::new(Lost::default());
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(Client::new(&settings.endpoint, settings.timeout, Arc::clone(&lost))?)
        .with_timeout(settings.timeout)
        .build()
        .map_err(not_created)?;
    let exporter = Exporter::new(exporter, secrets.clone(), Arc::clone(&lost));
    let provider = SdkTracerProvider::builder()
        .with_span_processor(Counted::new(exporter, Arc::clone(&lost)))
        .with_resource(resource(settings))
        .build();
    Ok(Sent { provider, to: settings.host.clone(), lost })
}

fn metrics(settings: &Settings) -> Result<Sent<SdkMeterProvider>, String> {
    let lost = Arc::new(Lost::default());
    let exporter = MetricExporter::builder()
        .with_http()
        .with_http_client(Client::new(&settings.endpoint, settings.timeout, Arc::clone(&lost))?)
        .with_timeout(settings.timeout)
        .build()
        .map_err(not_created)?;
    let reader = PeriodicReader::builder(Metrics::new(exporter, Arc::clone(&lost))).build();
    let provider =
        SdkMeterProvider::builder().with_reader(reader).with_resource(resource(settings)).build();
    Ok(Sent { provider, to: settings.host.clone(), lost })
}
