//! A client of the tests: it places requests in a table, as the proxy does.

use endstop_core::{Confidence, ModelTurn, Part, SignalReason, TerminationSignal, ToolCall};
use endstop_guard::exchange::{ClientFacts, Placed, Request, Salt, Seat, Threads, route};
use serde_json::Value;

pub(crate) fn salt() -> Salt {
    Salt::new([7; 16])
}

pub(crate) struct Table(pub(crate) Threads);

impl Table {
    pub(crate) fn new() -> Table {
        Table(Threads::new(salt()))
    }

    /// Places a POST request.
    pub(crate) fn place(&mut self, target: &str, headers: &[(&str, &str)], body: &Value) -> Placed {
        self.place_bytes(target, headers, body.to_string().as_bytes())
    }

    pub(crate) fn place_bytes(
        &mut self,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Placed {
        let route = route("POST", target).unwrap();
        let request = Request::read(&route, body).unwrap();
        let bytes = headers.iter().map(|(name, value)| (*name, value.as_bytes()));
        let facts = ClientFacts::read(bytes, target, &salt());
        self.0.place(&facts, &route, &request).unwrap()
    }

    /// Reports a response with these calls: id, name, arguments.
    pub(crate) fn answer(&mut self, placed: &Placed, calls: &[(&str, &str, &str)]) {
        self.0.answered(&placed.seat, placed.kind, &turn(calls));
    }

    pub(crate) fn answer_with_id(&mut self, placed: &Placed, id: &str, text: &str) {
        let parts = vec![Part::Text { text: text.into() }];
        let mut turn = ModelTurn::new(parts, signal());
        turn.response_id = Some(id.into());
        self.0.answered(&placed.seat, placed.kind, &turn);
    }
}

pub(crate) fn turn(calls: &[(&str, &str, &str)]) -> ModelTurn {
    let call = |(id, name, arguments): &(&str, &str, &str)| {
        let (id, name) = ((*id).to_owned(), (*name).to_owned());
        Part::ToolCall(ToolCall { id, name, arguments: (*arguments).to_owned() })
    };
    ModelTurn::new(calls.iter().map(call).collect(), signal())
}

fn signal() -> TerminationSignal {
    TerminationSignal::new(SignalReason::ToolUse, Confidence::High)
}

pub(crate) fn thread(seat: &Seat) -> &str {
    seat.thread.as_str()
}
