//! Parser for error bodies: reads the providers' different shapes into one [`ErrorBody`].

use super::hints;
use crate::headers::Headers;
use crate::json::{states_error, without_lone_surrogates};
use endstop_core::ErrorClass;
use serde_json::Value;

/// Maximum number of bytes of an error body that are parsed as JSON.
const LOOKED_AT: usize = 256 << 10;

/// Codes that mean something which neither status nor words express: provider, code, class.
const NUMBERED: &[(&str, &str, ErrorClass)] = &[
    ("zhipu", "1113", ErrorClass::QuotaExhausted),
    ("zai", "1113", ErrorClass::QuotaExhausted),
    ("zhipu", "1301", ErrorClass::ContentPolicy),
    ("zai", "1301", ErrorClass::ContentPolicy),
    // Allowances of hours, weeks and months, whose reset is named in the provider's local time.
    ("zhipu", "1308", ErrorClass::QuotaExhausted),
    ("zai", "1308", ErrorClass::QuotaExhausted),
    ("zhipu", "1310", ErrorClass::QuotaExhausted),
    ("zai", "1310", ErrorClass::QuotaExhausted),
    ("zhipu", "1316", ErrorClass::QuotaExhausted),
    ("zai", "1316", ErrorClass::QuotaExhausted),
    (MINIMAX, "1001", ErrorClass::Timeout),
    (MINIMAX, "1002", ErrorClass::RateLimit),
    (MINIMAX, "1004", ErrorClass::Authentication),
    (MINIMAX, "1008", ErrorClass::QuotaExhausted),
    (MINIMAX, "1026", ErrorClass::ContentPolicy),
    (MINIMAX, "1027", ErrorClass::ContentPolicy),
    (MINIMAX, "2049", ErrorClass::Authentication),
];

/// The provider whose errors are recognised by their shape, a `base_resp` with its own numbers, also behind a gateway.
/// Source: <https://platform.minimax.io/docs/api-reference/errorcode>.
const MINIMAX: &str = "minimax";

/// Google's status names with their HTTP status, used if the number is missing.
const RPC: &[(&str, u16)] = &[
    ("CANCELLED", 499),
    ("INVALID_ARGUMENT", 400),
    ("FAILED_PRECONDITION", 400),
    ("OUT_OF_RANGE", 400),
    ("UNAUTHENTICATED", 401),
    ("PERMISSION_DENIED", 403),
    ("NOT_FOUND", 404),
    ("ABORTED", 409),
    ("ALREADY_EXISTS", 409),
    ("RESOURCE_EXHAUSTED", 429),
    ("INTERNAL", 500),
    ("UNKNOWN", 500),
    ("DATA_LOSS", 500),
    ("UNIMPLEMENTED", 501),
    ("UNAVAILABLE", 503),
    ("DEADLINE_EXCEEDED", 504),
];

/// AWS exception names in lower case without `exception`, with their HTTP status. A stream has no
/// other status, and in a response the name is more precise than the response's own status.
const AWS: &[(&str, u16)] = &[
    ("accessdenied", 403),
    ("conflict", 400),
    ("expiredtoken", 401),
    ("incompletesignature", 401),
    ("internalserver", 500),
    ("invalidclienttokenid", 401),
    ("invalidsignature", 401),
    ("missingauthenticationtoken", 401),
    ("modelerror", 424),
    ("modelnotready", 503),
    ("modelstreamerror", 424),
    ("modeltimeout", 408),
    ("resourcenotfound", 404),
    ("servicequotaexceeded", 402),
    ("serviceunavailable", 503),
    ("signaturedoesnotmatch", 401),
    ("throttling", 429),
    ("unrecognizedclient", 401),
    ("validation", 400),
];

/// An error as its body describes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorBody {
    /// `error.code`, if it is not null.
    code: Option<String>,
    /// `error.type`.
    kind: Option<String>,
    /// `error.status`, if it is one of Google's names.
    named: Option<String>,
    /// `true` if `error.code` is present, even as null. The type is then reported as the code.
    coded: bool,
    /// `error.param`: the parameter of the request that the error is about.
    pub(crate) param: Option<String>,
    /// `true` if the error contains output of the model that the provider could not use.
    pub(crate) failed_generation: bool,
    /// `resets_in_seconds`, or `resets_at` in seconds since 1970: when an allowance comes back.
    resets: [Option<f64>; 2],
    /// `true` for the numbers of MiniMax.
    is_minimax: bool,
    /// Message for a person, or the text itself if the body is not JSON.
    pub(crate) message: String,
    /// Message, code and type together in lower case, to search for known words.
    pub(crate) words: String,
    /// Code and type only, in lower case.
    pub(crate) codes: String,
    /// HTTP status that the error itself names.
    pub(crate) status: Option<u16>,
    /// `true` if the error says when to retry.
    pub(crate) retry_info: bool,
    /// `true` if the error lists what a moderation flagged.
    pub(crate) flagged: bool,
    /// `true` for Anthropic's envelope, in which the type is the decisive field.
    by_type: bool,
    /// HTTP status of the AWS exception. It overrides the status of the response.
    pub(crate) excepted: Option<u16>,
    /// `true` if the body is a JSON object that contains an error.
    pub(crate) found: bool,
    /// Field outside the error object that identified it, and that field's raw value.
    told_by: Option<(&'static str, String)>,
}

