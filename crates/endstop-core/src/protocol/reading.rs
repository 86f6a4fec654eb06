//! The tables from other protocols' words to terminations.

use super::words::PeerEnding::{self, Ended, Parked, Running, Unknown};
use super::words::Protocol;
use crate::termination::Termination as T;

impl Protocol {
    /// Reads a word for the end of a run. For protocols with two fields ([`OpenResponses`],
    /// [`McpTask`], [`AgUi`]) use [`read_with`](Self::read_with).
    ///
    /// [`OpenResponses`]: Self::OpenResponses
    /// [`McpTask`]: Self::McpTask
    /// [`AgUi`]: Self::AgUi
    pub fn read(self, word: &str) -> PeerEnding {
        self.read_with(word, None)
    }

    /// Reads a status and the field that names its reason. An absent reason has the meaning that the protocol
    /// defines for it: a `RUN_FINISHED` of AG-UI without an outcome is a success.
    ///
    /// A termination's own name as reason is read as that termination, because bridges of this
    /// crate write it there. If the two fields contradict each other, the failure is believed.
    pub fn read_with(self, status: &str, reason: Option<&str>) -> PeerEnding {
        let read = match self {
            Protocol::A2a => a2a(status),
            Protocol::AcpV1 | Protocol::AcpV2 => acp(status),
            Protocol::AgUi => ag_ui(status, reason),
            Protocol::OpenResponses => open_responses(status, reason),
            Protocol::McpTask => mcp_task(status, reason),
            Protocol::Temporal => temporal(status),
            Protocol::LangGraph => lang_graph(status),
            Protocol::Inspect => inspect(status),
            Protocol::Ocsf => ocsf(status),
            Protocol::ClaudeAgentSdk => claude(status),
            Protocol::Strands => strands(status),
            Protocol::ManagedAgents => managed_agents(status, reason),
        };
        match (read, reason.and_then(own_name)) {
            (Ended(known), Some(own)) if own.is_error() || known.is_success() => Ended(own),
            (read, _) => read,
        }
    }
}

fn own_name(reason: &str) -> Option<T> {
    reason.parse().ok()
}

/// Reads the JSON of version 1.0 (`TASK_STATE_FAILED`), the names of the specification's text
/// (`FAILED`), and the JSON of earlier versions (`failed`, `input-required`).
fn a2a(status: &str) -> PeerEnding {
    match status.strip_prefix("TASK_STATE_").unwrap_or(status) {
        "COMPLETED" | "completed" => Ended(T::Stop),
        "FAILED" | "failed" => Ended(T::ErrorDuringExecution),
        "CANCELED" | "canceled" => Ended(T::Cancelled),
        "REJECTED" | "rejected" => Ended(T::GaveUp),
        "INPUT_REQUIRED" | "AUTH_REQUIRED" | "input-required" | "auth-required" => Parked,
        "SUBMITTED" | "WORKING" | "submitted" | "working" => Running,
        _ => Unknown,
    }
}

fn acp(word: &str) -> PeerEnding {
    match word {
        "end_turn" => Ended(T::Stop),
        "max_turn_requests" => Ended(T::ErrorMaxTurns),
        "max_tokens" => Ended(T::ErrorOutputTruncated),
        "refusal" => Ended(T::ErrorContentFiltered),
        "cancelled" => Ended(T::Cancelled),
        "error" => Ended(T::ErrorDuringExecution),
        "requires_action" => Parked,
        "running" => Running,
        // Custom values of version 2, as this crate writes them. A success has no custom value.
        custom => custom
            .strip_prefix("_endstop.")
            .and_then(own_name)
            .filter(|own| own.is_error())
            .map_or(Unknown, Ended),
    }
}

fn ag_ui(event: &str, reason: Option<&str>) -> PeerEnding {
    match (event, reason) {
        ("RUN_FINISHED" | "SUBAGENT_FINISHED", None | Some("success")) => Ended(T::Stop),
        ("RUN_FINISHED", Some("cancelled")) => Ended(T::Cancelled),
        ("RUN_FINISHED", Some("interrupt")) | ("SUBAGENT_FINISHED", Some("suspended")) => Parked,
        ("RUN_ERROR" | "SUBAGENT_ERROR", _) => Ended(T::ErrorDuringExecution),
        ("RUN_STARTED", _) => Running,
        // Outcomes of a later version too: reading them as a success is the known mistake.
        _ => Unknown,
    }
}

fn open_responses(status: &str, reason: Option<&str>) -> PeerEnding {
    match (status, reason) {
        ("completed", None) => Ended(T::Stop),
        // A reason contradicts the status, unless it is the name of a success.
        ("completed", Some(reason)) => own_name(reason).map_or(Unknown, Ended),
        ("incomplete", Some("max_output_tokens")) => Ended(T::ErrorOutputTruncated),
        ("incomplete", Some("content_filter")) => Ended(T::ErrorContentFiltered),
        ("incomplete" | "failed", _) => Ended(T::ErrorDuringExecution),
        ("cancelled", _) => Ended(T::Cancelled),
        ("queued" | "in_progress", _) => Running,
        _ => Unknown,
    }
}

