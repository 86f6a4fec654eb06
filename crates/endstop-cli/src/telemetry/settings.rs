//! What OpenTelemetry's variables ask for: whether spans are sent, where to, and for how long it is
//! tried.
//!
//! ```ignore
//! let settings = Settings::of(&|name| std::env::var(name).ok())?; // None: nothing is asked for
//! ```
//!
//! An empty variable counts as none, as the specification has it.

use endstop::core::limits::unknown_key;
use reqwest::Url;
use std::time::Duration;

/// How long the request of one batch may take, unless a variable says otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

const SPANS: &str = "OTEL_EXPORTER_OTLP_TRACES";
const ALL: &str = "OTEL_EXPORTER_OTLP";

/// Where spans go.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) endpoint: Url,
    /// Its host and port, for words: an address may hold a password.
    pub(super) host: String,
    pub(super) timeout: Duration,
    /// The environment names the service.
    pub(super) named: bool,
}

impl Settings {
    /// `None`: no variable asks for spans, or one of them forbids it.
    pub(super) fn of(env: &dyn Fn(&str) -> Option<String>) -> Result<Option<Settings>, String> {
        let value = |name: &str| env(name).filter(|value| !value.trim().is_empty());
        // What is said of spans stands before what is said of all.
        let either = |what: &str| {
            [SPANS, ALL].iter().find_map(|of| {
                let name = format!("{of}_{what}");
                value(&name).map(|value| (name, value))
            })
        };
        let Some((variable, endpoint)) = either("ENDPOINT") else { return Ok(None) };
        if value("OTEL_SDK_DISABLED").is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
        {
            return Ok(None);
        }
        match value("OTEL_TRACES_EXPORTER").as_deref().map(str::trim) {
            None | Some("otlp") => {}
            Some("none") => return Ok(None),
            Some(other) => {
                let problem = unknown_key(other, &["otlp", "none"]);
                return Err(format!("OTEL_TRACES_EXPORTER is `{other}`: {problem}"));
            }
        }
        if let Some((name, protocol)) = either("PROTOCOL")
            && protocol.trim() != "http/protobuf"
        {
            return Err(format!(
                "{name} is `{protocol}`, and only http/protobuf is spoken: a collector hears it on port 4318"
            ));
        }
        if let Some((name, how)) = either("COMPRESSION")
            && !matches!(how.trim(), "gzip" | "none")
        {
            let problem = unknown_key(how.trim(), &["gzip", "none"]);
            return Err(format!("{name} is `{how}`: {problem}"));
        }
        // The value is not quoted: it may hold a password.
        let wrong = || format!("{variable} is no address: it wants http://HOST:PORT or https://…");
        let endpoint = Url::parse(endpoint.trim()).map_err(|_| wrong())?;
        if !matches!(endpoint.scheme(), "http" | "https") {
            return Err(wrong());
        }
        let host = endpoint.host_str().ok_or_else(wrong)?;
        let host = match endpoint.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let timeout = match either("TIMEOUT") {
            None => TIMEOUT,
            Some((name, value)) => match value.trim().parse() {
                Ok(ms) => Duration::from_millis(ms),
                Err(_) => return Err(format!("{name} is `{value}`: it wants whole milliseconds")),
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
    use super::Settings;
    use std::time::Duration;

    fn of(pairs: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        Settings::of(&|name| {
            pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:pw@host:4318/base");

    #[test]
    fn nothing_is_sent_unless_it_is_asked_for() {
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
    fn what_is_said_of_spans_stands_before_what_is_said_of_all() {
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
    fn what_is_not_understood_is_said_without_what_may_be_secret() {
        for (pair, says) in [
            (("OTEL_TRACES_EXPORTER", "zipkin"), "otlp, none"),
            (("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), "http/protobuf"),
            (("OTEL_EXPORTER_OTLP_COMPRESSION", "lzma"), "gzip, none"),
            (
                ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "user:hunter2@host"),
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            ),
            (("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"), "milliseconds"),
        ] {
            let problem = of(&[ENDPOINT, pair]).unwrap_err();
            assert!(problem.contains(says) && !problem.contains("hunter2"), "{problem}");
        }
    }
}
