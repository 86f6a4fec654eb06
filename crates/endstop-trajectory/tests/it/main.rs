//! Integration tests of `endstop-trajectory`, one module per subject. The recordings are in
//! `fixtures/`.
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

mod audit_endings;
mod audit_signs;
mod audit_totals;
mod backtest;
mod backtest_merge;
mod backtest_reference;
mod backtest_sums;
mod broken;
mod common;
mod compare;
mod dialects;
mod engine;
mod files;
mod fixture_counts;
mod heavy;
mod mutated;
mod otel_structured;
mod outcomes;
mod prices;
mod read_agent_clis;
mod read_agentdojo;
mod read_atif;
mod read_claude_code;
mod read_codex;
mod read_copilot;
mod read_cursor;
mod read_hostile;
mod read_inspect;
mod read_intercode;
mod read_malt;
mod read_messages;
mod read_neutral;
mod read_openhands;
mod read_otel;
mod read_react_log;
mod read_swe_agent;
mod read_tau;
mod read_tothf;
mod reading;
mod records;
mod replay_equals_live;
mod round_trip;
mod shapes;
mod splitting;
mod traces;
