//! The workflow of a run: one run is one key.

#![expect(clippy::unused_async, reason = "the engine calls handlers as async functions")]

use super::budget::{EndstopBudgetClient, Reserve, Settle};
use super::client::encoded;
use super::driving::Driving;
use super::ledger::Watched;
use super::letters::{
    MOST_LETTERS, MOST_TEXT, Slot, close_letters, letter as letter_promise, steered,
};
use super::plan::{Plan, admit};
use super::shared::Shared;
use super::stops::{STOP, Signal, TERMINATE};
use crate::letter::{Content, Letter, Refusal};
use crate::report::{RunReport, spent_of};
use crate::request::{RunRequest, Stop};
use crate::step::StepEnd;
use endstop::park::{Answer, ParkRequest, RequestKind};
use restate_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// The status of an error that reports a cancel by the engine's administrator.
const CANCELLED: u16 = 409;

/// The status of an error that reports a letter or a list of letters that is too large.
const TOO_LARGE: u16 = 413;

/// The state that has the request of a parked run.
const PARKED: &str = "parked";

/// A decision about the request of a parked run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Decision {
    /// The digest of the request, or its first eight digits or more.
    digest: String,
    /// `true` to let the call run.
    #[serde(default)]
    approve: bool,
    /// The arguments that replace those of the approved call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    arguments: Option<Map<String, Value>>,
    /// The reason of a denial, which the model reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deny: Option<String>,
    /// The answer to a question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

impl Decision {
    fn answer(&self) -> Answer {
        let answer = match (&self.text, &self.deny, &self.arguments) {
            (Some(text), ..) => Answer::text(text),
            (None, Some(why), _) => Answer::deny(why),
            (None, None, Some(arguments)) => Answer::approve_changed(arguments.clone()),
            (None, None, None) => Answer::approve(),
        };
        answer.digest(&self.digest)
    }

    /// Checks that the decision answers this request.
    fn check(&self, request: &ParkRequest) -> Result<(), String> {
        let given = [self.approve, self.deny.is_some(), self.text.is_some()];
        if given.iter().filter(|given| **given).count() != 1 {
            return Err("expected exactly one of `approve`, `deny` and `text`".to_owned());
        }
        if self.arguments.is_some() && !self.approve {
            return Err("`arguments` belong to `approve`".to_owned());
        }
        let digest = self.digest.to_ascii_lowercase();
        // A shorter prefix could fit another request than the one that the user has read.
        if digest.len() < 8 || !request.digest.starts_with(&digest) {
            return Err(format!(
                "the decision is for the request {:?}, but the run waits for {}",
                self.digest, request.digest
            ));
        }
        let wrong = match request.kind {
            RequestKind::Approval => self.text.is_some(),
            _ => self.approve,
        };
        if wrong {
            return Err(format!("the request is of the kind `{}`", request.kind.as_str()));
        }
        Ok(())
    }
}

/// The workflow of a run.
pub(crate) struct EndstopRun(pub(super) Arc<Shared>);

// A step may take as long as a model call or a tool, so the engine must not give up a silent worker:
// a worker that is gone closes its connection. A run that no worker can continue is killed in the end,
// and the ledger then gives it a typed ending.
#[restate_sdk::workflow(
    inactivity_timeout = "7 days",
    abort_timeout = "1 day",
    journal_retention = "3 days",
    workflow_completion_retention = "7 days",
    invocation_retry_policy(
        initial_interval = "100ms",
        max_interval = "60s",
        factor = 2.0,
        max_attempts = 120,
        on_max_attempts = "kill",
    )
)]
impl EndstopRun {
    /// Drives the run to its end.
    #[handler]
    async fn run(
        &self,
        ctx: WorkflowContext<'_>,
        request: Json<RunRequest>,
    ) -> HandlerResult<Json<RunReport>> {
        let Some(_running) = Shared::begin_run(&self.0) else {
            // The engine tries again, with another worker.
            return Err("this worker stops".into());
        };
        let id = ctx.key().to_owned();
        let request = request.into_inner();
        let watched =
            Watched { invocation: ctx.invocation_id().to_owned(), request: request.clone() };
        let Json(plan) = {
            let (shared, id, request) = (Arc::clone(&self.0), id.clone(), request.clone());
            let invocation = watched.invocation.clone();
            let prepare = move || async move {
                // Not by the engine's own client: the engine kills what a run has called with the run.
                let watch = format!("/EndstopLedger/{}/watch/send", encoded(&id));
                shared.client.post::<serde_json::Value>(&watch, &watched).await?;
                Ok(Json(admit(&shared, &id, &invocation, &request)?))
            };
            ctx.run(prepare).name("plan").await?
        };
        let (outcome, letters) = drive(Arc::clone(&self.0), &ctx, &id, request, plan).await?;
        // Nothing waits for a stop any more. A promise that has a value already keeps it.
        ctx.resolve_promise(STOP, Json(Signal::Over));
        ctx.resolve_promise(TERMINATE, Json(Signal::Over));
        close_letters!(ctx, letters + 1);
        Ok(Json(RunReport::of(&id, &outcome)))
    }

