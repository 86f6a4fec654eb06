//! Parts that the readers of formats share: JSON members into the model, and a run step by step.
//!
//! Two ways lead from JSON to the model. [`record`] deserializes objects member by member with
//! borrowed strings, for files of many runs. [`fields`] takes fields out of parsed maps, for logs
//! whose records are small and have many shapes. [`talk`] and [`conversation`] build the steps: the
//! first from messages in order, the second also if results come before their calls.

pub(crate) mod arguments;
pub(crate) mod aside;
pub(crate) mod conversation;
pub(crate) mod fields;
pub(crate) mod google;
pub(crate) mod message;
pub(crate) mod parts;
pub(crate) mod record;
pub(crate) mod talk;
pub(crate) mod tree;

/// The note of a reader for steps whose numbers are out of order.
pub(crate) const OUT_OF_ORDER: &str = "steps out of order";
