//! Conclusion of a decoded response: combines the collected content, finish value and errors into a
//! [`Decoded`]. Shared by every format.

use super::billing::ServiceTier;
use super::common::{Common, DecodeFailure, DecodedTurn};
use super::decoded::{Accumulate, Decoded, Eof, RequestFacts};
use crate::dialect::Dialect;
use crate::errors;
use crate::headers::Headers;
use crate::json;
use crate::signal::finish::{Finish, error_class_of};
use crate::signal::precedence::{TurnFacts, signal};
use endstop_core::{
    Billing, Confidence, ErrorClass, ModelError, ModelTurn, Part, SignalReason, TerminationSignal,
    Usage, is_blank,
};

pub(super) fn conclude(
    turn: Box<dyn Accumulate>,
    dialect: &'static Dialect,
    (status, headers): (u16, &Headers),
    facts: &RequestFacts,
    failed: Option<ModelError>,
    (streamed, eof): (bool, Eof),
) -> Decoded {
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
    Decoded { turn, error, signal, service_tier, streamed, complete, value_missing, should_retry }
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
