//! Decodes one record of a session.
//!
//! ```text
//! let record = record::read(map, line)?;      // Err: the reason, for the user
//! match record.what { What::Assistant(said) => …, What::User(said) => …, … }
//! ```

use crate::read::build::fields::{self, Fields, is_true, kind_of, object, peek, text};
use serde_json::Value;

pub(super) struct Record {
    pub(super) line: u64,
    pub(super) uuid: Option<String>,
    pub(super) parent: Option<String>,
    pub(super) session: Option<String>,
    pub(super) side: Option<Side>,
    pub(super) at: Option<String>,
    pub(super) what: What,
    /// The remaining fields.
    pub(super) rest: Fields,
}

/// The subagent that wrote a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Side {
    /// The agent with this id.
    Agent(String),
    /// The subagent that this call started.
    Call(String),
    /// A subagent that can only be identified by the tree of records.
    Unnamed,
}

pub(super) enum What {
    Assistant(Said),
    User(Said),
    /// The first record of a stream.
    Init,
    /// The last record of a stream.
    Result,
    /// The harness stopped at its turn limit.
    MaxTurns(Fields),
    /// A model call failed; it is usually retried.
    ApiError(ApiError),
    /// A request to the model, with its model.
    Request(Option<String>),
    /// The title of a session, with its original key.
    Title(&'static str, String),
    /// A record that is not a message; only its type is counted.
    Other(String),
}

/// The error of a model call.
pub(super) struct ApiError {
    pub(super) message: String,
    pub(super) http_status: Option<u16>,
}

/// A message.
pub(super) struct Said {
    pub(super) content: Vec<Value>,
    /// The other fields of the message.
    pub(super) rest: Fields,
}

impl What {
    /// Returns `true` if a session with such a record is a run.
    pub(super) const fn is_said(&self) -> bool {
        matches!(self, What::Assistant(_) | What::User(_) | What::Result)
    }
}

impl Record {
    /// Returns the name under which the record is counted.
    pub(super) fn kind(&self) -> &str {
        match &self.what {
            What::Assistant(_) => "assistant",
            What::User(_) => "user",
            What::Init => "system/init",
            What::Result => "result",
            What::MaxTurns(_) => "attachment/max_turns_reached",
            What::ApiError(_) => "system/api_error",
            What::Request(_) => "api-request",
            What::Title(kind, _) => kind,
            What::Other(kind) => kind,
        }
    }

    /// Returns the id of the response that the record belongs to.
    pub(super) fn response(&self) -> Option<&str> {
        match &self.what {
            What::Assistant(said) => {
                // Early versions write no message id, but a request id for each response. Some
                // gateways send an empty one.
                let ids = [peek(&said.rest, "id"), peek(&self.rest, "requestId")];
                ids.into_iter().flatten().find(|id| !id.trim().is_empty())
            }
            _ => None,
        }
    }

    /// Returns `true` if the harness wrote the message in the model's role.
    pub(super) fn is_synthetic(&self) -> bool {
        match &self.what {
            What::Assistant(said) => {
                peek(&said.rest, "model") == Some("<synthetic>")
                    || is_true(&self.rest, "isApiErrorMessage")
            }
            _ => false,
        }
    }

