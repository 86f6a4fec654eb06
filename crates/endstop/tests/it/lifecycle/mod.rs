//! Cancel and terminate of the loop: the `cx-*` scenarios of `testdata/conformance/lifecycle.json`
//! (for a quirk of the original, the behaviour that replaces it), with real time, sockets and
//! processes.
//!
//! [`COVERED`] names the test of each scenario; a scenario without one fails
//! `every_scenario_has_a_test`.

mod calls;
mod cancel;
mod errors;
mod runs;
mod terminate;

use crate::support::answers;
use endstop::testkit::{Reply, ScriptedModel, Server, Turn};
use endstop::tool::{ToolContext, ToolOutput, tool_fn};
use endstop::{Agent, Outcome, Role};
use serde_json::Value;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const COVERED: &[(&str, &str)] = &[
    ("cx-001-terminate-twice", "terminate_is_idempotent_and_final"),
    ("cx-002-run-after-terminate", "terminate_is_idempotent_and_final"),
    ("cx-003-terminate-fresh-callbacks", "terminate_of_fresh_loop_reports_once"),
    ("cx-004-cancel-fresh", "cancel_on_idle_loop_does_nothing"),
    ("cx-005-cancel-then-terminate", "terminate_of_fresh_loop_reports_once"),
    ("cx-006-terminate-then-cancel", "terminate_of_fresh_loop_reports_once"),
    ("cx-007-cancel-twice", "cancel_on_idle_loop_does_nothing"),
    ("cx-008-cancel-throws-inside-terminate", "terminate_survives_panicking_observers"),
    ("cx-009-callback-throws-in-cancel", "terminate_survives_panicking_observers"),
    ("cx-010-run-terminate-no-tools-midstream", "terminate_mid_stream_closes_connection"),
    ("cx-011-terminate-during-tool", "terminate_kills_tool_processes"),
    ("cx-012-terminate-during-tool-loading", "terminate_kills_tool_processes"),
    ("cx-013-terminate-before-tool-starts", "no_tool_starts_after_terminate"),
    ("cx-014-terminate-while-connecting", "terminate_while_connecting_ends_at_once"),
    ("cx-015-terminate-during-backoff", "terminate_in_backoff_ends_at_once"),
    ("cx-016-three-runs-then-terminate", "one_run_at_a_time"),
    ("cx-020-cancel-during-tool", "cancel_during_tool_answers_its_call"),
    ("cx-021-cancel-during-tool-detail", "cancel_during_tool_answers_its_call"),
    ("cx-022-next-run-after-cancelled-tool", "cancel_during_tool_answers_its_call"),
    ("cx-023-synthetic-abort-shape", "cancel_during_tool_answers_its_call"),
    ("cx-024-tool-finished-but-cancelled", "finished_tool_keeps_its_result"),
    ("cx-025-cancel-before-any-item", "cancel_mid_stream_delivers_nothing_more"),
    ("cx-026-cancel-race", "cancel_mid_stream_delivers_nothing_more"),
    ("cx-027-delivered-before-cancel", "text_before_cancel_is_preserved"),
    ("cx-028-zombie-run", "cancelled_run_leaks_nothing_into_next"),
    ("cx-029-cancel-never-aborts-stream", "cancel_mid_stream_delivers_nothing_more"),
    ("cx-030-interrupt-continue", "cancelled_run_leaks_nothing_into_next"),
    ("cx-031-cancel-in-flush-window", "late_cancel_changes_nothing"),
    ("cx-032-normal-end", "observers_receive_true_and_false_once"),
    ("cx-033-cancel-while-connecting", "terminate_while_connecting_ends_at_once"),
    ("cx-034-cancel-during-approval", "cancel_dismisses_the_approval"),
    ("cx-035-duplicate-item-ids", "duplicate_call_id_is_one_call"),
    ("cx-036-cross-instance-dedupe", "call_ids_are_local_to_loop"),
    ("cx-040-5xx-twice-then-ok", "transient_errors_are_retried"),
    ("cx-041-5xx-forever", "errors_end_run_with_their_type"),
    ("cx-042-429-forever", "errors_end_run_with_their_type"),
    ("cx-043-429-suggested", "suggested_wait_is_obeyed"),
    ("cx-044-429-suggested-ms", "suggested_wait_is_obeyed"),
    ("cx-045-connect-timeout", "refused_connection_is_retried"),
    ("cx-046-premature-close", "broken_streams_are_retried_from_start"),
    ("cx-047-econnreset", "broken_streams_are_retried_from_start"),
    ("cx-048-http-500-generic", "errors_end_run_with_their_type"),
    ("cx-049-max-tokens", "errors_end_run_with_their_type"),
    ("cx-050-invalid-request", "errors_end_run_with_their_type"),
    ("cx-051-auth-401", "errors_end_run_with_their_type"),
    ("cx-052-rate-limit-by-text", "errors_end_run_with_their_type"),
    ("cx-053-quota", "errors_end_run_with_their_type"),
    ("cx-054-midstream-429", "mid_stream_error_is_retried"),
    ("cx-055-midstream-429-forever", "mid_stream_error_is_retried"),
    ("cx-056-midstream-429-suggested-ignored", "mid_stream_error_is_retried"),
    ("cx-057-midstream-retry-loses-handle", "cancel_stops_retry_of_broken_stream"),
    ("cx-058-bad-json-stream", "errors_end_run_with_their_type"),
    ("cx-059-stream-type-error", "errors_end_run_with_their_type"),
    ("cx-060-abort-not-cancelled", "broken_streams_are_retried_from_start"),
    ("cx-061-unknown-error", "errors_end_run_with_their_type"),
    ("cx-062-status-incomplete", "truncated_turn_runs_no_tool"),
    ("cx-063-stream-without-completed", "broken_streams_are_retried_from_start"),
    ("cx-064-invalid-tool-args", "bad_calls_are_answered_as_errors"),
    ("cx-065-unknown-tool", "bad_calls_are_answered_as_errors"),
    ("cx-066-no-turn-limit", "endless_calls_reach_a_limit"),
    ("cx-070-exec-abort", "terminate_kills_tool_processes"),
    ("cx-071-exec-normal", "ended_shell_command_is_answered"),
    ("cx-072-exec-ignores-sigterm", "sigterm_ignored_is_killed_after_grace"),
    ("cx-073-exec-already-aborted", "no_tool_starts_after_terminate"),
];

