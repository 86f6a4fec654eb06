//! The proxy between a raw client and a raw upstream: what one sends is compared with what the other
//! receives.

mod access;
mod bodies;
mod control;
mod framing;
mod hostile_clients;
mod hostile_upstreams;
mod load;
mod outgoing;
mod recordings;
mod secrets;
mod streaming;
pub(crate) mod support;
mod upstreams;
