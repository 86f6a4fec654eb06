//! Readers of formats that many programs write: traces, logs and message lists.

pub(crate) mod atif;
pub(crate) mod inspect;
pub(crate) mod messages;
pub(crate) mod neutral;
pub(crate) mod otel;
