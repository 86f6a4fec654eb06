//! The words that other protocols have for the end of a run, in both directions.
//!
//! [`Protocol::word`] writes an ending in a protocol's vocabulary, [`Protocol::read`] reads a
//! third-party word. Three rules hold for every protocol:
//!
//! - Only `stop` and `submitted` are written as a success.
//! - A word that this version does not know is read as a failure.
//! - A word that means "waits for a person" is read as [`PeerEnding::Parked`], which is not an
//!   ending.
//!
//! Most protocols cannot say that a run reached a budget or made no progress. A bridge must
//! therefore send the termination's own name, category, cost and evidence in addition to the word,
//! in the protocol's field for extensions (`_meta`, `metadata`, `extra`, `error.data`).
//!
//! ```
//! use endstop_core::Termination;
//! use endstop_core::protocol::{PeerEnding, Protocol};
//! assert_eq!(Termination::ErrorMaxBudgetUsd.as_acp().status, "max_turn_requests");
//! assert_eq!(Termination::ErrorMaxBudgetUsd.as_a2a().status, "TASK_STATE_FAILED");
//! // A stop reason that a newer peer invented is a failure.
//! let unknown = Protocol::AcpV1.read("vanished");
//! assert_eq!(unknown, PeerEnding::Unknown);
//! assert_eq!(unknown.termination(), Some(Termination::ErrorDuringExecution));
//! ```
//!
//! Sources: A2A 1.0.1 section 5.5, ACP's schema of versions 1 and 2 (draft), AG-UI 1.0 "Runs and
//! Steps", OpenResponses' `response` object, MCP's `io.modelcontextprotocol/tasks` (SEP-2663),
//! Temporal's workflow execution statuses, LangGraph's `RunStatus`, Inspect's `EvalSampleLimit`,
//! OCSF pull request 1704. A cancel of a run is reported as such in each of them.

use crate::termination::Termination;
use crate::termination::Termination as T;
use PeerEnding::{Ended, Parked, Running, Unknown};

/// A protocol or engine that has its own words for the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Protocol {
    /// The `TaskState` of A2A 1.0 in its JSON form.
    A2a,
    /// The stop reason of the Agent Client Protocol, version 1.
    AcpV1,
    /// The stop reason of the draft of the Agent Client Protocol's version 2, where custom values
    /// begin with an underscore.
    AcpV2,
    /// The last event of an AG-UI 1.0 run: `RUN_FINISHED` with an outcome, or `RUN_ERROR` with a
    /// code.
    AgUi,
    /// The status of an OpenResponses response; the reason is `incomplete_details.reason` or
    /// `error.code`.
    OpenResponses,
    /// The status of an MCP task that we serve; the reason `isError` is a flag of its result.
    McpTask,
    /// The close status of a Temporal workflow.
    Temporal,
    /// The status of a run of LangGraph and of the Agent Protocol.
    LangGraph,
    /// The limit of an Inspect sample; `none` and `error` are not limits.
    Inspect,
    /// The `stop_reason_id` that OCSF's pull request 1704 proposes.
    Ocsf,
    /// The `subtype` of a result and the `terminal_reason` of the Claude Agent SDK 0.3.
    ClaudeAgentSdk,
    /// The stop reason of a Strands agent, 1.62.
    Strands,
    /// The status of Claude Managed Agents; an idle status is read by its stop reason.
    ManagedAgents,
}

/// The words for an ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// The value of the protocol's status, stop reason, outcome or event.
    pub status: &'static str,
    /// The value of the field that names the reason, if the protocol has one.
    pub reason: Option<&'static str>,
}

/// The meaning of a word that another program uses for the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PeerEnding {
    /// The run ended.
    Ended(Termination),
    /// The run waits for an approval, an answer or credentials; it did not end.
    Parked,
    /// The run continues.
    Running,
    /// This version does not know the word. Keep it as evidence; the run counts as a failure.
    Unknown,
}

