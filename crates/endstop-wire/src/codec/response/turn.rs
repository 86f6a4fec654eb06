//! A decoded turn: the part of its state that all wire formats have in common, and its conclusion from the collected
//! content, the finish value and the errors.

use super::billing::{Bill, ServiceTier};
use super::{Decoded, Delta, Eof, RequestFacts};
use crate::bounded::ITEMS_CAP;
use crate::dialect::{Dialect, WireFormat};
use crate::errors::{self, ErrorBody};
use crate::headers::Headers;
use crate::json::{self, Count};
use crate::redact::excerpt;
use crate::signal::finish::{Finish, error_class_of, finish_of};
use crate::signal::precedence::{TurnFacts, signal};
use crate::windows;
use endstop_core::{
    Billing, Confidence, ErrorClass, ModelError, ModelTurn, NanoUsd, Part, SignalReason,
    TerminationSignal, Usage, is_blank,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

pub(crate) type DeltaSink<'s> = &'s mut dyn FnMut(Delta<'_>);

/// Result of parsing a part of a response.
pub(crate) type Parsed = Result<(), serde_json::Error>;

/// Reports generated output that is not shown, unless it is blank: blank output ends no reasoning.
pub(crate) fn hide(text: &str, sink: DeltaSink<'_>) {
    if !is_blank(text) {
        sink(Delta::Hidden(text));
    }
}

/// State machine that collects a response in one wire format. Each format's folder implements it.
pub(crate) trait Accumulate: Send {
    /// Takes one event of a stream. Returns an error if its JSON cannot be parsed.
    fn event(&mut self, name: &str, data: &str, sink: DeltaSink<'_>) -> Parsed;
    /// Takes a complete JSON body.
    fn body(&mut self, json: &str) -> Parsed;
    /// Returns the state that all formats share.
    fn common(&mut self) -> &mut Common;
    /// Returns the collected content after the last event.
    fn conclude(self: Box<Self>, facts: &RequestFacts) -> (Common, DecodedTurn);
}

/// State that every format collects.
#[derive(Debug, Default)]
pub(crate) struct Common {
    pub(crate) model: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) usage: Usage,
    pub(crate) cost: Option<NanoUsd>,
    /// What the response reports about its bill in addition to the tokens.
    pub(crate) bill: Bill,
    /// The finish value.
    pub(crate) finish: Option<String>,
    /// `true` if the protocol's end marker arrived, or if the body is a complete JSON document.
    pub(crate) terminated: bool,
    /// An error object inside the body. Boxed, because few responses have one.
    pub(crate) error: Option<Box<ErrorBody>>,
    /// The first part of the body that could not be parsed.
    pub(crate) broken: Option<DecodeFailure>,
    /// Mean probability of the generated tokens.
    pub(crate) confidence: Option<f64>,
}

/// Text that makes the arguments of a call unparseable, whatever is before and after it: JSON allows no control character,
/// also within a string.
pub(crate) const NOT_JSON: &str = "\u{1a}";

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

    /// Stores an error object inside the body, unless there was one before.
    pub(crate) fn fail(&mut self, error: impl FnOnce() -> ErrorBody) {
        self.error.get_or_insert_with(|| Box::new(error()));
    }

    /// Stores a finish value. An empty one counts only until a real one arrives, and one of a cut or
    /// failed answer is only replaced by another one. Returns `true` if it was stored.
    pub(crate) fn finishes(&mut self, family: WireFormat, value: &str) -> bool {
        let replaces = match self.finish.as_deref() {
            None => true,
            Some(_) if value.is_empty() => false,
            Some(before) => {
                !finish_of(family, before).is_sticky() || finish_of(family, value).is_sticky()
            }
        };
        if replaces {
            self.finish = Some(value.to_owned());
        }
        replaces
    }

    /// Stores token counts. Later events repeat some counts and omit others, and some gateways send zeros, so that a count
    /// of a response never falls.
    pub(crate) fn count(&mut self, new: &Usage) {
        let to = &mut self.usage;
        to.input_tokens = new.input_tokens.max(to.input_tokens);
        to.output_tokens = new.output_tokens.max(to.output_tokens);
        to.cached_input_tokens = new.cached_input_tokens.max(to.cached_input_tokens);
        to.cache_write_tokens = new.cache_write_tokens.max(to.cache_write_tokens);
        to.cache_write_1h_tokens = new.cache_write_1h_tokens.max(to.cache_write_1h_tokens);
        to.reasoning_tokens = new.reasoning_tokens.max(to.reasoning_tokens);
    }

    /// Returns the tokens that only the total of a response has, without those of the cache. Some proxies count the
    /// cached tokens in addition to the prompt, which shows if the prompt has fewer, or if they are the whole rest.
    pub(crate) fn in_total_only(
        &mut self,
        total: Count,
        prompt: Count,
        output: Count,
    ) -> Option<u64> {
        let counted = prompt.0.unwrap_or(0).saturating_add(output.0.unwrap_or(0));
        let rest = total.0?.checked_sub(counted)?;
        let usage = &mut self.usage;
        let count = |count: Option<u64>| count.unwrap_or(0);
        let cached =
            count(usage.cached_input_tokens).saturating_add(count(usage.cache_write_tokens));
        let is_whole_rest = rest == cached && usage.reasoning_tokens != Some(rest);
        let is_apart =
            cached > 0 && rest >= cached && (is_whole_rest || cached > count(usage.input_tokens));
        usage.cache_apart |= is_apart;
        Some(if is_apart { rest - cached } else { rest })
    }

    /// Returns the JSON object of an event, or `None` for data that carries none. Some gateways end
    /// the stream of any format with `[DONE]`.
    pub(crate) fn event_object<'a>(&mut self, data: &'a str) -> Option<&'a str> {
        let data = data.trim();
        let object = data.starts_with('{');
        self.terminated |= data == "[DONE]";
        object.then_some(data)
    }

    /// Parses a part of the content. An object or a list that fails to parse marks the response as
    /// broken, because skipping it could lose a tool call or part of the answer.
    pub(crate) fn read<'a, T: Deserialize<'a>>(&mut self, raw: &'a RawValue) -> Option<T> {
        match serde_json::from_str(raw.get()) {
            Ok(value) => Some(value),
            Err(e) => {
                // A stray string or number in such a place carries no content, so it may be
                // skipped.
                if raw.get().starts_with(['{', '[']) {
                    self.broken.get_or_insert_with(|| DecodeFailure::json(&e, raw.get()));
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
                DecodeFailure::unreadable(format!("the turn has more than {ITEMS_CAP} parts"))
            });
        }
        parts < ITEMS_CAP
    }
}