    /// Returns `true` if the record is a prompt of a person, or of a program in their place.
    pub(super) fn is_prompt(&self) -> bool {
        match &self.what {
            What::User(said) => {
                !is_true(&self.rest, "isMeta")
                    && !is_true(&self.rest, "isCompactSummary")
                    && said.content.iter().any(|part| part["type"] != "tool_result")
            }
            _ => false,
        }
    }
}

pub(super) fn read(mut map: Fields, line: u64) -> Result<Record, String> {
    let Some(kind) = text(&mut map, "type") else {
        return Err("a record without its `type`".to_owned());
    };
    let mut record = Record {
        line,
        uuid: text(&mut map, "uuid"),
        // A compaction starts a new tree and names its logical parent; a title does the same.
        parent: text(&mut map, "parentUuid").or_else(|| {
            let known = peek(&map, "logicalParentUuid").or_else(|| peek(&map, "leafUuid"));
            known.map(str::to_owned)
        }),
        // Transcripts and streams spell this member differently.
        session: text(&mut map, "sessionId").or_else(|| text(&mut map, "session_id")),
        side: None,
        at: text(&mut map, "timestamp"),
        what: What::Other(String::new()),
        rest: Fields::new(),
    };
    record.what = match kind.as_str() {
        "assistant" => What::Assistant(said(&mut map)?),
        "user" => What::User(said(&mut map)?),
        "result" if peek(&map, "subtype").is_some() => What::Result,
        "system" if peek(&map, "subtype") == Some("init") => What::Init,
        "system" if peek(&map, "subtype") == Some("api_error") => api_error(&map),
        "system" => What::Other(named("system", peek(&map, "subtype"))),
        "attachment" => attachment(&mut map),
        "api-request" => {
            let model = map.get("params").and_then(|params| params["model"].as_str());
            What::Request(model.map(str::to_owned))
        }
        "summary" => title("summary", peek(&map, "summary")),
        "ai-title" => title("ai-title", peek(&map, "aiTitle")),
        "custom-title" => title("custom-title", peek(&map, "customTitle")),
        "agent-name" => title("agent-name", peek(&map, "agentName")),
        _ => What::Other(kind),
    };
    // Removed from all record types, so that it is not stored as an extra member.
    let is_side = is_true(&map, "isSidechain");
    map.shift_remove("isSidechain");
    if matches!(record.what, What::Assistant(_) | What::User(_)) {
        record.side = if let Some(call) = text(&mut map, "parent_tool_use_id") {
            Some(Side::Call(call))
        } else if is_side {
            Some(text(&mut map, "agentId").map_or(Side::Unnamed, Side::Agent))
        } else {
            None
        };
        record.rest = map;
    } else {
        record.side = is_side.then_some(Side::Unnamed);
        if matches!(record.what, What::Init | What::Result) {
            record.rest = map;
        }
    }
    Ok(record)
}

fn said(map: &mut Fields) -> Result<Said, String> {
    let Some(mut message) = object(map, "message") else {
        let found = map.get("message").map_or("nothing", kind_of);
        return Err(format!("invalid `message`: expected an object, found {found}"));
    };
    let content = match message.shift_remove("content") {
        Some(Value::Array(parts)) => {
            // A part of another type would be lost, so the record is rejected.
            if let Some(part) = parts.iter().find(|part| !part.is_object()) {
                return Err(format!(
                    "invalid element of `message.content`: expected an object, found {}",
                    kind_of(part)
                ));
            }
            parts
        }
        // A plain string is wrapped as a part, so that the assembler handles only one form.
        Some(Value::String(text)) => vec![text_part(text)],
        other => {
            let found = other.as_ref().map_or("nothing", kind_of);
            return Err(format!(
                "invalid `message.content`: expected a string or a list, found {found}"
            ));
        }
    };
    message.shift_remove("role");
    message.shift_remove("type");
    Ok(Said { content, rest: fields::without_nulls(message) })
}

fn text_part(text: String) -> Value {
    let mut part = Fields::new();
    part.insert("type".to_owned(), Value::String("text".to_owned()));
    part.insert("text".to_owned(), Value::String(text));
    Value::Object(part)
}

fn attachment(map: &mut Fields) -> What {
    let mut what = object(map, "attachment").unwrap_or_default();
    match text(&mut what, "type").as_deref() {
        Some("max_turns_reached") => What::MaxTurns(what),
        kind => What::Other(named("attachment", kind)),
    }
}

fn api_error(map: &Fields) -> What {
    let error = map.get("error").and_then(Value::as_object);
    let said = error.and_then(|error| peek(error, "formatted").or_else(|| peek(error, "message")));
    What::ApiError(ApiError {
        message: said.unwrap_or("the provider failed").to_owned(),
        http_status: fields::http_status(error.and_then(|error| error.get("status"))),
    })
}

fn title(kind: &'static str, title: Option<&str>) -> What {
    match title {
        Some(title) => What::Title(kind, title.to_owned()),
        None => What::Other(kind.to_owned()),
    }
}

fn named(kind: &str, sub: Option<&str>) -> String {
    sub.map_or_else(|| kind.to_owned(), |sub| format!("{kind}/{sub}"))
}
