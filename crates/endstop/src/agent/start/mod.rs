//! The start of a run: its input, and what it needs from user code before it begins.

pub(super) mod consult;
pub(super) mod conversation;
pub(super) mod run_hooks;
pub(super) mod run_setup;
pub(super) mod start_error;
