//! Endings in the words of other protocols.

use endstop_core::Termination;
use endstop_core::protocol::{PeerEnding, Protocol, Word};
use proptest::prelude::*;

fn written(protocol: Protocol, termination: Termination) -> Word {
    protocol.word(termination).unwrap()
}

#[test]
fn only_successes_use_success_words() {
    for protocol in Protocol::WRITTEN {
        let success = written(protocol, Termination::Stop);
        for termination in Termination::all() {
            let word = written(protocol, *termination);
            assert_eq!(
                word == success,
                termination.is_success(),
                "{} says {word:?} of {termination}",
                protocol.name()
            );
        }
    }
}

#[test]
fn written_endings_keep_their_outcome() {
    for protocol in Protocol::WRITTEN {
        for termination in Termination::all() {
            let word = written(protocol, *termination);
            let read = protocol.read_with(word.status, word.reason);
            let success = read.termination().is_some_and(Termination::is_success);
            let name = protocol.name();
            assert_eq!(success, termination.is_success(), "{name}: {termination} → {read:?}");
            assert_ne!(read, PeerEnding::Unknown, "{name}: {word:?}");
            assert_ne!(read, PeerEnding::Running, "{name}: {word:?}");
        }
    }
}

#[test]
fn own_names_beside_words_are_exact() {
    for protocol in Protocol::WRITTEN {
        for termination in Termination::all().iter().filter(|termination| termination.is_error()) {
            let word = written(protocol, *termination);
            match protocol.read_with(word.status, Some(termination.as_str())) {
                PeerEnding::Ended(read) => assert_eq!(read, *termination),
                // Two protocols read our word for a stopped run as a run that waits, and AG-UI's
                // outcome of a finished run cannot be a name of this crate.
                PeerEnding::Parked => assert_eq!(protocol, Protocol::LangGraph),
                PeerEnding::Unknown => assert_eq!(word.status, "RUN_FINISHED"),
                other => panic!("{}: {termination} → {other:?}", protocol.name()),
            }
        }
    }
}

#[test]
fn failure_outranks_contradicting_status() {
    for (protocol, status) in [
        (Protocol::A2a, "TASK_STATE_COMPLETED"),
        (Protocol::OpenResponses, "completed"),
        (Protocol::McpTask, "completed"),
        (Protocol::AcpV1, "end_turn"),
        (Protocol::LangGraph, "success"),
    ] {
        let read = protocol.read_with(status, Some("error_max_turns"));
        assert_eq!(read, PeerEnding::Ended(Termination::ErrorMaxTurns), "{}", protocol.name());
    }
    let failed = Protocol::A2a.read_with("TASK_STATE_FAILED", Some("submitted"));
    assert_eq!(failed, PeerEnding::Ended(Termination::ErrorDuringExecution));
    for (protocol, status) in
        [(Protocol::OpenResponses, "completed"), (Protocol::McpTask, "completed")]
    {
        assert_eq!(protocol.read_with(status, Some("odd")), PeerEnding::Unknown);
    }
}

#[test]
fn peer_words_have_documented_meanings() {
    use PeerEnding::{Ended, Parked, Running};
    use Termination::*;
    for (protocol, status, reason, expected) in [
        (Protocol::A2a, "FAILED", None, Ended(ErrorDuringExecution)),
        (Protocol::A2a, "input-required", None, Parked),
        (Protocol::A2a, "TASK_STATE_AUTH_REQUIRED", None, Parked),
        (Protocol::A2a, "working", None, Running),
        (Protocol::AcpV2, "_endstop.gave_up", None, Ended(GaveUp)),
        (Protocol::AcpV2, "requires_action", None, Parked),
        (Protocol::AgUi, "RUN_FINISHED", None, Ended(Stop)),
        (Protocol::AgUi, "RUN_FINISHED", Some("interrupt"), Parked),
        (Protocol::AgUi, "RUN_ERROR", Some("error_timeout"), Ended(ErrorTimeout)),
        (Protocol::OpenResponses, "incomplete", Some("odd"), Ended(ErrorDuringExecution)),
        (Protocol::McpTask, "failed", None, Ended(ErrorDuringExecution)),
        (Protocol::McpTask, "input_required", None, Parked),
        (Protocol::Temporal, "TimedOut", None, Ended(ErrorTimeout)),
        (Protocol::Inspect, "working", None, Ended(ErrorTimeout)),
        (Protocol::Inspect, "message", None, Ended(ErrorMaxTurns)),
        (Protocol::Ocsf, "2", None, Ended(ErrorOutputTruncated)),
        (Protocol::ClaudeAgentSdk, "budget_exhausted", None, Ended(ErrorMaxBudgetUsd)),
        (Protocol::ClaudeAgentSdk, "error_max_budget_usd", None, Ended(ErrorMaxBudgetUsd)),
        (Protocol::ClaudeAgentSdk, "rapid_refill_breaker", None, Ended(ErrorCompactionFailed)),
        (Protocol::ClaudeAgentSdk, "image_error", None, Ended(ErrorProviderRejected)),
        (Protocol::ClaudeAgentSdk, "tool_deferred", None, Parked),
        (Protocol::Strands, "limit_total_tokens", None, Ended(ErrorMaxTokens)),
        (Protocol::Strands, "guardrail_intervened", None, Ended(ErrorHalted)),
        (Protocol::ManagedAgents, "idle", Some("requires_action"), Parked),
        (Protocol::ManagedAgents, "idle", Some("retries_exhausted"), Ended(ErrorDuringExecution)),
        (Protocol::ManagedAgents, "idle", Some("end_turn"), Ended(Stop)),
    ] {
        assert_eq!(
            protocol.read_with(status, reason),
            expected,
            "{protocol:?} {status} {reason:?}"
        );
    }
}

proptest! {
    /// Every success has to be one of the words that the tables list.
    #[test]
    fn unknown_words_are_failures(status in "\\PC{0,24}", reason in proptest::option::of("\\PC{0,12}")) {
        const KNOWN: [&str; 15] = [
            "TASK_STATE_COMPLETED", "COMPLETED", "completed", "Completed", "end_turn", "success",
            "RUN_FINISHED", "SUBAGENT_FINISHED", "none", "1", "stop_sequence", "idle", "error",
            "stop", "submitted",
        ];
        prop_assume!(!KNOWN.contains(&status.as_str()));
        for protocol in Protocol::ALL {
            let read = protocol.read_with(&status, reason.as_deref());
            prop_assert!(!read.termination().is_some_and(Termination::is_success), "{read:?}");
        }
    }
}

/// Returns the book's table of written endings.
fn written_table() -> String {
    let cell = |word: Word| match word.reason {
        Some(reason) => format!("`{}`, `{reason}`", word.status),
        None => format!("`{}`", word.status),
    };
    let mut table = String::new();
    for half in Protocol::WRITTEN.chunks(5) {
        let names: Vec<&str> = half.iter().map(|protocol| protocol.name()).collect();
        table += &format!("| Ending | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(5));
        for termination in Termination::all() {
            let cells: Vec<String> =
                half.iter().map(|protocol| cell(written(*protocol, *termination))).collect();
            table += &format!("| `{termination}` | {} |\n", cells.join(" | "));
        }
        table.push('\n');
    }
    table
}

#[test]
fn book_matches_the_table() {
    let page = include_str!("../../../../docs/src/protocols.md");
    let table = written_table();
    assert!(page.contains(&table), "docs/src/protocols.md has to contain:\n\n{table}");
}
