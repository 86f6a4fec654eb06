//! Calls that cost nothing below the path of a model call: counts of tokens, cancellations. A server that routes by the
//! beginning of a path answers them as that model call, and only its answer shows that.

use super::metered::{Kept, Prepared};
use super::passing::late;
use super::stored::stored_response;
use crate::exchange::{Call, Route};
use crate::proxy::{
    Disposition, End, Flow, Forward, RequestBody, RequestHead, ResponseHead, ResponseObserver,
};
use crate::run::calls::CallFacts;
use crate::run::event::GuardEvent;
use crate::run::gate::Gate;
use crate::run::pricing::is_at_provider;
use crate::run::response::{decoded, decoder_of};
use crate::run::shared::Shared;
use endstop::telemetry::Operation;
use endstop_core::ModelTurn;
use endstop_wire::codec::request::Fields;
use endstop_wire::redact::Redacted;
use endstop_wire::{Eof, StreamDecoder, WireFormat};
use std::sync::Arc;

/// Members that ask for output. A count of tokens has none of them, and most model calls need one.
const OUTPUT: &[&str] =
    &["max_tokens", "max_output_tokens", "max_completion_tokens", "stream", "background"];
/// The member of a count of tokens.
const COUNT: &str = "input_tokens";
/// Members of answers.
const ANSWER: &[&str] = &["choices", "content", "candidates", "message", "output", "usage"];

/// Decides about a call below a model call that has a body, while a limit counts.
pub(super) fn below(
    gate: &Gate,
    head: &RequestHead,
    (line, format): (&Route, WireFormat),
    body: &RequestBody,
) -> Disposition {
    let prepared = match Prepared::of(gate, head, line, (format, Operation::GenerateContent), body)
    {
        Ok(prepared) => prepared,
        Err(decision) => return *decision,
    };
    let Prepared { run, url, own, facts, body, .. } = prepared;
    if let Some(answer) = late(&run, false) {
        return answer;
    }
    let (is_strict, has_answered) = {
        let mut guarded = run.0.lock();
        guarded.record.hide_keys_of(head, &body);
        (guarded.settings.is_strict(), guarded.has_answered_below)
    };
    let asks = Asks::of(&body);
    let is_count = line.call == Call::CountTokens;
    let problem = match asks {
        _ if has_answered => Some(ANSWERED),
        Asks::Output => Some(ASKS_FOR_OUTPUT),
        Asks::Something if !is_count => Some(ASKS_FOR_OUTPUT),
        // Without a bound of its own, the answer of another server may cost any amount.
        Asks::Something if is_strict && !is_at_provider(&url, format) => Some(UNBOUNDED),
        Asks::Nothing | Asks::Something => None,
    };
    if let Some(problem) = problem {
        return gate.refuse(head, problem);
    }
    if !is_count {
        return stored_response(gate, head, line);
    }
    let target = head.redacted_target();
    let observer = Watching {
        shared: Arc::clone(&run.0),
        facts,
        target,
        decoder: None,
        kept: Kept::default(),
    };
    let mut forward = Forward::unchanged(url, Box::new(observer));
    forward.headers = own;
    Disposition::Forward(forward)
}

/// The reasons for a refusal.
const ASKS_FOR_OUTPUT: &str = "the path is that of a call that costs nothing, and the body asks for an answer of the \
     model, which a server that routes by the beginning of a path would give";
const ANSWERED: &str = "the upstream has answered such a call like the model call above its path, so it costs, and \
     guard cannot count it";
const UNBOUNDED: &str = "a server other than the provider's own may answer this count of tokens like the model call \
     above its path, and --cap-output cannot keep the ceiling then";

/// What the body of a call below a model call asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    /// It is an empty object.
    Nothing,
    Something,
    /// An answer of the model, or it cannot be read.
    Output,
}

impl Asks {
    fn of(body: &[u8]) -> Asks {
        let fields = std::str::from_utf8(body).ok().and_then(|text| Fields::of(text).ok());
        let Some(fields) = fields else { return Asks::Output };
        // Some servers ignore the case of names.
        let asks = |name: &str| OUTPUT.iter().any(|output| output.eq_ignore_ascii_case(name));
        if fields.names().any(asks) {
            Asks::Output
        } else if fields.names().next().is_some() {
            Asks::Something
        } else {
            Asks::Nothing
        }
    }
}

