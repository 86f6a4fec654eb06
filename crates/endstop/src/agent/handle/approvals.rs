//! Approvals as events: a run reports the calls that need approval, and the caller answers through
//! the handle of the run.
//!
//! ```text
//! run ── AgentEventKind::ApprovalRequested { request_id, … } ──► reader
//! run ◄── handle.answer(request_id, Approval::Allow) ─────── reader
//! ```

use crate::control::Control;
use crate::event::RequestId;
use endstop_core::{EffectId, HookDecision, Park, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// A decision about a tool call that waits for approval.
///
/// A client sends it as JSON:
///
/// ```
/// use endstop::Approval;
/// # fn main() -> serde_json::Result<()> {
/// assert_eq!(serde_json::from_str::<Approval>(r#""allow""#)?, Approval::Allow);
/// let denied: Approval = serde_json::from_str(r#"{"deny":"not today"}"#)?;
/// assert_eq!(denied, Approval::Deny("not today".into()));
/// let changed: Approval = serde_json::from_str(r#"{"allow_changed":{"path":"a.txt"}}"#)?;
/// # assert!(matches!(changed, Approval::AllowChanged(_)));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    /// The call may run.
    Allow,
    /// The call may run with these arguments instead of those that the model wrote.
    AllowChanged(Map<String, Value>),
    /// The call may not run; the model reads the reason.
    Deny(String),
}

/// The reason why an answer had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The run has not requested an approval with this id.
    #[error(
        "unknown approval request {0}: expected the id of an `approval_requested` event of this run"
    )]
    Unknown(RequestId),
    /// The request was answered before, by the caller or by the agent's approver.
    #[error("approval request {0} was already answered")]
    AlreadyAnswered(RequestId),
    /// The run was stopped or has ended, so the call counts as not approved.
    #[error("approval request {0} is closed: the run was stopped or has ended")]
    Closed(RequestId),
}

/// Returns the arguments of a call in canonical form.
pub(in crate::agent) fn canonical(call: &ToolCall) -> String {
    let mut parsed = Value::Object(call.parsed_arguments().unwrap_or_default());
    parsed.sort_all_objects();
    parsed.to_string()
}

/// The requests for approval of one run. Clones answer the same run, for example from the task that
/// reads a web socket while another one reads the events.
#[derive(Clone)]
pub struct Approvals(Arc<Requests>);

struct Requests {
    control: Control,
    slots: Mutex<BTreeMap<RequestId, Slot>>,
}

enum Slot {
    Open(oneshot::Sender<Decided>),
    Answered,
}

/// What becomes of a request.
enum Decided {
    Answered(Approval),
    Parked(Park),
}

impl fmt::Debug for Approvals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Approvals").field("requests", &self.slots().len()).finish()
    }
}

impl Approvals {
    pub(in crate::agent) fn new(control: Control) -> Approvals {
        Approvals(Arc::new(Requests { control, slots: Mutex::default() }))
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<RequestId, Slot>> {
        self.0.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a request. `Ok` means that the run has the answer; a stop that comes before the call
    /// has started still prevents the call.
    ///
    /// # Errors
    /// There is no such request, it was answered before, or the run no longer waits for it.
    pub fn answer(&self, id: RequestId, approval: Approval) -> Result<(), AnswerError> {
        // The answer is sent under the lock: an approver that decides at the same time then either
        // sees it, or has closed the slot.
        let mut slots = self.slots();
        let Some(slot) = slots.get_mut(&id) else { return Err(AnswerError::Unknown(id)) };
        match slot {
            Slot::Answered => return Err(AnswerError::AlreadyAnswered(id)),
            // The slot stays open, so that another answer gets the same error.
            Slot::Open(sender) if sender.is_closed() || self.0.control.pending(None).is_some() => {
                return Err(AnswerError::Closed(id));
            }
            Slot::Open(_) => {}
        }
        match std::mem::replace(slot, Slot::Answered) {
            Slot::Open(sender) => {
                sender.send(Decided::Answered(approval)).map_err(|_| AnswerError::Closed(id))
            }
            Slot::Answered => Err(AnswerError::AlreadyAnswered(id)),
        }
    }

    /// [Parks](crate::park) the run, so that its open requests can be decided later, in any process.
    /// Returns `false` if there are none. The run is parked when its other calls have ended; until
    /// then it may still be stopped. The run needs a journal; without one the requests are denied.
    pub fn park(&self, park: &Park) -> bool {
        let mut parked = false;
        for slot in self.slots().values_mut() {
            if matches!(slot, Slot::Open(sender) if !sender.is_closed())
                && let Slot::Open(sender) = std::mem::replace(slot, Slot::Answered)
            {
                parked |= sender.send(Decided::Parked(park.clone())).is_ok();
            }
        }
        parked
    }

    /// Opens a request. A run that its journal resumes asks again under the same id.
    pub(in crate::agent) fn open(&self, run_id: &str, id: EffectId, call: ToolCall) -> Reply {
        let id = RequestId::of(run_id, id.0);
        let (sender, answer) = oneshot::channel();
        self.slots().insert(id, Slot::Open(sender));
        Reply { id, call, answer, approvals: self.clone() }
    }
}

/// The answer that a request waits for.
pub(in crate::agent) struct Reply {
    pub(in crate::agent) id: RequestId,
    pub(in crate::agent) call: ToolCall,
    answer: oneshot::Receiver<Decided>,
    approvals: Approvals,
}

impl Reply {
    /// Waits for the answer of the caller, or of the approver if there is one. The first counts.
    pub(in crate::agent) async fn wait(
        self,
        approver: Option<impl Future<Output = HookDecision>>,
    ) -> HookDecision {
        let Reply { id, call, mut answer, approvals } = self;
        let approver = async {
            match approver {
                Some(approver) => approver.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            answer = &mut answer => answer.map_or(HookDecision::Deny("no answer".to_owned()), |decided| decided.answer(call)),
            decided = approver => {
                let slot = approvals.slots().insert(id, Slot::Answered);
                // The caller may have answered while the approver decided.
                match (slot, answer.try_recv()) {
                    (Some(Slot::Answered), Ok(decided)) => decided.answer(call),
                    _ => decided,
                }
            }
        }
    }
}

impl Decided {
    fn answer(self, call: ToolCall) -> HookDecision {
        match self {
            Decided::Answered(approval) => approval.answer(call),
            Decided::Parked(park) => HookDecision::Park(park),
        }
    }
}

impl Approval {
    fn answer(self, call: ToolCall) -> HookDecision {
        match self {
            Approval::Allow => HookDecision::Proceed,
            Approval::Deny(reason) => HookDecision::Deny(reason),
            Approval::AllowChanged(arguments) => {
                let arguments = Value::Object(arguments).to_string();
                HookDecision::ChangeCall(ToolCall { arguments, ..call })
            }
        }
    }
}
