//! What a run is configured with: its specification, the watches, the models, the abilities of a
//! guest.

pub(super) mod guest_mode;
pub(super) mod limit_changes;
pub(super) mod models;
pub(super) mod spec;
pub(super) mod watch;
