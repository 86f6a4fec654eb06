//! The decoded response of a call: its error or turn, its price, and calls that are answers.

use super::calls::CallFacts;
use super::guarded::Response;
use super::pricing::price_of;
use crate::exchange::Structured;
use crate::proxy::ResponseHead;
use endstop_core::{ErrorClass, ModelError, ModelTurn, Part, SignalReason};
use endstop_wire::catalog::prices::PriceBook;
use endstop_wire::{Decoded, Eof, Headers, StreamDecoder};

/// Creates the decoder of a response.
pub(super) fn decoder_of(facts: &CallFacts, head: &ResponseHead) -> StreamDecoder {
    let headers = headers_of(head);
    StreamDecoder::new(facts.dialect, head.status.as_u16(), headers, facts.request)
}

/// The headers of a response, as decoders read them.
pub(super) fn headers_of(head: &ResponseHead) -> Headers {
    let mut headers = Headers::default();
    for (name, value) in &head.headers {
        headers.push(name.as_str(), String::from_utf8_lossy(value.as_bytes()));
    }
    headers
}

/// The response of a connection that ended too early. A decoder that has seen the end of the message or its finish
/// value has a whole response all the same.
pub(super) fn broken(
    decoder: Option<Box<StreamDecoder>>,
    facts: &CallFacts,
    why: &str,
) -> Response {
    let is_complete = |mut decoder: Box<StreamDecoder>| {
        let complete = decoder.is_complete() || decoder.has_ended_turn();
        (decoder, complete)
    };
    match decoder.map(is_complete) {
        Some((decoder, true)) => decoded(Some(decoder.finish(Eof::Clean)), facts),
        Some((decoder, false)) => {
            let result = decoded(Some(decoder.finish(Eof::Reset)), facts);
            let partial = match result {
                Ok(turn) => Some(Box::new(turn)),
                Err((_, partial)) => partial,
            };
            Err((ModelError::new(ErrorClass::IncompleteStream, why), partial))
        }
        None => Err((ModelError::new(ErrorClass::IncompleteStream, why), None)),
    }
}

pub(super) fn decoded(mut decoded: Option<Decoded>, facts: &CallFacts) -> Response {
    if let Some(decoded) = &mut decoded {
        decoded.price_service_tier(facts.catalogue.as_ref());
        price_model(decoded, facts);
    }
    let Some(Decoded { turn, error, signal, .. }) = decoded else {
        let message = "the response ended before its head";
        return Err((ModelError::new(ErrorClass::IncompleteStream, message), None));
    };
    match (error, turn) {
        (Some(error), mut turn) => {
            // These formats count the output twice, first with a preliminary value. A cut stream has
            // only that one, and it must not be charged.
            let early = facts.dialect.family.has_preliminary_output();
            let raw = &signal.provider_specific;
            let ended = raw.original_field == "stop_reason" && !raw.original_value.is_empty();
            if let Some(turn) = turn.as_mut().filter(|_| early && !ended) {
                turn.usage.output_tokens = None;
            }
            Err((error, turn.map(|turn| Box::new(ModelTurn { signal, ..turn }))))
        }
        (None, Some(turn)) => Ok(ModelTurn { signal, ..turn }),
        (None, None) => {
            let message = "the response has no turn in it";
            Err((ModelError::new(ErrorClass::IncompleteStream, message), None))
        }
    }
}

/// Prices a response at the model that answered, if that costs more than the one that was asked for: the path or a
/// gateway may have chosen another.
fn price_model(decoded: &mut Decoded, facts: &CallFacts) {
    let (Some(asked), Some(turn)) = (&facts.catalogue, &mut decoded.turn) else { return };
    let Some(model) = turn.model.as_deref().filter(|_| turn.cost.is_none()) else { return };
    let host = facts.host.as_deref();
    let Some(answered) = price_of(&PriceBook::new(), facts.dialect.family, host, model) else {
        return;
    };
    let cost = answered.price.cost(&turn.usage);
    if cost > asked.price.cost(&turn.usage) {
        turn.cost = Some(cost);
    }
}

/// Returns the turn with its call as its text, if its only calls are the answer: clients that want an object declare a
/// tool for it, and end after the call without a result. As a call it would stay open, and the run would end as
/// unfinished.
pub(super) fn as_answer(mut turn: ModelTurn, wanted: Option<&Structured>) -> ModelTurn {
    let calls: Vec<&str> = turn
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::ToolCall(call) => Some(call.name.as_str()),
            _ => None,
        })
        .collect();
    let Some(wanted) = wanted else { return turn };
    // A cut call is not whole, so its own ending must stand. Some servers end a forced call with
    // the value of a text.
    let whole =
        matches!(turn.signal.reason, SignalReason::ToolUse | SignalReason::NaturalCompletion)
            && turn.unparseable.is_none();
    let only = !calls.is_empty() && calls.into_iter().all(|name| wanted.is_answer(name));
    if !whole || !only {
        return turn;
    }
    for part in &mut turn.parts {
        if let Part::ToolCall(call) = part {
            let text = std::mem::take(&mut call.arguments);
            *part = Part::Text { text };
        }
    }
    turn.signal.reason = SignalReason::NaturalCompletion;
    turn.signal.should_terminate = true;
    turn
}

#[cfg(test)]
mod tests {
    use super::as_answer;
    use crate::exchange::Structured;
    use endstop_core::{Confidence, ModelTurn, Part, SignalReason, TerminationSignal, ToolCall};

    fn calling(names: &[&str]) -> ModelTurn {
        let call = |name: &&str| {
            let (id, name) = (format!("id-{name}"), (*name).to_owned());
            Part::ToolCall(ToolCall { id, name, arguments: r#"{"answer":4}"#.to_owned() })
        };
        let signal = TerminationSignal::new(SignalReason::ToolUse, Confidence::High);
        ModelTurn::new(names.iter().map(call).collect(), signal)
    }

    #[test]
    fn only_a_call_that_is_the_answer_becomes_text() {
        let wanted = Some(&Structured::ToolChoice);
        let answer = as_answer(calling(&["StructuredOutput"]), wanted);
        assert_eq!(answer.signal.reason, SignalReason::NaturalCompletion);
        assert_eq!(answer.parts, [Part::Text { text: r#"{"answer":4}"#.to_owned() }]);
        for other in [&["bash"][..], &["StructuredOutput", "bash"], &[]] {
            assert_eq!(as_answer(calling(other), wanted), calling(other), "{other:?}");
        }
        let named = Structured::Tool("extract".to_owned());
        let answer = as_answer(calling(&["extract"]), Some(&named));
        assert_eq!(answer.signal.reason, SignalReason::NaturalCompletion);
        // Without the wish for an object the name means nothing.
        assert_eq!(as_answer(calling(&["final_answer"]), None), calling(&["final_answer"]));
        let mut cut = calling(&["StructuredOutput"]);
        cut.signal.reason = SignalReason::TokenLimitReached;
        assert_eq!(as_answer(cut.clone(), wanted), cut);
    }
}