fn mcp_task(status: &str, reason: Option<&str>) -> PeerEnding {
    match (status, reason) {
        ("completed", Some("isError")) | ("failed", _) => Ended(T::ErrorDuringExecution),
        ("completed", None) => Ended(T::Stop),
        ("completed", Some(reason)) => own_name(reason).map_or(Unknown, Ended),
        ("cancelled", _) => Ended(T::Cancelled),
        ("input_required", _) => Parked,
        ("working", _) => Running,
        _ => Unknown,
    }
}

fn temporal(status: &str) -> PeerEnding {
    match status {
        "Completed" => Ended(T::Stop),
        "Failed" => Ended(T::ErrorDuringExecution),
        "Canceled" => Ended(T::Cancelled),
        "Terminated" => Ended(T::Terminated),
        "TimedOut" => Ended(T::ErrorTimeout),
        "Running" | "ContinuedAsNew" => Running,
        _ => Unknown,
    }
}

fn lang_graph(status: &str) -> PeerEnding {
    match status {
        "success" => Ended(T::Stop),
        "error" => Ended(T::ErrorDuringExecution),
        "timeout" => Ended(T::ErrorTimeout),
        // Also the status of a run that a person stopped; which one it was is not recorded.
        "interrupted" => Parked,
        "pending" | "running" => Running,
        _ => Unknown,
    }
}

fn inspect(limit: &str) -> PeerEnding {
    match limit {
        "none" => Ended(T::Stop),
        "turn" | "message" => Ended(T::ErrorMaxTurns),
        "token" => Ended(T::ErrorMaxTokens),
        "cost" => Ended(T::ErrorMaxBudgetUsd),
        "time" | "working" => Ended(T::ErrorTimeout),
        "context" => Ended(T::ErrorPromptTooLong),
        "operator" => Ended(T::Cancelled),
        "custom" => Ended(T::ErrorHalted),
        "error" => Ended(T::ErrorDuringExecution),
        _ => Unknown,
    }
}

fn ocsf(id: &str) -> PeerEnding {
    match id {
        "1" => Ended(T::Stop),
        "2" => Ended(T::ErrorOutputTruncated),
        "3" => Running,
        "4" => Ended(T::Cancelled),
        "5" => Ended(T::ErrorContentFiltered),
        "99" => Ended(T::ErrorDuringExecution),
        _ => Unknown,
    }
}

/// Reads both fields of the SDK: the five subtypes of a result have our names but for `success`.
fn claude(word: &str) -> PeerEnding {
    match word {
        "success" | "completed" | "end_turn" => Ended(T::Stop),
        "max_turns" => Ended(T::ErrorMaxTurns),
        "budget_exhausted" => Ended(T::ErrorMaxBudgetUsd),
        "structured_output_retry_exhausted" => Ended(T::ErrorMaxStructuredOutputRetries),
        "prompt_too_long" | "blocking_limit" => Ended(T::ErrorPromptTooLong),
        "rapid_refill_breaker" => Ended(T::ErrorCompactionFailed),
        "image_error" => Ended(T::ErrorProviderRejected),
        "model_error" | "api_error" | "malformed_tool_use_exhausted" | "turn_setup_failed" => {
            Ended(T::ErrorDuringExecution)
        }
        "aborted_streaming" | "aborted_tools" => Ended(T::Cancelled),
        "stop_hook_prevented" | "hook_stopped" => Ended(T::ErrorHalted),
        "tool_deferred" | "background_requested" => Parked,
        own => own_name(own).filter(|own| own.is_error()).map_or(Unknown, Ended),
    }
}

fn strands(word: &str) -> PeerEnding {
    match word {
        "end_turn" | "stop_sequence" => Ended(T::Stop),
        "max_tokens" => Ended(T::ErrorOutputTruncated),
        "content_filtered" => Ended(T::ErrorContentFiltered),
        "guardrail_intervened" => Ended(T::ErrorHalted),
        "cancelled" => Ended(T::Cancelled),
        "limit_turns" => Ended(T::ErrorMaxTurns),
        "limit_output_tokens" | "limit_total_tokens" => Ended(T::ErrorMaxTokens),
        "interrupt" => Parked,
        "tool_use" | "checkpoint" => Running,
        _ => Unknown,
    }
}

fn managed_agents(status: &str, reason: Option<&str>) -> PeerEnding {
    match (status, reason) {
        ("idle", Some("end_turn")) | ("end_turn", _) => Ended(T::Stop),
        ("idle", Some("retries_exhausted")) | ("retries_exhausted", _) => {
            Ended(T::ErrorDuringExecution)
        }
        ("idle", Some("requires_action")) | ("requires_action", _) => Parked,
        ("terminated", _) => Ended(T::Terminated),
        ("budget_reached", _) => Ended(T::ErrorMaxBudgetUsd),
        ("running" | "rescheduling", _) => Running,
        _ => Unknown,
    }
}