    /// Stops the run. A stop that comes twice, or after the end, does nothing.
    #[handler]
    async fn stop(&self, ctx: SharedWorkflowContext<'_>, stop: Json<Stop>) -> HandlerResult<()> {
        let stop = stop.into_inner();
        ctx.resolve_promise(STOP, Json(Signal::from(stop)));
        if stop == Stop::Terminate {
            ctx.resolve_promise(TERMINATE, Json(Signal::Terminate));
        }
        Ok(())
    }

    /// Waits for a stop. Workers call this. It is suspended while it waits, because the engine allows
    /// a bounded number of requests on a connection, and runs need them.
    #[handler(inactivity_timeout = "1s")]
    async fn stopped(
        &self,
        ctx: SharedWorkflowContext<'_>,
        promise: Json<String>,
    ) -> HandlerResult<Json<Signal>> {
        // No handler resolves a promise of another name, so the request would wait for ever.
        let name = if promise.into_inner() == TERMINATE { TERMINATE } else { STOP };
        Ok(ctx.promise::<Json<Signal>>(name).await?)
    }

    /// Sends the run a letter, and returns its number. A letter that was sent before keeps its number.
    #[handler]
    async fn steer(
        &self,
        ctx: SharedWorkflowContext<'_>,
        letter: Json<Letter>,
    ) -> HandlerResult<Json<u64>> {
        let refused = |code, problem: &str| TerminalError::new_with_code(code, problem);
        let Json(letter) = letter;
        if letter.id.is_empty() || letter.id.len() > 64 {
            return Err(refused(400, "invalid id: expected 1 to 64 bytes").into());
        }
        if matches!(&letter.content, Content::Say(text) if text.len() > MOST_TEXT) {
            return Err(refused(TOO_LARGE, "the message has more than 64 KiB").into());
        }
        for number in 1..=MOST_LETTERS {
            let promise = letter_promise(number);
            let mut known = ctx.peek_promise::<Json<Slot>>(&promise).await?;
            if known.is_none() {
                ctx.resolve_promise(&promise, Json(Slot::Letter(letter.clone())));
                // The first of two letters at the same time has the number.
                known = Some(ctx.promise::<Json<Slot>>(&promise).await?);
            }
            match known {
                Some(Json(Slot::Letter(known))) if known.id == letter.id => {
                    return Ok(Json(number));
                }
                Some(Json(Slot::Over)) => {
                    return Err(refused(CANCELLED, "the run has ended").into());
                }
                Some(Json(Slot::Letter(_))) | None => {}
            }
        }
        Err(refused(TOO_LARGE, "the run has got 256 messages and changes, the most it can get")
            .into())
    }

    /// Waits for a letter. Workers call this. It is suspended while it waits, as `stopped` is.
    #[handler(inactivity_timeout = "1s")]
    async fn letter(
        &self,
        ctx: SharedWorkflowContext<'_>,
        number: Json<u64>,
    ) -> HandlerResult<Json<Slot>> {
        let promise = letter_promise(number.into_inner());
        Ok(ctx.promise::<Json<Slot>>(&promise).await?)
    }

    /// Waits for the decision about a letter: nothing if the run has taken it.
    #[handler(inactivity_timeout = "1s")]
    async fn steered(
        &self,
        ctx: SharedWorkflowContext<'_>,
        number: Json<u64>,
    ) -> HandlerResult<Json<Option<Refusal>>> {
        let promise = steered(number.into_inner());
        Ok(ctx.promise::<Json<Option<Refusal>>>(&promise).await?)
    }

