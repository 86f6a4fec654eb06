//! The plan of a run: what the first worker decides about it, once for all workers.

use super::shared::Shared;
use crate::catalog::{Accepted, Began, Catalog, Decision};
use crate::clock;
use crate::request::{RunRequest, check_run_id};
use crate::store::StoreError;
use endstop::{Limits, NanoUsd};
use serde::{Deserialize, Serialize};

/// The decisions before a run. The engine stores them, so that a worker with other settings does not
/// decide differently.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Plan {
    /// The limits of the run.
    pub(super) limits: Limits,
    /// The reservation that the run needs.
    pub(super) budget: Option<Reservation>,
    /// The reason why the run does not start.
    pub(super) refused: Option<String>,
    /// `true` if another invocation began the run, of which the engine knows nothing any more.
    #[serde(default)]
    pub(super) lost: bool,
}

/// An amount of a shared budget.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Reservation {
    /// Name of the budget.
    pub(super) name: String,
    /// The ceiling of the budget.
    pub(super) ceiling: NanoUsd,
    /// The ceiling of the run.
    pub(super) want: NanoUsd,
}

/// Notes in the store that this invocation begins the run, and plans it. Blocks.
///
/// # Errors
/// The store cannot be read or written.
pub(super) fn admit(
    shared: &Shared,
    id: &str,
    invocation: &str,
    request: &RunRequest,
) -> Result<Plan, StoreError> {
    if let Err(problem) = check_run_id(id) {
        return Ok(Plan { refused: Some(problem), ..Plan::default() });
    }
    let at_ms = clock::wall_ms();
    // A run that a client has started at the engine itself is not in the list yet.
    shared.catalog.accept(id, &Accepted::new(request.clone(), at_ms))?;
    if shared.catalog.decide(id, Decision::Accepted)? == Decision::Withdrawn {
        let why = "the request for this run was withdrawn, because the engine had not confirmed it";
        return Ok(Plan { refused: Some(why.to_owned()), ..Plan::default() });
    }
    let began = Began { invocation: invocation.to_owned(), at_ms };
    // The same invocation plans twice if its worker died before the engine stored the plan.
    if shared.catalog.begin(id, &began)?.invocation != invocation {
        let why = "the engine has lost this run, which an earlier invocation began; start it again";
        return Ok(Plan { refused: Some(why.to_owned()), lost: true, ..Plan::default() });
    }
    if let Some(why) = check_origin(&shared.catalog, id, request)? {
        return Ok(Plan { refused: Some(why), ..Plan::default() });
    }
    Ok(plan(shared, id, request))
}

/// Returns the reason for which the run cannot branch from the run that its request names: an agent must not
/// read the conversation of another one.
///
/// # Errors
/// The store cannot be read.
fn check_origin(
    catalog: &Catalog,
    id: &str,
    request: &RunRequest,
) -> Result<Option<String>, StoreError> {
    let Some(origin) = &request.origin else { return Ok(None) };
    // Any client of the engine can write the request, and the id is a part of a path in the store.
    if let Err(problem) = check_run_id(&origin.run) {
        return Ok(Some(format!("`origin`: {problem}")));
    }
    let known = catalog.get(&origin.run)?.filter(|_| origin.run != id);
    let same = known.is_some_and(|entry| entry.accepted.request.agent == request.agent);
    let why = || format!("`origin`: the agent {:?} has no run {}", request.agent, origin.run);
    Ok((!same).then(why))
}

/// Plans a run.
pub(super) fn plan(shared: &Shared, id: &str, request: &RunRequest) -> Plan {
    let refused = |why: String| Plan { refused: Some(why), ..Plan::default() };
    if let Err(problem) = check_run_id(id) {
        return refused(problem);
    }
    let Some(source) = shared.agents.get(&request.agent) else {
        return refused(format!("the agent {:?} is not configured", request.agent));
    };
    let limits = match request.limits_over(&source.limits()) {
        Ok(limits) => limits,
        Err(problem) => return refused(problem),
    };
    let Some(budget) = source.budget() else {
        return Plan { limits, ..Plan::default() };
    };
    let Some(want) = limits.max_budget_usd.map(NanoUsd::from_usd) else {
        return refused(format!(
            "the runs of the agent share the budget {:?}, so each needs a ceiling; set the limit `max_budget_usd`",
            budget.name
        ));
    };
    let budget = Reservation { name: budget.name, ceiling: budget.usd, want };
    Plan { limits, budget: Some(budget), ..Plan::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Origin;
    use crate::store::Store;

    #[test]
    fn branch_needs_a_run_of_its_agent() {
        let folder = tempfile::tempdir().unwrap();
        let catalog = Catalog::of(&Store::open(folder.path()).unwrap());
        let request = |agent: &str, run: &str| RunRequest {
            agent: agent.to_owned(),
            origin: Some(Origin { run: run.to_owned(), ..Origin::default() }),
            ..RunRequest::default()
        };
        let own = RunRequest { agent: "a".to_owned(), ..RunRequest::default() };
        catalog.accept("r1", &Accepted::new(own.clone(), 5)).unwrap();
        catalog.accept("r2", &Accepted::new(request("a", "r2"), 5)).unwrap();
        let check = |request: &RunRequest| check_origin(&catalog, "r2", request).unwrap();
        assert_eq!(check(&own), None);
        assert_eq!(check(&request("a", "r1")), None);
        let long = "x".repeat(65);
        // Another agent, no run, the run itself, and paths.
        for (agent, run) in [
            ("b", "r1"),
            ("a", "r3"),
            ("a", "r2"),
            ("a", ""),
            ("a", ".."),
            ("a", "../index"),
            ("a", "r1/../r1"),
            ("a", "r1\0"),
            ("a", "/etc"),
            ("a", long.as_str()),
        ] {
            assert!(check(&request(agent, run)).is_some(), "{agent} {run:?}");
        }
    }
}
