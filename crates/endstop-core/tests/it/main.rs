//! Tests of `endstop-core`, one module per subject. Conformance vectors come from `testdata/`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::type_complexity,
    clippy::pedantic,
    missing_docs,
    unreachable_pub,
    dead_code,
    reason = "tests"
)]

mod background;
mod cache_prices;
mod call_clocks;
mod ceilings;
mod changes;
mod clocks;
mod compaction;
mod declared;
mod default_detection;
mod detectors;
mod fallback;
mod fallback_laws;
mod final_pattern;
mod going_on;
mod guest_laws;
mod guest_rules;
mod guest_world;
mod hand;
mod kernel_laws;
mod kernel_rules;
mod kernel_search;
mod laws;
mod limit_pages;
mod loops;
mod media;
mod model_calls;
mod not_knowing;
mod outcomes;
mod policies;
mod policy_calls;
mod protocols;
mod rates;
mod recorded_runs;
mod registry;
mod reviews;
mod search;
mod steering;
mod stopping;
mod streaming;
mod termination_vectors;
mod tokens_counted;
mod tool_calls;
mod vectors;
mod verification;
mod warnings;
mod watches;
mod windows;
mod world;
mod wrap_up;
