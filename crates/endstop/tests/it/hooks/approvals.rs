//! Approvals by events: a reader of the events answers through the handle.

use super::{Asks, Ran, asks, pre_tool, results, sets};
use crate::support::eventually;
use endstop::agent::{AgentTool, AnswerError, Approval};
use endstop::event::{AgentEvent, AgentEventKind, RequestId};
use endstop::hook::{ConsultPoint, HookDecision};
use endstop::testkit::{ScriptedModel, Turn};
use endstop::tool::{ToolOutput, tool_fn};
use endstop::{Agent, Limits, Permission, RunHandle, Termination, ToolCall, ToolStatus};
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The fields of a request for approval.
struct Requested {
    request_id: RequestId,
    name: String,
    canonical: Box<str>,
    json: Value,
}

impl Requested {
    fn of(event: AgentEvent) -> Requested {
        let json = serde_json::to_value(&event).unwrap();
        let AgentEventKind::ApprovalRequested { request_id, name, canonical, .. } = event.kind
        else {
            panic!("another event: {json}")
        };
        Requested { request_id, name, canonical, json }
    }
}

/// Reads events until a request for approval.
async fn requested(run: &mut RunHandle) -> Requested {
    loop {
        match run.next().await {
            Some(event) => match &event.kind {
                AgentEventKind::ApprovalRequested { .. } => return Requested::of(event),
                AgentEventKind::Finished { outcome } => panic!("the run ended: {outcome:?}"),
                _ => {}
            },
            None => panic!("the events ended"),
        }
    }
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

#[tokio::test]
async fn allowed_call_runs() {
    let ran = Ran::default();
    let agent = asks(&ran).approval_events(true).build().unwrap();
    let mut run = agent.run("go").unwrap();
    let request = requested(&mut run).await;
    assert_eq!((request.name.as_str(), &*request.canonical), ("act", r#"{"n":1}"#));
    let json = &request.json;
    assert_eq!(json["type"], "approval_requested");
    assert_eq!(json["request_id"], request.request_id.0);
    assert!(ran.lock().unwrap().is_empty(), "it waits");
    run.answer(request.request_id, Approval::Allow).unwrap();
    let outcome = run.await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    assert_eq!(*ran.lock().unwrap(), [json!({"n": 1})]);
}

#[tokio::test]
async fn denied_call_does_not_run() {
    let ran = Ran::default();
    let agent = asks(&ran).approval_events(true).build().unwrap();
    let mut run = agent.run("go").unwrap();
    let request = requested(&mut run).await;
    run.answer(request.request_id, Approval::Deny("not today".to_owned())).unwrap();
    let outcome = run.await;
    assert_eq!(results(&outcome)[0].content, "denied: not today");
    assert_eq!(results(&outcome)[0].status, ToolStatus::Denied);
    assert!(ran.lock().unwrap().is_empty());
}

#[tokio::test]
async fn changed_arguments_run() {
    let ran = Ran::default();
    let agent = asks(&ran).approval_events(true).build().unwrap();
    let mut run = agent.run("go").unwrap();
    let request = requested(&mut run).await;
    let changed = Approval::AllowChanged(object(json!({"n": 5})));
    run.answer(request.request_id, changed).unwrap();
    run.await;
    assert_eq!(*ran.lock().unwrap(), [json!({"n": 5})]);
}

#[tokio::test]
async fn request_shows_call_as_hook_changed_it() {
    let ran = Ran::default();
    let builder =
        asks(&ran).approval_events(true).hook(sets(&json!({"b": 1, "a": {"d": 2, "c": 3}})));
    let mut run = builder.build().unwrap().run("go").unwrap();
    let request = requested(&mut run).await;
    assert_eq!(&*request.canonical, r#"{"a":{"c":3,"d":2},"b":1}"#);
    run.answer(request.request_id, Approval::Allow).unwrap();
    run.await;
    assert_eq!(*ran.lock().unwrap(), [json!({"b": 1, "a": {"d": 2, "c": 3}})]);
}

#[tokio::test]
async fn wrong_answers_are_typed_errors() {
    let ran = Ran::default();
    let agent = asks(&ran).approval_events(true).build().unwrap();
    let mut run = agent.run("go").unwrap();
    let id = requested(&mut run).await.request_id;
    let unknown = RequestId(id.0 + 1000);
    assert_eq!(run.answer(unknown, Approval::Allow), Err(AnswerError::Unknown(unknown)));
    run.answer(id, Approval::Deny("no".to_owned())).unwrap();
    // The first answer counts.
    assert_eq!(run.answer(id, Approval::Allow), Err(AnswerError::AlreadyAnswered(id)));
    let approvals = run.approvals();
    run.await;
    assert_eq!(approvals.answer(id, Approval::Allow), Err(AnswerError::AlreadyAnswered(id)));
    assert!(ran.lock().unwrap().is_empty());
}

#[tokio::test]
async fn stopped_run_closes_its_requests() {
    for terminate in [false, true] {
        let ran = Ran::default();
        let agent = asks(&ran).approval_events(true).build().unwrap();
        let mut run = agent.run("go").unwrap();
        let id = requested(&mut run).await.request_id;
        let approvals = run.approvals();
        if terminate {
            run.terminate()
        } else {
            run.cancel()
        }
        assert_eq!(approvals.answer(id, Approval::Allow), Err(AnswerError::Closed(id)));
        let outcome = run.await;
        assert!(ran.lock().unwrap().is_empty(), "a call started after the stop");
        assert_eq!(results(&outcome)[0].status, ToolStatus::Aborted);
        assert!(!results(&outcome)[0].started);
    }
}

#[tokio::test(start_paused = true)]
async fn unanswered_request_ends_with_run() {
    let ran = Ran::default();
    let limits = Limits { timeout: Some(Duration::from_secs(60)), ..Limits::default() };
    let agent = asks(&ran).approval_events(true).limits(limits).build().unwrap();
    let mut run = agent.run("go").unwrap();
    let id = requested(&mut run).await.request_id;
    let approvals = run.approvals();
    let outcome = run.await;
    assert_eq!(outcome.termination, Termination::ErrorTimeout, "{outcome:?}");
    assert!(ran.lock().unwrap().is_empty(), "not approved");
    assert_eq!(approvals.answer(id, Approval::Allow), Err(AnswerError::Closed(id)));
}

#[tokio::test]
async fn first_of_approver_and_reader_counts() {
    let approver = || {
        let denies = |_: ConsultPoint| HookDecision::Deny("by the approver".to_owned());
        Asks(pre_tool(), denies)
    };
    let ran = Ran::default();
    let agent = asks(&ran).approval_events(true).approver(approver()).build().unwrap();
    let mut run = agent.run("go").unwrap();
    let id = requested(&mut run).await.request_id;
    let approvals = run.approvals();
    let outcome = run.await;
    assert_eq!(results(&outcome)[0].content, "denied: by the approver");
    assert_eq!(approvals.answer(id, Approval::Allow), Err(AnswerError::AlreadyAnswered(id)));
}

/// An approver that never answers.
struct Silent;

impl endstop::hook::Approver for Silent {
    fn approve(&self, _: ToolCall) -> endstop::hook::HookFuture<'_> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn reader_answers_before_silent_approver() {
    let ran = Ran::default();
    let agent = asks(&ran).approval_events(true).approver(Silent).build().unwrap();
    let mut run = agent.run("go").unwrap();
    let id = requested(&mut run).await.request_id;
    run.answer(id, Approval::Allow).unwrap();
    assert_eq!(run.await.termination, Termination::Stop);
    assert_eq!(ran.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn without_switch_an_approver_is_required() {
    let Err(problem) = asks(&Ran::default()).build() else {
        panic!("an agent without any approval")
    };
    assert!(problem.to_string().contains("approval_events"), "{problem}");
    // With an approver alone there is no event.
    let builder = asks(&Ran::default()).approver(sets(&json!({"n": 4})));
    let mut run = builder.build().unwrap().run("go").unwrap();
    while let Some(event) = run.next().await {
        assert!(!matches!(event.kind, AgentEventKind::ApprovalRequested { .. }), "{event:?}");
    }
}

#[tokio::test]
async fn inner_run_without_approver_is_denied() {
    let ran = Ran::default();
    let inner = {
        let ran = Arc::clone(&ran);
        AgentTool::new("ask", "Asks.", asks(&ran).approval_events(true).build().unwrap())
    };
    let turns = [Turn::call("ask", &json!({"task": "it"})), Turn::text("so")];
    let agent = Agent::builder(ScriptedModel::new(turns)).tool(inner).build().unwrap();
    let outcome = agent.run("go").unwrap().await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    assert!(ran.lock().unwrap().is_empty());
}

#[tokio::test]
async fn waiting_call_does_not_hold_others() {
    let (ran, done) = (Ran::default(), Arc::new(AtomicBool::new(false)));
    let free = {
        let done = Arc::clone(&done);
        tool_fn("free", "Needs no approval.", move |_: Value, _| {
            done.store(true, Ordering::SeqCst);
            async { ToolOutput::ok("free") }
        })
        .parallel_safe()
    };
    let guarded = {
        let ran = Arc::clone(&ran);
        tool_fn("guarded", "Needs approval.", move |arguments: Value, _| {
            ran.lock().unwrap().push(arguments);
            async { ToolOutput::ok("guarded") }
        })
        .parallel_safe()
    };
    let turn = Turn::call("guarded", &json!({})).and_call("free", &json!({}));
    let agent = Agent::builder(ScriptedModel::new([turn, Turn::text("fine")]))
        .tool(guarded)
        .tool(free)
        .permission("guarded", Permission::Ask)
        .approval_events(true)
        .build()
        .unwrap();
    let mut run = agent.run("go").unwrap();
    let id = requested(&mut run).await.request_id;
    // The answer comes only after the other call has run.
    eventually("the call that needs no approval", || done.load(Ordering::SeqCst)).await;
    assert!(ran.lock().unwrap().is_empty());
    run.answer(id, Approval::Allow).unwrap();
    let outcome = run.await;
    let contents: Vec<&str> = results(&outcome).iter().map(|r| r.content.as_str()).collect();
    assert_eq!(contents, ["guarded", "free"]);
}

#[test]
fn approvals_have_a_json_form() {
    let read = |text: &str| serde_json::from_str::<Approval>(text).unwrap();
    assert_eq!(read(r#""allow""#), Approval::Allow);
    assert_eq!(read(r#"{"deny":"no"}"#), Approval::Deny("no".to_owned()));
    let changed = Approval::AllowChanged(object(json!({"n": 1})));
    assert_eq!(read(r#"{"allow_changed":{"n":1}}"#), changed);
}

#[tokio::test]
async fn name_in_approvers_change_is_refused() {
    let ran = Ran::default();
    let renames = Asks(pre_tool(), |point| match point {
        ConsultPoint::Approval { call } => {
            HookDecision::ChangeCall(ToolCall { name: "other".to_owned(), ..call })
        }
        _ => HookDecision::Proceed,
    });
    let other = tool_fn("other", "Another.", |_: Value, _| async { ToolOutput::ok("other") });
    let outcome =
        asks(&ran).tool(other).approver(renames).build().unwrap().run("go").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution, "{outcome:?}");
    assert_eq!(outcome.decided_by.decision.as_str(), "approval");
    assert!(ran.lock().unwrap().is_empty());
}

/// An approver that allows the call, just after a reader has denied it.
#[derive(Clone, Default)]
struct Overtaken(Arc<Mutex<Option<(endstop::agent::Approvals, RequestId)>>>);

impl endstop::hook::Approver for Overtaken {
    fn approve(&self, _: ToolCall) -> endstop::hook::HookFuture<'_> {
        Box::pin(async move {
            eventually("the request was read", || self.0.lock().unwrap().is_some()).await;
            let (approvals, id) = self.0.lock().unwrap().take().unwrap();
            approvals.answer(id, Approval::Deny("by the reader".to_owned())).unwrap();
            HookDecision::Proceed
        })
    }
}

#[tokio::test]
async fn accepted_answer_is_never_overruled() {
    let (ran, approver) = (Ran::default(), Overtaken::default());
    let agent = asks(&ran).approval_events(true).approver(approver.clone()).build().unwrap();
    let mut run = agent.run("go").unwrap();
    let id = requested(&mut run).await.request_id;
    *approver.0.lock().unwrap() = Some((run.approvals(), id));
    let outcome = run.await;
    assert_eq!(results(&outcome)[0].content, "denied: by the reader");
    assert!(ran.lock().unwrap().is_empty(), "an accepted denial was ignored");
}

#[expect(clippy::disallowed_methods, reason = "no run has these tasks")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_concurrent_answers_wins() {
    for _ in 0..20 {
        let ran = Ran::default();
        let agent = asks(&ran).approval_events(true).build().unwrap();
        let mut run = agent.run("go").unwrap();
        let id = requested(&mut run).await.request_id;
        let answers = (0..8).map(|n| {
            let approvals = run.approvals();
            let changed = Approval::AllowChanged(object(json!({ "n": n })));
            tokio::spawn(async move { (n, approvals.answer(id, changed)) })
        });
        let mut won = Vec::new();
        for answer in answers.collect::<Vec<_>>() {
            match answer.await.unwrap() {
                (n, Ok(())) => won.push(json!({ "n": n })),
                (_, lost) => assert_eq!(lost, Err(AnswerError::AlreadyAnswered(id))),
            }
        }
        run.await;
        assert_eq!((won.len(), &won), (1, &*ran.lock().unwrap()));
    }
}

#[tokio::test]
async fn closed_request_stays_closed() {
    let ran = Ran::default();
    let agent = asks(&ran).approval_events(true).build().unwrap();
    let mut run = agent.run("go").unwrap();
    let id = requested(&mut run).await.request_id;
    let approvals = run.approvals();
    run.cancel();
    for _ in 0..2 {
        assert_eq!(approvals.answer(id, Approval::Allow), Err(AnswerError::Closed(id)));
    }
    run.await;
    assert_eq!(approvals.answer(id, Approval::Allow), Err(AnswerError::Closed(id)));
}

#[tokio::test]
async fn typed_run_can_be_answered() {
    let ran = Ran::default();
    let turns = [Turn::call("act", &json!({"n": 1})), Turn::text(r#"{"value": 7}"#)];
    let tool = super::act(&ran);
    let agent = Agent::builder(ScriptedModel::new(turns))
        .tool(tool)
        .permission("act", Permission::Ask)
        .approval_events(true)
        .build()
        .unwrap();
    let mut run = agent.run_typed::<u8>("go").unwrap();
    let id = loop {
        let event = run.next().await.unwrap();
        match event.kind {
            AgentEventKind::ApprovalRequested { request_id, .. } => {
                assert_eq!(event.origin.run_id(), run.run_id());
                break request_id;
            }
            AgentEventKind::Finished { outcome, .. } => panic!("the run ended: {outcome:?}"),
            _ => {}
        }
    };
    run.answer(id, Approval::Allow).unwrap();
    assert_eq!(run.approvals().answer(id, Approval::Allow), Err(AnswerError::AlreadyAnswered(id)));
    assert_eq!(run.await.into_result().unwrap(), 7);
    assert_eq!(ran.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn request_of_one_run_does_not_answer_another() {
    let (first, second) = (Ran::default(), Ran::default());
    let start = |ran: &Ran| asks(ran).approval_events(true).build().unwrap().run("go").unwrap();
    let (mut one, mut other) = (start(&first), start(&second));
    let id = requested(&mut one).await.request_id;
    requested(&mut other).await;
    // A service that mixes its handles up must not approve another user's call.
    assert_eq!(other.answer(id, Approval::Allow), Err(AnswerError::Unknown(id)));
    assert!(id.0 < 1 << 53, "JavaScript would round {id}");
}
