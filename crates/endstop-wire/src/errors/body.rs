//! The shapes that providers give their errors in, read into one.

use crate::json::without_lone_surrogates;
use endstop_core::ErrorClass;
use serde_json::Value;

/// The most of an error's body that is looked at.
const LOOKED_AT: usize = 256 << 10;

/// Codes that say what status and words do not: provider, code, class.
const NUMBERED: &[(&str, &str, ErrorClass)] = &[
    ("zhipu", "1113", ErrorClass::QuotaExhausted),
    ("zai", "1113", ErrorClass::QuotaExhausted),
    ("zhipu", "1301", ErrorClass::ContentPolicy),
    ("zai", "1301", ErrorClass::ContentPolicy),
];

/// Google's names for a status, where the number is left out: name, HTTP status.
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

/// AWS's names of its exceptions, in lower case and without `exception`: name, HTTP status. A stream
/// has no other status; and of a response they say more than its own does.
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

/// An error as its body tells it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorBody {
    /// `error.code`, where it is not null.
    code: Option<String>,
    /// `error.type`.
    kind: Option<String>,
    /// `error.status`, where it is a name of Google's.
    named: Option<String>,
    /// The exception that it is, and where that was said.
    exception: Option<(&'static str, String)>,
    /// There is an `error.code`, be it null: the type then says what it would.
    coded: bool,
    /// The words for a person; the text itself where it is not JSON.
    pub(crate) message: String,
    /// Message, code and type together, in lower case, to look for words in.
    pub(crate) words: String,
    /// Code and type alone, in lower case.
    pub(crate) codes: String,
    /// The status that the error itself names.
    pub(crate) status: Option<u16>,
    /// It says when to come back.
    pub(crate) retry_info: bool,
    /// It lists what a moderation found.
    pub(crate) flagged: bool,
    /// An Anthropic envelope: the type is what matters.
    by_type: bool,
    /// The status that its exception stands for, whatever the response's is.
    pub(crate) excepted: Option<u16>,
    /// It is a JSON object that has an error in it.
    pub(crate) found: bool,
    /// The field outside of the error that told of it, and its raw value.
    told_by: Option<(&'static str, String)>,
}

impl ErrorBody {
    /// Reads any text.
    pub(crate) fn read(text: &str) -> ErrorBody {
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.len() <= LOOKED_AT {
            let repaired = without_lone_surrogates(text);
            if let Ok(v) = serde_json::from_str::<Value>(repaired.as_deref().unwrap_or(text)) {
                return ErrorBody::of(&v);
            }
        }
        let mut body = ErrorBody { message: plain(text), ..ErrorBody::default() };
        body.words = body.message.to_lowercase();
        body
    }

    /// An error of our own wording, of the class that `status` says.
    pub(crate) fn of(v: &Value) -> ErrorBody {
        // Some gateways wrap the object in a list of one.
        let v = v.get(0).filter(|_| v.is_array()).unwrap_or(v);
        let inner = match v.get("error") {
            Some(e @ Value::Object(_)) => e,
            _ => v,
        };
        let mut body = ErrorBody {
            by_type: v.get("type").and_then(Value::as_str) == Some("error"),
            found: v.get("error").is_some_and(|e| !e.is_null()),
            ..ErrorBody::default()
        };
        body.code = inner.get("code").and_then(scalar);
        body.coded = inner.get("code").is_some();
        body.kind = ["type", "error_type"]
            .iter()
            .find_map(|k| inner.get(*k).or_else(|| v.get(*k)).and_then(scalar))
            .filter(|t| t != "error");
        let status_name = inner.get("status").and_then(Value::as_str).unwrap_or("");
        body.named = is_named(status_name).then(|| status_name.to_owned());
        body.message = message(inner, v);
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
        let reasons = inner.pointer("/metadata/reasons");
        body.flagged =
            reasons.is_some_and(|r| !matches!(r.to_string().as_str(), "[]" | "null" | "\"\""));
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

    /// The same error, which AWS names beside its body: `ThrottlingException`, with an address
    /// behind a colon or before a `#`.
    pub(crate) fn named(mut self, field: &'static str, name: &str) -> ErrorBody {
        let name = name.split(':').next().unwrap_or_default();
        let name = name.rsplit('#').next().unwrap_or_default().trim();
        if !name.is_empty() {
            let lower = name.to_lowercase();
            let short = lower.strip_suffix("exception").unwrap_or(&lower);
            let known = AWS.iter().find(|(known, _)| *known == short);
            self.excepted = known.map(|(_, status)| *status);
            self.codes = join([&lower, &self.codes]);
            self.words = join([&lower, &self.words]);
            self.exception = Some((field, name.to_owned()));
        }
        self
    }

    /// An error that a finish value tells, with the words that came beside it.
    pub(crate) fn of_finish(field: &'static str, value: &str, words: &str) -> ErrorBody {
        let told = serde_json::json!({"error": {"message": words, "type": value}});
        ErrorBody { told_by: Some((field, value.to_owned())), ..ErrorBody::of(&told) }
    }

    /// The class of a code that one provider numbers its errors by.
    pub(crate) fn code_of(&self, provider: &str) -> Option<ErrorClass> {
        let code = self.code.as_deref()?;
        NUMBERED.iter().find(|(p, c, _)| *p == provider && *c == code).map(|(_, _, class)| *class)
    }

    /// The field that told the class, and its raw value.
    pub(crate) fn original(&self, status: u16, google: bool) -> (String, String) {
        let named = |field: &str, value: &Option<String>| {
            value.as_ref().map(|v| (field.to_owned(), v.clone()))
        };
        if let Some((field, value)) = &self.told_by {
            return ((*field).to_owned(), value.clone());
        }
        if let Some((field, name)) = &self.exception {
            return ((*field).to_owned(), name.clone());
        }
        // Google's code repeats the HTTP status; its name is what tells.
        if let Some(found) = named("error.status", &self.named).filter(|_| google) {
            return found;
        }
        let by_code = || named("error.code", &self.code);
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

    /// `Request too large …: Limit L, Requested R` with R > L can never pass unchanged.
    pub(crate) fn larger_than_its_allowance(&self) -> bool {
        let number = |after: &str| -> Option<u64> {
            let at = self.words.find(after)? + after.len();
            let tail = self.words[at..].trim_start();
            let digits: String = tail
                .chars()
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

/// A string or a number, as text.
fn scalar(v: &Value) -> Option<String> {
    match v {
        Value::String(s) if !s.is_empty() => Some(s.clone()),
        Value::Number(n) => Some(n.to_string()),
        _ => None,
    }
}

/// Google's names: `INVALID_ARGUMENT`.
fn is_named(status: &str) -> bool {
    !status.is_empty() && status.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')
}

fn http_status(v: &Value) -> Option<u16> {
    let n = match v {
        Value::Number(n) => n.as_u64()?,
        Value::String(s) => s.parse().ok()?,
        _ => return None,
    };
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

/// A page or a line of text, shortened; of HTML what stands between the tags.
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