impl ErrorBody {
    /// Parses any text. Text that is not JSON becomes the message.
    pub(crate) fn read(text: &str) -> ErrorBody {
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.len() <= LOOKED_AT {
            // A message cut inside an emoji is not valid JSON, but its code is still needed.
            let repaired = without_lone_surrogates(text);
            if let Ok(v) = serde_json::from_str::<Value>(repaired.as_deref().unwrap_or(text)) {
                return ErrorBody::of(&v);
            }
        }
        let mut body = ErrorBody { message: plain(text), ..ErrorBody::default() };
        body.words = body.message.to_lowercase();
        body
    }

    /// Reads an error from a parsed body.
    pub(crate) fn of(v: &Value) -> ErrorBody {
        // Some gateways wrap the object in a list of one.
        let v = v.get(0).filter(|_| v.is_array()).unwrap_or(v);
        // MiniMax sends this with each response, and the number 0 with one that succeeded.
        let base = v
            .get("base_resp")
            .filter(|base| base["status_code"].as_i64().is_some_and(|code| code != 0));
        if let Some(base) = base {
            let told = serde_json::json!({"error": {"code": base["status_code"], "message": base["status_msg"]}});
            return ErrorBody { is_minimax: true, ..ErrorBody::of(&told) };
        }
        let inner = match v.get("error") {
            Some(e @ Value::Object(_)) => e,
            _ => v,
        };
        let mut body = ErrorBody {
            by_type: v.get("type").and_then(Value::as_str) == Some("error"),
            found: v.get("error").is_some_and(states_error),
            ..ErrorBody::default()
        };
        body.code = inner.get("code").and_then(scalar);
        body.coded = inner.get("code").is_some();
        body.param = inner.get("param").and_then(scalar).map(|param| param.to_lowercase());
        body.failed_generation = inner.get("failed_generation").is_some_and(|text| !text.is_null())
            || body.code.as_deref() == Some("tool_use_failed");
        body.resets = ["resets_in_seconds", "resets_at"].map(|name| inner.get(name)?.as_f64());
        body.kind = ["type", "error_type"]
            .iter()
            // Anthropic's outer `"type": "error"` only marks the envelope and is not the error's
            // type.
            .find_map(|k| inner.get(*k).or_else(|| v.get(*k)).and_then(scalar))
            .filter(|t| t != "error");
        let status_name = inner.get("status").and_then(Value::as_str).unwrap_or("");
        body.named = is_named(status_name).then(|| status_name.to_owned());
        body.message = message(inner, v);
        // The nearest number wins. `http_status` ignores codes that are not an HTTP status.
        body.status = [
            inner.get("status_code"),
            v.get("status_code"),
            v.get("statusCode"),
            v.get("raw_status_code"),
            inner.get("code"),
            inner.get("status"),
        ]
        .into_iter()
        .flatten()
        .find_map(http_status)
        .or_else(|| RPC.iter().find(|(name, _)| *name == status_name).map(|(_, status)| *status));
        let details = inner.get("details").map(Value::to_string).unwrap_or_default();
        body.retry_info = details.contains("RetryInfo");
        // OpenRouter lists moderation findings here.
        let reasons = inner.pointer("/metadata/reasons");
        body.flagged =
            reasons.is_some_and(|r| !matches!(r.to_string().as_str(), "[]" | "null" | "\"\""));
        // Gateways such as OpenRouter put the upstream provider's error into the metadata.
        let extra: [Option<String>; 4] = [
            inner.pointer("/innererror/code").and_then(scalar),
            inner.pointer("/metadata/raw").and_then(scalar),
            inner.pointer("/metadata/error_type").and_then(scalar),
            inner.pointer("/metadata/limit_source").and_then(scalar),
        ];
        body.codes = join([
            body.code.as_deref().unwrap_or(""),
            body.kind.as_deref().unwrap_or(""),
            extra[0].as_deref().unwrap_or(""),
            status_name,
        ]);
        body.words = join([
            &body.codes,
            &body.message,
            &extra[1..].iter().flatten().cloned().collect::<Vec<_>>().join(" "),
            &details,
        ]);
        match v.get("__type").and_then(Value::as_str) {
            Some(name) => body.named("__type", name),
            None => body,
        }
    }

    /// Adds the exception name that AWS sends outside the body, for example `ThrottlingException`.
    /// The name may be followed by a colon and a URL, or preceded by a namespace and `#`.
    pub(crate) fn named(mut self, field: &'static str, name: &str) -> ErrorBody {
        let name = name.split(':').next().unwrap_or_default();
        let name = name.rsplit('#').next().unwrap_or_default().trim();
        if !name.is_empty() {
            let lower = name.to_lowercase();
            let short = lower.strip_suffix("exception").unwrap_or(&lower);
            let known = AWS.iter().find(|(known, _)| *known == short);
            self.excepted = known.map(|(_, status)| *status);
            // The exception comes first, because it is more specific than the words of the body.
            self.codes = join([&lower, &self.codes]);
            self.words = join([&lower, &self.words]);
            self.told_by = Some((field, name.to_owned()));
        }
        self
    }

