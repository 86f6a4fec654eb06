//! Reads OpenTelemetry's variables: whether spans and metrics are sent, where to, and with which
//! timeout.
//!
//! An empty variable counts as unset, as the specification requires.

use endstop::core::limits::unknown_key;
use endstop::telemetry::{SpanSettings, TraceParent};
use endstop::wire::endpoint::is_loopback;
use endstop::wire::redact::address;
use std::time::Duration;
use url::Url;

/// Maximum time of one request, unless a variable sets another.
const TIMEOUT: Duration = Duration::from_secs(10);

const ALL: &str = "OTEL_EXPORTER_OTLP";

/// The variable of the convention that shows content in spans.
const CONTENT: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";

/// Returns what the spans of an agent with this name show. A value that is not valid shows nothing more; it is reported
/// when telemetry begins.
pub(crate) fn spans(agent: Option<&str>) -> SpanSettings {
    let variable = |name: &str| std::env::var(name).ok();
    SpanSettings {
        agent: agent.map(str::to_owned),
        content: content(&variable).unwrap_or(false),
        propagate: propagates(&variable),
    }
}

/// Returns the place of this process in the trace of the program that started it.
pub(crate) fn parent() -> Option<TraceParent> {
    TraceParent::read(&std::env::var("TRACEPARENT").ok()?)
}

/// `true` if the environment asks for content.
fn content(env: &dyn Fn(&str) -> Option<String>) -> Result<bool, String> {
    let value = env(CONTENT).unwrap_or_default();
    match value.trim().to_ascii_lowercase().as_str() {
        "true" | "span_only" | "span_and_event" => Ok(true),
        "" | "false" | "no_content" => Ok(false),
        // Events are not sent, so content in events alone would be shown nowhere.
        other => {
            let problem = unknown_key(other, &["span_only", "no_content"]);
            Err(format!("invalid {CONTENT} `{}`: {problem}", value.trim()))
        }
    }
}

/// `true` if each request gets its place in the trace. By default only those do that had one: an id of a trace is of no
/// use to a provider, but to a gateway in between.
fn propagates(env: &dyn Fn(&str) -> Option<String>) -> bool {
    let names = env("OTEL_PROPAGATORS").unwrap_or_default();
    names.split(',').any(|name| name.trim() == "tracecontext")
}

/// A kind of data, with variables of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Spans,
    Metrics,
}

impl Signal {
    /// The beginning of the names of its variables.
    fn prefix(self) -> &'static str {
        match self {
            Signal::Spans => "OTEL_EXPORTER_OTLP_TRACES",
            Signal::Metrics => "OTEL_EXPORTER_OTLP_METRICS",
        }
    }

    /// The variable that selects the exporter.
    fn exporter(self) -> &'static str {
        match self {
            Signal::Spans => "OTEL_TRACES_EXPORTER",
            Signal::Metrics => "OTEL_METRICS_EXPORTER",
        }
    }
}

/// The settings of an exporter.
#[derive(Debug)]
#[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "only their presence is reported"))]
pub(super) struct Settings {
    pub(super) endpoint: Url,
    /// Host and port for messages, because the full address may contain a password.
    pub(super) host: String,
    pub(super) timeout: Duration,
    /// `true` if the environment sets the service name.
    pub(super) named: bool,
}

