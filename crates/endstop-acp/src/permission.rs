//! Asks the person at the editor whether a tool call may run.

use crate::tool_call;
use agent_client_protocol::Client;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
    SessionId, ToolCallContent, ToolCallId, ToolCallUpdate,
};
use endstop::Approval;
use endstop_report::visible::visible;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

const ONCE: &str = "allow_once";
const ALWAYS: &str = "allow_always";
const REJECT: &str = "reject_once";

/// The tools that the person has allowed for the rest of a session.
#[derive(Debug, Default)]
pub(crate) struct Allowed(Mutex<BTreeSet<String>>);

impl Allowed {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
    }

    fn add(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
    }
}

/// A call that waits for a decision.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) session: SessionId,
    pub(crate) call: ToolCallId,
    pub(crate) name: String,
    /// The arguments with which the call would run, in canonical form.
    pub(crate) arguments: String,
}

impl Asked {
    /// Builds the request.
    pub(crate) fn request(&self, dir: &Path) -> RequestPermissionRequest {
        // The title is short, and not every editor shows the input, so the question has all of it.
        let whole = ToolCallContent::from(visible(&self.arguments));
        let fields = tool_call::described(&self.name, &self.arguments, dir).content(vec![whole]);
        let call = ToolCallUpdate::new(self.call.clone(), fields);
        let options = vec![
            PermissionOption::new(ONCE, "Allow once", PermissionOptionKind::AllowOnce),
            PermissionOption::new(
                ALWAYS,
                format!("Allow `{}` for this session", self.name),
                PermissionOptionKind::AllowAlways,
            ),
            PermissionOption::new(REJECT, "Reject", PermissionOptionKind::RejectOnce),
        ];
        RequestPermissionRequest::new(self.session.clone(), call, options)
    }

    /// Asks, and returns the decision. Everything but an explicit permission denies the call.
    pub(crate) async fn decide(
        &self,
        editor: &ConnectionTo<Client>,
        dir: &Path,
        allowed: &Allowed,
    ) -> Approval {
        let denied = |why: &str| Approval::Deny(why.to_owned());
        match editor.send_request(self.request(dir)).block_task().await {
            // The error's text comes from the editor and does not help the model.
            Err(_) => denied("the editor could not ask the user"),
            Ok(response) => match response.outcome {
                RequestPermissionOutcome::Selected(selected) => match &*selected.option_id.0 {
                    ONCE => Approval::Allow,
                    ALWAYS => {
                        allowed.add(&self.name);
                        Approval::Allow
                    }
                    REJECT => denied("the user rejected the call"),
                    _ => denied("the editor answered with an option that was not offered"),
                },
                _ => denied("the user dismissed the question"),
            },
        }
    }
}
