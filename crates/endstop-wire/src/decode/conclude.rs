//! Conclusion of a decoded response: combines the collected content, finish value and errors into a
//! [`Decoded`]. Shared by every format.

use super::{Accumulate, Decoded, Eof, RequestFacts};
use crate::api::Dialect;
use crate::bounded::ITEMS_CAP;
use crate::errors::{self, ErrorBody};
use crate::finish::{Finish, error_class_of};
use crate::headers::Headers;
use crate::json;
use crate::precedence::{Facts, signal};
use crate::redact::excerpt;
use endstop_core::{
    Confidence, ErrorClass, ModelError, ModelTurn, NanoUsd, Part, SignalReason, TerminationSignal,
    Usage,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// State that every format collects.
#[derive(Debug, Default)]
pub(crate) struct Common {
    pub(crate) model: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) usage: Usage,
    pub(crate) cost: Option<NanoUsd>,
    /// The last finish value that was not null.
    pub(crate) finish: Option<String>,
    /// `true` if the protocol's end marker arrived, or if the body is a complete JSON document.
    pub(crate) terminated: bool,
    /// An error object inside the body.
    pub(crate) error: Option<ErrorBody>,
    /// The first part of the body that could not be parsed.
    pub(crate) broken: Option<Broken>,
    /// Mean probability of the generated tokens.
    pub(crate) confidence: Option<f64>,
}

impl Common {
    /// Stores the first model name and the first response id.
    pub(crate) fn named(&mut self, model: Option<&str>, id: Option<&str>) {
        if self.model.is_none() {
            self.model = model.map(str::to_owned);
        }
        if self.id.is_none() {
            self.id = id.map(str::to_owned);
        }
    }

    /// Parses a piece of content. An object or a list that fails to parse marks the response as
    /// broken, because skipping it could lose a tool call or part of the answer.
    pub(crate) fn read<'a, T: Deserialize<'a>>(&mut self, raw: &'a RawValue) -> Option<T> {
        match serde_json::from_str(raw.get()) {
            Ok(value) => Some(value),
            Err(e) => {
                // A stray string or number in such a place carries no content, so it may be
                // skipped.
                if raw.get().starts_with(['{', '[']) {
                    self.broken.get_or_insert_with(|| Broken::json(&e, raw.get()));
                }
                None
            }
        }
    }

    /// Returns `true` if a turn with this many parts may have another. Otherwise marks the response
    /// as broken.
    pub(crate) fn room(&mut self, parts: usize) -> bool {
        if parts >= ITEMS_CAP {
            self.broken.get_or_insert_with(|| {
                Broken::unreadable(format!("the turn has more than {ITEMS_CAP} parts"))
            });
        }
        parts < ITEMS_CAP
    }
}

/// A body that could not be parsed.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) class: ErrorClass,
    pub(crate) message: String,
    /// Excerpt of the unparsed text.
    pub(crate) value: String,
}

impl Broken {
    pub(crate) fn unreadable(message: String) -> Broken {
        Broken { class: ErrorClass::ServerError, message, value: String::new() }
    }

    pub(crate) fn json(e: &serde_json::Error, text: &str) -> Broken {
        Broken {
            class: if is_cut(e, text) {
                ErrorClass::IncompleteStream
            } else {
                ErrorClass::ServerError
            },
            // The parser's message quotes its input, so it is redacted and shortened like any other
            // text.
            message: excerpt(&format!("the response is not the expected JSON: {e}")),
            value: excerpt(text),
        }
    }
}

/// `true` if the text ends too early. The parser reports a number that ends after its sign, point
/// or exponent as a syntax error, but no complete object ends like that, so it counts as cut too.
pub(super) fn is_cut(e: &serde_json::Error, text: &str) -> bool {
    e.is_eof() || e.is_syntax() && text.trim_end().ends_with(['-', '+', '.', 'e', 'E'])
}

/// Content of a turn as one format decoded it.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) parts: Vec<Part>,
    /// Meaning of the finish value in this format.
    pub(crate) finish: Finish,
    /// Field that carries the finish value.
    pub(crate) field: &'static str,
    pub(crate) matched_stop: Option<String>,
    /// `true` if this API reports a matched stop string as a natural stop.
    pub(crate) stop_ambiguous: bool,
    /// Additional facts that the provider reported about the end of the turn.
    pub(crate) metadata: Map<String, Value>,
}

