//! Spans to an OpenTelemetry collector, where the environment names one.
//!
//! ```text
//! let spans = Spans::begin(&secrets); // nothing is set up where no variable asks for it
//! …                                   // the run
//! spans.end();                        // sent, or given up, within `LAST`
//! ```
//!
//! What is wrong with it is a line on standard error: no run fails for want of a collector.

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

/// How long what is not yet sent may take at the end of the command.
const LAST: Duration = Duration::from_secs(3);

/// The name of the service, unless the environment gives another, and of the scope.
const NAME: &str = "endstop";

/// Spans on their way to a collector.
pub(crate) struct Spans(Option<Sent>);

struct Sent {
    provider: SdkTracerProvider,
    /// Whose collector it is, without a credential.
    to: String,
    lost: Arc<Lost>,
}

impl Spans {
    /// Sends the spans of this process from here on; none of these keys are in them.
    pub(crate) fn begin(secrets: &KnownKeys) -> Spans {
        let sent = match Settings::of(&|name| std::env::var(name).ok()) {
            Ok(None) => return Spans(None),
            Ok(Some(settings)) => send(&settings, secrets),
            Err(problem) => Err(problem),
        };
        Spans(
            sent.map_err(|problem| output::note(&format!("endstop: no spans are sent: {problem}")))
                .ok(),
        )
    }

    /// Sends what there is, and says what did not arrive.
    pub(crate) fn end(self) {
        let Some(Sent { provider, to, lost }) = self.0 else { return };
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
    // Endpoint, headers and compression it reads itself; an error of it may quote a credential.
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_timeout(settings.timeout)
        .build()
        .map_err(|_| {
            "the exporter could not be made: look at the variables that begin with OTEL_EXPORTER_OTLP".to_owned()
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
    // The attributes are those of the spans: nothing of this program's source, threads or time.
    let bridge = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer_with_scope(scope))
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_target(false)
        .with_level(false);
    // The spans of the HTTP client are nobody's concern, and its own calls would make more of them.
    let ours = Targets::new().with_target(NAME, LevelFilter::INFO);
    tracing_subscriber::registry()
        .with(ours)
        .with(bridge)
        .try_init()
        .map_err(|_| "another subscriber listens already".to_owned())?;
    Ok(Sent { provider, to: settings.host.clone(), lost })
}
