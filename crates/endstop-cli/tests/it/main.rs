//! The `endstop` command as users and scripts run it: the built binary, real files, pipes and
//! signals, and a real server on loopback. One module for each subject.
#![allow(
    clippy::unwrap_used,
    clippy::pedantic,
    missing_docs,
    unreachable_pub,
    dead_code,
    reason = "tests"
)]

#[cfg(feature = "acp")]
mod acp;
#[cfg(target_os = "linux")]
mod action;
mod addresses;
#[cfg(target_os = "linux")]
mod approval;
mod assert;
#[cfg(target_os = "linux")]
mod at_terminal;
mod attach;
mod audit;
mod audit_agents;
mod audit_parts;
#[cfg(unix)]
mod background;
mod backtest;
mod backtest_inputs;
mod backtest_odd_sets;
mod bad_input;
mod branch;
#[cfg(unix)]
mod call_limits;
mod cli;
mod compaction;
mod compare;
mod compare_runs;
#[cfg(target_os = "linux")]
mod conform;
mod connection;
mod doorway;
mod fallback;
mod field_cases;
#[cfg(target_os = "linux")]
mod guard;
#[cfg(target_os = "linux")]
mod guard_listen;
#[cfg(target_os = "linux")]
mod guarded;
mod hints;
#[cfg(target_os = "linux")]
mod hostile;
#[cfg(target_os = "linux")]
mod http2;
mod journal;
#[cfg(target_os = "linux")]
mod killed;
mod limits;
#[cfg(unix)]
mod mcp;
#[cfg(unix)]
mod next_step;
#[cfg(unix)]
mod notify;
mod outputs;
#[cfg(target_os = "linux")]
mod own_files;
#[cfg(target_os = "linux")]
mod packed_bombs;
mod params;
#[cfg(unix)]
mod parked;
#[cfg(target_os = "linux")]
mod planted;
#[cfg(target_os = "linux")]
mod planted_places;
mod prices;
mod record;
mod recorded;
mod replay;
mod retention;
mod run;
mod run_endings;
#[cfg(unix)]
mod schemas;
mod secrets;
#[cfg(unix)]
mod serve;
#[cfg(target_os = "linux")]
mod signals;
#[cfg(unix)]
mod spend;
#[cfg(unix)]
mod steering;
mod suspended;
#[cfg(feature = "otlp")]
mod telemetry;
#[cfg(target_os = "linux")]
mod terminal;
mod third_party;
#[cfg(unix)]
mod trust;
#[cfg(unix)]
mod trusted_hosts;
#[cfg(unix)]
mod trusted_journals;
#[cfg(target_os = "linux")]
mod tutorial;
mod vectors;
mod verify;
#[cfg(feature = "restate")]
mod worker;
mod wrap_up;
#[cfg(target_os = "linux")]
mod write_errors;