#[test]
fn every_scenario_has_a_test() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/conformance/lifecycle.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let ids: Vec<&str> = file["cases"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|case| case["id"].as_str())
        .filter(|id| id.starts_with("cx-"))
        .collect();
    let covered: Vec<&str> = COVERED.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, covered);
    let source = [
        include_str!("terminate.rs"),
        include_str!("cancel.rs"),
        include_str!("errors.rs"),
        include_str!("calls.rs"),
        include_str!("runs.rs"),
    ]
    .concat();
    for (id, test) in COVERED {
        assert!(source.contains(&format!("fn {test}()")), "{id}: there is no test {test}");
    }
}

fn busy_log(builder: endstop::AgentBuilder) -> (endstop::AgentBuilder, Arc<Mutex<Vec<bool>>>) {
    let log = Arc::<Mutex<Vec<bool>>>::default();
    let heard = Arc::clone(&log);
    (builder.on_busy(move |busy| heard.lock().unwrap().push(busy)), log)
}

fn slow() -> ScriptedModel {
    ScriptedModel::new([Turn::text("word ".repeat(10_000)).pace(Duration::from_millis(2))])
}

/// A server that streams slowly without end, and an agent that calls it.
fn slow_server() -> (Server, Agent) {
    let server = Server::start(|request| {
        Reply::turn(request, &Turn::text("word ".repeat(10_000)).pace(Duration::from_millis(2)))
    })
    .unwrap();
    let agent = crate::support::over(&server, "openai-chat").build().unwrap();
    (server, agent)
}

fn counting_tool(count: &Arc<AtomicUsize>) -> impl endstop::tool::Tool + use<> {
    let count = Arc::clone(count);
    tool_fn("work", "Works.", move |_: Nothing, _: ToolContext| {
        let count = Arc::clone(&count);
        async move {
            count.fetch_add(1, Ordering::SeqCst);
            ToolOutput::ok("worked")
        }
    })
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

fn history_is_answered(outcome: &Outcome) -> bool {
    outcome.messages.iter().enumerate().all(|(at, message)| {
        let calls = message.tool_calls().count();
        calls == 0
            || outcome
                .messages
                .get(at + 1)
                .is_some_and(|next| next.role == Role::Tool && next.parts.len() == calls)
    })
}
