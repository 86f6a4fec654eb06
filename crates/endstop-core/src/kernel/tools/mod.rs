//! The tool calls of a turn: their approval, their results, the background calls and `finish`.

pub(super) mod approval;
pub(super) mod background;
pub(super) mod finish;
pub(super) mod open_calls;
pub(super) mod results;
pub(super) mod step;
