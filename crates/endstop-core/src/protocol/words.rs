//! The protocols, and what their words mean.

use crate::termination::Termination;

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
}
