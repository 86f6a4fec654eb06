//! The runs of `endstop guard`, under control.

use super::protocol::{Controlled, LiveRun, Reply};
use endstop_guard::run::RunHandle;
use endstop_guard::standing::Standing;
use serde_json::{Map, Value};

/// The single run of `endstop guard -- CMD`.
pub(crate) struct OneGuarded(pub(crate) RunHandle);

impl Controlled for OneGuarded {
    fn runs(&self) -> Vec<LiveRun> {
        vec![row(&self.0, "guard", None)]
    }

    fn cancel(&self, run: &str) -> Reply {
        if self.0.id() == run { cancel(&self.0) } else { Reply::UnknownRun }
    }

    fn limits(&self, run: &str, limits: &Map<String, Value>) -> Reply {
        if self.0.id() == run { change(&self.0, limits) } else { Reply::UnknownRun }
    }
}

/// The runs of a standing proxy. An id that several profiles have stands for all of these runs.
impl Controlled for Standing {
    fn runs(&self) -> Vec<LiveRun> {
        let all = Standing::runs(self).into_iter();
        let live = all.filter(|(_, run)| run.outcome().is_none());
        live.map(|(profile, run)| row(&run, "listen", Some(profile))).collect()
    }

    fn cancel(&self, run: &str) -> Reply {
        each(self, run, cancel)
    }

    fn limits(&self, run: &str, limits: &Map<String, Value>) -> Reply {
        each(self, run, |run| change(run, limits))
    }
}

fn each(standing: &Standing, id: &str, act: impl Fn(&RunHandle) -> Reply) -> Reply {
    let mut last = Reply::UnknownRun;
    for (_, run) in Standing::runs(standing).into_iter().filter(|(_, run)| run.id() == id) {
        match act(&run) {
            // Another profile may have a live run with this id.
            Reply::UnknownRun => {}
            reply => last = reply,
        }
    }
    last
}

fn cancel(run: &RunHandle) -> Reply {
    if run.outcome().is_some() {
        return Reply::UnknownRun;
    }
    run.cancel();
    Reply::Done
}

fn change(run: &RunHandle, changes: &Map<String, Value>) -> Reply {
    // All of them are read before any is changed.
    let mut limits = run.limits();
    for (name, value) in changes {
        if let Err(error) = limits.set(name, value) {
            return Reply::Invalid(format!("limit `{name}`: {}", error.problem));
        }
    }
    if run.set_limits(limits) { Reply::Done } else { Reply::UnknownRun }
}

fn row(run: &RunHandle, kind: &str, profile: Option<&str>) -> LiveRun {
    let live = run.live();
    let phase = match live.ended {
        Some(termination) => termination.as_str(),
        None if live.in_flight > 0 => "calling",
        None => "waiting",
    };
    LiveRun {
        run_id: live.id,
        kind: kind.to_owned(),
        profile: profile.map(str::to_owned),
        phase: phase.to_owned(),
        turns: live.turns,
        cost_usd: live.cost.map(endstop::NanoUsd::to_usd),
        elapsed_ms: u64::try_from(live.elapsed.as_millis()).unwrap_or(u64::MAX),
        calls_in_flight: live.in_flight,
        pid: std::process::id(),
    }
}
