//! Sends spans and metrics to an OpenTelemetry collector if the environment names one, in a build with the
//! feature `otlp`. Without it, a note reports that the collector receives nothing.
//!
//! Problems are reported on standard error and never fail a run.

#[cfg(feature = "otlp")]
mod exporter;
#[cfg(feature = "otlp")]
mod metrics;
#[cfg(feature = "otlp")]
mod otlp;
mod settings;

pub(crate) use settings::{parent, spans};

#[cfg(not(feature = "otlp"))]
pub(crate) use not_built::Telemetry;
#[cfg(feature = "otlp")]
pub(crate) use otlp::Telemetry;

#[cfg(not(feature = "otlp"))]
mod not_built {
    use super::settings::{Settings, Signal};
    use crate::{features, output};
    use endstop::wire::redact::KnownKeys;

    /// Stands in for the telemetry that this build leaves out.
    pub(crate) struct Telemetry;

    impl Telemetry {
        /// Reports that nothing is sent, if the environment names a collector.
        pub(crate) fn begin(_: &KnownKeys, allow_http: bool) -> Telemetry {
            let variable = |name: &str| std::env::var(name).ok();
            let settings = |signal| Settings::of(&variable, allow_http, signal);
            let asks = [Signal::Spans, Signal::Metrics].map(settings);
            if asks.iter().any(|asked| !matches!(asked, Ok(None))) {
                let why = features::without("OTLP", "otlp");
                output::note(&format!("endstop: telemetry is off: {why}"));
            }
            Telemetry
        }

        #[expect(clippy::unused_self, reason = "with the feature, this sends what is left")]
        pub(crate) fn end(self) {}
    }
}
