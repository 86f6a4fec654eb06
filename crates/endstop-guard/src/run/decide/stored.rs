//! Requests for the state of a response that the provider stores: the result of a call that it worked on in the
//! background ends that call.

use crate::exchange::{ClientFacts, Route};
use crate::proxy::{
    Disposition, End, Flow, RequestHead, ResponseHead, ResponseObserver, Unreadable,
};
use crate::run::gate::{Gate, lock};
use crate::run::handle::RunHandle;
use crate::run::response::{decoded, decoder_of};
use crate::run::shared::Shared;
use endstop_core::SignalReason;
use endstop_wire::{Eof, StreamDecoder};
use std::sync::Arc;

/// Passes a request for a stored response. If a run waits for it, its usage is booked.
pub(super) fn stored_response(gate: &Gate, head: &RequestHead, line: &Route) -> Disposition {
    match holder(gate, head, line) {
        Some((RunHandle(shared), id)) => {
            gate.forward_to(head, line, || Box::new(Poll { shared, id, decoder: None }))
        }
        None => gate.forward(head, line, None),
    }
}

/// Returns the run that waits for the response which a request asks for.
fn holder(gate: &Gate, head: &RequestHead, line: &Route) -> Option<(RunHandle, String)> {
    let id = line.stored.as_ref()?;
    let headers = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let facts = ClientFacts::read(headers, &line.target, &gate.salt);
    let key = lock(&gate.threads).run_of_response(&facts, line, id)?;
    let run = gate.started_run(&key)?;
    let is_held = run.0.lock().calls.held(id).is_some();
    is_held.then(|| (run, id.clone()))
}

/// Reads the state of a response that a run waits for.
struct Poll {
    shared: Arc<Shared>,
    id: String,
    decoder: Option<Box<StreamDecoder>>,
}

impl ResponseObserver for Poll {
    fn head(&mut self, head: &ResponseHead) {
        // After an error the client may ask again.
        if !head.status.is_success() {
            return;
        }
        let run = self.shared.lock();
        let held = run.calls.held(&self.id).map(Arc::clone);
        drop(run);
        self.decoder = held.map(|facts| Box::new(decoder_of(&facts, head)));
    }

    fn bytes(&mut self, chunk: &[u8]) -> Flow {
        if let Some(decoder) = &mut self.decoder {
            // An error of the decoder is in its result; the bytes still pass.
            let _ = decoder.push(chunk, &mut |_| {});
        }
        Flow::Pass
    }

    fn unreadable(&mut self, _reason: Unreadable) -> Flow {
        self.decoder = None;
        Flow::Pass
    }

    fn end(self: Box<Self>, end: End) {
        let Poll { shared, id, decoder } = *self;
        let Some(mut decoder) = decoder else { return };
        let is_whole = matches!(end, End::Complete | End::Ended | End::ClientGone { whole: true });
        if !is_whole && !decoder.is_complete() {
            return;
        }
        let Some(facts) = shared.lock().calls.held(&id).cloned() else { return };
        let response = decoded(Some(decoder.finish(Eof::Clean)), &facts);
        let turn = match &response {
            Ok(turn) => Some(turn),
            Err((_, partial)) => partial.as_deref(),
        };
        // Another response does not count, nor does one that is still worked on.
        let is_that = turn.is_some_and(|turn| turn.response_id.as_deref() == Some(&id));
        let is_over = turn.is_some_and(|turn| turn.signal.reason != SignalReason::InProgress);
        if !is_that || !is_over {
            return;
        }
        // Only the first of several answers counts.
        let Some((ticket, facts)) = shared.lock().calls.take_held(&id) else { return };
        let _ = shared.finished(&ticket, &facts, response);
    }
}
