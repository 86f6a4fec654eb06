//! Sends spans to an OpenTelemetry collector if the environment names one.
//!
//! Problems are reported on standard error and never fail a run.

mod exporter;
mod settings;

use crate::output;
use endstop::wire::redact::KnownKeys;
use exporter::{Client, Exporter, Lost};
use opentelemetry::InstrumentationScope;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use settings::Settings;
use std::sync::Arc;
use std::time::Duration;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Maximum time for sending the remaining spans at the end of the command.
const LAST: Duration = Duration::from_secs(3);

/// The name of the scope, and of the service unless the environment sets another.
const NAME: &str = "endstop";

/// The spans of this process, on their way to a collector.
pub(crate) struct Spans(Option<Sent>);

struct Sent {
    provider: SdkTracerProvider,
    /// Host and port of the collector, without credentials.
    to: String,
    lost: Arc<Lost>,
}

impl Spans {
    /// Starts sending the spans of this process, with these keys redacted.
    pub(crate) fn begin(secrets: &KnownKeys, allow_http: bool) -> Spans {
        let sent = match Settings::of(&|name| std::env::var(name).ok(), allow_http) {
            Ok(None) => return Spans(None),
            Ok(Some(settings)) => send(&settings, secrets),
            Err(problem) => Err(problem),
        };
        Spans(
            sent.map_err(|problem| output::note(&format!("endstop: telemetry is off: {problem}")))
                .ok(),
        )
    }

    /// Sends the remaining spans, and reports those that were lost.
    pub(crate) fn end(self) {
        let Some(Sent { provider, to, lost }) = self.0 else { return };
        // Bounded, because a collector that hangs must not delay the exit.
        let ended = provider.shutdown_with_timeout(LAST);
        if let Some((spans, why)) = lost.told() {
            output::note(&format!("endstop: {spans} did not reach the collector at {to}: {why}"));
        } else if ended.is_err() {
            let bound = LAST.as_secs();
            output::note(&format!(
                "endstop: the collector at {to} took longer than {bound} s: spans may be missing there"
            ));
        }
    }
}

fn send(settings: &Settings, secrets: &KnownKeys) -> Result<Sent, String> {
    let lost = Arc::new(Lost::default());
    let client = Client::new(&settings.endpoint, settings.timeout, Arc::clone(&lost))?;
    // The builder reads endpoint, headers and compression from the environment. Its error is
    // dropped, because it may quote a credential.
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_timeout(settings.timeout)
        .build()
        .map_err(|_| {
            "could not create the exporter; check the variables that begin with OTEL_EXPORTER_OTLP"
                .to_owned()
        })?;
    let exporter = Exporter::new(exporter, secrets.clone(), Arc::clone(&lost));
    let mut resource = Resource::builder();
    if !settings.named {
        resource = resource.with_service_name(NAME);
    }
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource.build())
        .build();
    let scope = InstrumentationScope::builder(NAME).with_version(env!("CARGO_PKG_VERSION")).build();
    // Only the attributes of the spans: no source location, thread or timing of this program.
    let bridge = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer_with_scope(scope))
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_target(false)
        .with_level(false);
    // Only this program's spans: those of the HTTP client are irrelevant, and the exporter's own
    // requests would create new ones without end.
    let ours = Targets::new().with_target(NAME, LevelFilter::INFO);
    tracing_subscriber::registry()
        .with(ours)
        .with(bridge)
        .try_init()
        .map_err(|_| "a tracing subscriber is already installed".to_owned())?;
    Ok(Sent { provider, to: settings.host.clone(), lost })
}