/// A body that could not be parsed.
#[derive(Debug)]
pub(crate) struct DecodeFailure {
    pub(crate) class: ErrorClass,
    pub(crate) message: String,
    /// Excerpt of the unparsed text.
    pub(crate) value: String,
}

impl DecodeFailure {
    pub(crate) fn unreadable(message: String) -> DecodeFailure {
        DecodeFailure { class: ErrorClass::ServerError, message, value: String::new() }
    }

    pub(crate) fn json(e: &serde_json::Error, text: &str) -> DecodeFailure {
        DecodeFailure {
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
pub(crate) struct DecodedTurn {
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

/// The end of a response, and the facts about it apart from its content.
pub(super) struct Ended<'a> {
    pub(super) dialect: &'static Dialect,
    pub(super) status: u16,
    pub(super) headers: &'a Headers,
    pub(super) facts: &'a RequestFacts,
    /// The error that the status reports.
    pub(super) failed: Option<ModelError>,
    pub(super) streamed: bool,
    pub(super) eof: Eof,
}

/// Combines the collected content, the finish value and the errors.
pub(super) fn conclude(turn: Box<dyn Accumulate>, ended: Ended<'_>) -> Decoded {
    let Ended { dialect, status, headers, facts, failed, streamed, eof } = ended;
    let (common, mut said) = turn.conclude(facts);
    said.parts.iter_mut().for_each(read_null_arguments);
    let should_retry = errors::should_retry(headers);
    let complete = common.terminated || said.finish != Finish::Missing;
    let Common { model, id, mut usage, cost, bill, finish, error, broken, confidence, .. } = common;
    if facts.cached_for_hour && usage.cache_write_1h_tokens.is_none() {
        // The server reports no lifetimes, and the request asked for this one only.
        usage.cache_write_1h_tokens = usage.cache_write_tokens;
    }
    // The text of a guardrail that blocked the prompt was not generated.
    if said.finish != Finish::ContentFilter {
        forget_impossible(&mut usage, &said.parts);
    }
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
                s = s.from_field(field.clone(), value);
            }
            s.provider_specific.metadata = metadata;
            signal = s;
        }
        signal.message = Some(e.message.clone());
    }
    let mut service_tier = None;
    // A cost that the provider reports includes everything.
    if cost.is_none() {
        bill.note(&mut signal.provider_specific.metadata);
        let rest;
        (service_tier, rest) = bill.finish(headers);
        usage.billing = service_tier.as_ref().map_or(rest, ServiceTier::billing);
        // More cached tokens than the prompt has: either count may be wrong, so all of them are
        // booked.
        if !usage.cache_apart && usage.cached_input_tokens > usage.input_tokens {
            usage.billing = usage.billing.max(Billing::AtMost);
        }
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
    Decoded {
        turn,
        error,
        signal,
        service_tier,
        streamed,
        complete,
        value_missing,
        should_retry,
        windows: windows::of(headers),
    }
}

/// `true` if the response has content that was generated and can be seen.
fn shows_content(parts: &[Part]) -> bool {
    parts.iter().any(|part| match part {
        Part::Text { text } | Part::Refusal { text } => !is_blank(text),
        Part::ToolCall(_) => true,
        _ => false,
    })
}

/// Reads the arguments `null` as none, as of a tool without parameters.
fn read_null_arguments(part: &mut Part) {
    if let Part::ToolCall(call) = part {
        if call.arguments.trim() == "null" {
            call.arguments.clear();
        }
    }
}

/// Upper bound on the characters of a token in the vocabularies of today; the longest are runs of blanks.
const LONGEST_TOKEN: u64 = 128;

/// Forgets counts that cannot be true: a prompt has tokens, and so has content, at least one for
/// [`LONGEST_TOKEN`] characters. A server that sends them reports nothing, and its responses are not free.
fn forget_impossible(usage: &mut Usage, parts: &[Part]) {
    usage.input_tokens = usage.input_tokens.filter(|_| usage.prompt_tokens() > 0);
    let shown = shows_content(parts);
    let least = parts.iter().map(characters).sum::<u64>() / LONGEST_TOKEN;
    let least = least.max(u64::from(shown));
    let enough = usage.generated_tokens().is_none_or(|generated| generated >= least);
    if !enough {
        (usage.output_tokens, usage.reasoning_tokens) = (None, None);
    }
}

/// The characters that the model wrote. An image in a text is not written as text.
fn characters(part: &Part) -> u64 {
    match part {
        Part::Text { text } | Part::Refusal { text } => written(text),
        Part::ToolCall(call) => written(&call.arguments),
        _ => 0,
    }
}

/// The characters of a text without its data in base64.
fn written(text: &str) -> u64 {
    let is_data = |letter: char| letter.is_ascii_alphanumeric() || "+/=".contains(letter);
    let mut pieces = text.split(";base64,");
    let first = pieces.next().unwrap_or_default();
    let rest = pieces.map(|piece| piece.trim_start_matches(is_data));
    std::iter::once(first).chain(rest).map(|piece| piece.chars().count() as u64).sum()
}

fn of_content(
    said: &DecodedTurn,
    raw: Option<&str>,
    complete: bool,
    usage: &Usage,
    facts: &RequestFacts,
) -> TerminationSignal {
    let mut found = TurnFacts {
        finish: said.finish,
        field: said.field,
        raw: raw.unwrap_or(""),
        terminated: complete,
        matched_stop: said.matched_stop.as_deref(),
        stop_ambiguous: said.stop_ambiguous,
        at_cap: facts.output_cap.is_some() && usage.generated_tokens() >= facts.output_cap,
        ..TurnFacts::default()
    };
    for part in &said.parts {
        match part {
            // `text_blank` and `args_valid` start as `true`, so one counterexample settles them.
            Part::Text { text } => found.text_blank &= is_blank(text),
            Part::ToolCall(call) => {
                found.calls += 1;
                found.args_valid &=
                    call.arguments.trim().is_empty() || json::is_object(&call.arguments);
            }
            Part::Refusal { text } => found.refusal |= !is_blank(text),
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

fn unreadable(b: DecodeFailure, status: u16) -> ModelError {
    ModelError {
        status: (status != 0).then_some(status),
        original: Some(("body".to_owned(), b.value)),
        ..ModelError::new(b.class, b.message)
    }
}

/// Returns the error that a finish value itself stands for, if it does.
fn of_finish(said: &DecodedTurn, raw: Option<&str>, status: u16) -> Option<ModelError> {
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

#[cfg(test)]
mod tests {
    use super::written;

    #[test]
    fn data_is_not_written() {
        for (text, count) in [
            ("", 0),
            ("two", 3),
            ("![](data:image/png;base64,iVBO+/9=)", 19),
            // A mark alone hides no text behind it.
            (";base64, and more", 9),
            ("a;base64,AA b;base64,BB c", 5),
        ] {
            assert_eq!(written(text), count, "{text}");
        }
    }
}
