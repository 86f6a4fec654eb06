//! `endstop runs --live`, `endstop cancel` and `endstop limits`: the runs of other processes.

use crate::args::{CancelArgs, LiveLimitsArgs};
use crate::failure::{Failure, Result};

#[cfg(unix)]
pub(crate) fn list(json: bool) -> Result {
    use crate::control::client::live;
    use crate::output;
    use crate::visible::shorten;
    let all = live()?;
    if json {
        for found in &all {
            output::json(&found.run);
        }
        return Ok(0);
    }
    if all.is_empty() {
        output::note("no run is live");
        return Ok(0);
    }
    output::line(&format!(
        "{:<24}  {:<16}  {:<8}  {:>5}  {:>9}  {:>8}  {:>7}  {:>8}",
        "run", "kind", "phase", "turns", "cost", "elapsed", "calls", "process"
    ));
    for found in &all {
        let run = &found.run;
        // Written by another process, so nothing in it reaches the terminal unescaped.
        let one_line = |text: &str, most| shorten(text, most).replace(['\n', '\t'], " ");
        let kind =
            run.profile.as_ref().map_or(run.kind.clone(), |one| format!("{}:{one}", run.kind));
        let cost = run.cost_usd.map_or_else(|| "–".to_owned(), |usd| format!("${usd:.4}"));
        let elapsed = format!("{} s", run.elapsed_ms / 1000);
        output::line(&format!(
            "{:<24}  {:<16}  {:<8}  {:>5}  {cost:>9}  {elapsed:>8}  {:>7}  {:>8}",
            one_line(&run.run_id, 60),
            one_line(&kind, 60),
            one_line(&run.phase, 30),
            run.turns,
            run.calls_in_flight,
            run.pid,
        ));
    }
    Ok(0)
}

#[cfg(unix)]
pub(crate) fn cancel(args: &CancelArgs, json: bool) -> Result {
    use super::pending::cancel;
    use crate::control::{Request, client::find};
    let found = match find(&args.run) {
        Ok(found) => found,
        Err(failure) => {
            // A parked run has no process, so only its journal can cancel it.
            let run = cancel(&args.run, args.journal.as_deref())?
                .ok_or_else(|| of_ended(&args.run, args.journal.as_deref()).unwrap_or(failure))?;
            done("cancelled", &run, json);
            return Ok(0);
        }
    };
    found.ask(&Request::Cancel { run: found.run.run_id.clone() })?;
    done("cancelled", &found.run.run_id, json);
    Ok(0)
}

#[cfg(unix)]
pub(crate) fn limits(args: &LiveLimitsArgs, json: bool) -> Result {
    use crate::config::limits::{set_by_flag, value_of};
    use crate::control::{Request, client::find};
    let given = args.limits.given();
    if given.is_empty() {
        return Err(Failure::usage("no limit is given; give for example --max-turns 50"));
    }
    let mut limits = serde_json::Map::new();
    for (name, text) in given {
        let value = value_of(text);
        // Checked here, so that the error names the flag.
        set_by_flag(&mut endstop::Limits::none(), name, &value).map_err(Failure::usage)?;
        limits.insert(name.to_owned(), value);
    }
    let found = find(&args.run).map_err(|failure| of_ended(&args.run, None).unwrap_or(failure))?;
    found.ask(&Request::Limits { run: found.run.run_id.clone(), limits })?;
    done("limits_changed", &found.run.run_id, json);
    Ok(0)
}

/// Returns the error for a stored run that is not live any more.
#[cfg(unix)]
fn of_ended(name: &str, journal: Option<&std::path::Path>) -> Option<Failure> {
    use crate::config::journal_path::{self, JournalPath};
    use crate::visible::visible;
    let journal = journal_path::to_read(&JournalPath::of(journal, None).ok()?).ok()?;
    let id = journal.find(name).ok()?;
    let run = journal.load(&id).ok()?;
    let (id, ending) = (visible(&id), visible(run.outcome?["termination"].as_str()?));
    Some(Failure::usage(format!(
        "run {id} has ended ({ending}), so it cannot be changed; `endstop explain {id}` has the next step"
    )))
}

#[cfg(unix)]
fn done(what: &str, run: &str, json: bool) {
    use crate::output;
    if json {
        output::json(&serde_json::json!({"type": what, "run_id": run}));
    } else {
        let what = what.replace('_', " ");
        output::line(&format!("{}: {what}", crate::visible::visible(run)));
    }
}

#[cfg(not(unix))]
fn unsupported() -> Result {
    Err(Failure::usage("live runs can be controlled only on systems with Unix sockets"))
}

#[cfg(not(unix))]
pub(crate) fn list(_json: bool) -> Result {
    unsupported()
}

#[cfg(not(unix))]
pub(crate) fn cancel(_args: &CancelArgs, _json: bool) -> Result {
    unsupported()
}

#[cfg(not(unix))]
pub(crate) fn limits(_args: &LiveLimitsArgs, _json: bool) -> Result {
    unsupported()
}