impl PeerEnding {
    /// Returns the termination: `None` for a run that did not end, and
    /// [`Termination::ErrorDuringExecution`] for an unknown word.
    pub const fn termination(self) -> Option<Termination> {
        match self {
            PeerEnding::Ended(termination) => Some(termination),
            PeerEnding::Parked | PeerEnding::Running => None,
            PeerEnding::Unknown => Some(Termination::ErrorDuringExecution),
        }
    }
}

impl Protocol {
    /// Every protocol that endings can be written for, in the order of the book's tables.
    pub const WRITTEN: [Protocol; 10] = [
        Protocol::A2a,
        Protocol::AcpV1,
        Protocol::AcpV2,
        Protocol::AgUi,
        Protocol::OpenResponses,
        Protocol::McpTask,
        Protocol::Temporal,
        Protocol::LangGraph,
        Protocol::Inspect,
        Protocol::Ocsf,
    ];

    /// Every protocol whose words can be read.
    pub const ALL: [Protocol; 13] = [
        Protocol::A2a,
        Protocol::AcpV1,
        Protocol::AcpV2,
        Protocol::AgUi,
        Protocol::OpenResponses,
        Protocol::McpTask,
        Protocol::Temporal,
        Protocol::LangGraph,
        Protocol::Inspect,
        Protocol::Ocsf,
        Protocol::ClaudeAgentSdk,
        Protocol::Strands,
        Protocol::ManagedAgents,
    ];

    /// Returns the name that the book uses, for example `ACP v1`.
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::A2a => "A2A",
            Protocol::AcpV1 => "ACP v1",
            Protocol::AcpV2 => "ACP v2",
            Protocol::AgUi => "AG-UI",
            Protocol::OpenResponses => "OpenResponses",
            Protocol::McpTask => "MCP task",
            Protocol::Temporal => "Temporal",
            Protocol::LangGraph => "LangGraph",
            Protocol::Inspect => "Inspect limit",
            Protocol::Ocsf => "OCSF",
            Protocol::ClaudeAgentSdk => "Claude Agent SDK",
            Protocol::Strands => "Strands",
            Protocol::ManagedAgents => "Managed Agents",
        }
    }

    /// Returns the protocol's words for the ending; `None` for a protocol that is only read.
    pub const fn word(self, termination: T) -> Option<Word> {
        Some(match self {
            Protocol::A2a => write_a2a(termination),
            Protocol::AcpV1 => write_acp_v1(termination),
            Protocol::AcpV2 => write_acp_v2(termination),
            Protocol::AgUi => write_ag_ui(termination),
            Protocol::OpenResponses => write_open_responses(termination),
            Protocol::McpTask => write_mcp_task(termination),
            Protocol::Temporal => write_temporal(termination),
            Protocol::LangGraph => write_lang_graph(termination),
            Protocol::Inspect => write_inspect(termination),
            Protocol::Ocsf => write_ocsf(termination),
            Protocol::ClaudeAgentSdk | Protocol::Strands | Protocol::ManagedAgents => return None,
        })
    }

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
            Protocol::A2a => read_a2a(status),
            Protocol::AcpV1 | Protocol::AcpV2 => read_acp(status),
            Protocol::AgUi => read_ag_ui(status, reason),
            Protocol::OpenResponses => read_open_responses(status, reason),
            Protocol::McpTask => read_mcp_task(status, reason),
            Protocol::Temporal => read_temporal(status),
            Protocol::LangGraph => read_lang_graph(status),
            Protocol::Inspect => read_inspect(status),
            Protocol::Ocsf => read_ocsf(status),
            Protocol::ClaudeAgentSdk => read_claude(status),
            Protocol::Strands => read_strands(status),
            Protocol::ManagedAgents => read_managed_agents(status, reason),
        };
        match (read, reason.and_then(own_name)) {
            (Ended(known), Some(own)) if own.is_error() || known.is_success() => Ended(own),
            (read, _) => read,
        }
    }
}

