//! The table from terminations to the words of other protocols.
//!
//! Sources: A2A 1.0.1 section 5.5, ACP's schema of versions 1 and 2 (draft), AG-UI 1.0 "Runs and
//! Steps", OpenResponses' `response` object, MCP's `io.modelcontextprotocol/tasks` (SEP-2663),
//! Temporal's workflow execution statuses, LangGraph's `RunStatus`, Inspect's `EvalSampleLimit`,
//! OCSF pull request 1704. A cancel of a run is reported as such in each of them.

use super::words::{Protocol, Word};
use crate::termination::Termination as T;

impl T {
    /// Returns the stop reason of the Agent Client Protocol, version 1. `error` means that the
    /// prompt is answered with a JSON-RPC error instead, because that version has no such stop
    /// reason.
    pub const fn as_acp(self) -> Word {
        acp_v1(self)
    }

    /// Returns the state of an A2A 1.0 task.
    pub const fn as_a2a(self) -> Word {
        a2a(self)
    }

    /// Returns the last event of an AG-UI run; the reason is `outcome.type` or `code`.
    pub const fn as_ag_ui(self) -> Word {
        ag_ui(self)
    }

    /// Returns the status of an OpenResponses response, with its reason or error code.
    pub const fn as_open_responses(self) -> Word {
        open_responses(self)
    }

    /// Returns the status of an MCP task; the reason `isError` is set in its result.
    pub const fn as_mcp_task(self) -> Word {
        mcp_task(self)
    }
}

impl Protocol {
    /// Returns the protocol's words for the ending; `None` for a protocol that is only read.
    pub const fn word(self, termination: T) -> Option<Word> {
        Some(match self {
            Protocol::A2a => a2a(termination),
            Protocol::AcpV1 => acp_v1(termination),
            Protocol::AcpV2 => acp_v2(termination),
            Protocol::AgUi => ag_ui(termination),
            Protocol::OpenResponses => open_responses(termination),
            Protocol::McpTask => mcp_task(termination),
            Protocol::Temporal => temporal(termination),
            Protocol::LangGraph => lang_graph(termination),
            Protocol::Inspect => inspect(termination),
            Protocol::Ocsf => ocsf(termination),
            Protocol::ClaudeAgentSdk | Protocol::Strands | Protocol::ManagedAgents => return None,
        })
    }
}

const fn word(status: &'static str) -> Word {
    Word { status, reason: None }
}

const fn with(status: &'static str, reason: &'static str) -> Word {
    Word { status, reason: Some(reason) }
}

const fn a2a(termination: T) -> Word {
    match termination {
        T::Stop | T::Submitted => word("TASK_STATE_COMPLETED"),
        T::Cancelled | T::Terminated => word("TASK_STATE_CANCELED"),
        // A2A: the agent decided, at first or later, not to perform the task.
        T::GaveUp => word("TASK_STATE_REJECTED"),
        _ => word("TASK_STATE_FAILED"),
    }
}

const fn acp_v1(termination: T) -> Word {
    match termination {
        T::Stop | T::Submitted => word("end_turn"),
        T::ErrorMaxTurns
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

const fn acp_v2(termination: T) -> Word {
    match termination {
        T::GaveUp => word("_endstop.gave_up"),
        T::ErrorHalted => word("_endstop.error_halted"),
        // The draft has the stop reason `error`, so nothing else differs.
        _ => acp_v1(termination),
    }
}

const fn ag_ui(termination: T) -> Word {
    match termination {
        T::Stop | T::Submitted => with("RUN_FINISHED", "success"),
        T::Cancelled | T::Terminated => with("RUN_FINISHED", "cancelled"),
        _ => with("RUN_ERROR", termination.as_str()),
    }
}

const fn open_responses(termination: T) -> Word {
    match termination {
        T::Stop | T::Submitted => word("completed"),
        T::Cancelled | T::Terminated => word("cancelled"),
        T::ErrorOutputTruncated | T::ErrorThinkingStarved => {
            with("incomplete", "max_output_tokens")
        }
        T::ErrorContentFiltered => with("incomplete", "content_filter"),
        T::ErrorMaxTurns
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

const fn mcp_task(termination: T) -> Word {
    match termination {
        T::Stop | T::Submitted => word("completed"),
        T::Cancelled | T::Terminated => word("cancelled"),
        // `failed` is reserved for faults of JSON-RPC.
        _ => with("completed", "isError"),
    }
}

const fn temporal(termination: T) -> Word {
    match termination {
        T::Stop | T::Submitted => word("Completed"),
        T::ErrorTimeout => word("TimedOut"),
        T::Cancelled => word("Canceled"),
        T::Terminated => word("Terminated"),
        _ => with("Failed", termination.as_str()),
    }
}

const fn lang_graph(termination: T) -> Word {
    match termination {
        T::Stop | T::Submitted => word("success"),
        T::ErrorTimeout => word("timeout"),
        T::Cancelled | T::Terminated => word("interrupted"),
        _ => with("error", termination.as_str()),
    }
}

const fn inspect(termination: T) -> Word {
    match termination {
        T::Stop | T::Submitted => word("none"),
        T::ErrorMaxTurns => word("turn"),
        T::ErrorMaxBudgetUsd => word("cost"),
        T::ErrorMaxTokens => word("token"),
        T::ErrorTimeout => word("time"),
        T::ErrorPromptTooLong => word("context"),
        T::Cancelled | T::Terminated => word("operator"),
        T::ErrorNoProgress
        | T::ErrorConsecutiveMistakes
        | T::ErrorMaxStructuredOutputRetries
        | T::ErrorThinkingStarved
        | T::ErrorOutputTruncated
        | T::ErrorNotVerified
        | T::ErrorContentFiltered => with("custom", termination.as_str()),
        _ => with("error", termination.as_str()),
    }
}

const fn ocsf(termination: T) -> Word {
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
