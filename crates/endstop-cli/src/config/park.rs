//! How calls that need approval are decided: on the terminal, or by parking the run (`--ask park`).

use crate::config::flag::{BRANCH, Commands};

use crate::config::kind::{Kind, Problem, json_value, switch};
use clap::Arg;
use endstop::hook::ParkApprovals;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// The terms under which a run is parked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ParkSettings {
    /// Milliseconds after which a request counts as denied by timeout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expiry_ms: Option<u64>,
}

impl ParkSettings {
    /// Returns the approver that parks the run.
    pub(crate) fn approver(self) -> ParkApprovals {
        let approver = ParkApprovals::new();
        match self.expiry_ms {
            Some(expiry) => approver.expires_after(Duration::from_millis(expiry)),
            None => approver,
        }
    }
}

/// Approval of tool calls: `true` if each call needs it. [`merge`] merges the flag together with `--park-expiry`.
pub(crate) struct Ask;

impl Kind for Ask {
    type Own = bool;
    type Flag = Option<String>;

    fn arg(arg: Arg, command: Commands) -> Arg {
        match command {
            // The run that follows would look like the value.
            BRANCH => arg.value_parser(["terminal", "park"]),
            _ => arg.num_args(0..=1).default_missing_value("terminal"),
        }
    }

    fn take(own: &mut bool, _: &str, value: &Value) -> Result<(), Problem> {
        *own = switch(value)?;
        Ok(())
    }

    json_value!();
}

/// If set, a call that needs approval parks the run. [`merge`] merges the flag.
pub(crate) struct Park;

impl Kind for Park {
    type Own = Option<ParkSettings>;
    type Flag = Option<Duration>;

    json_value!();
}

/// Merges `--ask` and `--park-expiry`: if calls need approval, and how it is given.
pub(super) fn merge(
    ask: &mut bool,
    park: &mut Option<ParkSettings>,
    given: Option<&str>,
    expiry: Option<Duration>,
) -> Result<(), String> {
    *ask |= given.is_some();
    match given {
        Some("park") => *park = Some(park.unwrap_or_default()),
        // The terminal decides from here on.
        Some(_) => *park = None,
        None => {}
    }
    let Some(expiry) = expiry else { return Ok(()) };
    let Some(park) = park else {
        return Err("--park-expiry: the run is not parked for approvals; add --ask park".to_owned());
    };
    park.expiry_ms = Some(u64::try_from(expiry.as_millis()).unwrap_or(u64::MAX));
    Ok(())
}