    /// Ends what waits for a stop or a letter of a run that was killed. The ledger calls this.
    #[handler]
    async fn close(&self, ctx: SharedWorkflowContext<'_>) -> HandlerResult<()> {
        ctx.resolve_promise(STOP, Json(Signal::Over));
        ctx.resolve_promise(TERMINATE, Json(Signal::Over));
        // From the first one, because only the killed workflow knew which of them it had decided.
        close_letters!(ctx, 1);
        Ok(())
    }

    /// Returns the request of a parked run, or nothing.
    #[handler]
    async fn parked(
        &self,
        ctx: SharedWorkflowContext<'_>,
    ) -> HandlerResult<Json<Option<ParkRequest>>> {
        let request = ctx.get::<Json<ParkRequest>>(PARKED).await?;
        Ok(Json(request.map(Json::into_inner)))
    }

    /// Decides the request of a parked run. The first decision counts.
    #[handler]
    async fn answer(
        &self,
        ctx: SharedWorkflowContext<'_>,
        decision: Json<Decision>,
    ) -> HandlerResult<()> {
        let refused = |problem: &str| TerminalError::new_with_code(CANCELLED, problem);
        let Some(Json(request)) = ctx.get::<Json<ParkRequest>>(PARKED).await? else {
            return Err(refused("the run waits for no decision").into());
        };
        let Json(decision) = decision;
        decision.check(&request).map_err(|problem| TerminalError::new_with_code(400, problem))?;
        let promise = promise_of(&request);
        if ctx.peek_promise::<Json<Decision>>(&promise).await?.is_some() {
            return Err(refused("the request was decided before").into());
        }
        ctx.resolve_promise(&promise, Json(decision.clone()));
        // Of two decisions at the same time the first counts, and the other client must learn it.
        let Json(counts) = ctx.promise::<Json<Decision>>(&promise).await?;
        if counts != decision {
            return Err(refused("the request was decided before").into());
        }
        Ok(())
    }
}

/// Returns the promise of the decision about a request.
fn promise_of(request: &ParkRequest) -> String {
    format!("decision-{}", request.digest)
}

/// Drives the run to its end, and returns its outcome as JSON, and the number of letters that it decided.
async fn drive(
    shared: Arc<Shared>,
    ctx: &WorkflowContext<'_>,
    id: &str,
    request: RunRequest,
    plan: Plan,
) -> HandlerResult<(String, u64)> {
    let Plan { mut limits, budget, refused, lost } = plan;
    if let Some(budget) = &budget {
        let reserve = Reserve { run: id.to_owned(), want: budget.want, ceiling: budget.ceiling };
        let granted = ctx.object_client::<EndstopBudgetClient<'_>>(budget.name.clone());
        let Json(granted) = granted.reserve(Json(reserve)).call().await?;
        limits.max_budget_usd = Some(granted.to_usd());
    }
    let mut driving = Driving::new(shared, id.to_owned(), request, limits);
    // A stop that came before the run started. Later ones come while an attempt waits for them, which
    // may be after its first call. Both, because a terminate may follow a cancel.
    for promise in [STOP, TERMINATE] {
        match ctx.peek_promise::<Json<Signal>>(promise).await {
            Ok(signal) => {
                if let Some(stop) = signal.and_then(|Json(signal)| signal.stop()) {
                    driving.stop(stop);
                }
            }
            Err(error) if error.code() == CANCELLED => driving.stop(Stop::Cancel),
            Err(error) => return Err(error.into()),
        }
    }
    let outcome = match refused {
        Some(why) if lost => driving.end_lost(why).await,
        Some(why) => driving.end(why).await,
        None => steps(ctx, &mut driving).await?,
    };
    if let Some(budget) = budget {
        // An unknown cost counts as the whole ceiling, so that the budget is never exceeded.
        let settle = Settle { run: id.to_owned(), spent: spent_of(&outcome) };
        ctx.object_client::<EndstopBudgetClient<'_>>(budget.name).settle(Json(settle)).send();
    }
    Ok((outcome, driving.letters()))
}

