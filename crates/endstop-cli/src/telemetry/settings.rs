//! Reads OpenTelemetry's variables: whether spans are sent, where to, and with which timeout.
//!
//! An empty variable counts as unset, as the specification requires.

use endstop::core::limits::unknown_key;
use reqwest::Url;
use std::time::Duration;

/// Maximum time of one request, unless a variable sets another.
const TIMEOUT: Duration = Duration::from_secs(10);

const SPANS: &str = "OTEL_EXPORTER_OTLP_TRACES";
const ALL: &str = "OTEL_EXPORTER_OTLP";

/// The settings of the exporter.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) endpoint: Url,
    /// Host and port for messages, because the full address may contain a password.
    pub(super) host: String,
    pub(super) timeout: Duration,
    /// `true` if the environment sets the service name.
    pub(super) named: bool,
}

impl Settings {
    /// Reads the settings. Returns `None` if no variable requests spans or one of them disables
    /// them.
    pub(super) fn of(env: &dyn Fn(&str) -> Option<String>) -> Result<Option<Settings>, String> {
        let value = |name: &str| env(name).filter(|value| !value.trim().is_empty());
        // Variables for spans override those for all signals.
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
                return Err(format!("invalid OTEL_TRACES_EXPORTER `{other}`: {problem}"));
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
    use super::Settings;
    use std::time::Duration;

    fn of(pairs: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        Settings::of(&|name| {
            pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
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
        ] {
            let problem = of(&[ENDPOINT, pair]).unwrap_err();
            assert!(problem.contains(says) && !problem.contains("hunter2"), "{problem}");
        }
    }
}