impl T {
    /// Returns the stop reason of the Agent Client Protocol, version 1. `error` means that the
    /// prompt is answered with a JSON-RPC error instead, because that version has no such stop
    /// reason.
    pub const fn as_acp(self) -> Word {
        write_acp_v1(self)
    }

    /// Returns the state of an A2A 1.0 task.
    pub const fn as_a2a(self) -> Word {
        write_a2a(self)
    }

    /// Returns the last event of an AG-UI run; the reason is `outcome.type` or `code`.
    pub const fn as_ag_ui(self) -> Word {
        write_ag_ui(self)
    }

    /// Returns the status of an OpenResponses response, with its reason or error code.
    pub const fn as_open_responses(self) -> Word {
        write_open_responses(self)
    }

    /// Returns the status of an MCP task; the reason `isError` is set in its result.
    pub const fn as_mcp_task(self) -> Word {
        write_mcp_task(self)
    }
}

const fn word(status: &'static str) -> Word {
    Word { status, reason: None }
}

const fn with(status: &'static str, reason: &'static str) -> Word {
    Word { status, reason: Some(reason) }
}

fn own_name(reason: &str) -> Option<T> {
    reason.parse().ok()
}

// One protocol after the other: what is written, then what is read.

const fn write_a2a(termination: T) -> Word {
    match termination {
        T::Stop | T::Submitted => word("TASK_STATE_COMPLETED"),
        T::Cancelled | T::Terminated => word("TASK_STATE_CANCELED"),
        // A2A: the agent decided, at first or later, not to perform the task.
        T::GaveUp => word("TASK_STATE_REJECTED"),
        _ => word("TASK_STATE_FAILED"),
    }
}

