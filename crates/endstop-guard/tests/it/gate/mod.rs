//! Guarded runs over real sockets: agents of a test, the gate, and an upstream with its own bill.

mod agents;
mod chaos;
mod costs;
mod early;
mod front_door;
mod hostile;
mod rules;
mod signed;
mod streams;
pub(crate) mod support;
mod windows;
