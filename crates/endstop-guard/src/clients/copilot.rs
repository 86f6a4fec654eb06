//! GitHub Copilot CLI.
//!
//! It calls the models of GitHub, unless its own variables name another provider. It reads no variable of an SDK.

use super::plan::Plan;
use super::wiring::{Source, Unguardable, Warning};

const BASE_URL: &str = "COPILOT_PROVIDER_BASE_URL";

pub(super) fn wire(plan: &mut Plan<'_>) {
    let Some(base) = plan.var(BASE_URL).map(str::to_owned) else {
        return plan.warn(Warning::Unguardable(Unguardable::CopilotHosted));
    };
    // Its COPILOT_PROVIDER_TYPE decides what it appends to the base URL, so the whole of that is replaced.
    let url = plan.service("/copilot", &base, Source::Variable(BASE_URL.to_owned()));
    plan.set(BASE_URL, url);
}