/// Reads the JSON of version 1.0 (`TASK_STATE_FAILED`), the names of the specification's text
/// (`FAILED`), and the JSON of earlier versions (`failed`, `input-required`).
fn read_a2a(status: &str) -> PeerEnding {
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

const fn write_acp_v1(termination: T) -> Word {
    match termination {
        T::Stop | T::Submitted => word("end_turn"),
        T::ErrorMaxTurns
        | T::ErrorMaxToolCalls
        | T::ErrorMaxWindow
        | T::ErrorMaxBudgetUsd
        | T::ErrorTimeout
        | T::ErrorNoProgress
        | T::ErrorConsecutiveMistakes
        | T::ErrorMaxStructuredOutputRetries
        | T::ErrorNotVerified => word("max_turn_requests"),
        T::ErrorMaxTokens | T::ErrorOutputTruncated | T::ErrorThinkingStarved => word("max_tokens"),
        // Clients remove a refused prompt from their history, so no other ending may use the word.
        T::ErrorContentFiltered | T::GaveUp => word("refusal"),
        // The protocol demands this word after `session/cancel`.
        T::Cancelled | T::Terminated => word("cancelled"),
        T::ErrorPromptTooLong
        | T::ErrorCompactionFailed
        | T::ErrorHalted
        | T::ErrorDuringExecution
        | T::ErrorSchemaValidation
        | T::ErrorProviderRejected
        | T::ErrorProviderAuth => word("error"),
    }
}

const fn write_acp_v2(termination: T) -> Word {
    match termination {
        T::GaveUp => word("_endstop.gave_up"),
        T::ErrorHalted => word("_endstop.error_halted"),
        // The draft has the stop reason `error`, so nothing else differs.
        _ => write_acp_v1(termination),
    }
}

fn read_acp(word: &str) -> PeerEnding {
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

const fn write_ag_ui(termination: T) -> Word {
    match termination {
        T::Stop | T::Submitted => with("RUN_FINISHED", "success"),
        T::Cancelled | T::Terminated => with("RUN_FINISHED", "cancelled"),
        _ => with("RUN_ERROR", termination.as_str()),
    }
}

fn read_ag_ui(event: &str, reason: Option<&str>) -> PeerEnding {
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

const fn write_open_responses(termination: T) -> Word {
    match termination {
        T::Stop | T::Submitted => word("completed"),
        T::Cancelled | T::Terminated => word("cancelled"),
        T::ErrorOutputTruncated | T::ErrorThinkingStarved => {
            with("incomplete", "max_output_tokens")
        }
        T::ErrorContentFiltered => with("incomplete", "content_filter"),
        T::ErrorMaxTurns
        | T::ErrorMaxToolCalls
        | T::ErrorMaxWindow
        | T::ErrorMaxBudgetUsd
        | T::ErrorMaxTokens
        | T::ErrorTimeout
        | T::ErrorNoProgress
        | T::ErrorConsecutiveMistakes
        | T::ErrorMaxStructuredOutputRetries
        | T::ErrorNotVerified => with("incomplete", termination.as_str()),
        _ => with("failed", termination.as_str()),
    }
}

fn read_open_responses(status: &str, reason: Option<&str>) -> PeerEnding {
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

const fn write_mcp_task(termination: T) -> Word {
    match termination {
        T::Stop | T::Submitted => word("completed"),
        T::Cancelled | T::Terminated => word("cancelled"),
        // `failed` is reserved for faults of JSON-RPC.
        _ => with("completed", "isError"),
    }
}

fn read_mcp_task(status: &str, reason: Option<&str>) -> PeerEnding {
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

const fn write_temporal(termination: T) -> Word {
    match termination {
        T::Stop | T::Submitted => word("Completed"),
        T::ErrorTimeout => word("TimedOut"),
        T::Cancelled => word("Canceled"),
        T::Terminated => word("Terminated"),
        _ => with("Failed", termination.as_str()),
    }
}

fn read_temporal(status: &str) -> PeerEnding {
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

const fn write_lang_graph(termination: T) -> Word {
    match termination {
        T::Stop | T::Submitted => word("success"),
        T::ErrorTimeout => word("timeout"),
        T::Cancelled | T::Terminated => word("interrupted"),
        _ => with("error", termination.as_str()),
    }
}

fn read_lang_graph(status: &str) -> PeerEnding {
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

const fn write_inspect(termination: T) -> Word {
    match termination {
        T::Stop | T::Submitted => word("none"),
        T::ErrorMaxTurns => word("turn"),
        T::ErrorMaxBudgetUsd => word("cost"),
        T::ErrorMaxTokens => word("token"),
        T::ErrorTimeout => word("time"),
        T::ErrorPromptTooLong => word("context"),
        T::Cancelled | T::Terminated => word("operator"),
        T::ErrorMaxToolCalls
        | T::ErrorMaxWindow
        | T::ErrorNoProgress
        | T::ErrorConsecutiveMistakes
        | T::ErrorMaxStructuredOutputRetries
        | T::ErrorThinkingStarved
        | T::ErrorOutputTruncated
        | T::ErrorNotVerified
        | T::ErrorContentFiltered => with("custom", termination.as_str()),
        _ => with("error", termination.as_str()),
    }
}

fn read_inspect(limit: &str) -> PeerEnding {
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

const fn write_ocsf(termination: T) -> Word {
    match termination {
        T::Stop | T::Submitted => with("1", "End of Turn"),
        T::ErrorMaxTokens | T::ErrorOutputTruncated | T::ErrorThinkingStarved => {
            with("2", "Token Limit")
        }
        T::Cancelled | T::Terminated => with("4", "Session Stop"),
        T::ErrorContentFiltered => with("5", "Content Filter"),
        _ => with("99", "Other"),
    }
}

fn read_ocsf(id: &str) -> PeerEnding {
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
fn read_claude(word: &str) -> PeerEnding {
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

fn read_strands(word: &str) -> PeerEnding {
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

fn read_managed_agents(status: &str, reason: Option<&str>) -> PeerEnding {
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
