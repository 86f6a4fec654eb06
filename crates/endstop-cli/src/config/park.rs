//! How calls that need approval are decided: on the terminal, or by parking the run (`--ask park`).

use crate::config::setting::{BRANCH, Commands, Kind, Problem, json_value, switch};
use crate::config::settings::{SettingArgs, Settings};
use crate::failure::Failure;
use crate::run_args::RunArgs;
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
pub(super) fn merge(settings: &mut Settings, args: &SettingArgs) -> Result<(), String> {
    let Settings { ask, park, .. } = settings;
    *ask |= args.ask.is_some();
    match args.ask.as_deref() {
        Some("park") => *park = Some(park.unwrap_or_default()),
        // The terminal decides from here on.
        Some(_) => *park = None,
        None => {}
    }
    let Some(expiry) = args.park else { return Ok(()) };
    let Some(park) = park else {
        return Err("--park-expiry: the run is not parked for approvals; add --ask park".to_owned());
    };
    park.expiry_ms = Some(u64::try_from(expiry.as_millis()).unwrap_or(u64::MAX));
    Ok(())
}

/// Returns the arguments with the task where it belongs. `--ask` may be followed by the task, which
/// then looks like its value.
pub(crate) fn with_task(args: &RunArgs) -> Result<RunArgs, Failure> {
    let mut args = args.clone();
    let Some(how) = args.settings.ask.as_deref().filter(|how| !matches!(*how, "terminal" | "park"))
    else {
        return Ok(args);
    };
    if args.task.is_some() || args.resume.is_some() {
        return Err(Failure::usage(format!(
            "--ask: unknown way `{}`; use `--ask terminal` or `--ask park`",
            crate::visible::shorten(how, 60)
        )));
    }
    args.task = args.settings.ask.replace("terminal".to_owned());
    Ok(args)
}

#[cfg(test)]
mod tests {
    use super::with_task;
    use crate::run_args::RunArgs;

    fn split(ask: Option<&str>, task: Option<&str>) -> Option<(Option<String>, Option<String>)> {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let mut args = RunArgs { task: owned(task), ..RunArgs::default() };
        args.settings.ask = owned(ask);
        with_task(&args).ok().map(|args| (args.settings.ask.clone(), args.task))
    }

    #[test]
    fn task_after_ask_is_the_task() {
        let is =
            |ask: &str, task: Option<&str>| Some((Some(ask.to_owned()), task.map(str::to_owned)));
        assert_eq!(split(Some("Fix it."), None), is("terminal", Some("Fix it.")));
        assert_eq!(split(Some("park"), Some("Fix it.")), is("park", Some("Fix it.")));
        assert_eq!(split(Some("terminal"), None), is("terminal", None));
        assert_eq!(split(Some("prak"), Some("Fix it.")), None);
        assert_eq!(split(None, Some("park")), Some((None, Some("park".to_owned()))));
    }
}
