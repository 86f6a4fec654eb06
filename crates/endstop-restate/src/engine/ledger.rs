//! The supervisor of a run: an object that waits for the end of the run, and gives a run that the
//! engine has killed its typed ending.

#![expect(clippy::unused_async, reason = "the engine calls handlers as async functions")]

use super::budget::{EndstopBudgetClient, Settle};
use super::plan::{Reservation, plan};
use super::shared::Shared;
use super::workflow::EndstopRunClient;
use crate::catalog::Summary;
use crate::report::{RunReport, spent_of};
use crate::request::RunRequest;
use crate::store::Tip;
use crate::{Cause, Past, clock, end_run};
use endstop::NanoUsd;
use restate_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// The state that has the report of a run.
const REPORT: &str = "report";

/// The state that has the request of a run that was started here.
const REQUEST: &str = "request";

/// The status of a request that contradicts an earlier one.
const CONFLICT: u16 = 409;

/// The time for which a report can be read.
const KEPT: Duration = Duration::from_secs(30 * 86_400);

/// The status of an invocation that an administrator has killed.
const KILLED: u16 = 409;

/// A run to wait for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Watched {
    /// The invocation of the run's workflow.
    pub(crate) invocation: String,
    /// The request for the run.
    pub(crate) request: RunRequest,
}

/// The supervisor of a run.
pub(crate) struct EndstopLedger(pub(super) Arc<Shared>);

// Suspended while it waits for its run, because a waiting request takes a place on a connection.
#[restate_sdk::object(journal_retention = "3 days", inactivity_timeout = "1s")]
impl EndstopLedger {
    /// Starts the run, and returns its report. A run that was started before is not started again.
    #[handler]
    async fn start(
        &self,
        ctx: ObjectContext<'_>,
        request: Json<RunRequest>,
    ) -> HandlerResult<Json<RunReport>> {
        match ctx.get::<Json<RunRequest>>(REQUEST).await? {
            None => ctx.set(REQUEST, Json(request.0.clone())),
            Some(first) if first.0.is_for_the_same(&request.0) => {}
            Some(_) => {
                let problem = "a run with this id was started with another request";
                return Err(TerminalError::new_with_code(CONFLICT, problem).into());
            }
        }
        if let Some(report) = ctx.get::<Json<RunReport>>(REPORT).await? {
            return Ok(report);
        }
        let id = ctx.key().to_owned();
        let own = request.0.clone();
        let run = ctx.workflow_client::<EndstopRunClient<'_>>(id).run(request).send().await?;
        let invocation = run.invocation_id().to_owned();
        Ok(Json(ended(&self.0, &ctx, Watched { invocation, request: own }).await?))
    }

    /// Waits for the end of a run that was started without this object. Its workflow calls this.
    #[handler]
    async fn watch(&self, ctx: ObjectContext<'_>, watched: Json<Watched>) -> HandlerResult<()> {
        if ctx.get::<Json<RunReport>>(REPORT).await?.is_none() {
            ended(&self.0, &ctx, watched.into_inner()).await?;
        }
        Ok(())
    }

    /// Forgets the run, because the engine stores the state of an object for ever.
    #[handler]
    async fn forget(&self, ctx: ObjectContext<'_>) -> HandlerResult<()> {
        ctx.clear_all();
        Ok(())
    }

    /// Returns the report of a run that has ended, or nothing.
    #[handler]
    async fn report(&self, ctx: SharedObjectContext<'_>) -> HandlerResult<Json<Option<RunReport>>> {
        let report = ctx.get::<Json<RunReport>>(REPORT).await?;
        Ok(Json(report.map(Json::into_inner)))
    }
}

/// Waits for the end of the run, and remembers its report.
async fn ended(
    shared: &Arc<Shared>,
    ctx: &ObjectContext<'_>,
    watched: Watched,
) -> HandlerResult<RunReport> {
    let id = ctx.key().to_owned();
    let run = ctx.invocation_handle(watched.invocation).attach::<Json<RunReport>>().await;
    let report = match run {
        Ok(report) => report.into_inner(),
        Err(error) => {
            // The workflow had no say, so nothing has ended what waits for its promises.
            ctx.workflow_client::<EndstopRunClient<'_>>(id.clone()).close().send();
            let (shared, own) = (Arc::clone(shared), id.clone());
            let (code, message) = (error.code(), error.message().to_owned());
            let request = watched.request;
            let Json(killed) = ctx
                .run(move || async move {
                    Ok(Json(killed(&shared, &own, &request, code, &message).await))
                })
                .name("end of a killed run")
                .await?;
            if let Some(budget) = killed.budget {
                // Without a reservation, because the run was killed before it, this does nothing.
                let settle = Settle { run: id, spent: killed.spent };
                let object = ctx.object_client::<EndstopBudgetClient<'_>>(budget.name);
                object.settle(Json(settle)).send();
            }
            killed.report
        }
    };
    ctx.set(REPORT, Json(report.clone()));
    ctx.object_client::<EndstopLedgerClient<'_>>(ctx.key()).forget().send_after(KEPT);
    Ok(report)
}

/// The ending of a run that the engine has killed.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Killed {
    report: RunReport,
    /// The reservation that the run may have.
    budget: Option<Reservation>,
    /// The most that the run may have cost; `None` if it is not known.
    spent: Option<NanoUsd>,
}

/// Ends a run that the engine has killed, from the steps in the store.
async fn killed(
    shared: &Shared,
    id: &str,
    request: &RunRequest,
    code: u16,
    message: &str,
) -> Killed {
    let budget = plan(shared, id, request).budget;
    let (store, run) = (shared.store.clone(), id.to_owned());
    let mut past = match tokio::task::spawn_blocking(move || store.past(&run)).await {
        Ok(Ok(past)) => past,
        Ok(Err(error)) => {
            (shared.report)(&error.to_string());
            Past::default()
        }
        Err(_) => Past::default(),
    };
    // An administrator's kill; a run that was given up has the status of its last error.
    let cause = if code == KILLED {
        Cause::Killed
    } else {
        Cause::Failed(format!("the engine gave the run up: {message}"))
    };
    // If there is an outcome, the run had ended, but its workflow had not returned yet.
    let outcome = if let Some(outcome) = past.outcome() {
        outcome.to_owned()
    } else {
        let (step, _) = end_run(&past, id, &request.task, &cause, clock::wall_ms());
        match shared.put(id, past.steps(), &step).await {
            Ok(_) => past.take(&step),
            Err(error) => (shared.report)(&error.to_string()),
        }
        step.outcome().unwrap_or_default().to_owned()
    };
    if let (Some(number), Some(sha256)) = (past.steps().checked_sub(1), past.last()) {
        let tip = Tip { number, sha256: sha256.to_owned() };
        let summary = Summary::of(&outcome, tip, clock::wall_ms());
        if let Err(error) = shared.catalog.ended(id, &summary) {
            (shared.report)(&error.to_string());
        }
    }
    let note = format!("the engine ended the workflow of the run (status {code}): {message}");
    let report = RunReport { note: Some(note), ..RunReport::of(id, &outcome) };
    Killed { report, budget, spent: spent_of(&outcome) }
}
