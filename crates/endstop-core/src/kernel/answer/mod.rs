//! The response of the model: its evaluation, and the way of an answer to the end.

pub(super) mod lost_call;
pub(super) mod response;
pub(super) mod success;
pub(super) mod turn;
