//! The decision of a policy about a step.

use crate::errors::{Result, config, from_json, to_json};
use endstop_core::{PolicyEnd, Stop, Termination, Verdict, closed};
use endstop_guest::choice::policy_end;
use napi_derive::napi;

/// The decision of a policy about a step: continue, continue with a message for the model, or stop.
#[napi(object, use_nullable = true)]
#[derive(Default)]
pub struct VerdictFields {
    /// True if the run stops.
    #[napi(readonly)]
    pub stops: bool,
    /// The termination of the run, if it stops.
    #[napi(readonly, ts_type = "Termination | null")]
    pub ends_as: Option<String>,
    /// The answer as text, if the verdict has one.
    #[napi(readonly)]
    pub answer: Option<String>,
    /// The answer as a value of JSON, if the verdict has one.
    // JSON text here; the JavaScript half parses it.
    #[napi(readonly, ts_type = "any")]
    pub deliverable: Option<String>,
    /// Name of the policy that decided.
    #[napi(readonly)]
    pub policy: Option<String>,
    /// The reason, for a person to read; empty if the run continues.
    #[napi(readonly)]
    pub evidence: String,
    /// The message for the model, if the policy has one.
    #[napi(readonly)]
    pub message: Option<String>,
}

impl VerdictFields {
    pub(crate) fn of(verdict: &Verdict) -> Result<VerdictFields> {
        Ok(match verdict.closed() {
            closed::Verdict::Continue => VerdictFields::default(),
            closed::Verdict::Tell(message) => {
                VerdictFields { message: Some(message.to_owned()), ..VerdictFields::default() }
            }
            closed::Verdict::Stop(stop) => VerdictFields {
                stops: true,
                ends_as: Some(Termination::from(stop.ends_as).as_str().to_owned()),
                answer: stop.answer.clone(),
                deliverable: stop.deliverable().as_ref().map(to_json).transpose()?,
                policy: Some(stop.policy.clone()),
                evidence: stop.evidence.clone(),
                message: None,
            },
        })
    }

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
