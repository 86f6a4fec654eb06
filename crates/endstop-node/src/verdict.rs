//! The decision of a policy about a step.

use crate::errors::{Result, config, from_json};
use crate::fields::object;
use endstop_core::{PolicyEnd, Stop, Verdict};
use endstop_guest::choice::policy_end;
use endstop_guest::verdict_fields;
use napi_derive::napi;

verdict_fields! { object
    /// The decision of a policy about a step: continue, continue with a message for the model, or stop.
    VerdictFields(Verdict);
}

impl VerdictFields {
    /// Returns the verdict of the kernel, by the policy of this name.
    pub(crate) fn read(self, policy: &str) -> Result<Verdict> {
        if !self.stops {
            return Ok(self.message.map_or(Verdict::Continue, Verdict::Tell));
        }
        let evidence = if self.evidence.is_empty() {
            format!("`{policy}` stopped the run")
        } else {
            self.evidence
        };
        let end = self.ends_as.as_deref().map_or(Ok(PolicyEnd::Submitted), read_end)?;
        let deliverable =
            self.deliverable.map(|json| from_json(&json, "deliverable")).transpose()?;
        let stop = Stop::submitted(policy, evidence);
        Ok(Verdict::Stop(Stop { ends_as: end, answer: self.answer, deliverable, ..stop }))
    }
}

/// Reads the termination that a policy may cause.
fn read_end(name: &str) -> Result<PolicyEnd> {
    policy_end("endsAs", name).map_err(config)
}

/// Checks the name of a termination that a policy may cause.
#[napi]
pub fn check_policy_end(name: String) -> Result<()> {
    read_end(&name).map(drop)
}
