//! Puts the events of an answer into the form that the client expects.

use crate::exchange::route::Delivery;
use endstop_wire::stream::eventstream::frame;
use serde_json::Value;

/// An event of a stream: its name, if the format names events, and its data.
pub(super) type Event = (&'static str, Value);

/// Returns the content type of a delivery.
pub(super) fn content_type(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::Whole | Delivery::Array => "application/json",
        Delivery::Events => "text/event-stream; charset=utf-8",
        Delivery::Lines => "application/x-ndjson",
        Delivery::Frames => "application/vnd.amazon.eventstream",
    }
}

/// Returns a server-sent event.
pub(super) fn sse((name, data): &Event) -> String {
    match *name {
        "" => format!("data: {data}\n\n"),
        name => format!("event: {name}\ndata: {data}\n\n"),
    }
}

/// Returns a binary frame of Bedrock's Converse.
pub(super) fn converse_frame((name, data): &Event) -> Vec<u8> {
    let headers =
        [(":event-type", *name), (":content-type", "application/json"), (":message-type", "event")];
    frame(&headers, data.to_string().as_bytes())
}
