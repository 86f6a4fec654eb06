//! The runs of `endstop serve`, under control.

use super::protocol::{Controlled, LiveRun, Reply};
use endstop::LimitChanges;
use endstop_serve::{Operator, OperatorError};
use serde_json::{Map, Value};

impl Controlled for Operator {
    fn runs(&self) -> Vec<LiveRun> {
        // A store that cannot be read is reported by the server itself.
        let open = Operator::runs(self).unwrap_or_default().into_iter();
        let rows = open.map(|run| LiveRun {
            run_id: run.run_id,
            kind: "serve".to_owned(),
            profile: Some(run.agent),
            phase: run.state.to_owned(),
            turns: run.turns,
            cost_usd: run.cost_usd,
            elapsed_ms: u64::try_from(run.age.as_millis()).unwrap_or(u64::MAX),
            calls_in_flight: run.calls_in_flight,
            pid: std::process::id(),
        });
        rows.collect()
    }

    fn cancel(&self, run: &str) -> Reply {
        reply(Operator::cancel(self, run))
    }

    fn limits(&self, run: &str, limits: &Map<String, Value>) -> Reply {
        match LimitChanges::read(limits) {
            Ok(changes) => reply(self.set_limits(run, changes)),
            Err(error) => Reply::Invalid(error.to_string()),
        }
    }
}

fn reply(done: Result<(), OperatorError>) -> Reply {
    match done {
        Ok(()) => Reply::Done,
        Err(OperatorError::UnknownRun) => Reply::UnknownRun,
        Err(error @ OperatorError::NotWorking) => Reply::NotSupported(error.to_string()),
        Err(error) => Reply::Invalid(error.to_string()),
    }
}