/// Reads the response to a count of tokens. Anything but a count is a model call, which is booked.
struct Watching {
    shared: Arc<Shared>,
    facts: Arc<CallFacts>,
    target: Redacted,
    /// `None` before the head, and after an error.
    decoder: Option<Box<StreamDecoder>>,
    kept: Kept,
}

impl ResponseObserver for Watching {
    fn head(&mut self, head: &ResponseHead) {
        if head.status.is_success() {
            self.decoder = Some(Box::new(decoder_of(&self.facts, head)));
        }
    }

    fn bytes(&mut self, chunk: &[u8]) -> Flow {
        if let Some(decoder) = &mut self.decoder {
            // An error of the decoder is in its result; the bytes still pass.
            let _ = decoder.push(chunk, &mut |_| {});
            self.kept.push(chunk);
        }
        Flow::Pass
    }

    fn end(self: Box<Self>, end: End) {
        let Watching { shared, facts, target, decoder, kept } = *self;
        let Some(decoder) = decoder else { return };
        if is_count(&kept.first) {
            return;
        }
        let turn = match decoded(Some(decoder.finish(Eof::Clean)), &facts) {
            Ok(turn) => Some(turn),
            Err((_, partial)) => partial.map(|turn| *turn),
        };
        let has_content =
            |turn: &ModelTurn| !turn.parts.is_empty() || turn.usage.total_tokens() > 0;
        let is_whole = matches!(end, End::Complete | End::Ended | End::ClientGone { whole: true });
        let turn = match turn.filter(has_content) {
            Some(turn) => turn,
            // What is not understood is not a count.
            None if is_whole => kept.turn().0,
            None => return,
        };
        shared.book_uncounted(&facts, &turn);
        // A constant.
        let reason = Redacted::exempt(ANSWERED);
        shared.lock().notify(GuardEvent::Passed { target, reason });
    }
}

/// `true` if a whole response is a count of tokens.
fn is_count(body: &[u8]) -> bool {
    let fields = std::str::from_utf8(body).ok().and_then(|text| Fields::of(text).ok());
    fields.is_some_and(|fields| {
        fields.value(COUNT).is_u64() && !ANSWER.iter().any(|name| fields.has(name))
    })
}

#[cfg(test)]
mod tests {
    use super::{Asks, is_count};

    #[test]
    fn bodies_that_ask_for_an_answer_are_found() {
        for (body, expected) in [
            ("{}", Asks::Nothing),
            (r#"{"model":"m","messages":[],"tools":[]}"#, Asks::Something),
            (r#"{"model":"m","thinking":{"budget_tokens":9}}"#, Asks::Something),
            (r#"{"model":"m","max_tokens":9}"#, Asks::Output),
            (r#"{"model":"m","Max_Tokens":null}"#, Asks::Output),
            (r#"{"stream":false}"#, Asks::Output),
            (r#"{"input":"max_tokens"}"#, Asks::Something),
            ("[]", Asks::Output),
            ("model=m", Asks::Output),
            ("", Asks::Output),
        ] {
            assert_eq!(Asks::of(body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn counts_are_told_from_answers() {
        for (body, expected) in [
            (r#"{"input_tokens":14}"#, true),
            (r#"{"input_tokens":14,"context_management":{"original_input_tokens":20}}"#, true),
            (r#"{"object":"response.input_tokens","input_tokens":11}"#, true),
            (r#"{"input_tokens":14,"content":[{"type":"text","text":"paid"}]}"#, false),
            (r#"{"id":"m","content":[],"usage":{"input_tokens":14,"output_tokens":9}}"#, false),
            (r#"{"input_tokens":14,"usage":{"output_tokens":9}}"#, false),
            (r#"{"input_tokens":"14"}"#, false),
            (r#"{"ok":true}"#, false),
            ("data: {\"input_tokens\":14}\n\n", false),
            ("", false),
        ] {
            assert_eq!(is_count(body.as_bytes()), expected, "{body}");
        }
    }
}