impl Settings {
    /// Reads the settings. Returns `None` if no variable requests this data or one of them disables
    /// it. With `allow_http`, headers are sent to any host without encryption.
    pub(super) fn of(
        env: &dyn Fn(&str) -> Option<String>,
        allow_http: bool,
        signal: Signal,
    ) -> Result<Option<Settings>, String> {
        let own = signal.prefix();
        let value = |name: &str| env(name).filter(|value| !value.trim().is_empty());
        // Variables for one kind of data override those for all.
        let either = |what: &str| {
            [own, ALL].iter().find_map(|of| {
                let name = format!("{of}_{what}");
                value(&name).map(|value| (name, value))
            })
        };
        let Some((variable, endpoint)) = either("ENDPOINT") else { return Ok(None) };
        content(env)?;
        if value("OTEL_SDK_DISABLED").is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
        {
            return Ok(None);
        }
        match value(signal.exporter()).as_deref().map(str::trim) {
            None | Some("otlp") => {}
            Some("none") => return Ok(None),
            Some(other) => {
                let problem = unknown_key(other, &["otlp", "none"]);
                return Err(format!("invalid {} `{other}`: {problem}", signal.exporter()));
            }
        }
        if let Some((name, protocol)) = either("PROTOCOL")
            && protocol.trim() != "http/protobuf"
        {
            return Err(format!(
                "invalid {name} `{protocol}`: expected http/protobuf, which collectors accept on port 4318"
            ));
        }
        if let Some((name, how)) = either("COMPRESSION")
            && !matches!(how.trim(), "gzip" | "none")
        {
            let problem = unknown_key(how.trim(), &["gzip", "none"]);
            return Err(format!("invalid {name} `{how}`: {problem}"));
        }
        // The value is not quoted, because it may contain a password.
        let wrong = || format!("invalid {variable}: expected http://HOST:PORT or https://…");
        let endpoint = Url::parse(endpoint.trim()).map_err(|_| wrong())?;
        if !matches!(endpoint.scheme(), "http" | "https") {
            return Err(wrong());
        }
        let host = endpoint.host_str().ok_or_else(wrong)?;
        // Every machine on the way could read the collector's key, like that of a provider.
        let clear = endpoint.scheme() == "http" && !is_loopback(host) && !allow_http;
        let headers = [own, ALL].map(|of| format!("{of}_HEADERS"));
        if let Some(name) = headers.iter().find(|name| clear && value(name).is_some()) {
            return Err(format!(
                "{name} would be sent to {host} without encryption; use https, or pass --allow-http"
            ));
        }
        if clear && address(endpoint.as_str()) != endpoint.as_str() {
            return Err(format!(
                "the credentials in {variable} would be sent to {host} without encryption; use https, or pass --allow-http"
            ));
        }
        let host = match endpoint.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let timeout = match either("TIMEOUT") {
            None => TIMEOUT,
            Some((name, value)) => match value.trim().parse() {
                Ok(ms) => Duration::from_millis(ms),
                Err(_) => {
                    return Err(format!("invalid {name} `{value}`: expected whole milliseconds"));
                }
            },
        };
        let named = value("OTEL_SERVICE_NAME").is_some()
            || value("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|list| {
                list.split(',').any(|pair| pair.trim().starts_with("service.name="))
            });
        Ok(Some(Settings { endpoint, host, timeout, named }))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::{CONTENT, Settings, Signal, content, propagates};
    use std::time::Duration;

    fn of(pairs: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        with(pairs, true)
    }

