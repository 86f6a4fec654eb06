//! What an agent is made of: its settings, the builder that collects and validates them, and its
//! termination policy.

pub(super) mod build_error;
pub(super) mod builder;
pub(super) mod config;
pub(super) mod policy;