pub(super) fn conclude(
    turn: Box<dyn Accumulate>,
    dialect: &'static Dialect,
    (status, headers): (u16, &Headers),
    facts: &RequestFacts,
    failed: Option<ModelError>,
    (streamed, eof): (bool, Eof),
) -> Decoded {
    let (common, said) = turn.conclude(facts);
    let should_retry = errors::should_retry(headers);
    let complete = common.terminated || said.finish != Finish::Missing;
    let Common { model, id, usage, cost, finish, error, broken, confidence, .. } = common;
    let finish_missing = said.finish == Finish::Missing && !dialect.omits_finish;
    let call_missing = said.finish == Finish::ToolUse;
    let mut signal = of_content(&said, finish.as_deref(), complete, &usage, facts);
    // The first of these errors decides, so they are ordered by how much they explain: the HTTP
    // status, the provider's own error object, unreadable content, an error-like finish value, and
    // last a missing end.
    let error = failed
        .or_else(|| error.map(|body| errors::from_body(&body, status, headers, dialect.name)))
        .or_else(|| broken.map(|b| unreadable(b, status)))
        .or_else(|| of_finish(&said, finish.as_deref(), status))
        .or_else(|| (!complete).then(|| cut(status, eof)));
    let mut value_missing = finish.is_none();
    if let Some(e) = &error {
        // Keep the signal only if it reports an error already and this error names no field of its
        // own, because the finish value then explains more.
        let explicit = e.original.is_some();
        if signal.reason != SignalReason::ErrorTermination || explicit {
            let confidence = if e.class == ErrorClass::IncompleteStream {
                Confidence::Medium
            } else {
                Confidence::High
            };
            let metadata = std::mem::take(&mut signal.provider_specific.metadata);
            let mut s = TerminationSignal::new(SignalReason::ErrorTermination, confidence);
            if let Some((field, value)) = &e.original {
                value_missing = value.is_empty();
                s = s.from_field(field, value);
            }
            s.provider_specific.metadata = metadata;
            signal = s;
        }
        signal.message = Some(e.message.clone());
    }
    // An error response without content has no turn, so that the run does not store an empty one.
    let empty = said.parts.is_empty() && usage == Usage::default() && model.is_none();
    let turn = (error.is_none() || !empty).then(|| ModelTurn {
        usage,
        model,
        response_id: id,
        cost,
        confidence,
        output_cap: facts.output_cap,
        finish_missing,
        call_missing: call_missing
            && !said.parts.iter().any(|part| matches!(part, Part::ToolCall(_))),
        ..ModelTurn::new(said.parts, signal.clone())
    });
    Decoded { turn, error, signal, streamed, complete, value_missing, should_retry }
}

fn of_content(
    said: &Said,
    raw: Option<&str>,
    complete: bool,
    usage: &Usage,
    facts: &RequestFacts,
) -> TerminationSignal {
    let mut found = Facts {
        finish: said.finish,
        field: said.field,
        raw: raw.unwrap_or(""),
        terminated: complete,
        matched_stop: said.matched_stop.as_deref(),
        stop_ambiguous: said.stop_ambiguous,
        at_cap: facts.output_cap.is_some() && usage.generated_tokens() >= facts.output_cap,
        ..Facts::default()
    };
    for part in &said.parts {
        match part {
            // `text_blank` and `args_valid` start as `true`, so one counterexample settles them.
            Part::Text { text } => found.text_blank &= text.trim().is_empty(),
            Part::ToolCall(call) => {
                found.calls += 1;
                found.args_valid &=
                    call.arguments.trim().is_empty() || json::is_object(&call.arguments);
            }
            Part::Refusal { text } => found.refusal |= !text.trim().is_empty(),
            _ => {}
        }
    }
    let mut s = signal(&found);
    if said.finish == Finish::Unusable {
        s.message = Some(ended_with(found.raw));
    }
    for (k, v) in &said.metadata {
        s.provider_specific.metadata.insert(k.clone(), v.clone());
    }
    s
}

fn unreadable(b: Broken, status: u16) -> ModelError {
    ModelError {
        status: (status != 0).then_some(status),
        original: Some(("body".to_owned(), b.value)),
        ..ModelError::new(b.class, b.message)
    }
}

/// Returns the error that a finish value itself stands for, if it does.
fn of_finish(said: &Said, raw: Option<&str>, status: u16) -> Option<ModelError> {
    let raw = raw.unwrap_or("");
    matches!(said.finish, Finish::Error | Finish::Aborted).then(|| ModelError {
        status: (status != 0).then_some(status),
        ..ModelError::new(error_class_of(raw), ended_with(raw))
    })
}

fn ended_with(raw: &str) -> String {
    format!("the provider ended the generation with `{raw}`")
}

fn cut(status: u16, eof: Eof) -> ModelError {
    let message = match eof {
        Eof::Clean => "the stream closed without its end",
        Eof::Reset => "the connection broke before the stream's end",
    };
    ModelError {
        status: (status != 0).then_some(status),
        ..ModelError::new(ErrorClass::IncompleteStream, message)
    }
}
