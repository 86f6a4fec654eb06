//! The HTTP interface. One table has every operation; the router and the OpenAPI document are made
//! from it.

mod answer;
mod body;
mod control;
mod create;
mod events;
mod failure;
mod gate;
mod operations;
mod read;
mod router;
mod schema;
mod status;
mod view;

pub(crate) use answer::json;
pub(crate) use body::bounded;
pub(crate) use events::{EventReader, event_stream};
pub(crate) use failure::Failure;
pub(crate) use router::router;