    fn with(pairs: &[(&str, &str)], allow_http: bool) -> Result<Option<Settings>, String> {
        let value = |name: &str| {
            pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Settings::of(&value, allow_http, Signal::Spans)
    }

    #[test]
    fn metrics_have_variables_of_their_own() {
        let of = |pairs: &[(&str, &str)]| {
            let value = |name: &str| {
                pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            Settings::of(&value, true, Signal::Metrics)
        };
        let own = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://metrics:1/v1/metrics");
        assert_eq!(of(&[ENDPOINT, own]).unwrap().unwrap().host, "metrics:1");
        assert_eq!(of(&[ENDPOINT]).unwrap().unwrap().host, "host:4318");
        let spans = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://spans:1/v1/traces");
        assert!(of(&[spans]).unwrap().is_none());
        assert!(of(&[ENDPOINT, ("OTEL_METRICS_EXPORTER", "none")]).unwrap().is_none());
        assert!(of(&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")]).unwrap().is_some());
        let problem = of(&[ENDPOINT, ("OTEL_METRICS_EXPORTER", "prometheus")]).unwrap_err();
        assert!(problem.contains("OTEL_METRICS_EXPORTER `prometheus`"), "{problem}");
    }

    #[test]
    fn cleartext_headers_need_loopback_or_flag() {
        let key = "authorization=Bearer%20Zk04dQ71mmPx8Lw2";
        let address = "OTEL_EXPORTER_OTLP_ENDPOINT";
        for headers in ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"] {
            for (url, sent) in [
                ("http://192.0.2.1:4318", false),
                ("HTTP://collector.example", false),
                ("http://localhost.example.com:4318", false),
                ("http://127.0.0.1.example.com", false),
                ("http://0.0.0.0:4318", false),
                ("http://localhost:4318", true),
                ("http://127.0.0.1:4318", true),
                ("http://[::1]:4318", true),
                ("https://192.0.2.1:4318", true),
            ] {
                let pairs = [(address, url), (headers, key)];
                assert_eq!(with(&pairs, false).is_ok(), sent, "{url}");
                assert!(with(&pairs, true).is_ok(), "{url}");
                assert!(with(&pairs[..1], false).is_ok(), "no header, {url}");
                assert!(with(&[(address, url), (headers, " ")], false).is_ok(), "{url}");
                if let Err(problem) = with(&pairs, false) {
                    assert!(problem.contains(headers) && !problem.contains("Zk04"), "{problem}");
                }
            }
        }
        let problem = with(&[ENDPOINT], false).unwrap_err();
        assert!(problem.contains(address) && !problem.contains("pw"), "{problem}");
        let query = "http://192.0.2.1/v1/traces?api_key=Zk04dQ71mmPx8Lw2";
        let problem = with(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", query)], false).unwrap_err();
        assert!(problem.contains("TRACES_ENDPOINT") && !problem.contains("Zk04"), "{problem}");
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:pw@host:4318/base");

    #[test]
    fn nothing_is_sent_unless_configured() {
        for pairs in [
            &[][..],
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")],
            &[("OTEL_SERVICE_NAME", "x")],
            &[ENDPOINT, ("OTEL_SDK_DISABLED", "TRUE")],
            &[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")],
        ] {
            assert!(of(pairs).unwrap().is_none(), "{pairs:?}");
        }
    }

    #[test]
    fn content_and_places_are_opt_in() {
        let of = |value: &str| {
            let value = value.to_owned();
            move |_: &str| Some(value.clone())
        };
        for (value, shown) in [("TRUE", true), ("SPAN_ONLY", true), ("", false), ("false", false)] {
            assert_eq!(content(&of(value)), Ok(shown), "{value}");
        }
        assert_eq!(content(&|_| None), Ok(false));
        for (value, sent) in
            [("tracecontext", true), ("baggage, tracecontext", true), ("none", false)]
        {
            assert_eq!(propagates(&of(value)), sent, "{value}");
        }
        assert!(!propagates(&|_| None));
    }

    #[test]
    fn span_variables_override_general_ones() {
        let settings = of(&[
            ENDPOINT,
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "7"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "250"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"),
            ("OTEL_SDK_DISABLED", "false"),
            ("OTEL_RESOURCE_ATTRIBUTES", "a=b, service.name=mine"),
        ]);
        let settings = settings.unwrap().unwrap();
        assert_eq!((settings.host.as_str(), settings.named), ("host:4318", true));
        assert_eq!(settings.timeout, Duration::from_millis(250));
    }

    #[test]
    fn invalid_variables_are_reported_without_secrets() {
        for (pair, says) in [
            (("OTEL_TRACES_EXPORTER", "zipkin"), "otlp, none"),
            (("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), "http/protobuf"),
            (("OTEL_EXPORTER_OTLP_COMPRESSION", "lzma"), "gzip, none"),
            (
                ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "user:hunter2@host"),
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            ),
            (("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"), "milliseconds"),
            ((CONTENT, "EVENT_ONLY"), "span_only"),
        ] {
            let problem = of(&[ENDPOINT, pair]).unwrap_err();
            assert!(problem.contains(says) && !problem.contains("hunter2"), "{problem}");
        }
    }
}