    /// Creates an error from a finish value that reports one, with the words that came with it.
    pub(crate) fn of_finish(field: &'static str, value: &str, words: &str) -> ErrorBody {
        let told = serde_json::json!({"error": {"message": words, "type": value}});
        ErrorBody { told_by: Some((field, value.to_owned())), ..ErrorBody::of(&told) }
    }

    /// Returns the class of a provider-specific numeric code.
    pub(crate) fn code_of(&self, provider: &str) -> Option<ErrorClass> {
        let code = self.code.as_deref()?;
        let provider = if self.is_minimax { MINIMAX } else { provider };
        NUMBERED.iter().find(|(p, c, _)| *p == provider && *c == code).map(|(_, _, class)| *class)
    }

    /// Returns the time until a used-up allowance comes back, in milliseconds, if the error names it. A moment is
    /// compared with the response's own `date`.
    pub(crate) fn resets_in_ms(&self, headers: &Headers) -> Option<u64> {
        let [seconds, at] = self.resets;
        seconds
            .or_else(|| Some(at? - hints::now(headers)? as f64))
            .and_then(|seconds| hints::millis(seconds * 1000.0))
    }

    /// Returns the name of the field that decided the class, and its raw value.
    pub(crate) fn original(&self, status: u16, google: bool) -> (String, String) {
        let named = |field: &str, value: &Option<String>| {
            value.as_ref().map(|v| (field.to_owned(), v.clone()))
        };
        if let Some((field, value)) = &self.told_by {
            return ((*field).to_owned(), value.clone());
        }
        // Google's code repeats the HTTP status. Its status name carries the meaning.
        if let Some(found) = named("error.status", &self.named).filter(|_| google) {
            return found;
        }
        let by_code = || named("error.code", &self.code);
        // If `code` is present but null, the type stands in for it and is reported under that name.
        let typed = self.by_type || !self.coded;
        let by_type = || named(if typed { "error.type" } else { "error.code" }, &self.kind);
        let found =
            if self.by_type { by_type().or_else(by_code) } else { by_code().or_else(by_type) };
        found.unwrap_or_else(|| {
            if status >= 300 {
                ("http_status".to_owned(), status.to_string())
            } else {
                ("error".to_owned(), String::new())
            }
        })
    }

    /// `true` for `Request too large …: Limit L, Requested R` with R > L, which can never succeed
    /// unchanged.
    pub(crate) fn larger_than_its_allowance(&self) -> bool {
        let number = |after: &str| -> Option<u64> {
            let at = self.words.find(after)? + after.len();
            let tail = self.words[at..].trim_start();
            let digits: String = tail
                .chars()
                // Numbers may have thousands separators: `Limit 6,000`.
                .take_while(|c| c.is_ascii_digit() || *c == ',')
                .filter(char::is_ascii_digit)
                .collect();
            digits.parse().ok()
        };
        match (number("limit "), number("requested ")) {
            (Some(limit), Some(requested)) => requested > limit && self.words.contains("too large"),
            _ => false,
        }
    }
}

fn join<const N: usize>(parts: [&str; N]) -> String {
    parts.join(" ").to_lowercase()
}

/// Returns a string or a number as text.
fn scalar(v: &Value) -> Option<String> {
    match v {
        Value::String(s) if !s.is_empty() => Some(s.clone()),
        Value::Number(n) => Some(n.to_string()),
        _ => None,
    }
}

/// `true` for a name in Google's spelling, such as `INVALID_ARGUMENT`.
fn is_named(status: &str) -> bool {
    !status.is_empty() && status.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')
}

fn http_status(v: &Value) -> Option<u16> {
    let n = match v {
        Value::Number(n) => n.as_u64()?,
        Value::String(s) => s.parse().ok()?,
        _ => return None,
    };
    // Codes such as 1113 are not HTTP statuses.
    u16::try_from(n).ok().filter(|n| (400..600).contains(n))
}

fn message(inner: &Value, outer: &Value) -> String {
    for v in [inner, outer] {
        for key in ["message", "detail", "error", "msg", "Message"] {
            match v.get(key) {
                Some(Value::String(s)) if !s.is_empty() => return s.clone(),
                Some(list @ Value::Array(_)) => return list.to_string(),
                _ => {}
            }
        }
    }
    if let Value::String(s) = outer {
        return s.clone();
    }
    match outer {
        Value::Object(map) if !map.is_empty() => outer.to_string(),
        _ => String::new(),
    }
}

/// Returns a shortened plain text. For HTML, returns the text between the tags.
fn plain(text: &str) -> String {
    let head: String = text.chars().take(4000).collect();
    if !head.starts_with('<') {
        return head;
    }
    let mut out = String::new();
    let mut inside = false;
    for c in head.chars() {
        match c {
            '<' => inside = true,
            '>' => {
                inside = false;
                out.push(' ');
            }
            c if !inside => out.push(c),
            _ => {}
        }
    }
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}
