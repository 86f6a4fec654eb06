//! Parked runs: a run that waits for a decision may outlive its process.
//!
//! ```text
//! consult{approval, id} ─► parked{id} ─► the process may exit ─► decided{id} ─► resumed ─► answered{id}
//! ```
//!
//! A park is not an ending. The run waits for the answer to the same question, under the same id,
//! and its clock stands still until it is resumed. [`EventKind::Parked`](super::EventKind::Parked)
//! and [`EventKind::Decided`](super::EventKind::Decided) put the request and the decision into the
//! history; the decision takes effect when the driver answers the question (`tools/approval.rs`).

use super::effect_id::EffectId;
use serde::{Deserialize, Serialize};

/// The terms under which an approver or a hook parks a run, instead of deciding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Park {
    /// The reason for which a decision is needed, shown with the request.
    pub reason: Option<String>,
    /// Milliseconds after which the request counts as denied by timeout; `None`: never.
    pub expires_after_ms: Option<u64>,
}

/// The kind of decision that a parked run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RequestKind {
    /// A tool call may run or not.
    Approval,
    /// The model has answered in text, and a user may reply.
    Question,
    /// A server of a tool asks the user for input.
    Elicitation,
}

impl RequestKind {
    /// The kind's name in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            RequestKind::Approval => "approval",
            RequestKind::Question => "question",
            RequestKind::Elicitation => "elicitation",
        }
    }
}

/// The request of a parked run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkRequest {
    /// Id of the effect that asks, which the answer carries. Unique within the run.
    pub id: EffectId,
    /// The kind of decision.
    pub kind: RequestKind,
    /// Name of the tool; `None` if the request is not about a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The provider's id of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// The arguments of the call in canonical form (parsed, and printed with sorted keys), or the
    /// text that a user may reply to.
    pub subject: String,
    /// SHA-256 of the kind, the tool and the subject, in hexadecimal. A decision is for this
    /// digest, and is void for any other call.
    pub digest: String,
    /// The reason for which a decision is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time of the request in Unix milliseconds.
    pub asked_ms: u64,
    /// Time in Unix milliseconds from which on the request counts as denied by timeout; `None`:
    /// never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
}

impl ParkRequest {
    /// `true` if no decision is possible any more at this time, in Unix milliseconds.
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_ms.is_some_and(|expires| now_ms >= expires)
    }
}

/// The decision about a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParkDecision {
    /// A person approved the call.
    Approve,
    /// A person approved the call with these arguments, which are JSON, instead of those of the model.
    /// Text, as in [`ToolCall`](crate::ToolCall), so that deep arguments do not make the event unreadable.
    ApproveChanged(String),
    /// A person denied the call, with the reason, which the model reads.
    Deny(String),
    /// A person answered the question.
    Text(String),
    /// The request expired: no person decided in time, and the call is denied.
    Expired,
}

impl ParkDecision {
    /// The decision's name in JSON.
    pub const fn name(&self) -> &'static str {
        match self {
            ParkDecision::Approve => "approve",
            ParkDecision::ApproveChanged(_) => "approve_changed",
            ParkDecision::Deny(_) => "deny",
            ParkDecision::Text(_) => "text",
            ParkDecision::Expired => "expired",
        }
    }

    /// `true` if the decision answers a request of this kind.
    pub const fn fits(&self, kind: RequestKind) -> bool {
        match self {
            ParkDecision::Approve | ParkDecision::ApproveChanged(_) => {
                matches!(kind, RequestKind::Approval)
            }
            ParkDecision::Text(_) => !matches!(kind, RequestKind::Approval),
            ParkDecision::Deny(_) | ParkDecision::Expired => true,
        }
    }
}