/// Performs the steps of the run.
async fn steps(ctx: &WorkflowContext<'_>, driving: &mut Driving) -> HandlerResult<String> {
    loop {
        let name = format!("step {}", driving.number());
        let next = &mut *driving;
        let step = ctx
            .run(move || async move { Ok(Json(next.next().await?)) })
            .name(name)
            .retry_policy(retries())
            .await;
        let journalled = match step {
            Ok(Json(journalled)) => journalled,
            // The engine does not have the step, but the attempt still has it, and returns it again.
            Err(error) if error.code() == CANCELLED => {
                driving.stop(Stop::Cancel);
                continue;
            }
            Err(error) => {
                let why = format!("a step could not be read or stored: {}", error.message());
                return Ok(driving.end(why).await);
            }
        };
        // If the store does not have a large step, the engine tries again: another worker may see it, and
        // a store that is gone for a while comes back. In the end the engine kills the run.
        let end = driving.take(journalled)?;
        for decided in driving.take_steered() {
            ctx.resolve_promise(&steered(decided.number), Json(decided.refused));
        }
        match end {
            None => {}
            Some(StepEnd::Ended { outcome }) => return Ok(outcome),
            Some(StepEnd::Refused { why }) => return Ok(driving.end(why).await),
            Some(StepEnd::Parked { request }) => wait(ctx, driving, &request).await?,
        }
    }
}

/// Returns the policy for a step whose result could not be stored.
fn retries() -> RunRetryPolicy {
    RunRetryPolicy::new()
        .initial_delay(Duration::from_millis(200))
        .exponentiation_factor(2.0)
        .max_delay(Duration::from_secs(20))
        .max_attempts(20)
}

/// Waits for the decision about the request of a parked run, for its expiry, or for a stop. No worker
/// is needed meanwhile.
async fn wait(
    ctx: &WorkflowContext<'_>,
    driving: &mut Driving,
    request: &ParkRequest,
) -> HandlerResult<()> {
    ctx.set(PARKED, Json(request.clone()));
    let promise = promise_of(request);
    let decided = ctx.promise::<Json<Decision>>(&promise);
    let stopped = ctx.promise::<Json<Signal>>(STOP);
    // A request that never expires waits for a century.
    // One second more, because the agent checks the expiry by its own clock and would park again.
    let expiry = request.expires_ms.map_or(Duration::from_secs(100 * 365 * 86_400), |expires_ms| {
        Duration::from_millis(expires_ms.saturating_sub(request.asked_ms).saturating_add(1_000))
    });
    restate_sdk::select! {
        decision = decided => driving.answer(Some(decision?.0.answer())),
        signal = stopped => {
            if let Some(stop) = signal?.0.stop() {
                driving.stop(stop);
            }
        },
        expired = ctx.sleep(expiry) => expired?,
        on_cancel => driving.stop(Stop::Cancel)
    };
    ctx.clear(PARKED);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(kind: RequestKind) -> ParkRequest {
        let request = json!({
            "id": 4, "kind": kind, "tool": "rm", "call_id": "c1", "subject": "{}",
            "digest": "0123456789abcdef", "asked_ms": 1,
        });
        serde_json::from_value(request).unwrap()
    }

    fn decide(kind: RequestKind, decision: Value) -> Result<Answer, String> {
        let mut decision = decision;
        decision["digest"] = json!("01234567");
        let decision: Decision = serde_json::from_value(decision).map_err(|e| e.to_string())?;
        decision.check(&request(kind)).map(|()| decision.answer())
    }

    #[test]
    fn arguments_belong_to_an_approval() {
        let arguments = json!({"path": "y"});
        let Value::Object(changed) = arguments.clone() else { panic!() };
        let decision = json!({"approve": true, "arguments": arguments});
        let answer = decide(RequestKind::Approval, decision.clone()).unwrap();
        assert_eq!(answer, Answer::approve_changed(changed).digest("01234567"));
        assert!(decide(RequestKind::Question, decision).is_err());
        let plain = decide(RequestKind::Approval, json!({"approve": true})).unwrap();
        assert_eq!(plain, Answer::approve().digest("01234567"));
        for wrong in [
            json!({"arguments": {}}),
            json!({"approve": false, "arguments": {}}),
            json!({"deny": "no", "arguments": {}}),
            json!({"text": "yes", "arguments": {}}),
            json!({"approve": true, "arguments": []}),
            json!({"approve": true, "arguments": "{}"}),
        ] {
            assert!(decide(RequestKind::Approval, wrong.clone()).is_err(), "{wrong}");
        }
    }
}
